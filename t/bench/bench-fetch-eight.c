/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fetch-eight.c - eight processes, each with a VRAM pool in a space of its own, fetch the
 * same chain of 1 GiB from RAM at once; beside one that does so alone.  Another process has made
 * the cache and serves. */
#include "config.h"

#include "bench-fetch.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpc_serve.h"

#define PROCESSES 8u
#define ROUNDS    12u

static struct page { /* shared by all */
	uint32_t made, ready, end;
	uint32_t go[PROCESSES], done[PROCESSES]; /* rounds */
	int ram;                                 /* its pool; negative: there is none */
	uint32_t blocks;
	uint64_t piece;
	char name[64], why[300];
	pid_t parent, maker;
	double from[PROCESSES], to[PROCESSES]; /* of the last round */
} * page;

static void wait_until(uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value)
		sleep_us(50);
}

static void raise_word(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
}

/* ---- the maker ---- */

static int make(gpc **ret)
{
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .vram_blocks = 16,
				  .max_blocks = 16384,
				  .free_target = -1,
				  .dir = where };
	int r = gpc_create(page->name, &cfg, NULL, GPC_SERVE, ret);

	if (r < 0)
		return r;
	r = make_ram(*ret, page->blocks + 4, page->piece, RAM_SPACE, false);
	if (r >= 0)
		make_chain(*ret, r, 7, page->blocks, PIECES * page->piece);
	return r;
}

static void maker(void)
{
	gpc *c = NULL;

	page->ram = make(&c);
	if (page->ram < 0)
		snprintf(page->why, sizeof(page->why), "%s", gpc_last_error());
	raise_word(&page->made);
	if (page->ram >= 0)
		wait_until(&page->end, 1);
	if (c)
		gpc_close(c);
	gpc_unlink(page->name, where);
}

/* ---- one of eight ---- */

static double fetch_all(gpc *c, int vram, const gpc_key *keys, gpc_block *b, void *stream)
{
	struct gpc_fetch_options opt = { .size = sizeof(opt), .spaces = GPC_SPACE(RAM_SPACE) };
	gpc_transfer x;
	double to;

	if (MUST(gpc_fetch(c, vram, keys + 1, page->blocks, b, &opt, 0, stream, WAIT, &x)) !=
	    (int)page->blocks)
		fail("not all was fetched");
	settle(stream);
	to = now_us();
	MUST(gpc_transfer_wait(c, x, WAIT));
	MUST(gpc_release(c, b, page->blocks));
	return to;
}

static void fetcher(uint32_t me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = where };
	gpc_block *b = calloc(page->blocks, sizeof(*b));
	gpc_key *k = calloc(page->blocks + 1, sizeof(*k));
	void *stream = new_stream();
	uint32_t r;
	int vram;
	gpc *c;

	if (!b || !k)
		fail("out of memory");
	make_keys(7, page->blocks, k);
	MUST(gpc_attach(page->name, &opt, 0, &c));
	vram = MUST(make_vram(c, page->blocks, page->piece, VRAM_SPACE + me));
	if (on_gpu())
		MUST(gpc_pool_pin(c, page->ram, WAIT));
	fetch_all(c, vram, k, b, stream); /* the first one plans */
	for (r = 1;; r++) {
		clear(c, vram);
		raise_word(&page->ready);
		wait_until(&page->go[me], r);
		if (__atomic_load_n(&page->end, __ATOMIC_SEQ_CST))
			break;
		page->from[me] = now_us();
		page->to[me] = fetch_all(c, vram, k, b, stream);
		raise_word(&page->done[me]);
	}
	MUST(gpc_close(c));
}

/* ---- who measures ---- */

static pid_t start(int me)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("cannot fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != page->parent)
		_exit(2);
	if (me < 0)
		maker();
	else
		fetcher((uint32_t)me);
	_exit(0);
}

/* Those with a bit in `who`; us of each, and from the first start to the last end. */
static double round_of(uint32_t who, uint32_t *round, double us[PROCESSES])
{
	double from = 1e300, to = 0;
	uint32_t i;

	for (i = 0; i < PROCESSES; i++)
		if (who >> i & 1)
			__atomic_store_n(&page->go[i], ++round[i], __ATOMIC_SEQ_CST);
	for (i = 0; i < PROCESSES; i++) {
		if (!(who >> i & 1))
			continue;
		wait_until(&page->done[i], round[i]);
		us[i] = page->to[i] - page->from[i];
		from = page->from[i] < from ? page->from[i] : from;
		to = page->to[i] > to ? page->to[i] : to;
	}
	return to - from;
}

static void measure(void)
{
	uint32_t round[PROCESSES] = { 0 }, ready = PROCESSES, r, i;
	double us[PROCESSES], bytes = (double)page->blocks * PIECES * (double)page->piece, all,
			      worst;
	struct times alone = { 0 }, sum = { 0 }, least = { 0 };
	struct row row, limit;

	wait_until(&page->ready, ready);
	for (r = 0; r < (quick ? 3 : ROUNDS); r++) {
		add_us(&alone, round_of(1u << r % PROCESSES, round, us));
		wait_until(&page->ready, ready += 1);
		all = round_of((1u << PROCESSES) - 1, round, us);
		wait_until(&page->ready, ready += PROCESSES);
		add_us(&sum, all / PROCESSES);
		for (i = 0, worst = 0; i < PROCESSES; i++)
			worst = us[i] > worst ? us[i] : worst;
		add_us(&least, all / worst);
	}
	limit = rate_of(&alone, bytes);
	row_add(&limit, "%.0f MiB fetched by one process alone (limit)", bytes / (1 << 20));
	row = rate_of(&sum, bytes);
	row_limit(&row, &limit);
	row.judge = RATIO_AT_LEAST;
	row.mark = 0.95;
	row_add(&row, "the same by eight at once, in sum");
	row = row_of(&least, "x");
	row.judge = AT_LEAST;
	row.mark = 0.5;
	row_add(&row, "the slowest of the eight, of an eighth of that");
	forget(&alone);
	forget(&sum);
	forget(&least);
}

static void remove_files(void)
{
	if (page->parent == getpid())
		gpc_unlink(page->name, where);
}

void bench_eight(void)
{
	pid_t pid[PROCESSES];
	int status, bad = 0;
	uint32_t i;

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		fail("no shared page");
	page->parent = getpid();
	page->piece = quick ? 4096 : 32768;
	page->blocks = quick ? 64 : 512;
	name_cache(page->name, sizeof(page->name), "eight");
	atexit(remove_files);
	page->maker = start(-1);
	wait_until(&page->made, 1);
	if (page->ram < 0) {
		row_skip(page->why, "eight processes");
		waitpid(page->maker, NULL, 0);
		return;
	}
	for (i = 0; i < PROCESSES; i++)
		pid[i] = start((int)i);
	measure();
	__atomic_store_n(&page->end, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < PROCESSES; i++)
		__atomic_store_n(&page->go[i], UINT32_MAX, __ATOMIC_SEQ_CST);
	for (i = 0; i < PROCESSES; i++) {
		waitpid(pid[i], &status, 0);
		bad += status != 0;
	}
	waitpid(page->maker, &status, 0);
	if (bad || status)
		fail("one of eight did not end well");
}
