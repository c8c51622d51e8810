/* SPDX-License-Identifier: Apache-2.0 */
/* bench-drops - what a drop costs beside a full tier, and what reads from that tier lose by drops.
 *
 *   bench-drops [--blocks N] [--drops N] [--rounds N] [--folder DIR]
 *
 * Two caches stand side by side, one with a file of 4,096 blocks and one with a file of N, both full
 * and all of it published.  Headers are stored as lib/disk stores them, in chains of 64; images are
 * holes, whose zeros have the checksum that each header names.  So a block of the file takes 128 bytes
 * of the disk, and is read, verified and published like any other one.
 *
 * A drop is of a block of RAM on which nothing hangs, and ends when it is acknowledged: the tiers have
 * nothing that follows it, durably.  The caches take turns, drop by drop.
 *
 * Reads are gpc_prefetch of chains of each file that are not in RAM, in turns alone, beside a peer that
 * publishes 1,000 blocks a second and takes them back, and beside one that drops as many.  Both files are made anew in DIR and removed. */
#include "config.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "index/base/base.h"
#include "index/base/crc.h"
#include "index/base/key.h"
#include "tiers/disk/disk.h"
#include "tiers/disk/format.h"
#include "tiers/disk/state.h"
#include "gpc.h"
#include "gpc_look.h"
#include "gpc_serve.h"

#define MAX_ROUNDS 100u
#define SMALL      4096u
#define CHAIN      64u
#define RAM        1024u /* blocks */
#define IMAGE      64u   /* bytes */
#define TURN_NS    250000000ull
#define PACE_NS    1000000ull /* between drops beside reads */
#define DROP_MARK  2.0
#define READ_MARK  0.9

static struct side {
	char name[40], path[4096];
	uint32_t blocks;
	gpc *c;
	gpc_tiers *tiers;
	double *us; /* of drops */
	uint64_t next;
} side[2];
static const char *folder = ".";
static uint32_t ndrops = 4000, rounds = 41;

static void clean(void)
{
	uint32_t i;

	for (i = 0; i < 2; i++) {
		gpc_unlink(side[i].name, NULL);
		unlink(side[i].path);
	}
}

static void die(const char *what)
{
	fprintf(stderr, "bench-drops: %s: %s\n", what, gpc_last_error());
	exit(1);
}

#define MUST(call)                  \
	do {                        \
		if ((call) < 0)     \
			die(#call); \
	} while (0)

/* ---- a full tier ---- */

/* As even as a hash, and another one for each number. */
static uint64_t mix(uint64_t n)
{
	n = (n + 1) * 0x9e3779b97f4a7c15u;
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
	n = (n ^ n >> 27) * 0x94d049bb133111ebu;
	return n ^ n >> 31;
}

static gpc_key key_of(uint64_t n)
{
	return (gpc_key){ { mix(2 * n), mix(2 * n + 1) & ~KEY_ROOT_BIT } };
}

static void store_headers(const struct side *s)
{
	static const uint8_t image[IMAGE];
	struct disk_options opt = { .threads = 1 };
	struct disk_header h = { .magic = DISK_HEADER_MAGIC,
				 .state = DISK_WHOLE,
				 .length = IMAGE,
				 .crc = crc32c(0, image, sizeof(image)) };
	struct disk *d;
	uint64_t i;

	MUST(disk_open(s->path, &opt, &d));
	h.epoch = d->epoch;
	memcpy(h.file, d->super.file, sizeof(h.file));
	for (i = 0; i < s->blocks; i++) {
		gpc_key key = key_of(i), parent = key_of(i - 1);

		h.slot = i;
		h.serial = i + 1;
		memcpy(h.key, key.w, sizeof(h.key));
		memset(h.parent, 0, sizeof(h.parent));
		if (i % CHAIN)
			memcpy(h.parent, parent.w, sizeof(h.parent));
		h.depth = (uint32_t)(i % CHAIN);
		h.checksum = crc32c(0, &h, offsetof(struct disk_header, checksum));
		MUST(io_write(d->fd, &h, sizeof(h), disk_header_at(d, i)));
	}
	disk_close(d);
}

static void make_cache(struct side *s)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .max_blocks = s->blocks + 2 * RAM,
				  .max_peers = 16,
				  .ram_blocks = RAM,
				  .ram_memory = &m };
	struct gpc_tiers_file f = { .size = sizeof(f) };

	if (gpc_tiers_file_get(s->path, &f) >= 0)
		cfg.secret = f.secret;
	MUST(gpc_create(s->name, &cfg, NULL, GPC_SERVE, &s->c));
}

static void keep(struct side *s)
{
	struct gpc_tiers_options o = { .size = sizeof(o),
				       .flags = GPC_TIERS_BUFFERED,
				       .disk = s->path,
				       .disk_blocks = s->blocks,
				       .timeout_ms = 60000 };

	MUST(gpc_tiers_open(s->name, &o, &s->tiers));
}

static void end(struct side *s)
{
	MUST(gpc_tiers_close(s->tiers));
	MUST(gpc_close(s->c));
	MUST(gpc_unlink(s->name, NULL));
}

static void fill(struct side *s)
{
	struct gpc_tier t = { .size = sizeof(t) };
	uint64_t began;

	make_cache(s); /* it gives the file its layout and its secret */
	keep(s);
	end(s);
	store_headers(s);
	make_cache(s);
	began = clock_ns();
	keep(s);
	do {
		clock_sleep(10 * NS_PER_MS);
		MUST(gpc_tier_get(s->c, 0, &t));
	} while (!t.ready);
	if (t.restored != s->blocks)
		die("some blocks did not come back");
	printf("%u blocks published after %.1f s\n", s->blocks, (double)(clock_ns() - began) / 1e9);
	fflush(stdout);
}

/* ---- drops ---- */

static gpc_block publish_one(gpc *c, uint64_t n)
{
	gpc_key key = key_of(n + (1ull << 32));
	gpc_block b;

	MUST(gpc_reserve(c, 0, 1, &b, NULL, 0, 10000));
	MUST(gpc_publish(c, NULL, &key, &b, 1, NULL, 0, 10000));
	return b;
}

static void drop_one(struct side *s, uint32_t i)
{
	gpc_block b = publish_one(s->c, s->next++);
	uint64_t began = clock_ns();

	if (gpc_drop(s->c, &b, 1, NULL, 0, 60000) != 1)
		die("gpc_drop");
	s->us[i] = (double)(clock_ns() - began) / 1e3;
	MUST(gpc_release(s->c, &b, 1));
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double at(double *us, double part)
{
	qsort(us, ndrops, sizeof(*us), by_size);
	return us[(uint32_t)(part * (ndrops - 1))];
}

static void time_drops(void)
{
	uint32_t i, k;
	double ratio;

	for (i = 0; i < ndrops; i++)
		for (k = 0; k < 2; k++)
			drop_one(&side[k], i);
	for (k = 0; k < 2; k++)
		printf("gpc_drop beside %8u blocks: median %.0f us, 0.9 %.0f, 0.99 %.0f, most %.0f\n",
		       side[k].blocks, at(side[k].us, 0.5), at(side[k].us, 0.9),
		       at(side[k].us, 0.99), at(side[k].us, 1));
	ratio = at(side[1].us, 0.5) / at(side[0].us, 0.5);
	printf("medians: %.2f x; must be %.1f: %s\n", ratio, DROP_MARK,
	       ratio <= DROP_MARK ? "met" : "missed");
}

/* ---- reads beside them ---- */

enum turn { ALONE, PEER, DROPS, TURNS, OVER };

static _Atomic int turn;
static _Atomic uint64_t gone[TURNS];

/* A peer whose blocks go without a drop sends as many commands, of which the feed tells as much. */
static void let_go(gpc *c, gpc_block b, int how)
{
	if (how == DROPS)
		MUST(gpc_drop(c, &b, 1, NULL, 0, 0));
	else
		MUST(gpc_reclaim(c, NULL, &b, 1, NULL, 0, 10000));
	MUST(gpc_release(c, &b, 1));
	gone[how]++;
}

static void *publish_by_rate(void *arg)
{
	struct side *s = arg;
	uint64_t due = clock_ns();
	int how;
	gpc *c;

	MUST(gpc_attach(s->name, NULL, 0, &c));
	while ((how = turn) != OVER) {
		if (how == ALONE) {
			clock_sleep(NS_PER_MS);
			due = clock_ns();
			continue;
		}
		let_go(c, publish_one(c, s->next++), how);
		due += PACE_NS;
		if (due > clock_ns())
			clock_sleep(due - clock_ns());
	}
	MUST(gpc_close(c));
	return NULL;
}

static uint64_t asked, came;

/* Chains a second. */
static double read_some(struct side *s, uint64_t *chain)
{
	uint64_t began = clock_ns(), ns, n = 0;
	gpc_key keys[CHAIN];
	uint32_t i, chains = s->blocks / CHAIN;
	int got;

	do {
		*chain += 7919;
		for (i = 0; i < CHAIN; i++)
			keys[i] = key_of(*chain % chains * CHAIN + i);
		got = gpc_prefetch(s->c, 0, keys, CHAIN, 0, 10000);
		MUST(got);
		asked += CHAIN;
		came += (uint64_t)got;
		n++;
	} while ((ns = clock_ns() - began) < TURN_NS);
	return (double)n * 1e9 / (double)ns;
}

static double rate[TURNS][MAX_ROUNDS], ratio[TURNS][MAX_ROUNDS]; /* to ALONE in that round */
static uint64_t lasted[TURNS];

static void time_rounds(struct side *s)
{
	uint64_t chain = 0, began;
	uint32_t i, k;
	int t;

	for (i = 0; i < rounds; i++) {
		for (k = 0; k < TURNS; k++) { /* who comes later may find more in memory */
			turn = t = (int)((i + k) % TURNS);
			began = clock_ns();
			rate[t][i] = read_some(s, &chain);
			lasted[t] += clock_ns() - began;
		}
		for (t = 0; t < TURNS; t++)
			ratio[t][i] = rate[t][i] / rate[ALONE][i];
	}
}

static void time_reads(struct side *s)
{
	static const char *const what[] = { "alone", "beside a peer", "beside drops" };
	pthread_t thread;
	double median;
	int t;

	turn = ALONE;
	asked = came = 0;
	for (t = 0; t < TURNS; t++)
		gone[t] = lasted[t] = 0;
	if (pthread_create(&thread, NULL, publish_by_rate, s))
		die("pthread_create");
	time_rounds(s);
	turn = OVER;
	pthread_join(thread, NULL);
	printf("prefetches of %u blocks, %u below, of which %.3f %% came\n", CHAIN, s->blocks,
	       100.0 * (double)came / (double)asked);
	for (t = 0; t < TURNS; t++) {
		qsort(rate[t], rounds, sizeof(double), by_size);
		qsort(ratio[t], rounds, sizeof(double), by_size);
		median = ratio[t][rounds / 2];
		printf("  %-14s %5.0f a second, %4.0f blocks gone: %.2f (quartiles %.2f, %.2f)",
		       what[t], rate[t][rounds / 2], (double)gone[t] * 1e9 / (double)lasted[t],
		       median, ratio[t][rounds / 4], ratio[t][rounds * 3 / 4]);
		if (t == DROPS)
			printf("; must be %.1f: %s", READ_MARK,
			       median >= READ_MARK ? "met" : "missed");
		printf("\n");
	}
}

static bool take_option(int o, const char *text)
{
	unsigned long n = text ? strtoul(text, NULL, 10) : 0;

	if (o == 'f' && text)
		folder = text;
	else if (o == 'b' && n >= 2 * SMALL && n <= (1u << 24) && n % CHAIN == 0)
		side[1].blocks = (uint32_t)n;
	else if (o == 'd' && n && n <= 10000000)
		ndrops = (uint32_t)n;
	else if (o == 'r' && n && n <= MAX_ROUNDS)
		rounds = (uint32_t)n;
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "blocks", 1, NULL, 'b' }, { "drops", 1, NULL, 'd' }, { "rounds", 1, NULL, 'r' },
		{ "folder", 1, NULL, 'f' }, { NULL, 0, NULL, 0 },
	};
	struct rusage used;
	uint32_t i;
	int o;

	side[0].blocks = SMALL;
	side[1].blocks = 1u << 20;
	while ((o = getopt_long(argc, argv, "", known, NULL)) != -1)
		if (!take_option(o, optarg))
			return fprintf(stderr, "bench-drops: see the head of bench-drops.c\n"), 2;
	for (i = 0; i < 2; i++) {
		snprintf(side[i].name, sizeof(side[i].name), "bench-drops-%d-%u", (int)getpid(), i);
		snprintf(side[i].path, sizeof(side[i].path), "%s/bench-drops.%u", folder, i);
		side[i].us = calloc(ndrops, sizeof(double));
		if (!side[i].us)
			die("out of memory");
		unlink(side[i].path);
	}
	atexit(clean);
	for (i = 0; i < 2; i++)
		fill(&side[i]);
	getrusage(RUSAGE_SELF, &used);
	printf("memory at most: %.1f GiB\n", (double)used.ru_maxrss / (1 << 20));
	time_drops();
	for (i = 0; i < 2; i++)
		time_reads(&side[i]);
	for (i = 0; i < 2; i++)
		end(&side[i]);
	return 0;
}
