/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Unix stream sockets by path. */
#ifndef EA_PCI_UNIX_SOCKET_H
#define EA_PCI_UNIX_SOCKET_H

/*
 * A non-blocking socket that listens on @path.  A socket file whose process has gone is replaced.
 * -1 with errno: EADDRINUSE (somebody listens there), ENAMETOOLONG, and what the system says.
 */
int pci_unix_listen(const char *path);

/* A non-blocking socket that is connected to @path, or -1 with errno. */
int pci_unix_connect(const char *path);

#endif
