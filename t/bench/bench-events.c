/* SPDX-License-Identifier: Apache-2.0 */
/* What KV events cost: the writer's own time a change without events, with events and nobody
 * listening, and with a subscriber; gpcd's other threads' time a change; and whether a subscriber
 * that keeps up loses any.
 *
 * 	bench-events [CHANGES A SECOND [SECONDS]]                  100000, 1
 *
 * Times are those that the kernel has counted for each thread, so other work on the machine does
 * not enter but by the caches it takes. */
#include "config.h"

#ifdef HAVE_EVENTS
#include "t/lib/kv.h"

enum { STEP = 100, ROUNDS = 7 }; /* blocks a call */

struct cost {
	double writer_us, others_us; /* a change */
	uint64_t changes, batches, lost;
};

static gpc *worker;

static void fill(gpc *c, uint32_t first, gpc_block *b)
{
	static gpc_key none[STEP], key[STEP];
	static uint64_t name[STEP];
	static uint32_t tokens[STEP * 16];

	for (uint32_t i = 0; i < STEP; i++) {
		key[i] = kv_key(c, first + i);
		name[i] = htobe64(KV_NAME + first + i);
	}
	for (uint32_t i = 0; i < STEP * 16; i++)
		tokens[i] = first * 16 + i;
	must(gpc_reserve(c, 0, STEP, b, NULL, 0, 10000));
	must(gpc_publish(c, none, key, b, STEP,
			 GPC_OPTIONS(gpc_publish_options, .tokens = tokens, .digests = name,
				     .digest_bytes = 8, .digest_stride = 8),
			 GPC_NO_REF, 10000));
}

static uint64_t ns_of(pid_t pid, const char *thread)
{
	char path[64];
	unsigned long long ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, thread);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%llu", &ns) != 1)
			ns = 0;
		fclose(f);
	}
	return ns;
}

/* Of the thread that serves, which is the first, and of all others. */
static void times_of(pid_t pid, uint64_t *writer, uint64_t *others)
{
	char path[32], self[16];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	snprintf(self, sizeof(self), "%d", (int)pid);
	*writer = ns_of(pid, self);
	*others = 0;
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && strcmp(e->d_name, self))
			*others += ns_of(pid, e->d_name);
	if (dir)
		closedir(dir);
}

/* In a process of its own: counts, until the batch of that sequence; the parent reads the
 * counts. */
static pid_t listen_until(int to, int from)
{
	static struct kv_batch b;
	uint64_t n = 0, lost = 0, last = 0, end = UINT64_MAX, sequence;
	char topic[8];
	pid_t pid = fork();
	void *s;

	if (pid)
		return pid;
	kv_context = zmq_ctx_new();
	s = kv_subscribe();
	while (last < end) {
		if (kv_frame(s, topic, sizeof(topic), 100) >= 0) {
			kv_frame(s, &sequence, 8, 100);
			kv_frame(s, b.bytes, sizeof(b.bytes), 100);
			sequence = be64toh(sequence);
			lost += n && sequence > last + 1 ? sequence - last - 1 : 0;
			if (!n++)
				if (write(to, "", 1) != 1)
					_exit(1);
			last = sequence;
		}
		if (end == UINT64_MAX && read(from, &end, 8) != 8)
			end = UINT64_MAX;
	}
	if (write(to, (uint64_t[2]){ n, lost }, 16) != 16)
		_exit(1);
	_exit(0);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void work(double rate, double seconds)
{
	uint64_t begin = now_ns(), due = begin;
	gpc_block b[STEP];

	for (uint32_t i = 1; now_ns() - begin < seconds * 1e9; i += STEP) {
		fill(worker, i, b);
		must(gpc_drop(worker, b, STEP, NULL, 0, 10000));
		due += (uint64_t)(2e9 * STEP / rate);
		while (now_ns() < due)
			usleep(50);
	}
}

static struct cost run(const char *const *options, bool listening, double rate, double seconds)
{
	uint64_t w[2], o[2], got[2] = { 0, 0 };
	struct cost cost;
	int up[2], down[2];
	char byte;
	pid_t pid, listener = 0;

	kv_name_cache();
	pid = kv_start(options);
	worker = kv_worker();
	kv_until_writer(worker, pid);
	if (pipe(up) || pipe2(down, O_NONBLOCK))
		bail("no pipe");
	if (listening) {
		listener = listen_until(up[1], down[0]);
		if (read(up[0], &byte, 1) != 1)
			bail("the listener has died");
	}
	work(rate, 0.3);
	times_of(pid, &w[0], &o[0]);
	cost.changes = kv_last_change(worker);
	work(rate, seconds);
	usleep(300000);
	times_of(pid, &w[1], &o[1]);
	cost.changes = kv_last_change(worker) - cost.changes;
	if (listening && (write(down[1], (uint64_t[1]){ kv_last_change(worker) }, 8) != 8 ||
			  read(up[0], got, 16) != 16))
		bail("the listener has died");
	if (listening)
		waitpid(listener, NULL, 0);
	cost.batches = got[0];
	cost.lost = got[1];
	cost.writer_us = (double)(w[1] - w[0]) / 1e3 / (double)cost.changes;
	cost.others_us = (double)(o[1] - o[0]) / 1e3 / (double)cost.changes;
	kv_end(pid, SIGTERM);
	cache_end(worker);
	return cost;
}

#define GEOMETRY                                                                                 \
	"--block-size", "16", "--vram-blocks", "4096", "--max-blocks", "65536", "--keep-tokens", \
		"--keep-digests", "--free-target", "0"

static double rate = 100000, seconds = 1;

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The ways take turns, so that what else the machine does hits all alike; medians of the rounds. */
static int body(void)
{
	const char *const without[] = { GEOMETRY, NULL }, *const with[] = { GEOMETRY, "--events",
									    kv_out, NULL };
	static const char *const names[] = { "no events", "nobody listens", "a subscriber" };
	double writer[3][ROUNDS], others[3][ROUNDS];
	uint64_t lost[3] = { 0, 0, 0 };
	struct cost c;

	kv_begin();
	for (int i = 0; i < 3 * ROUNDS; i++) {
		c = run(i % 3 ? with : without, i % 3 == 2, rate, seconds);
		writer[i % 3][i / 3] = c.writer_us;
		others[i % 3][i / 3] = c.others_us;
		lost[i % 3] += c.lost;
	}
	printf("%-16s %12s %14s %12s %8s\n", "us a change", "writer", "of no events", "others",
	       "lost");
	for (int i = 0; i < 3; i++) {
		qsort(writer[i], ROUNDS, sizeof(double), by_value);
		qsort(others[i], ROUNDS, sizeof(double), by_value);
		printf("%-16s %12.3f %14.3f %12.3f %8llu\n", names[i], writer[i][ROUNDS / 2],
		       writer[i][ROUNDS / 2] / writer[0][ROUNDS / 2], others[i][ROUNDS / 2],
		       (unsigned long long)lost[i]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	rate = argc > 1 ? atof(argv[1]) : rate;
	seconds = argc > 2 ? atof(argv[2]) : seconds;
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
#else
#include <stdio.h>

int main(void)
{
	puts("gpcd is built without libzmq and msgpack-c");
	return 0;
}
#endif
