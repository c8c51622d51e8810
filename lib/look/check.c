/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - gpc_check: are all invariants true?
 *
 * It looks at private copies, so it stops nobody, and nothing can stop it.  A copy of a live cache
 * is taken while other processes work, so it shows unfinished changes.  The next copy is made when
 * the writer has gone on (check_pace.c), so it shows other unfinished changes.  So on a live cache
 * a violation counts if COPIES copies show it, by the same line about the same words.  A dead cache
 * does not change, so one copy is enough, made when no process lives any more.
 * Tests: t/look/check-live.t t/look/check.t t/look/check-waits.t t/index/churn.t
 *   t/fuzz/segment.t */
#include "config.h"

#include "look/check.h"

#include "gpc_look.h"
#include "look/inspect.h"
#include "index/segment/lockfile.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#define COPIES    9 /* half a second, or as long as the writer needs for a pass each */
#define MAX_LINES 1000

/* ---- lines ---- */

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static bool seen_before(const struct check *k, uint64_t hash)
{
	return !k->before || bsearch(&hash, k->before, k->nbefore, sizeof(hash), by_value) != NULL;
}

static void remember(struct check *k, uint64_t hash)
{
	uint64_t size = k->now_size ? k->now_size * 2 : 256, *grown;

	if (k->nnow == k->now_size) {
		grown = realloc(k->now, size * sizeof(*grown));
		if (!grown) {
			k->err = err_set(ENOMEM, "no memory for a list of violations");
			return;
		}
		k->now = grown;
		k->now_size = size;
	}
	k->now[k->nnow++] = hash;
}

void check_bad(struct check *k, uint64_t witness, const char *fmt, ...)
{
	char line[256];
	uint64_t hash;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	n = MIN(MAX(n, 0), (int)sizeof(line) - 1);
	hash = check_mix(key_checksum(line, (size_t)n), witness);
	if (!seen_before(k, hash))
		return;
	if (!k->last) {
		remember(k, hash);
		return;
	}
	if (k->reported < MAX_LINES && k->report)
		k->report(k->arg, line);
	k->reported++;
}

/* ---- files and headers ---- */

static void check_file(struct check *k, int fd, const char *what, uint64_t content)
{
	uint64_t bytes = ROUND_UP(content, (uint64_t)k->s->unit);
	struct statfs fs;
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		check_bad(k, 0, "%s: cannot be read", what);
		return;
	}
	if ((uint64_t)st.st_size < bytes)
		check_bad(k, 0, "%s: truncated, %llu bytes instead of %llu", what,
			  (unsigned long long)st.st_size, (unsigned long long)bytes);
	else if ((uint64_t)st.st_size > bytes)
		check_bad(k, 0, "%s: too long, %llu bytes instead of %llu", what,
			  (unsigned long long)st.st_size, (unsigned long long)bytes);
	else if (!fstatfs(fd, &fs) && fs.f_type != HUGETLBFS_MAGIC &&
		 (uint64_t)st.st_blocks * 512 < bytes)
		check_bad(k, 0, "%s: sparse, %llu bytes of %llu are backed by memory", what,
			  (unsigned long long)st.st_blocks * 512, (unsigned long long)bytes);
}

static void check_headers(struct check *k)
{
	const struct shm_header *a = &k->s->header;
	struct shm_header i, c;

	memcpy(&i, k->s->index, sizeof(i));
	memcpy(&c, k->s->control, sizeof(c));
	if (memcmp(&i, a, sizeof(i)))
		check_bad(k, 0, "index segment: the header has changed");
	if (c.magic != SHM_MAGIC_CONTROL)
		check_bad(k, 0, "control segment: no magic number");
	if (c.ready != SHM_READY)
		check_bad(k, 0, "control segment: not marked as complete");
	if (c.version != a->version || c.endian != a->endian)
		check_bad(k, 0, "control segment: of another version or byte order");
	if (memcmp(c.id, a->id, sizeof(c.id)))
		check_bad(k, 0, "control segment: belongs to another index segment");
	if (memcmp(&c.geometry, &a->geometry, sizeof(c.geometry)))
		check_bad(k, 0, "control segment: its geometry is not the index segment's");
	if (c.bytes != k->s->at.control_bytes)
		check_bad(k, 0, "control segment: its header speaks of %llu bytes, not %llu",
			  (unsigned long long)c.bytes, (unsigned long long)k->s->at.control_bytes);
	if (c.checksum != key_checksum(&c, offsetof(struct shm_header, checksum)))
		check_bad(k, 0, "control segment: the header's checksum is wrong");
}

void check_files(struct check *k)
{
	const struct shm_state *st = seg_state(k->s);

	check_file(k, k->s->index_fd, "index segment", k->s->at.index_bytes);
	check_file(k, k->s->control_fd, "control segment", k->s->at.control_bytes);
	if (k->s->lock_fd < 0)
		check_bad(k, 0, "lock file: missing, or of another cache");
	check_headers(k);
	if (st->events_floor > st->events_head)
		check_bad(k, 0, "changes feed: its floor %llu is above its head %llu",
			  (unsigned long long)st->events_floor,
			  (unsigned long long)st->events_head);
}

/* ---- one copy ---- */

static bool check_alloc(struct check *k)
{
	uint32_t n = k->s->header.geometry.max_blocks;
	uint64_t slots = 16;

	while (slots < 2ull * n)
		slots *= 2;
	k->pool_of = malloc(n);
	k->entries = malloc(n);
	k->named = malloc(n);
	k->by_key = malloc(slots * sizeof(*k->by_key));
	k->by_key_mask = slots - 1;
	if (k->pool_of && k->entries && k->named && k->by_key)
		return true;
	k->err = err_set(ENOMEM, "no memory to check %u blocks", n);
	return false;
}

static void check_free(struct check *k)
{
	free(k->pool_of);
	free(k->entries);
	free(k->named);
	free(k->by_key);
}

static void check_copy(struct check *k)
{
	struct key_secret secret;
	uint32_t n = k->s->header.geometry.max_blocks;

	memcpy(&secret, k->s->header.secret, sizeof(secret));
	key_masks(&secret, k->mask);
	memset(k->pool_of, SHM_NO_POOL, n);
	memset(k->entries, 0, n);
	memset(k->by_key, 0, (k->by_key_mask + 1) * sizeof(*k->by_key));
	k->seed[0] = check_mix(clock_ns(), (uintptr_t)k);
	k->seed[1] = check_mix(k->seed[0], (uintptr_t)k->by_key);

	check_files(k);
	check_pools(k); /* it finds the owner of each record, so it comes before the others */
	check_memory(k);
	check_control(k);
	check_table(k); /* it counts entries for check_records */
	check_records(k);
	check_holds(k);
	check_transfers(k);
	check_claims(k);
	check_memos(k);
	check_dropped(k);
	check_mirrors(k);
}

/* ---- several copies ---- */

static void pause_ms(uint32_t ms)
{
	struct timespec t = { .tv_nsec = ms * 1000000l };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static bool is_live(const struct segment *s)
{
	uint32_t p;

	if (segment_writer_alive(s))
		return true;
	for (p = 0; p < s->header.geometry.max_peers; p++)
		if (segment_peer_alive(s, p))
			return true;
	return false;
}

static int check_copies(struct check *k, struct segment *s)
{
	uint64_t *before = NULL;
	int copy, err = 0;

	for (copy = 0; !err; copy++) {
		k->last = copy == COPIES - 1 || k->still;
		k->unfinished = false;
		check_copy(k);
		err = k->err;
		free(before);
		before = k->now;
		k->before = before;
		k->nbefore = k->nnow;
		k->now = NULL;
		if (k->last || !k->nnow || err)
			break;
		qsort(before, k->nbefore, sizeof(*before), by_value);
		k->nnow = k->now_size = 0;
		pause_ms(2u << copy);
		if (copy == COPIES - 2 && k->unfinished)
			check_wait_passes(k, s);
		err = check_next_copy(k, s, is_live);
	}
	free(before);
	return err;
}

static int check_segment(struct check *k, struct segment *s)
{
	int err = check_next_copy(k, s, is_live);

	k->s = s;
	if (!err)
		err = check_alloc(k) ? check_copies(k, s) : -ENOMEM;
	check_free(k);
	return err ? err : (int)MIN(k->reported, (uint64_t)INT_MAX);
}

GPC_EXPORT int gpc_check(gpc *c, void (*report)(void *arg, const char *line), void *arg)
{
	struct check k = { .c = c, .report = report, .arg = arg };
	struct segment s;
	int err = handle_check(c, false);

	if (err)
		return err;
	err = segment_snapshot(&s, c->seg.name, c->seg.dir);
	if (err == -EBADMSG || err == -EPROTO) {
		k.last = true;
		check_bad(&k, 0, "segments: %s", gpc_last_error());
		return 1;
	}
	if (err)
		return err;
	if (memcmp(s.header.id, c->seg.header.id, sizeof(s.header.id)))
		err = err_set(ESTALE, "the name %s belongs to another cache by now", s.name);
	else
		err = check_segment(&k, &s);
	segment_close(&s);
	return err;
}
