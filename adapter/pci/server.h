/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The unix socket of a function: clients come one after the other.
 */
#ifndef EA_PCI_SERVER_H
#define EA_PCI_SERVER_H

struct pci_func;
struct pci_server;

/*
 * Listen on @path for clients of @func; a socket that nobody serves any more is replaced.  A
 * second client at the same time is refused by closing its connection.  NULL with errno
 * (EADDRINUSE: another process serves it; ENAMETOOLONG).
 */
struct pci_server *pci_server_create(struct pci_func *func, const char *path);

/* Ends the client's connection, too, and removes the socket. */
void pci_server_destroy(struct pci_server *server);

#endif
