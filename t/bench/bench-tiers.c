/* SPDX-License-Identifier: Apache-2.0 */
/* bench-tiers - a cache with a tier on disk: its start, and what others notice of it.
 *
 *   bench-tiers --start BLOCKS [--rounds N] [--file FILE]
 *   bench-tiers [--image-bytes N] [--rounds N] [--file FILE]
 *
 * --start fills a file with so many blocks of 4 KiB, with tokens and digests, in chains of 64, and
 * then opens it with a new cache in each round: when gpc_tiers_open returned, when all blocks were
 * published, and how long lookups of 64 keys by another handle took meanwhile.
 *
 * Otherwise one thread looks up 64 keys at a time, and then sends commands of its own, in turns:
 * while the disk is idle; while another thread brings chains up from it; while threads of this
 * program, as many as the disk has, read the same file and sum the bytes; and while a peer
 * reserves, publishes and releases chains without any bytes.  The last two go at the rate of the
 * tier, and say what bytes and what commands cost whoever sends them.  The ratios are of one round;
 * the medians count.  FILE is made anew and removed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpc.h"
#include "gpc_look.h"
#include "gpc_serve.h"
#include "times.h"

#define CHAIN      64u
#define TOKENS     16u
#define START_RAM  4096u /* blocks, all of them next to go */
#define START_FILL 2048u /* of them at a time */
#define CHAINS     64u   /* that the busy disk has, and RAM has room for an eighth of */
#define THREADS    8u
#define TURN_NS    150000000u

static char name[40];
static const char *path = "bench-tiers.blocks";
static gpc *c;
static gpc_tiers *tiers;
static gpc_key *keys;

static void clean(void)
{
	gpc_unlink(name, NULL);
	unlink(path);
}

static void die(const char *what)
{
	fprintf(stderr, "bench-tiers: %s: %s\n", what, gpc_last_error());
	exit(1);
}

#define MUST(call)                  \
	do {                        \
		if ((call) < 0)     \
			die(#call); \
	} while (0)

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void rest(uint32_t us)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)us * 1000 }, NULL);
}

static struct gpc_tier tier(void)
{
	struct gpc_tier t = { .size = sizeof(t) };

	MUST(gpc_tier_get(c, 0, &t));
	return t;
}

static void make_cache(uint32_t ram, uint32_t below, uint64_t image, bool notes)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = image };
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .max_blocks = ram + below + 4096,
				  .max_peers = 16,
				  .ram_blocks = ram,
				  .ram_memory = &m,
				  .block_tokens = TOKENS,
				  .keep_tokens = notes,
				  .keep_digests = notes };
	struct gpc_tiers_file f = { .size = sizeof(f) };

	if (gpc_tiers_file_get(path, &f) >= 0)
		cfg.secret = f.secret;
	MUST(gpc_create(name, &cfg, NULL, GPC_SERVE, &c));
}

static void keep(uint32_t blocks, uint32_t ahead)
{
	struct gpc_tiers_options o = { .size = sizeof(o),
				       .disk = path,
				       .disk_blocks = blocks,
				       .ahead = ahead,
				       .disk_threads = THREADS,
				       .timeout_ms = 10000 };

	MUST(gpc_tiers_open(name, &o, &tiers));
}

static void end(void)
{
	MUST(gpc_tiers_close(tiers));
	MUST(gpc_close(c));
	MUST(gpc_unlink(name, NULL));
}

static void name_keys(uint32_t n)
{
	uint64_t *digests = calloc(n, sizeof(*digests));
	uint32_t i;

	keys = calloc(n, sizeof(*keys));
	if (!digests || !keys)
		die("out of memory");
	for (i = 0; i < n; i++)
		digests[i] = i;
	MUST(gpc_key_import(c, digests, sizeof(*digests), sizeof(*digests), n, 0, keys));
	free(digests);
}

/* Blocks first .. first + n of the file, in chains, by way of RAM. */
static void publish(uint32_t first, uint32_t n, bool notes)
{
	gpc_key *parents = calloc(n, sizeof(*parents));
	gpc_block *b = calloc(n, sizeof(*b));
	uint32_t *tokens = calloc((size_t)n * TOKENS, sizeof(*tokens)), i;
	struct gpc_publish_options o = { .size = sizeof(o),
					 .tokens = tokens,
					 .digests = keys + first,
					 .digest_bytes = sizeof(*keys),
					 .digest_stride = sizeof(*keys) };

	if (!parents || !b || !tokens)
		die("out of memory");
	for (i = 0; i < n; i++)
		if ((first + i) % CHAIN)
			parents[i] = keys[first + i - 1];
	for (i = 0; i < n * TOKENS; i++)
		tokens[i] = first * TOKENS + i;
	MUST(gpc_reserve(c, 0, n, b, NULL, 0, 10000));
	if (gpc_publish(c, parents, keys + first, b, n, notes ? &o : NULL, 0, -1) != (int)n)
		die("gpc_publish");
	gpc_release(c, b, n);
	MUST(gpc_tiers_sync(c, 60000));
	free(tokens);
	free(b);
	free(parents);
}

static double median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), by_time);
	return v[n / 2];
}

/* ---- a start ---- */

static struct times opened, ready, mean_lookup, worst_lookup;

static void start_once(uint32_t blocks)
{
	uint64_t began, one, longest = 0, sum = 0, n = 0;
	gpc_block found[CHAIN];
	struct gpc_tier t;

	make_cache(START_RAM, blocks, 4096, true);
	began = now();
	keep(0, 0);
	add_time(&opened, now() - began);
	do {
		one = now();
		MUST(gpc_lookup(c, 0, keys + n * CHAIN % blocks, CHAIN, found, 0));
		one = now() - one;
		sum += one;
		longest = one > longest ? one : longest;
		n++;
		rest(100);
		t = tier();
	} while (!t.ready);
	add_time(&ready, now() - began);
	add_time(&mean_lookup, sum / n);
	add_time(&worst_lookup, longest);
	if (t.found != blocks || t.restored != blocks)
		die("some blocks did not come back");
	end();
}

static void start(uint32_t blocks, uint32_t rounds)
{
	uint64_t began = now();
	uint32_t i;

	make_cache(START_RAM, blocks, 4096, true);
	name_keys(blocks);
	keep(blocks, START_RAM);
	for (i = 0; i < blocks; i += START_FILL)
		publish(i, START_FILL, true);
	end();
	printf("%u blocks of 4 KiB with tokens and digests written in %.1f s\n", blocks,
	       (double)(now() - began) / 1e9);
	for (i = 0; i < rounds; i++)
		start_once(blocks);
	print_times("gpc_tiers_open", &opened, 0);
	print_times("all published, since it was called", &ready, 10000);
	printf("a lookup of 64 keys meanwhile: %.1f us (median of the means), %.0f us at most\n",
	       median(mean_lookup.ms, mean_lookup.n) * 1e3,
	       median(worst_lookup.ms, worst_lookup.n) * 1e3);
}

/* ---- beside a busy disk ---- */

enum turn { IDLE, TIER, PLAIN, PEER, TURNS, OVER };

static _Atomic int turn;
static _Atomic uint64_t blocks_brought, blocks_read, blocks_published;
static uint64_t image_bytes = 128 << 10;
static gpc *bringer;

static int publish_plainly(const gpc_key *chain)
{
	gpc_key parents[CHAIN] = { 0 };
	gpc_block b[CHAIN];
	int n;

	memcpy(parents + 1, chain, sizeof(parents) - sizeof(*parents));
	n = gpc_reserve(bringer, 0, CHAIN, b, NULL, 0, 2000);
	if (n > 0) {
		n = gpc_publish(bringer, parents, chain, b, CHAIN, NULL, 0, 2000);
		gpc_release(bringer, b, CHAIN);
	}
	return n;
}

/* Chain after chain, from the disk or without bytes: keys of which the disk has a copy, so that
 * nothing is written. */
static void *bring(void *arg)
{
	const gpc_key *chain = keys;
	uint32_t i = 0;
	int n;

	(void)arg;
	while (turn != OVER) {
		if (turn != TIER && (turn != PEER || blocks_published >= blocks_brought)) {
			rest(turn == PEER ? 50 : 500);
			continue;
		}
		n = turn == TIER ? gpc_prefetch(bringer, 0, chain, CHAIN, 0, 2000)
				 : publish_plainly(chain);
		chain = keys + (size_t)(++i % CHAINS) * CHAIN;
		if (n > 0 && turn == TIER)
			blocks_brought += (uint64_t)n;
		else if (n > 0)
			blocks_published += (uint64_t)n;
	}
	return NULL;
}

static void *read_plainly(void *arg)
{
	uint64_t x = (uintptr_t)arg * 0x9e3779b97f4a7c15u + 1;
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	void *image = NULL;

	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || posix_memalign(&image, 4096, image_bytes))
		die("open, or out of memory");
	while (turn != OVER) {
		if (turn != PLAIN || blocks_read >= blocks_brought) {
			rest(turn == PLAIN ? 50 : 500);
			continue;
		}
		x = x * 6364136223846793005u + 1442695040888963407u;
		if (pread(fd, image, image_bytes,
			  (off_t)((x >> 33) % (CHAINS * CHAIN) * image_bytes)) > 0)
			gpc_crc32c(0, image, image_bytes);
		blocks_read++;
	}
	free(image);
	close(fd);
	return NULL;
}

static void look(uint32_t *n)
{
	gpc_block found[CHAIN];

	gpc_lookup(c, 0, keys + (size_t)(*n % CHAINS) * CHAIN, CHAIN, found, GPC_QUIET);
	++*n;
}

/* One round trip to the writer, which lists what is next to go and takes nothing. */
static void command(void)
{
	gpc_block next[1];

	MUST(gpc_evict(c, 0, 1, next, GPC_PEEK, 1000));
}

enum { LOOKUP, COMMAND, COMMAND_MEDIAN, FIGURES };

static double took[FIGURES][TURNS][MAX_ROUNDS];
static double ratios[FIGURES][TURNS][MAX_ROUNDS]; /* of the tier's turn to each other one */
static double calls[1 << 18];

static void time_lookups(int t, uint32_t round)
{
	uint64_t began = now(), ns;
	uint32_t n = 0;

	do
		look(&n);
	while ((ns = now() - began) < TURN_NS);
	took[LOOKUP][t][round] = (double)ns / n;
}

static void time_commands(int t, uint32_t round)
{
	uint64_t began = now(), last = began, ns, n;

	for (n = 0; last - began < TURN_NS && n < sizeof(calls) / sizeof(*calls); n++, last = ns) {
		command();
		ns = now();
		calls[n] = (double)(ns - last);
	}
	took[COMMAND_MEDIAN][t][round] = median(calls, (uint32_t)n);
	took[COMMAND][t][round] = (double)(last - began) / (double)n;
}

static void report(uint32_t rounds)
{
	static const char *const what[] = { "lookups of 64 keys", "commands, mean",
					    "commands, median" };
	double second = (double)rounds * 2 * TURN_NS / 1e9, r[TURNS];
	int i, t;

	for (i = 0; i < FIGURES; i++) {
		for (t = 0; t < TURNS; t++)
			r[t] = median(ratios[i][t], rounds);
		printf("%s: %.0f ns while the disk is idle; %.3f times as long while it is busy (must be 1.03: %s)\n"
		       "    and %.3f times as long as beside plain reads, %.3f as beside commands of a peer\n",
		       what[i], median(took[i][IDLE], rounds), r[IDLE],
		       r[IDLE] <= 1.03 ? "met" : "missed", r[PLAIN], r[PEER]);
	}
	printf("blocks a second: %.0f by the tier, %.0f read plainly, %.0f published by a peer\n",
	       (double)blocks_brought / second, (double)blocks_read / second,
	       (double)blocks_published / second);
}

static void beside(uint32_t rounds)
{
	pthread_t thread[THREADS + 1];
	uint32_t i;
	int t, f;

	make_cache(CHAINS * CHAIN / 8, CHAINS * CHAIN + CHAIN, image_bytes, false);
	MUST(gpc_attach(name, NULL, 0, &bringer));
	name_keys(CHAINS * CHAIN);
	keep(CHAINS * CHAIN + CHAIN, CHAINS * CHAIN / 16);
	for (i = 0; i < CHAINS; i++)
		publish(i * CHAIN, CHAIN, false);
	for (i = 0; i <= THREADS; i++)
		if (pthread_create(&thread[i], NULL, i ? read_plainly : bring,
				   (void *)(uintptr_t)i))
			die("pthread_create");
	for (i = 0; i < rounds; i++) {
		for (t = IDLE; t < TURNS; t++) {
			turn = t;
			rest(50000);
			time_lookups(t, i);
			time_commands(t, i);
		}
		for (t = IDLE; t < TURNS; t++)
			for (f = 0; f < FIGURES; f++)
				ratios[f][t][i] = took[f][TIER][i] / took[f][t][i];
	}
	turn = OVER;
	for (i = 0; i <= THREADS; i++)
		pthread_join(thread[i], NULL);
	report(rounds);
	MUST(gpc_close(bringer));
	end();
}

/* ---- the command line ---- */

static void usage(FILE *to)
{
	fputs("usage: bench-tiers [--start BLOCKS] [--image-bytes N] [--rounds N] [--file FILE]\n",
	      to);
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || n < least || n > most) {
		fprintf(stderr, "bench-tiers: %s is '%s', must be %llu to %llu\n", option, text,
			(unsigned long long)least, (unsigned long long)most);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "start", required_argument, NULL, 's' },
		{ "image-bytes", required_argument, NULL, 'i' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "file", required_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	uint32_t blocks = 0, rounds = 0;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 's')
			blocks = (uint32_t)number("--start", optarg, START_FILL, 1 << 22) /
				 START_FILL * START_FILL;
		else if (o == 'i')
			image_bytes = number("--image-bytes", optarg, 4096, 2 << 20) / 4096 * 4096;
		else if (o == 'r')
			rounds = (uint32_t)number("--rounds", optarg, 1, MAX_ROUNDS);
		else if (o == 'f')
			path = optarg;
		else
			return usage(o == 'h' ? stdout : stderr), o == 'h' ? 0 : 2;
	}
	if (access(path, F_OK) == 0) {
		fprintf(stderr,
			"bench-tiers: %s exists: remove it, or name another file with --file\n",
			path);
		return 1;
	}
	snprintf(name, sizeof(name), "bench-tiers-%d", (int)getpid());
	atexit(clean);
	if (blocks)
		start(blocks, rounds ? rounds : 3);
	else
		beside(rounds ? rounds : 31);
	return 0;
}
