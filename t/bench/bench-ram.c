/* SPDX-License-Identifier: Apache-2.0 */
/* bench-ram - copies from RAM to RAM by gpc_copy, beside memcpy by as many threads, of the same
 * images to the same places; in turns.  Images of 2 MiB at random slots; two processors, then all
 * of them.
 *
 *   bench-ram [--json] [--quick] [--dir DIR]
 *
 * gpc copies by as many threads as there are processors, four at most: it is given two here, and so
 * is who it is compared with. */
#include "config.h"

#include "bench-rows.h"
#include "gpc.h"
#include "gpc_bytes.h"
#include "gpc_serve.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IMAGE   ((uint64_t)2 << 20)
#define THREADS 4u /* of the library, at most */

static char name[40];
static const char *where;
static gpc *c;
static int pool[2];
static uint32_t blocks; /* of a copy */
static struct gpc_move *moves;
static uint8_t **from, **to;

/* ---- the cache ---- */

static void remove_cache(void)
{
	gpc_unlink(name, where);
}

static int make_pools(uint32_t n)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };
	int i, r = 0;

	for (i = 0; i < 2 && r >= 0; i++) {
		struct gpc_pool p = { .size = sizeof(p),
				      .kind = GPC_RAM,
				      .blocks = n,
				      .transit = 1,
				      .space = (uint32_t)i,
				      .demote_to = -1 };

		r = pool[i] = gpc_pool_make(c, &p, &m, 60000);
	}
	if (r < 0 && i == 2) /* the first one is there */
		MUST(gpc_pool_clear(c, pool[0], 0, GPC_REMOVE, 10000));
	return r;
}

static void draw(void)
{
	gpc_block *b = calloc(2 * blocks, sizeof(*b)), *d = b + blocks, t;
	uint8_t *base[2];
	uint64_t bytes, x = 88172645463325252u;
	uint32_t i, j;

	moves = calloc(blocks, sizeof(*moves));
	from = calloc(blocks, sizeof(*from));
	to = calloc(blocks, sizeof(*to));
	if (!b || !moves || !from || !to)
		fail("out of memory");
	MUST(gpc_reserve(c, pool[0], blocks, b, NULL, 0, 10000));
	MUST(gpc_reserve(c, pool[1], blocks, d, NULL, 0, 10000));
	MUST(gpc_pool_map(c, pool[0], 0, (void **)&base[0], &bytes));
	MUST(gpc_pool_map(c, pool[1], 0, (void **)&base[1], &bytes));
	for (i = 0; i < blocks; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		j = i + (uint32_t)((x >> 33) % (blocks - i));
		t = d[i];
		d[i] = d[j];
		d[j] = t;
		moves[i] = (struct gpc_move){ .from = b[i], .to = d[i] };
		from[i] = base[0] + (uint64_t)GPC_SLOT(b[i]) * IMAGE;
		to[i] = base[1] + (uint64_t)GPC_SLOT(d[i]) * IMAGE;
	}
	free(b);
}

/* As many blocks as there is room for. */
static void open_cache(void)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg), .max_blocks = 1024, .free_target = -1, .dir = where
	};
	int r = -ENOSPC;

	snprintf(name, sizeof(name), "bench-ram-%d", (int)getpid());
	MUST(gpc_create(name, &cfg, NULL, GPC_SERVE, &c));
	atexit(remove_cache);
	for (blocks = quick ? 16 : 128; blocks >= 8; blocks /= 2) {
		r = make_pools(blocks);
		if (r != -ENOSPC)
			break;
	}
	MUST(r);
	draw();
}

static void close_cache(void)
{
	MUST(gpc_close(c));
	MUST(gpc_unlink(name, where));
	free(moves);
	free(from);
	free(to);
}

/* ---- memcpy by threads ---- */

static struct {
	pthread_barrier_t begin, end;
	pthread_t thread[THREADS];
	uint32_t n, next;
	bool stop;
} crew;

static void *copy_run(void *arg)
{
	uint32_t i;

	for (;;) {
		pthread_barrier_wait(&crew.begin);
		if (crew.stop)
			return arg;
		while ((i = __atomic_fetch_add(&crew.next, 1, __ATOMIC_RELAXED)) < blocks)
			memcpy(to[i], from[i], IMAGE);
		pthread_barrier_wait(&crew.end);
	}
}

static void crew_start(uint32_t n)
{
	uint32_t i;

	crew.n = n;
	crew.stop = false;
	pthread_barrier_init(&crew.begin, NULL, n + 1);
	pthread_barrier_init(&crew.end, NULL, n + 1);
	for (i = 0; i < n; i++)
		if (pthread_create(&crew.thread[i], NULL, copy_run, NULL))
			fail("cannot start a thread");
}

static void crew_end(void)
{
	uint32_t i;

	crew.stop = true;
	pthread_barrier_wait(&crew.begin);
	for (i = 0; i < crew.n; i++)
		pthread_join(crew.thread[i], NULL);
	pthread_barrier_destroy(&crew.begin);
	pthread_barrier_destroy(&crew.end);
}

/* ---- two ways ---- */

static double by_memcpy(void)
{
	double at = now_us();

	crew.next = 0;
	pthread_barrier_wait(&crew.begin);
	pthread_barrier_wait(&crew.end);
	return now_us() - at;
}

static double by_gpc(void)
{
	gpc_transfer t = 0;
	double at = now_us();

	MUST(gpc_copy(c, moves, blocks, 0, NULL, &t));
	MUST(gpc_transfer_wait(c, t, 60000));
	return now_us() - at;
}

static void fill(uint32_t round)
{
	uint64_t k, *w;
	uint32_t i;

	for (i = 0; i < blocks; i++)
		for (k = 0, w = (uint64_t *)(void *)from[i]; k < IMAGE / 8; k++)
			w[k] = (k + i * (IMAGE / 8) + round) * 0x9e3779b97f4a7c15u;
}

static void verify(double (*copy)(void), uint32_t round, const char *what)
{
	uint32_t i;

	fill(round);
	for (i = 0; i < blocks; i++)
		memset(to[i], 0, IMAGE);
	copy();
	for (i = 0; i < blocks; i++)
		if (memcmp(from[i], to[i], IMAGE))
			wrong("%s, block %u", what, i);
}

static void compare(uint32_t threads, bool marked)
{
	struct times ours = { 0 }, limit = { 0 }, ratio = { 0 };
	int r, n = quick ? 9 : 25;
	struct row row, best;
	double bytes;

	open_cache();
	bytes = (double)blocks * (double)IMAGE;
	crew_start(threads);
	verify(by_memcpy, 1, "memcpy");
	verify(by_gpc, 2, "gpc_copy");
	for (r = 0; r < n; r++) {
		double a = 0, b;

		if (r & 1)
			a = by_gpc();
		b = by_memcpy();
		if (!(r & 1))
			a = by_gpc();
		add_us(&ours, a);
		add_us(&limit, b);
		add_us(&ratio, b / a);
	}
	crew_end();
	best = rate_of(&limit, bytes);
	row = rate_of(&ours, bytes);
	row_limit(&row, &best);
	row.ratio = middle(&ratio);
	row.judge = marked ? RATIO_AT_LEAST : NO_MARK;
	row.mark = 0.9;
	row_add(&best, "RAM to RAM, %u images of 2 MiB: memcpy by %u threads (limit)", blocks,
		threads);
	row_add(&row, "RAM to RAM, %u images of 2 MiB, %u threads: gpc_copy; ratio round by round",
		blocks, threads);
	row = row_of(&ratio, "x");
	row_add(&row, "RAM to RAM, %u threads: that ratio", threads);
	close_cache();
}

/* The first n processors that we may use, and back. */
static uint32_t use_processors(uint32_t n, const cpu_set_t *all)
{
	cpu_set_t set;
	uint32_t i, k = 0;

	CPU_ZERO(&set);
	for (i = 0; i < CPU_SETSIZE && k < n; i++)
		if (CPU_ISSET(i, all)) {
			CPU_SET(i, &set);
			k++;
		}
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity: %s", strerror(errno));
	return k;
}

static bool options(int argc, char **argv)
{
	static const struct option known[] = { { "json", 0, NULL, 'j' }, { "quick", 0, NULL, 'q' },
					       { "dir", 1, NULL, 's' },  { "device", 1, NULL, 'd' },
					       { "help", 0, NULL, 'h' }, { NULL, 0, NULL, 0 } };
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", known, NULL)) != -1)
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
		case 'd': /* as those of a GPU have it: none is used */
			break;
		default:
			fprintf(o == 'h' ? stdout : stderr,
				"usage: bench-ram [--json] [--quick] [--dir DIR]\n");
			exit(o == 'h' ? 0 : 2);
		}
	return json;
}

int main(int argc, char **argv)
{
	bool json = options(argc, argv);
	cpu_set_t all;
	uint32_t n;

	begin_rows("bench-ram", "RAM to RAM", json);
	sched_getaffinity(0, sizeof(all), &all);
	n = (uint32_t)CPU_COUNT(&all);
	if (use_processors(2, &all) == 2)
		compare(2, true);
	else
		row_skip("there is one processor", "RAM to RAM, 2 threads");
	if (n > 2) {
		sched_setaffinity(0, sizeof(all), &all);
		compare(n < THREADS ? n : THREADS, false);
	}
	return end_rows();
}
