/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - a world without chance for one process that plays all others: time passes when
 * it is asked for, random numbers come from the seed, waiting is serving, who is alive is
 * what the test says, and the host device has its mirrors in private memory.
 *
 * The program is linked with --wrap for each function that is replaced here. */
#ifndef GPC_T_WORLD_H
#define GPC_T_WORLD_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "t/lib/scratch.h"
#include "bytes/device/device.h"
#include "index/base/err.h"
#include "gpc.h"
#include "index/segment/lockfile.h"
#include "index/base/order.h"

#define PEOPLE  64
#define MIRRORS 16

static struct {
	uint64_t now; /* nanoseconds */
	uint64_t random, people;
	bool gone[PEOPLE]; /* by start time */
	struct still *mirror[MIRRORS];
} world;

/* What a thread that waits does instead. */
static void (*world_turn)(void);
/* Where it goes wrong: said before anything else. */
static void (*world_where)(void);

TAP_FN TAP_PRINTF(3, 4)
	__attribute__((noreturn)) void fail(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	if (world_where)
		world_where();
	va_start(ap, fmt);
	tap_result(false, file, line, fmt, ap);
	va_end(ap);
	done_testing();
	_exit(1);
}

#define need(cond, ...)                                        \
	do {                                                   \
		if (!(cond))                                   \
			fail(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)
#define must_be(expr, want)                                                                     \
	do {                                                                                    \
		long long got_ = (long long)(expr), want_ = (long long)(want);                  \
		if (got_ != want_)                                                              \
			fail(__FILE__, __LINE__, #expr " is %lld, want %lld (%s)", got_, want_, \
			     gpc_last_error());                                                 \
	} while (0)

TAP_FN uint64_t world_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

TAP_FN void world_begin(uint64_t seed)
{
	world.now = 1000000000000ull;
	world.random = world_mix(seed + 0x9e3779b97f4a7c15ull) | 1;
	world.people = 0;
	memset(world.gone, 0, sizeof(world.gone));
}

/* xorshift */
TAP_FN uint32_t draw(uint32_t below)
{
	uint64_t *s = &world.random;

	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return below ? (uint32_t)((*s >> 32) % below) : 0;
}

/* ---- time and waiting ---- */

uint64_t __wrap_clock_ns(void);
uint64_t __wrap_clock_coarse_ns(void);
int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns);
void __wrap_futex_wake_all(uint32_t *word);
int __wrap_nanosleep(const struct timespec *ts, struct timespec *left);
ssize_t __wrap_getrandom(void *to, size_t n, unsigned flags);
void __wrap_identity_self(struct identity *ret);
enum identity_answer __wrap_identity_look(const struct identity *id);
bool __wrap_identity_gone(const struct identity *id);
int __wrap_driver_find(const char *device, const struct driver **ret);

uint64_t __wrap_clock_ns(void)
{
	return world.now += 500;
}

uint64_t __wrap_clock_coarse_ns(void)
{
	return world.now;
}

int __wrap_futex_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
	world_turn();
	return 0;
}

void __wrap_futex_wake_all(uint32_t *word)
{
}

int __wrap_nanosleep(const struct timespec *ts, struct timespec *left)
{
	world_turn();
	return 0;
}

/* The same for all caches of a sequence, so that an image of one fits the others: names and
 * secrets come in this order. */
static uint64_t world_secrets;

ssize_t __wrap_getrandom(void *to, size_t n, unsigned flags)
{
	uint8_t *p = to;
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (uint8_t)(world_mix(world_secrets + n * 256 + i) >> 7);
	return (ssize_t)n;
}

/* ---- who is alive ---- */

void __wrap_identity_self(struct identity *ret)
{
	*ret = (struct identity){ .pid = 1000, .start_time = ++world.people, .namespaces = 1 };
	need(world.people < PEOPLE, "too many people");
}

enum identity_answer __wrap_identity_look(const struct identity *id)
{
	if (id->pid != 1000 || id->start_time >= PEOPLE)
		return IDENTITY_UNKNOWN;
	return world.gone[id->start_time] ? IDENTITY_GONE : IDENTITY_THERE;
}

bool __wrap_identity_gone(const struct identity *id)
{
	return __wrap_identity_look(id) == IDENTITY_GONE;
}

/* ---- the device ---- */

struct still {
	char name[GPC_MAX_NAME + 1];
	uint32_t generation, wait; /* wait: looks until its flush has ended */
	struct probe_entry *table;
	uint64_t entries;
	struct launch_change *change;
	uint32_t n;
	struct mirror_status line, next;
};

static bool still_matches(const char *device)
{
	return !strcmp(device, "host"); /* in its place: caches have no others */
}

static int still_create(const struct segment *s, const char *device, uint32_t generation,
			struct shm_mirror *desc, void **ret)
{
	struct still *m = calloc(1, sizeof(*m));
	int i;

	strcpy(m->name, s->name);
	m->generation = generation;
	m->entries = (uint64_t)s->header.geometry.buckets * SHM_BUCKET;
	m->table = calloc(m->entries, sizeof(*m->table));
	strcpy(desc->device, device);
	memset(desc->handle, 0, sizeof(desc->handle));
	desc->bytes = m->entries * sizeof(*m->table);
	for (i = 0; i < MIRRORS && world.mirror[i]; i++)
		;
	need(i < MIRRORS, "mirrors are not destroyed");
	world.mirror[i] = m;
	*ret = m;
	return 0;
}

static int still_upload(void *mirror, const struct probe_entry *table, uint64_t entries,
			const struct mirror_status *line)
{
	struct still *m = mirror;

	must_be(entries, m->entries);
	memcpy(m->table, table, entries * sizeof(*table));
	m->line = *line;
	return 0;
}

static int still_flush(void *mirror, const struct launch_change *changes, uint32_t n,
		       const struct mirror_status *line)
{
	struct still *m = mirror;

	need(!m->wait, "two flushes of a mirror");
	m->change = realloc(m->change, (n + 1) * sizeof(*changes));
	if (n)
		memcpy(m->change, changes, n * sizeof(*changes));
	m->n = n;
	m->next = *line;
	m->wait = 1 + (uint32_t)(line->sequence & 1);
	return 0;
}

static int still_flushed(void *mirror)
{
	struct still *m = mirror;
	uint32_t i;

	if (!m->wait)
		return 0;
	if (--m->wait)
		return -EAGAIN;
	for (i = 0; i < m->n; i++)
		m->table[m->change[i].slot] = m->change[i].entry;
	m->line = m->next;
	return 0;
}

static void still_destroy(void *mirror)
{
	struct still *m = mirror;
	int i;

	for (i = 0; i < MIRRORS; i++)
		if (world.mirror[i] == m)
			world.mirror[i] = NULL;
	free(m->table);
	free(m->change);
	free(m);
}

static void still_sweep(const struct segment *s, const struct shm_mirror *desc)
{
}

static int still_read(const struct segment *s, const struct shm_mirror *desc,
		      struct probe_entry *table, uint64_t entries, uint64_t *ret_sequence)
{
	struct still *m;
	int i;

	for (i = 0; i < MIRRORS; i++) {
		m = world.mirror[i];
		if (!m || strcmp(m->name, s->name) || m->generation != desc->generation)
			continue;
		memcpy(table, m->table, entries * sizeof(*table));
		*ret_sequence = m->line.sequence;
		return 0;
	}
	return err_set(EBADMSG, "nobody has this mirror");
}

static const struct device_ops still = {
	.writer.create = still_create,
	.writer.upload = still_upload,
	.writer.flush = still_flush,
	.writer.flushed = still_flushed,
	.writer.destroy = still_destroy,
	.writer.sweep = still_sweep,
	.writer.read = still_read,
};

int __wrap_driver_find(const char *device, const struct driver **ret)
{
	static const struct driver driver = { .name = "still",
					      .matches = still_matches,
					      .mirror = &still };

	*ret = &driver;
	return still_matches(device) ? 0 : err_set(ENODEV, "no device %s", device);
}

#endif
