/* SPDX-License-Identifier: Apache-2.0 */
/* What a takeover tells.  After a death, whichever store it came before: one quiet line, and one
 * for each dead seat.  After damage: what was dropped or repaired, how much and why, one line for
 * each cause; and the next takeover, which finds nothing, says nothing.
 * Tests: lib/index/takeover/say.c lib/index/takeover/takeover.c */
#include "t/lib/cache.h"

#include <sys/wait.h>
#include <syslog.h>

#include "index/peer/handle.h"
#include "kernels/probe.h"
#include "t/lib/stops.h"

enum { BLOCKS = 64, BUCKETS = 32, STORES = 2000, LINES = 64 };

static gpc *c;
static uint8_t *index_of_hand;
static char line[LINES][300]; /* that gpcd prints by default */
static int lines, dead;
static uint64_t keys;

static void heard(void *arg, int level, const char *text)
{
	(void)arg;
	if (level > LOG_INFO)
		return;
	if (strstr(text, " died: taking back"))
		dead++;
	else
		snprintf(line[lines++ % LINES], sizeof(line[0]), "%s", text);
}

static void begin(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .log = heard };
	struct gpc_config cfg = cache_config(BLOCKS, 0);

	c = cache_make(&cfg, &opt);
	if (info_of(c).buckets != BUCKETS)
		bail("the table has %u buckets", (unsigned)info_of(c).buckets);
}

static gpc_block publish(gpc_key k)
{
	gpc_block b;

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	if (must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1)) != 1)
		bail("a key has no place");
	must(gpc_release(c, &b, 1));
	return b;
}

static void writer_dies(void)
{
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &index_of_hand));
}

static void writer_comes(void)
{
	lines = dead = 0;
	must(gpc_writer_take(c, 0, 0));
	while (load_acquire(&seg_state(&c->seg)->recovering))
		must(gpc_writer_serve(c, 5));
	settle(c);
}

static void tells(const char *want, const char *what)
{
	int i, n = 0;

	segment_unmap_writer(&c->seg, index_of_hand);
	writer_comes();
	for (i = 0; i < lines; i++)
		n += strstr(line[i], want) != NULL;
	ok(n == 1 && lines == 2, "%s: one line for it", what);
	for (i = 0; i < lines && !(n == 1 && lines == 2); i++)
		diag("%s", line[i]);
	clean(c, what);
	must(gpc_writer_drop(c));
	writer_comes();
	is_int(lines, 1, "the next takeover says nothing of it");
}

static struct probe_entry *entry(uint32_t slot)
{
	return SEG_AT(index_of_hand, c->seg.at.table, struct probe_entry, slot);
}

static struct shm_record *record(gpc_block b)
{
	return SEG_AT(index_of_hand, c->seg.at.record, struct shm_record, (uint32_t)b);
}

/* ---- damage ---- */

static void test_checksums(void)
{
	gpc_block b[5], x;

	chain_make(c, 0, keys, 5, b);
	keys += 5;
	x = publish(key_of(c, keys++));
	writer_dies();
	record(b[2])->check ^= 1;
	record(x)->check ^= 1;
	tells("dropped 4 blocks: the records of 2 are damaged",
	      "two wrong checksums, one with a chain");
}

static void test_orphans(void)
{
	gpc_block b[4];

	chain_make(c, 0, keys, 4, b);
	keys += 4;
	writer_dies();
	memset(record(b[0])->key, 0x55, sizeof(record(b[0])->key));
	record(b[0])->check ^= 1;
	record(b[0])->word = WORD(DYING, WORD_GEN(record(b[0])->word));
	tells("dropped 3 blocks: the parents of 1 are lost", "a parent that is lost");
}

static void test_entries(void)
{
	writer_dies();
	*entry(8 * SHM_BUCKET + 2) = (struct probe_entry){ { 1, 2, 3u << 8, 40 } };
	*entry(9 * SHM_BUCKET + 2) = (struct probe_entry){ { 1, 2, 3u << 8, 40000 } };
	tells("wiped 2 entries of the table", "entries of nobody");
	writer_dies();
	*entry(8 * SHM_BUCKET + 2) = (struct probe_entry){ { 1, 2, 3u << 8, 0 } };
	*entry(9 * SHM_BUCKET + 2) = (struct probe_entry){ { 1, 2, 3u << 8, 0 } };
	tells("wiped 2 entries of the table", "more halves than a death leaves");
}

static void test_flags(void)
{
	struct probe_key p;
	gpc_block b[SHM_BUCKET + 1];
	gpc_key k;
	uint32_t i;

	for (i = 0; i <= SHM_BUCKET; i++) {
		do {
			k = key_of(c, keys++);
			p = probe_prepare(k.w[0], k.w[1], BUCKETS);
		} while (p.first != 5 || p.second != 20 + i);
		b[i] = publish(k);
	}
	writer_dies();
	if (!(entry(5 * SHM_BUCKET)->w[2] & PROBE_OVERFLOW))
		bail("nothing has spilled");
	entry(5 * SHM_BUCKET)->w[2] &= ~PROBE_OVERFLOW;
	tells("set 1 overflow flags that were missing", "a missing flag");
	for (i = 0; i <= SHM_BUCKET; i++)
		must(gpc_drop(c, &b[i], 1, NULL, 0, -1));
}

static void test_no_entries(void)
{
	gpc_block b[3];
	uint32_t i, j;

	for (i = 0; i < 3; i++)
		b[i] = publish(key_of(c, keys++));
	writer_dies();
	for (i = 0; i < BUCKETS * SHM_BUCKET; i++)
		for (j = 0; j < 3; j++)
			if (entry(i)->w[3] == (uint32_t)b[j] + 1)
				*entry(i) = (struct probe_entry){ { 0 } };
	tells("3 blocks had no entry in the table", "blocks without entries");
}

static void test_states(void)
{
	writer_dies();
	record(BLOCKS - 1)->word = WORD(7, 1);
	record(BLOCKS - 2)->owner = 200;
	record(BLOCKS - 2)->word = WORD(RESERVED, 1);
	tells("freed 2 blocks: their records were damaged", "no such state, no such owner");
}

/* ---- deaths ---- */

static uint64_t *count;

/* All that a writer may be in the middle of; false: it came to the end. */
static bool one_dies(uint64_t last)
{
	int status = 0;
	pid_t pid = fork();
	gpc_block b[3];
	gpc *d;

	if (pid < 0)
		bail("no process");
	if (pid) {
		while (waitpid(pid, &status, 0) < 0)
			;
		return WIFSIGNALED(status);
	}
	d = cache_attach(0, 0);
	must(gpc_writer_take(d, 0, 0));
	while (load_acquire(&seg_state(&d->seg)->recovering))
		must(gpc_writer_serve(d, 1));
	*count = 0;
	stops.count = count;
	stops.last = last;
	stops_begin();
	chain_make(d, 0, keys, 3, b);
	must(gpc_drop(d, &b[1], 1, NULL, 0, -1));
	must(gpc_evict(d, 0, 1, b, 0, 60000));
	_exit(0);
}

static void test_deaths(void)
{
	int loud = 0, seats = 0, rounds = 0;
	bool died = true;
	uint64_t n;

	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	for (n = 1; n < STORES && died; n += 2, keys += 3, rounds++) {
		must(gpc_writer_drop(c));
		died = one_dies(n);
		writer_comes();
		while (info_of(c).peers > 1)
			must(gpc_writer_serve(c, 5));
		if (lines != 1)
			diag("store %d: \"%s\", \"%s\"", (int)n, line[0], line[1]);
		loud += lines != 1;
		seats += dead;
		must(gpc_pool_clear(c, -1, 0, 0, 60000));
	}
	is_int(loud, 0, "a writer that dies before any of %d stores: one quiet line each", (int)n);
	is_int(seats, rounds, "and one for its seat");
	ok(!died, "all of its stores");
}

static int body(void)
{
	count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (count == MAP_FAILED)
		bail("no shared page");
	begin();
	test_checksums();
	test_orphans();
	test_entries();
	test_flags();
	test_no_entries();
	test_states();
	test_deaths();
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
