// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/pci/far.h"
#include "adapter/pci/func.h"
#include "adapter/pci/session.h"
#include "adapter/pci/vfu.h"

enum {
	PAGE = 4096,
	PAGES_MAX = 2048, /* of one job */
	BUCKETS = 256,
	BELLS = 1024,
	TURNS = 64,	  /* between two looks at the descriptors */
	WRITES_OPEN = 32, /* places handed out that may still be written; more than EA_IOV_MAX */
	ENTRY = 32,	  /* longest queue entry */
	WORD = 8,
};

struct page {
	struct page *next;
	uint64_t addr;
	uint8_t mem[PAGE];
	uint8_t client[PAGE]; /* as the client has it */
};

/* A place that was handed out for writing. */
struct place {
	struct page *page;
	uint32_t off, len;
};

struct bell {
	uint32_t off;
	uint64_t value;
};

struct pci_far {
	struct pci_func *func;
	pthread_t thread;
	sem_t go, back; /* whose turn it is: the thread's, the loop's */
	bool quit;
	bool working;  /* a job has begun */
	bool waiting;  /* it waits for the client */
	bool aborting; /* it shall fail */
	bool silent;   /* the client does not answer */
	struct pci_work work;
	struct pci_timer timer;
	/* what waits */
	struct bell bells[BELLS];
	uint32_t first_bell, nbells;
	struct pci_list jobs; /* head */
	/* the message under way */
	uint16_t id;
	uint16_t command;
	struct vfu_dma_access access;
	uint8_t *to; /* DMA_READ */
	bool asked, answered, good;
	/* of the job */
	struct page *pages[BUCKETS];
	uint32_t npages;
	struct place places[WRITES_OPEN];
	uint32_t nplaces;
};

/* ------------------------------------------------------------------ two threads, one at a time */

static void take(sem_t *sem)
{
	while (sem_wait(sem))
		; /* a signal */
}

/* The loop's side: until the job ends or waits. */
static void hand_over(struct pci_far *far)
{
	sem_post(&far->go);
	take(&far->back);
}

/* The job's side: until there is something to go on for. */
static void stand_still(struct pci_far *far)
{
	far->waiting = true;
	sem_post(&far->back);
	take(&far->go);
	far->waiting = false;
}

/* ------------------------------------------------------------------ asking the client */

static bool ask(struct pci_far *far, uint16_t command, uint64_t addr, uint32_t len, uint8_t *data)
{
	struct pci_func *func = far->func;
	bool writes = command == VFU_DMA_WRITE;

	if (far->silent || far->aborting || !func->session)
		return false;
	far->access = (struct vfu_dma_access){ .addr = addr, .count = len };
	far->command = command;
	far->to = writes ? NULL : data;
	far->id++;
	far->answered = false;
	far->good = false;
	if (!pci_session_request(func->session, far->id, command, &far->access, sizeof(far->access),
				 writes ? data : NULL, writes ? len : 0))
		return false;
	far->asked = true;
	pci_timer_set(func->loop, &far->timer, PCI_FAR_WAIT_NS);
	while (!far->answered && !far->aborting && !far->silent)
		stand_still(far);
	pci_timer_cancel(&far->timer);
	far->asked = false;
	if (!far->answered)
		func->stale_answers++;
	return far->good;
}

bool pci_far_reply(struct pci_func *func, const struct vfu_hdr *hdr, const uint8_t *body)
{
	struct pci_far *far = func->far;
	size_t len = hdr->size - sizeof(*hdr);
	struct vfu_dma_access got;

	if (!far || !far->asked || far->answered || hdr->id != far->id ||
	    hdr->command != far->command) {
		if (!func->stale_answers)
			return false;
		func->stale_answers--;
		return true;
	}
	far->answered = true;
	pci_work_queue(func->loop, &far->work);
	if (hdr->flags & VFU_ERROR)
		return true;
	if (len != sizeof(got) + (far->to ? far->access.count : 0))
		return false;
	memcpy(&got, body, sizeof(got));
	if (got.addr != far->access.addr || got.count != far->access.count)
		return false;
	if (far->to)
		memcpy(far->to, body + sizeof(got), got.count);
	far->good = true;
	return true;
}

static void no_answer(struct pci_timer *timer)
{
	struct pci_far *far = container_of(timer, struct pci_far, timer);

	pci_func_complain(far->func, "client: no answer to a DMA message; its memory without "
				     "descriptors is out of reach");
	far->silent = true;
	pci_work_queue(far->func->loop, &far->work);
}

/* ------------------------------------------------------------------ writing back */

static void send_range(struct pci_far *far, struct page *page, uint32_t first, uint32_t end)
{
	if (first < end &&
	    ask(far, VFU_DMA_WRITE, page->addr + first, end - first, page->mem + first))
		memcpy(page->client + first, page->mem + first, end - first);
}

/* What was changed at @place; what is already on its way back is not sent again. */
static void send_place(struct pci_far *far, const struct place *place)
{
	struct page *page = place->page;
	uint32_t first = place->off, end = place->off + place->len, word;

	if (!memcmp(page->mem + first, page->client + first, place->len))
		return;
	while (first < end && page->mem[first] == page->client[first])
		first++;
	while (first < end && page->mem[end - 1] == page->client[end - 1])
		end--;
	word = (first & ~(uint32_t)(WORD - 1)) + WORD;
	if (end - first > WORD && end - first <= ENTRY && word < end) {
		/* the owner bit, in the first word of an entry, gives the rest away */
		send_range(far, page, word, end);
		end = word;
	}
	send_range(far, page, first, end);
}

static void send_all(struct pci_far *far)
{
	uint32_t i;

	for (i = 0; i < far->nplaces; i++)
		send_place(far, &far->places[i]);
}

void pci_far_sync(struct pci_func *func)
{
	if (func->far && func->far->working)
		send_all(func->far);
}

/* Places come in the order in which they are written; a ring's place moves up each time. */
static void note_place(struct pci_far *far, struct page *page, uint32_t off, uint32_t len)
{
	uint32_t i;

	/* all that was written before must be there before what will be written now */
	send_all(far);
	for (i = 0; i < far->nplaces; i++) {
		const struct place *p = &far->places[i];

		if (p->page == page && p->off == off && p->len == len)
			break;
	}
	if (i == far->nplaces && i == WRITES_OPEN)
		i = 0;
	if (i < far->nplaces) {
		far->nplaces--;
		memmove(&far->places[i], &far->places[i + 1],
			(far->nplaces - i) * sizeof(far->places[0]));
	}
	far->places[far->nplaces++] = (struct place){ page, off, len };
	/* rings must ask for their place each time */
	ea_dev_memory_changed(far->func->core);
}

/* ------------------------------------------------------------------ reading */

static const struct pci_window *window_at(const struct pci_func *func, uint64_t addr)
{
	const struct pci_window *w = pci_dma_window(&func->dma, addr);

	return w && !w->mem ? w : NULL;
}

bool pci_far_is(const struct pci_func *func, uint64_t addr)
{
	return window_at(func, addr);
}

static struct page *page_at(struct pci_far *far, uint64_t addr)
{
	struct page **bucket = &far->pages[addr / PAGE % BUCKETS], *page;

	for (page = *bucket; page; page = page->next)
		if (page->addr == addr)
			return page;
	if (far->npages == PAGES_MAX)
		return NULL;
	page = malloc(sizeof(*page));
	if (!page)
		return NULL;
	page->addr = addr;
	if (!ask(far, VFU_DMA_READ, addr, PAGE, page->mem)) {
		free(page);
		return NULL;
	}
	memcpy(page->client, page->mem, PAGE);
	page->next = *bucket;
	*bucket = page;
	far->npages++;
	return page;
}

void *pci_far_ptr(struct pci_far *far, uint64_t addr, size_t *len, bool write)
{
	const struct pci_window *w = window_at(far->func, addr);
	uint32_t off = addr % PAGE;
	struct page *page;

	/* written pages are read first, so that only what was changed goes back */
	if (!far->working || !w || !w->read || (write && !w->write))
		return NULL;
	page = page_at(far, addr - off);
	if (!page)
		return NULL;
	if (*len > PAGE - off)
		*len = PAGE - off;
	if (write)
		note_place(far, page, off, (uint32_t)*len);
	return page->mem + off;
}

static void drop_pages(struct pci_far *far)
{
	struct page *page, *next;
	uint32_t i;

	for (i = 0; i < BUCKETS; i++) {
		for (page = far->pages[i]; page; page = next) {
			next = page->next;
			free(page);
		}
		far->pages[i] = NULL;
	}
	far->npages = 0;
	far->nplaces = 0;
}

/* ------------------------------------------------------------------ jobs */

static bool jobs_wait(const struct pci_far *far)
{
	return !pci_list_empty(&far->jobs);
}

void pci_job_cancel(struct pci_job *job)
{
	pci_list_remove(&job->place);
}

void pci_job_enter(struct pci_func *func, struct pci_job *job)
{
	struct pci_far *far = func->far;

	if (!far) {
		job->run(job);
		return;
	}
	if (pci_list_holds(&job->place))
		return;
	pci_list_append(&far->jobs, &job->place);
	pci_work_queue(func->loop, &far->work);
}

/* Whom a doorbell is for: its place, and the number and the kind of arming in it where queues share one. */
static uint64_t bell_key(uint32_t off, uint64_t value)
{
	static const uint64_t number = 0x00ffffff00000000ull, solicited = 0x40000000ull;

	return off < PCI_PAGE0 ? 0 : value & (number | solicited);
}

void pci_far_bell(struct pci_func *func, uint32_t off, uint64_t value)
{
	struct pci_far *far = func->far;
	struct bell *bell;
	uint32_t i;

	for (i = 0; i < far->nbells; i++) {
		bell = &far->bells[(far->first_bell + i) % BELLS];
		if (bell->off != off || bell_key(off, bell->value) != bell_key(off, value))
			continue;
		bell->value = value;
		return;
	}
	if (far->nbells == BELLS) {
		pci_func_complain(func, "doorbells of more than %d queues wait: one is lost",
				  BELLS);
		return;
	}
	far->bells[(far->first_bell + far->nbells++) % BELLS] = (struct bell){ off, value };
	pci_work_queue(func->loop, &far->work);
}

static void one_job(struct pci_far *far)
{
	struct pci_func *func = far->func;
	struct pci_job *job;
	struct bell bell;

	ea_dev_memory_changed(func->core);
	pci_irq_hold(&func->irq, true);
	if (far->nbells) {
		bell = far->bells[far->first_bell];
		far->first_bell = (far->first_bell + 1) % BELLS;
		far->nbells--;
		pci_func_ring(func, bell.off, bell.value);
	} else if (jobs_wait(far)) {
		job = container_of(far->jobs.next, struct pci_job, place);
		pci_job_cancel(job);
		job->run(job);
	}
	send_all(far);
	drop_pages(far);
	ea_dev_memory_changed(func->core);
	pci_irq_hold(&func->irq, false);
}

static void *thread(void *arg)
{
	struct pci_far *far = arg;

	for (;;) {
		take(&far->go);
		if (far->quit)
			return NULL;
		one_job(far);
		far->working = false;
		sem_post(&far->back);
	}
}

static void work(struct pci_work *w)
{
	struct pci_far *far = container_of(w, struct pci_far, work);
	int n;

	for (n = 0; n < TURNS; n++) {
		if (far->waiting) {
			if (!far->answered && !far->silent)
				return;
		} else if (far->nbells || jobs_wait(far)) {
			far->working = true;
		} else {
			return;
		}
		hand_over(far);
	}
	pci_work_queue(far->func->loop, w);
}

void pci_far_settle(struct pci_func *func, bool forget)
{
	struct pci_far *far = func->far;

	if (!far)
		return;
	far->aborting = true;
	while (far->working)
		hand_over(far);
	far->aborting = false;
	if (!forget)
		return;
	far->nbells = 0;
	/* the others belong to streams, which must come to their end */
}

/* ------------------------------------------------------------------ life */

int pci_far_start(struct pci_func *func)
{
	struct pci_far *far;
	int err;

	if (func->far)
		return 0;
	far = calloc(1, sizeof(*far));
	if (!far)
		return ENOMEM;
	far->func = func;
	far->work.run = work;
	far->timer.fire = no_answer;
	pci_list_init(&far->jobs);
	sem_init(&far->go, 0, 0);
	sem_init(&far->back, 0, 0);
	err = pthread_create(&far->thread, NULL, thread, far);
	if (err) {
		free(far);
		return err;
	}
	func->far = far;
	return 0;
}

void pci_far_stop(struct pci_func *func)
{
	struct pci_far *far = func->far;
	struct pci_job *job;

	if (!far)
		return;
	pci_far_settle(func, true);
	func->far = NULL;
	far->quit = true;
	sem_post(&far->go);
	pthread_join(far->thread, NULL);
	pci_work_cancel(&far->work);
	pci_timer_cancel(&far->timer);
	while (jobs_wait(far)) {
		job = container_of(far->jobs.next, struct pci_job, place);
		pci_job_cancel(job);
		job->run(job);
	}
	sem_destroy(&far->go);
	sem_destroy(&far->back);
	free(far);
}
