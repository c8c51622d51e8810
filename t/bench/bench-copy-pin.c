/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy-pin.c - four processes register 3 GiB of shared memory each with their GPU: by
 * gpc_pool_pin, a pool in RAM that all of them have mapped, where the cache's lock makes them take
 * turns; then all at once, memory of their own.  Beside them a neighbour times copies of 4 KiB: the
 * driver holds locks while it registers, and everybody waits for these.
 *
 * Where there is no room for the pool, memory of their own is registered by turns, under a lock
 * that is made here. */
#include "config.h"

#include "bench-copy.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "gpc_serve.h"

#define PROCESSES 4
#define CHUNKS    3
#define GIB       ((size_t)1 << 30)

static struct page { /* shared by all */
	pthread_mutex_t turn;
	uint32_t ready, go, done, stop, ended;
	uint32_t made; /* 1: the cache is there, 2: there is none */
	int ram;       /* its pool */
	char name[40], why[300];
	pid_t parent, maker;
	double pin_ms[PROCESSES];
	double alone_us, worst_us[2]; /* of the neighbour; by turns, at once */
} * page;

static void raise_word(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
}

static void wait_word(uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value)
		sleep_us(100);
}

/* ---- the cache ---- */

static const char *where;

static int make_pools(gpc *c, int device)
{
	char text[16];
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 1u << 20 };
	struct gpc_pool pool = { .size = sizeof(pool),
				 .kind = GPC_RAM,
				 .transit = 1,
				 .demote_to = -1,
				 .blocks = CHUNKS * 1024 - 1 };

	snprintf(text, sizeof(text), "cuda:%d", device);
	page->ram = gpc_pool_make(c, &pool, &m, 60000);
	if (page->ram < 0)
		return page->ram;
	m.device = text; /* so that it is known who registers */
	pool = (struct gpc_pool){
		.size = sizeof(pool), .kind = GPC_VRAM, .blocks = 1, .space = 1, .demote_to = -1
	};
	return gpc_pool_make(c, &pool, &m, 20000);
}

/* Makes the cache, serves it, and removes it. */
static void maker(int me, int device)
{
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .max_blocks = CHUNKS * 1024 + 64,
				  .max_peers = 8,
				  .free_target = -1,
				  .dir = where };
	gpc *c;
	int r = gpc_create(page->name, &cfg, NULL, GPC_SERVE, &c);

	(void)me;
	if (r >= 0) {
		r = make_pools(c, device);
		if (r < 0)
			snprintf(page->why, sizeof(page->why), "%s", gpc_last_error());
		__atomic_store_n(&page->made, r < 0 ? 2 : 1, __ATOMIC_SEQ_CST);
		if (r >= 0)
			wait_word(&page->ended, 2);
		gpc_close(c);
		gpc_unlink(page->name, where);
	} else {
		snprintf(page->why, sizeof(page->why), "%s", gpc_last_error());
		__atomic_store_n(&page->made, 2, __ATOMIC_SEQ_CST);
	}
	exit(0);
}

static gpc *attach(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .timeout_ms = 5000, .dir = where };
	void *base;
	uint64_t bytes;
	gpc *c;

	MUST(gpc_attach(page->name, &opt, 0, &c));
	MUST(gpc_pool_map(c, page->ram, 0, &base, &bytes));
	return c;
}

/* ---- who registers, and who waits ---- */

static void pin_own(uint8_t *p, bool by_turns)
{
	int i;

	for (i = 0; i < CHUNKS; i++) {
		if (by_turns)
			pthread_mutex_lock(&page->turn);
		CK(device_bytes_cuda.pin(p + i * GIB, GIB));
		if (by_turns)
			pthread_mutex_unlock(&page->turn);
	}
}

static void pinner(int me, int device)
{
	uint8_t *p;
	gpc *c = NULL;
	int phase, i;

	CK(cudaSetDevice(device));
	CK(cudaFree(NULL));
	p = shared_ram(CHUNKS * GIB);
	if (page->made == 1)
		c = attach();
	raise_word(&page->ready);
	for (phase = 1; phase <= 2; phase++) {
		double from;

		wait_word(&page->go, (uint32_t)phase);
		from = now_us();
		if (phase == 1 && c)
			MUST(gpc_pool_pin(c, page->ram, 120000));
		else
			pin_own(p, phase == 1);
		page->pin_ms[me] = (now_us() - from) / 1e3;
		raise_word(&page->done);
		wait_word(&page->ended, (uint32_t)phase);
		if (phase == 1 && c)
			MUST(gpc_close(c));
		for (i = 0; (phase == 2 || !c) && i < CHUNKS; i++)
			device_bytes_cuda.unpin(p + i * GIB);
		raise_word(&page->ready);
	}
	exit(0);
}

static void neighbour(int device)
{
	uint8_t *host, *dev;
	cudaStream_t stream;
	double us, worst;
	int phase, i;

	CK(cudaSetDevice(device));
	CK(cudaHostAlloc((void **)&host, 4096, 0));
	CK(cudaMalloc((void **)&dev, 4096));
	CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (phase = 0; phase <= 2; phase++) {
		if (phase == 1)
			raise_word(&page->ready);
		if (phase)
			wait_word(&page->go, (uint32_t)phase);
		for (worst = 0, i = 0;
		     phase ? __atomic_load_n(&page->stop, __ATOMIC_SEQ_CST) < (uint32_t)phase
			   : i < 20000;
		     i++) {
			us = now_us();
			CK(cudaMemcpyAsync(dev, host, 4096, cudaMemcpyHostToDevice, stream));
			CK(cudaStreamSynchronize(stream));
			us = now_us() - us;
			if (us > worst && (phase || i > 1000)) /* the first ones warm up */
				worst = us;
		}
		if (phase)
			page->worst_us[phase - 1] = worst;
		else
			page->alone_us = worst;
		if (phase)
			raise_word(&page->ready);
	}
	exit(0);
}

static pid_t start(void (*member)(int, int), int me, int device)
{
	pid_t pid = fork();

	if (pid < 0) {
		perror("bench-copy: fork");
		exit(2);
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		member(me, device);
	}
	return pid;
}

static void neighbour_of(int me, int device)
{
	(void)me;
	neighbour(device);
}

/* A member that ended early has said why. */
static void wait_all(uint32_t *word, uint32_t value)
{
	int status;

	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value) {
		if (waitpid(-1, &status, WNOHANG) > 0 && status)
			exit(2);
		sleep_us(200);
	}
}

static void add_rows(int phase, const char *what)
{
	struct times t = { 0 };
	struct row row;
	int i;

	for (i = 0; i < PROCESSES; i++)
		add_us(&t, page->pin_ms[i]);
	row = row_of(&t, "ms");
	row_add(&row, "%s: 3 GiB of a process are registered", what);
	row = (struct row){ .unit = "ms", .judge = phase == 1 ? AT_MOST : NO_MARK, .mark = 50 };
	for (i = 0; i < 3; i++)
		row.value[i] = page->worst_us[phase - 1] / 1e3;
	row.limit = page->alone_us / 1e3;
	row.ratio = row.value[0] / row.limit;
	row_add(&row, "%s: longest wait of a neighbour's small copy; limit: alone", what);
	forget(&t);
}

static void one_phase(int phase, const char *what)
{
	uint32_t before = 1 + PROCESSES + (uint32_t)(phase - 1) * (PROCESSES + 1);

	__atomic_store_n(&page->go, (uint32_t)phase, __ATOMIC_SEQ_CST);
	wait_all(&page->done, (uint32_t)phase * PROCESSES);
	__atomic_store_n(&page->stop, (uint32_t)phase, __ATOMIC_SEQ_CST);
	wait_all(&page->ready, before + 1); /* the neighbour has seen that before they unregister */
	add_rows(phase, what);
	__atomic_store_n(&page->ended, (uint32_t)phase, __ATOMIC_SEQ_CST);
	if (phase == 1)
		wait_all(&page->ready, before + 1 + PROCESSES);
}

static void share_page(void)
{
	pthread_mutexattr_t shared;

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		fail("no shared page");
	page->parent = getpid();
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&page->turn, &shared);
	snprintf(page->name, sizeof(page->name), "bench-pin-%d", (int)getpid());
}

/* However this process ends: the maker dies with it, and not of its own will. */
static void remove_cache(void)
{
	if (getpid() != page->parent)
		return;
	kill(page->maker, SIGKILL);
	waitpid(page->maker, NULL, 0);
	gpc_unlink(page->name, where);
}

int bench_pins(int device, const char *dir, bool json)
{
	int i, status, bad = 0;

	where = dir;
	begin_rows("bench-copy --pin", "four processes pin 3 GiB each", json);
	share_page();
	atexit(remove_cache);
	page->maker = start(maker, 0, device);
	wait_all(&page->made, 1);
	if (page->made == 2)
		note("no pool of 3 GiB, so under a lock of the bench: %s", page->why);
	start(neighbour_of, 0, device);
	wait_all(&page->ready, 1);
	for (i = 0; i < PROCESSES; i++)
		start(pinner, i, device);
	wait_all(&page->ready, 1 + PROCESSES);
	one_phase(1, page->made == 1 ? "gpc_pool_pin, by turns" : "by turns");
	one_phase(2, "all at once");
	while (wait(&status) > 0)
		bad |= status;
	return bad ? 2 : end_rows();
}
