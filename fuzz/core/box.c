// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/core/box.h"
#include "tests/core/carry.h"

enum {
	SECRET = 0xc7,
	FIRST_REGION_PAGE = 8,
	REGION_END_PAGE = BOX_LIST_PAGE,
	LAST_LIST_PAGE = BOX_LIST_PAGE + 2,
};

#define CHECK(what)                                                                \
	do {                                                                       \
		if (!(what)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			abort();                                                   \
		}                                                                  \
	} while (0)

/* Host pages in reverse order, so that a run over a page's end lands in the wrong place. */
static uint32_t host_page(const struct box *box, uint32_t page)
{
	return box->scattered ? BOX_PAGES - 1 - page : page;
}

static bool is_secret(uint32_t page)
{
	return page == FIRST_REGION_PAGE - 1 || page > LAST_LIST_PAGE;
}

static void *map(void *ctx, uint64_t addr, size_t *len, bool write)
{
	struct box *box = ctx;
	uint64_t off = addr - BOX_BUS;
	uint32_t page = off / BOX_PAGE;

	(void)write;
	if (addr < BOX_BUS || off >= BOX_SIZE || (box->unmapped && page == box->unmapped))
		return NULL;
	if (box->scattered) {
		if (*len > BOX_PAGE - off % BOX_PAGE)
			*len = BOX_PAGE - off % BOX_PAGE;
	} else if (*len > BOX_SIZE - off) {
		*len = BOX_SIZE - off;
	}
	return box->mem + (size_t)host_page(box, page) * BOX_PAGE + off % BOX_PAGE;
}

static void comp_event(void *ctx, uint32_t cqn, uint32_t eqn, uint32_t pi)
{
	(void)ctx;
	(void)pi;
	CHECK(cqn >= 1 && cqn <= 2 && eqn == cqn);
}

static void async_event(void *ctx, enum ea_async_event event, uint32_t number)
{
	(void)ctx;
	CHECK(event <= EA_ASYNC_CQ_ERR);
	CHECK(number >= 1 && number <= 2);
}

static struct box_side *side_of(struct ea_link *link)
{
	return (struct box_side *)link;
}

static void tx_ready(struct ea_link *link)
{
	CHECK(link->qp);
	side_of(link)->ready = true;
}

static void rx_resume(struct ea_link *link)
{
	CHECK(link->qp);
	side_of(link)->resumed = true;
}

static void shutdown(struct ea_link *link, enum ea_shutdown how)
{
	CHECK(how != EA_SHUT_ABORT || !link->qp);
	side_of(link)->shut = true;
	side_of(link)->how = how;
}

static struct ea_pages pages_at(struct box *box, uint64_t bus, uint32_t n)
{
	struct ea_pages pages = { .form = EA_PAGES_FLAT, .addr = { bus } };
	uint32_t i;

	if (box->scattered) {
		pages = (struct ea_pages){ .form = EA_PAGES_INLINE, .page_shift = 12, .npages = n };
		for (i = 0; i < n; i++)
			pages.addr[i] = bus + (uint64_t)i * BOX_PAGE;
	}
	return pages;
}

static uint8_t *page_at(struct box *box, uint32_t page)
{
	return box->mem + host_page(box, page) * BOX_PAGE;
}

static struct ea_pages region_pages(struct box *box, uint8_t how)
{
	struct ea_pages pages = { .form = EA_PAGES_FLAT, .addr = { BOX_REGION } };
	uint64_t bus = BOX_LIST;
	uint32_t i;

	memcpy(page_at(box, BOX_LIST_PAGE + 1), &bus, sizeof(bus));
	bus = BOX_NODE2;
	memcpy(page_at(box, BOX_LIST_PAGE + 2), &bus, sizeof(bus));
	for (i = 0; i < BOX_REGION_LEN / BOX_PAGE; i++) {
		bus = BOX_REGION + (uint64_t)i * BOX_PAGE;
		memcpy(page_at(box, BOX_LIST_PAGE) + i * sizeof(bus), &bus, sizeof(bus));
	}
	if (!(how & 6))
		return pages;
	pages.page_shift = 12;
	pages.npages = BOX_REGION_LEN / BOX_PAGE;
	switch (how >> 1 & 3) {
	case 1:
		pages.form = EA_PAGES_ARRAY;
		pages.addr[0] = BOX_LIST;
		break;
	case 2:
		pages.form = EA_PAGES_TREE2;
		pages.addr[0] = BOX_NODE2;
		break;
	default:
		pages.form = EA_PAGES_TREE3;
		pages.addr[0] = BOX_NODE3;
		break;
	}
	return pages;
}

void box_open(struct box *box, uint8_t how)
{
	static const struct ea_dev_attr dev_attr = { .max_qp = 4,
						     .max_cq = 4,
						     .max_mr = 4,
						     .max_cqe_shift = 10,
						     .max_rq_shift = 10,
						     .dma_local_key = 0xffffff00 };
	static const struct ea_dma_ops dma = { .map = map };
	static const struct ea_host_ops host = { .comp_event = comp_event,
						 .async_event = async_event };
	struct ea_mr_attr mr = { .stag = BOX_STAG,
				 .pdn = BOX_PD,
				 .access = 0x1f,
				 .type = EA_MR_NORMAL,
				 .start = BOX_REGION,
				 .len = BOX_REGION_LEN };
	struct ea_qp_attr qp = { .pdn = BOX_PD,
				 .sq_shift = BOX_SQ_SHIFT,
				 .rq_shift = BOX_RQ_SHIFT };
	struct ea_cq_attr cq = { .depth_shift = BOX_CQ_SHIFT };
	uint32_t i;

	memset(box, 0, sizeof(*box));
	box->scattered = how & 1;
	box->acks = how & 8;
	box->depth = 4;
	box->mem = calloc(BOX_PAGES, BOX_PAGE);
	CHECK(box->mem);
	for (i = 0; i < BOX_PAGES; i++)
		if (is_secret(i))
			memset(page_at(box, i), SECRET, BOX_PAGE);
	box->dev = ea_dev_create(&dev_attr, &dma, &host, box);
	CHECK(box->dev);
	mr.pages = region_pages(box, how);
	CHECK(!ea_mr_reg(box->dev, &mr));
	mr.stag = BOX_FOREIGN;
	mr.pdn = BOX_PD + 1;
	CHECK(!ea_mr_reg(box->dev, &mr));
	mr.pdn = BOX_PD;
	mr.stag = BOX_FRMR;
	mr.type = EA_MR_FRMR;
	mr.pages = (struct ea_pages){ .form = EA_PAGES_ARRAY,
				      .page_shift = 12,
				      .npages = BOX_FRMR_PAGES,
				      .addr = { BOX_LIST } };

	CHECK(!ea_mr_reg(box->dev, &mr));
	for (i = 0; i < 2; i++) {
		cq.cqn = i + 1;
		cq.eqn = i + 1;
		cq.pages = pages_at(box, BOX_BUS + (5 + i) * BOX_PAGE, 1);
		CHECK(!ea_cq_create(box->dev, &cq));
		qp.qpn = i + 1;
		qp.scqn = i + 1;
		qp.rcqn = i + 1;
		qp.sq = pages_at(box, BOX_BUS + 2 * i * BOX_PAGE, 2);
		qp.rq = pages_at(box, BOX_BUS + 4 * BOX_PAGE + i * 2048, 1);
		if (box->scattered) {
			qp.rq.first_off = i * 2048;
			qp.rq.addr[0] = BOX_BUS + 4 * BOX_PAGE;
		}
		CHECK(!ea_qp_create(box->dev, &qp));
	}
	box_connect(box);
}

void box_connect(struct box *box)
{
	static const struct ea_link_ops ops = { .tx_ready = tx_ready,
						.rx_resume = rx_resume,
						.shutdown = shutdown };
	struct ea_conn_attr conn = { .ord = box->depth, .ird = box->depth, .acks = box->acks };
	int i;

	for (i = 0; i < 2; i++) {
		if (box->side[i].link.qp)
			ea_link_down(&box->side[i].link, 0);
		memset(&box->side[i], 0, sizeof(box->side[i]));
		box->side[i].link.ops = &ops;
		if (ea_qp_connect(box->dev, i + 1, &box->side[i].link, &conn)) {
			CHECK(!ea_qp_reset(box->dev, i + 1));
			CHECK(!ea_qp_connect(box->dev, i + 1, &box->side[i].link, &conn));
		}
	}
}

void box_close(struct box *box)
{
	static uint8_t secret[BOX_PAGE];
	uint32_t i;

	ea_dev_destroy(box->dev);
	memset(secret, SECRET, sizeof(secret));
	for (i = 0; i < BOX_PAGES; i++)
		CHECK(!is_secret(i) || !memcmp(page_at(box, i), secret, BOX_PAGE));
	free(box->mem);
}

void box_check_iov(const struct box *box, const struct iovec *iov, int n, bool ring_ok)
{
	uint32_t page, k;
	size_t off;
	int i;

	for (i = 0; i < n; i++) {
		CHECK(iov[i].iov_len > 0);
		off = (size_t)((uint8_t *)iov[i].iov_base - box->mem);
		CHECK(off < BOX_SIZE && iov[i].iov_len <= BOX_SIZE - off);
		for (k = off / BOX_PAGE; k <= (off + iov[i].iov_len - 1) / BOX_PAGE; k++) {
			page = host_page(box, k);
			CHECK((page >= FIRST_REGION_PAGE && page < REGION_END_PAGE) ||
			      (ring_ok && page < 4));
		}
	}
}

struct list_check {
	const struct box *box;
	bool ring_ok;
};

static void check_list(void *ctx, const struct iovec *iov, int n, uint32_t covered, uint32_t wanted)
{
	const struct list_check *check = ctx;
	uint32_t sum = 0;
	int i;

	CHECK(n >= 1 && n <= EA_IOV_MAX && covered && covered <= wanted);
	box_check_iov(check->box, iov, n, check->ring_ok);
	for (i = 0; i < n; i++)
		sum += iov[i].iov_len;
	CHECK(sum == covered);
}

int box_feed(struct box *box, int to, const struct ea_rx_seg *seg, const void *payload)
{
	struct list_check check = { .box = box };

	return carry_feed(box->side[to].link.qp, seg, payload, check_list, &check);
}

bool box_step(struct box *box, int from)
{
	struct box_side *side = &box->side[from];
	struct box_side *peer = &box->side[!from];
	static uint8_t buf[1024];
	struct list_check check = { .box = box, .ring_ok = true };
	struct ea_qp *qp = side->link.qp;
	struct ea_rx_seg seg;
	uint32_t len;
	bool last;
	int err;

	if (!qp)
		return false;
	if (side->shut)
		side->busy = false;
	if (!side->busy) {
		err = ea_tx_next(qp, &side->msg);
		CHECK(!err || err == EAGAIN || err == ESHUTDOWN);
		if (err)
			return false;
		CHECK(!side->msg.ctrl_len || !side->msg.len);
		side->busy = true;
		side->off = 0;
	}
	len = side->msg.ctrl_len ? side->msg.ctrl_len : side->msg.len - side->off;
	if (len > sizeof(buf))
		len = sizeof(buf);
	if (side->msg.ctrl_len)
		memcpy(buf, side->msg.ctrl, len);
	else if (carry_gather(qp, &side->msg, side->off, len, buf, check_list, &check)) {
		CHECK(side->shut);
		return true;
	}
	last = side->msg.ctrl_len || side->off + len == side->msg.len;
	seg = carry_segment(&side->msg, side->off, len, last);
	if (!peer->held || peer->resumed) {
		peer->resumed = false;
		peer->held = box_feed(box, !from, &seg, buf) == EAGAIN;
	}
	if (peer->held)
		return false;
	side->off += len;
	if (last) {
		side->busy = false;
		if (side->link.qp)
			ea_tx_done(qp, &side->msg);
	}
	return true;
}
