/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fill - the memory of a pool, from gpc_pool_make to its end, beside a bare program that fills
 * files of the same folder: in one file, and in several.  All in turns.
 *
 *   bench-fill [--json] [--quick] [--dir DIR] [--gib N] [--threads N] [--files N] [--rounds N]
 *              [--only WAY]
 *
 *   way        a step of 64 MiB in the bare program
 *   store      a store to each page
 *   populate   MADV_POPULATE_WRITE
 *   collapse   a store to each 2 MiB, MADV_COLLAPSE, MADV_POPULATE_WRITE: as the library does in
 *              longer steps
 *   write      pwrite of 1 MiB of zeros: pages without a mapping
 *
 * With --threads both have so many.  Else the bare program has one for each processor, at most 16, and
 * the pool as many as the library takes by itself, which leaves some processors free.
 *
 * Files lie in the threads' way in turn, so with several of them each lock of a file has its share.
 * The run behind one that has freed huge pages is the fastest, so before each one as much
 * memory is taken in huge pages and freed again.  The mark is of the fastest way with several
 * files.
 *
 * The last row is of another thread of the process, which maps 1 MiB and unmaps it, again and again,
 * while the pool is made: it waits for the lock of the process's mappings. */
#include "config.h"

#include "bench-rows.h"
#include "gpc.h"
#include "gpc_bytes.h"
#include "gpc_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define MOST  16u
#define STEP  ((uint64_t)64 << 20)
#define HUGE  ((uint64_t)2 << 20)
#define PAGE  4096u
#define IMAGE ((uint64_t)2 << 20)
#define MIB   ((uint64_t)1 << 20)

enum way { STORE, POPULATE, COLLAPSE, WRITE, WAYS };
static const char *const way_name[] = { "store", "populate", "collapse", "write" };

static const char *where;
static uint64_t bytes = (uint64_t)2 << 30;
static uint32_t wanted, threads, files, rounds = 5; /* wanted: by --threads, 0 = not given */
static int only = -1;
static bool known[WAYS] = { true, true, true, true };
static const char *why_not[WAYS];

/* ---- the bare program ---- */

static struct {
	enum way way;
	uint32_t files;
	uint64_t steps, next; /* of all files */
	int err;
	int fd[MOST];
	uint8_t *base[MOST];
	uint64_t each;
} bare;

static int by_stores(uint8_t *p, uint64_t step)
{
	uint64_t i;

	for (i = 0; i < STEP; i += step)
		((volatile uint8_t *)p)[i] = 0;
	return 0;
}

static int by_write(int fd, uint64_t at)
{
	static const char zeros[MIB];
	uint64_t i;

	for (i = 0; i < STEP; i += MIB)
		if (pwrite(fd, zeros, MIB, (off_t)(at + i)) != (ssize_t)MIB)
			return errno ? errno : ENOSPC;
	return 0;
}

static int fill_step(uint32_t file, uint64_t at)
{
	uint8_t *p = bare.base[file] + at;

	switch (bare.way) {
	case STORE:
		return by_stores(p, PAGE);
	case COLLAPSE:
		by_stores(p, HUGE);
		if (madvise(p, STEP, MADV_COLLAPSE) && errno == EINVAL)
			return EINVAL;
		/* fall through */
	case POPULATE:
		return madvise(p, STEP, MADV_POPULATE_WRITE) ? errno : 0;
	default:
		return by_write(bare.fd[file], at);
	}
}

static void *fill_run(void *arg)
{
	uint64_t i;
	int err;

	while ((i = __atomic_fetch_add(&bare.next, 1, __ATOMIC_RELAXED)) < bare.steps) {
		err = fill_step((uint32_t)(i % bare.files), i / bare.files * STEP);
		if (err)
			__atomic_store_n(&bare.err, err, __ATOMIC_RELAXED);
	}
	return arg;
}

static void file_open(uint32_t i)
{
	int fd = open(where ? where : "/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	uint8_t *p;

	if (fd < 0 || ftruncate(fd, (off_t)bare.each))
		fail("a file of %llu MiB: %s", (unsigned long long)(bare.each / MIB),
		     strerror(errno));
	/* at a multiple of a huge page */
	p = mmap(NULL, bare.each + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	p = (uint8_t *)(((uintptr_t)p + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
	if (mmap(p, bare.each, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != p)
		fail("mmap: %s", strerror(errno));
	madvise(p, bare.each, MADV_HUGEPAGE);
	bare.fd[i] = fd;
	bare.base[i] = p;
}

static void file_close(uint32_t i)
{
	munmap(bare.base[i], bare.each);
	close(bare.fd[i]);
}

static double by_bare(enum way way, uint32_t n)
{
	pthread_t thread[MOST];
	double at = now_us();
	uint32_t i;

	bare.way = way;
	bare.files = n;
	bare.each = bytes / n;
	bare.steps = bytes / STEP;
	bare.next = 0;
	bare.err = 0;
	for (i = 0; i < n; i++)
		file_open(i);
	for (i = 1; i < threads; i++)
		if (pthread_create(&thread[i], NULL, fill_run, NULL))
			fail("cannot start a thread");
	fill_run(NULL);
	for (i = 1; i < threads; i++)
		pthread_join(thread[i], NULL);
	at = now_us() - at;
	for (i = 0; i < n; i++)
		file_close(i);
	if (bare.err == ENOMEM || bare.err == ENOSPC || bare.err == EFAULT)
		fail("no %llu MiB for %s: %s", (unsigned long long)(bytes / MIB), way_name[way],
		     strerror(bare.err));
	if (bare.err) {
		known[way] = false;
		why_not[way] = strerror(bare.err);
	}
	return at;
}

/* ---- gpc ---- */

static char name[40];

static void remove_cache(void)
{
	gpc_unlink(name, where);
}

static double by_gpc(void)
{
	uint32_t slots = (uint32_t)(bytes / IMAGE);
	struct gpc_config cfg = {
		.size = sizeof(cfg), .max_blocks = slots, .free_target = -1, .dir = where
	};
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE, .threads = wanted };
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_RAM,
			      .blocks = slots - 1,
			      .transit = 1,
			      .demote_to = -1 };
	double at;
	gpc *c;

	MUST(gpc_create(name, &cfg, NULL, GPC_SERVE, &c));
	at = now_us();
	MUST(gpc_pool_make(c, &p, &m, 600000));
	at = now_us() - at;
	MUST(gpc_close(c));
	MUST(gpc_unlink(name, where));
	return at;
}

/* ---- another thread beside it ---- */

static struct beside {
	int stop;
	double us, times;
} beside;

static void *map_run(void *arg)
{
	double at;
	void *p;

	while (!__atomic_load_n(&beside.stop, __ATOMIC_RELAXED)) {
		at = now_us();
		p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p != MAP_FAILED)
			munmap(p, MIB);
		beside.us += now_us() - at;
		beside.times++;
		usleep(200);
	}
	return arg;
}

/* The mean of an mmap and a munmap. */
static double maps_beside_gpc(void)
{
	pthread_t thread;

	beside = (struct beside){ 0 };
	if (pthread_create(&thread, NULL, map_run, NULL))
		fail("cannot start a thread");
	by_gpc();
	__atomic_store_n(&beside.stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	return beside.times ? beside.us / beside.times : 0;
}

/* ---- all in turns ---- */

struct measured {
	struct times time, cpu, ratio; /* ratio: of gpc to it, in the same round */
};

static double all_cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void say(struct measured *m, const char *how, uint32_t n, const char *of)
{
	struct row row = rate_of(&m->time, (double)bytes);
	char by[32] = "its own threads";

	if (of || wanted)
		snprintf(by, sizeof(by), "%u threads", threads);
	row_add(&row, "%llu MiB, %s, %u %s: %s", (unsigned long long)(bytes / MIB), by, n,
		n > 1 ? "files" : "file", how);
	row = row_of(&m->cpu, "s/GiB");
	row_add(&row, "%s, %u %s: seconds of processors a GiB", how, n, n > 1 ? "files" : "file");
	if (!of)
		return;
	row = row_of(&m->ratio, "x");
	row_add(&row, "gpc / %s in %u %s, round by round", how, n, n > 1 ? "files" : "file");
}

/* The fastest of the ways, in each round anew: gpc is as fast as so much of it. */
static void judge(struct measured m[WAYS][2], struct measured *ours)
{
	struct times best = { 0 }, one = { 0 };
	struct row row;
	uint32_t r;
	int w;

	for (r = 0; r < ours->time.n; r++) {
		double fast[2] = { 0, 0 };

		for (w = 0; w < WAYS; w++)
			if (m[w][1].time.n)
				for (int k = 0; k < 2; k++)
					if (!fast[k] || m[w][k].time.us[r] < fast[k])
						fast[k] = m[w][k].time.us[r];
		if (!fast[1])
			return;
		add_us(&best, fast[1] / ours->time.us[r]);
		add_us(&one, fast[1] / fast[0]);
	}
	row = row_of(&one, "x");
	row_add(&row, "the fastest way in one file / in %u files", files);
	row = row_of(&best, "x");
	if (wanted || threads == MOST) { /* with fewer processors the free one weighs more */
		row.judge = AT_LEAST;
		row.mark = 0.8;
	}
	row_add(&row, "gpc / the fastest way in %u files, %u threads", files, threads);
}

static double measure(struct measured *m, double (*call)(enum way, uint32_t), enum way way,
		      uint32_t n)
{
	bool had = known[COLLAPSE];
	double cpu, took;

	by_bare(COLLAPSE, files);
	known[COLLAPSE] = had;
	cpu = all_cpu_us();
	took = call ? call(way, n) : by_gpc();
	cpu = all_cpu_us() - cpu;
	if (call && !known[way])
		return 0;
	add_us(&m->time, took);
	add_us(&m->cpu, cpu / 1e6 / ((double)bytes / (double)(1 << 30)));
	return took;
}

static void compare(void)
{
	static struct measured m[WAYS][2], pool;
	static struct times maps;
	uint32_t r, w, k;
	struct row row;
	double ours;

	for (r = 0; r < rounds; r++) {
		ours = measure(&pool, NULL, 0, 0);
		add_us(&maps, maps_beside_gpc());
		for (w = 0; w < WAYS; w++)
			for (k = 0; k < 2; k++) {
				if (!known[w] || (only >= 0 && (int)w != only))
					continue;
				measure(&m[w][k], by_bare, w, k ? files : 1);
				if (known[w])
					add_us(&m[w][k].ratio,
					       m[w][k].time.us[m[w][k].time.n - 1] / ours);
			}
	}
	/* before the times are sorted */
	judge(m, &pool);
	for (w = 0; w < WAYS; w++)
		for (k = 0; k < 2; k++)
			if (known[w] && m[w][k].time.n)
				say(&m[w][k], way_name[w], k ? files : 1, "gpc");
			else if (!known[w] && !k)
				row_skip(why_not[w], "%s", way_name[w]);
	say(&pool, "gpc_pool_make", 1, NULL);
	row = row_of(&maps, "us");
	row_add(&row, "an mmap and a munmap of 1 MiB beside gpc_pool_make");
}

/* ---- options ---- */

static uint32_t number(const char *option, const char *text, uint32_t most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || !n || n > most)
		fail("--%s %s: a number from 1 to %u is wanted", option, text, most);
	return (uint32_t)n;
}

static int way_of(const char *text)
{
	int w;

	for (w = 0; w < WAYS; w++)
		if (!strcmp(text, way_name[w]))
			return w;
	fail("--only %s: store, populate, collapse or write is wanted", text);
}

static bool options(int argc, char **argv)
{
	static const struct option names[] = {
		{ "json", 0, NULL, 'j' },   { "quick", 0, NULL, 'q' },   { "dir", 1, NULL, 's' },
		{ "gib", 1, NULL, 'g' },    { "threads", 1, NULL, 't' }, { "files", 1, NULL, 'f' },
		{ "rounds", 1, NULL, 'r' }, { "only", 1, NULL, 'o' },    { "device", 1, NULL, 'd' },
		{ "help", 0, NULL, 'h' },   { NULL, 0, NULL, 0 }
	};
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", names, NULL)) != -1)
		switch (o) {
		case 'j':
			json = true;
			break;
		case 'q':
			quick = true;
			break;
		case 's':
			where = optarg;
			break;
		case 'g':
			bytes = (uint64_t)number("gib", optarg, 4096) << 30;
			break;
		case 't':
			wanted = number("threads", optarg, MOST);
			break;
		case 'f':
			files = number("files", optarg, MOST);
			break;
		case 'r':
			rounds = number("rounds", optarg, 100);
			break;
		case 'o':
			only = way_of(optarg);
			break;
		case 'd': /* as those of a GPU have it: none is used */
			break;
		default:
			fprintf(o == 'h' ? stdout : stderr,
				"usage: bench-fill [--json] [--quick] [--dir DIR] [--gib N] "
				"[--threads N] [--files N] [--rounds N] [--only WAY]\n");
			exit(o == 'h' ? 0 : 2);
		}
	return json;
}

int main(int argc, char **argv)
{
	bool json = options(argc, argv);
	cpu_set_t all;

	begin_rows("bench-fill", "RAM", json);
	if (quick) {
		bytes = (uint64_t)1 << 30;
		rounds = 2;
	}
	threads = wanted;
	if (!threads)
		threads =
			sched_getaffinity(0, sizeof(all), &all) ? MOST : (uint32_t)CPU_COUNT(&all);
	if (threads > MOST)
		threads = MOST;
	if (!files)
		files = threads;
	bytes = bytes / files / STEP * STEP * files; /* whole steps of each file */
	snprintf(name, sizeof(name), "bench-fill-%d", (int)getpid());
	atexit(remove_cache);
	compare();
	return end_rows();
}
