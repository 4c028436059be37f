// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* To be preloaded: sockets on RoCE's UDP port lose a tenth of what arrives. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	PORT = 4791
};

static struct sock_filter code[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_RANDOM)),
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, UINT32_MAX / 10, 1, 0),
	BPF_STMT(BPF_RET | BPF_K, 0),
	BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
};

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	static const struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };
	int (*next)(int, const struct sockaddr *, socklen_t);

	*(void **)&next = dlsym(RTLD_NEXT, "bind");
	/* the port is at the same place in both families */
	if ((addr->sa_family == AF_INET || addr->sa_family == AF_INET6) &&
	    ((const struct sockaddr_in *)addr)->sin_port == htons(PORT))
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog));
	return next(fd, addr, len);
}
