// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "tests/link/rig.h"

enum {
	PDN = 3,
	CQN = 2,
	BUDGET = 1 << 20,
	WAIT_SECONDS = 30,
	BLOCK = EA_ENTRY_SIZE,
};

static void must(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "rig: %s: %s\n", what, strerror(err));
	abort();
}

static bool inside(uint64_t addr, size_t *len, uint64_t start, uint64_t size)
{
	if (addr - start >= size)
		return false;
	if (*len > size - (addr - start))
		*len = size - (addr - start);
	return true;
}

static void *map(void *ctx, uint64_t addr, size_t *len, bool write)
{
	const struct rig *rig = ctx;

	(void)write;
	if (inside(addr, len, rig->bus, rig->mem_len))
		return rig->mem + (addr - rig->bus);
	if (inside(addr, len, (uintptr_t)rig->sq, (size_t)BLOCK << RIG_SQ_SHIFT) ||
	    inside(addr, len, (uintptr_t)rig->rq, (size_t)BLOCK << RIG_RQ_SHIFT) ||
	    inside(addr, len, (uintptr_t)rig->cq, (size_t)BLOCK << RIG_CQ_SHIFT))
		return (void *)(uintptr_t)addr;
	return NULL;
}

static void comp_event(void *ctx, uint32_t cqn, uint32_t eqn, uint32_t pi)
{
	(void)ctx;
	(void)cqn;
	(void)eqn;
	(void)pi;
}

static void async_event(void *ctx, enum ea_async_event event, uint32_t number)
{
	struct rig *rig = ctx;

	(void)number;
	rig->events++;
	rig->last_event = event;
}

static void notify(struct ea_link *link, void *ctx)
{
	struct rig *rig = ctx;

	(void)link;
	rig->notified++;
}

static const struct ea_dma_ops dma_ops = { .map = map };
static const struct ea_host_ops host_ops = { .comp_event = comp_event, .async_event = async_event };

static void *zeroed(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p == MAP_FAILED ? errno : 0, "mmap");
	return p;
}

static struct ea_pages flat(uint64_t addr)
{
	return (struct ea_pages){ .form = EA_PAGES_FLAT, .addr = { addr } };
}

static void reg_mr(struct rig *rig, size_t len, uint32_t stag, uint32_t access)
{
	struct ea_mr_attr mr = {
		.stag = stag,
		.pdn = PDN,
		.access = access,
		.type = EA_MR_NORMAL,
		.start = rig->bus,
		.len = len,
		.pages = flat(rig->bus),
	};

	must(ea_mr_reg(rig->dev, &mr), "ea_mr_reg");
}

void rig_open(struct rig *rig, int fd, size_t mem_len, const struct rig_options *options)
{
	static const struct rig_options defaults;
	struct ea_dev_attr dev_attr = {
		.max_qp = 16,
		.max_cq = 16,
		.max_mr = 0x2000,
		.max_cqe_shift = RIG_CQ_SHIFT,
		.max_rq_shift = RIG_RQ_SHIFT,
	};
	struct ea_cq_attr cq_attr = { .cqn = CQN, .depth_shift = RIG_CQ_SHIFT };
	struct ea_qp_attr qp_attr = {
		.qpn = RIG_QPN,
		.pdn = PDN,
		.scqn = CQN,
		.rcqn = CQN,
		.sq_shift = RIG_SQ_SHIFT,
		.rq_shift = RIG_RQ_SHIFT,
	};

	size_t mr_len;

	if (!options)
		options = &defaults;
	mr_len = options->mr_len ? options->mr_len : mem_len;
	memset(rig, 0, sizeof(*rig));
	rig->mem = zeroed(mem_len);
	rig->bus = options->bus ? options->bus : (uintptr_t)rig->mem;
	rig->mem_len = mem_len;
	rig->sq = zeroed((size_t)BLOCK << RIG_SQ_SHIFT);
	rig->rq = zeroed((size_t)BLOCK << RIG_RQ_SHIFT);
	rig->cq = zeroed((size_t)BLOCK << RIG_CQ_SHIFT);
	rig->dev = ea_dev_create(&dev_attr, &dma_ops, &host_ops, rig);
	must(rig->dev ? 0 : errno, "ea_dev_create");
	reg_mr(rig, mr_len, RIG_STAG,
	       EA_ACCESS_REMOTE_ATOMIC | EA_ACCESS_LOCAL_READ | EA_ACCESS_LOCAL_WRITE |
		       EA_ACCESS_REMOTE_READ | EA_ACCESS_REMOTE_WRITE);
	reg_mr(rig, mr_len, RIG_STAG_RO, EA_ACCESS_LOCAL_READ | EA_ACCESS_REMOTE_READ);
	cq_attr.pages = flat((uintptr_t)rig->cq);
	must(ea_cq_create(rig->dev, &cq_attr), "ea_cq_create");
	qp_attr.sq = flat((uintptr_t)rig->sq);
	qp_attr.rq = flat((uintptr_t)rig->rq);
	must(ea_qp_create(rig->dev, &qp_attr), "ea_qp_create");
	rig_connect(rig, fd, options);
}

void rig_connect(struct rig *rig, int fd, const struct rig_options *options)
{
	struct ea_conn_attr conn = { .ord = 16, .ird = 16 };
	struct ea_tcp_attr tcp = {
		.fd = fd,
		.crc = options->crc,
		.align = options->align,
		.mulpdu = options->mulpdu,
		.rx_data = options->rx_data,
		.rx_len = options->rx_len,
		.notify = notify,
		.ctx = rig,
	};
	socklen_t mss_len = sizeof(int);
	int mss;

	rig->fd = fd;
	rig->tcp = !getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &mss_len);
	rig->link = ea_tcp_create(&tcp);
	must(rig->link ? 0 : errno, "ea_tcp_create");
	if (options->ord)
		conn.ord = options->ord;
	if (options->ird)
		conn.ird = options->ird;
	must(ea_qp_connect(rig->dev, RIG_QPN, rig->link, &conn), "ea_qp_connect");
}

void rig_disconnect(struct rig *rig)
{
	if (rig->link)
		ea_tcp_destroy(rig->link, false);
	rig->link = NULL;
	if (rig->fd >= 0)
		close(rig->fd);
	rig->fd = -1;
	if (ea_qp_find(rig->dev, RIG_QPN))
		must(ea_qp_reset(rig->dev, RIG_QPN), "ea_qp_reset");
	rig->sq_pi = 0;
	rig->rq_pi = 0;
}

void rig_close(struct rig *rig)
{
	rig_disconnect(rig);
	ea_dev_destroy(rig->dev);
	munmap(rig->mem, rig->mem_len);
	munmap(rig->sq, (size_t)BLOCK << RIG_SQ_SHIFT);
	munmap(rig->rq, (size_t)BLOCK << RIG_RQ_SHIFT);
	munmap(rig->cq, (size_t)BLOCK << RIG_CQ_SHIFT);
}

void rig_sockets(int fds[2], bool tcp)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	int listener, i;

	if (!tcp) {
		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) ? errno : 0,
		     "socketpair");
		return;
	}
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	must(bind(listener, (struct sockaddr *)&addr, len) ? errno : 0, "bind");
	must(listen(listener, 1) ? errno : 0, "listen");
	must(getsockname(listener, (struct sockaddr *)&addr, &len) ? errno : 0, "getsockname");
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(fds[0], (struct sockaddr *)&addr, len) ? errno : 0, "connect");
	fds[1] = accept(listener, NULL, NULL);
	must(fds[1] < 0 ? errno : 0, "accept");
	close(listener);
	for (i = 0; i < 2; i++)
		must(fcntl(fds[i], F_SETFL, O_NONBLOCK) ? errno : 0, "fcntl");
}

/* ------------------------------------------------------------------ posting */

static void put32(uint8_t *p, uint32_t v)
{
	__le32 le = htole32(v);

	memcpy(p, &le, sizeof(le));
}

static void put64(uint8_t *p, uint64_t v)
{
	__le64 le = htole64(v);

	memcpy(p, &le, sizeof(le));
}

struct wqe {
	uint8_t b[EA_WQE_BLOCKS_MAX * BLOCK];
	uint32_t len;
	uint64_t header;
};

static void put_sge(struct wqe *wqe, uint32_t at, uint64_t addr, uint32_t len)
{
	put64(wqe->b + at, addr);
	put32(wqe->b + at + 8, len);
	put32(wqe->b + at + 12, RIG_STAG);
	wqe->len = at + EA_SGE_SIZE;
	wqe->header += EA_PREP(EA_SQ_SGL_LEN, 1);
}

static void post(struct rig *rig, struct wqe *wqe, enum ea_hw_op op, unsigned int flags)
{
	uint32_t blocks = (wqe->len + BLOCK - 1) / BLOCK;
	uint32_t i, mask = (1 << RIG_SQ_SHIFT) - 1;

	wqe->header |= EA_PREP(EA_SQ_OPCODE, op) | EA_PREP(EA_SQ_QPN, RIG_QPN) |
		       EA_PREP(EA_SQ_BLOCKS, blocks - 1);
	if (flags & RIG_SIGNAL)
		wqe->header |= EA_SQ_CE;
	if (flags & RIG_FENCE)
		wqe->header |= EA_SQ_FENCE;
	if (flags & RIG_SOLICITED)
		wqe->header |= EA_SQ_SE;
	wqe->header |= (uint16_t)(rig->sq_pi + blocks);
	put64(wqe->b, wqe->header);
	for (i = 0; i < blocks; i++)
		memcpy(rig->sq + (size_t)((rig->sq_pi + i) & mask) * BLOCK, wqe->b + i * BLOCK,
		       BLOCK);
	rig->sq_pi += blocks;
	ea_db_sq(rig->dev, EA_PREP(EA_SQDB_QPN, RIG_QPN) | rig->sq_pi);
}

static uint64_t at(const struct rig *rig, size_t off)
{
	return rig->bus + off;
}

static void post_send(struct rig *rig, size_t off, uint32_t len, enum ea_hw_op op, uint32_t imm,
		      unsigned int flags)
{
	struct wqe wqe = { .len = EA_SEND_HDR };

	put32(wqe.b + EA_WQE_IMM, imm);
	put32(wqe.b + EA_WQE_LENGTH, len);
	if (len)
		put_sge(&wqe, EA_SEND_HDR, at(rig, off), len);
	post(rig, &wqe, op, flags);
}

void rig_post_send(struct rig *rig, size_t off, uint32_t len, unsigned int flags)
{
	post_send(rig, off, len, EA_OP_SEND, 0, flags);
}

void rig_post_send_imm(struct rig *rig, size_t off, uint32_t len, uint32_t imm, unsigned int flags)
{
	post_send(rig, off, len, EA_OP_SEND_IMM, imm, flags);
}

void rig_post_send_sgl(struct rig *rig, size_t off, uint32_t each, uint32_t n, size_t stride)
{
	struct wqe wqe = { .len = EA_SEND_HDR };
	uint32_t i;

	put32(wqe.b + EA_WQE_LENGTH, each * n);
	for (i = 0; i < n; i++)
		put_sge(&wqe, EA_SEND_HDR + i * EA_SGE_SIZE, at(rig, off + i * stride), each);
	post(rig, &wqe, EA_OP_SEND, RIG_SIGNAL);
}

static void post_write(struct rig *rig, size_t off, uint32_t len, uint32_t rkey, uint64_t raddr,
		       enum ea_hw_op op, uint32_t imm, unsigned int flags)
{
	struct wqe wqe = { .len = EA_WRITE_HDR };

	put32(wqe.b + EA_WQE_IMM, imm);
	put32(wqe.b + EA_WQE_LENGTH, len);
	put32(wqe.b + EA_WRITE_RKEY, rkey);
	put64(wqe.b + EA_WRITE_RADDR, raddr);
	if (len)
		put_sge(&wqe, EA_WRITE_HDR, at(rig, off), len);
	post(rig, &wqe, op, flags);
}

void rig_post_write(struct rig *rig, size_t off, uint32_t len, uint32_t rkey, uint64_t raddr,
		    unsigned int flags)
{
	post_write(rig, off, len, rkey, raddr, EA_OP_WRITE, 0, flags);
}

void rig_post_write_imm(struct rig *rig, size_t off, uint32_t len, uint32_t rkey, uint64_t raddr,
			uint32_t imm, unsigned int flags)
{
	post_write(rig, off, len, rkey, raddr, EA_OP_WRITE_IMM, imm, flags);
}

void rig_post_read(struct rig *rig, size_t off, uint32_t len, uint32_t rkey, uint64_t raddr)
{
	struct wqe wqe = { .len = EA_READ_SIZE };

	put32(wqe.b + EA_WQE_LENGTH, len);
	put32(wqe.b + EA_READ_LKEY, RIG_STAG);
	put64(wqe.b + EA_READ_LADDR, at(rig, off));
	put64(wqe.b + EA_READ_RADDR, raddr);
	put32(wqe.b + EA_READ_RKEY, rkey);
	wqe.header = EA_PREP(EA_SQ_SGL_LEN, 1);
	post(rig, &wqe, EA_OP_READ, RIG_SIGNAL);
}

void rig_post_cas(struct rig *rig, size_t off, uint32_t rkey, uint64_t raddr, uint64_t compare,
		  uint64_t swap)
{
	struct wqe wqe = { .len = EA_ATOMIC_SIZE };

	put64(wqe.b + EA_ATOMIC_SWAP_ADD, swap);
	put64(wqe.b + EA_ATOMIC_COMPARE, compare);
	put64(wqe.b + EA_ATOMIC_RADDR, raddr);
	put32(wqe.b + EA_ATOMIC_RKEY, rkey);
	put64(wqe.b + EA_ATOMIC_LADDR, at(rig, off));
	put32(wqe.b + EA_ATOMIC_LLEN, 8);
	put32(wqe.b + EA_ATOMIC_LKEY, RIG_STAG);
	wqe.header = EA_PREP(EA_SQ_SGL_LEN, 1);
	post(rig, &wqe, EA_OP_CAS, RIG_SIGNAL);
}

void rig_post_recv(struct rig *rig, size_t off, uint32_t len)
{
	uint8_t *rqe = rig->rq + (size_t)(rig->rq_pi & ((1 << RIG_RQ_SHIFT) - 1)) * BLOCK;
	__le16 index = htole16(rig->rq_pi + 1);

	memcpy(rqe + EA_RQE_INDEX, &index, sizeof(index));
	put32(rqe + EA_RQE_QPN, RIG_QPN);
	put64(rqe + EA_RQE_ADDR, at(rig, off));
	put32(rqe + EA_RQE_LENGTH, len);
	put32(rqe + EA_RQE_LKEY, RIG_STAG);
	rig->rq_pi++;
	ea_db_rq(rig->dev, EA_PREP(EA_RQDB_QPN, RIG_QPN) | rig->rq_pi);
}

bool rig_poll(struct rig *rig, struct rig_wc *wc)
{
	uint32_t mask = (1 << RIG_CQ_SHIFT) - 1;
	const struct ea_hw_cqe *cqe;
	uint32_t header;

	cqe = (const struct ea_hw_cqe *)(rig->cq + (size_t)(rig->cq_ci & mask) * BLOCK);
	header = be32toh(cqe->header);
	if (!(header & EA_CQE_OWNER) == !(rig->cq_ci & (mask + 1)))
		return false;
	wc->opcode = EA_FIELD(EA_CQE_OPCODE, header);
	wc->qtype = EA_FIELD(EA_CQE_QTYPE, header);
	wc->syndrome = EA_FIELD(EA_CQE_SYNDROME, header);
	wc->index = be32toh(cqe->index);
	wc->size = be32toh(cqe->size);
	wc->extra = cqe->extra;
	rig->cq_ci++;
	return true;
}

/* ------------------------------------------------------------------ progress */

static bool busy(struct rig *rig)
{
	struct ea_tcp_stats before, after;
	unsigned int wait;

	if (!rig || !rig->link)
		return false;
	ea_tcp_stats(rig->link, &before);
	wait = ea_tcp_progress(rig->link, BUDGET, BUDGET);
	ea_tcp_stats(rig->link, &after);
	return wait & EA_TCP_MORE || before.rx_bytes != after.rx_bytes ||
	       before.tx_bytes != after.tx_bytes;
}

/* TCP moves bytes on its own time, so quiet counts only when it lasts. */
static void settle(struct rig *a, struct rig *b)
{
	struct pollfd fds[2] = { { .fd = a->fd, .events = POLLIN },
				 { .fd = -1, .events = POLLIN } };

	if (b)
		fds[1].fd = b->fd;
	poll(fds, 2, a->tcp ? 1 : 0);
}

void rig_pump(struct rig *a, struct rig *b)
{
	int quiet = 0;
	bool moved;

	while (quiet < 3) {
		moved = busy(a);
		moved |= busy(b);
		quiet = moved ? 0 : quiet + 1;
		if (!moved)
			settle(a, b);
	}
}

bool rig_wait(struct rig *a, struct rig *b, struct rig *waits, struct rig_wc *wc)
{
	time_t end = time(NULL) + WAIT_SECONDS;
	bool moved;

	while (!rig_poll(waits, wc)) {
		moved = busy(a);
		moved |= busy(b);
		if (!moved && time(NULL) > end)
			return false;
	}
	return true;
}

static uint8_t pattern(size_t i, uint32_t seed)
{
	return (i * 2654435761u + seed) >> 16 ^ i;
}

void rig_fill(struct rig *rig, size_t off, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		rig->mem[off + i] = pattern(i, seed);
}

bool rig_same(const struct rig *rig, size_t off, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (rig->mem[off + i] != pattern(i, seed))
			return false;
	return true;
}
