/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store of a root's fields in turn.  They are there or not, and never
 * others; the next writer runs the command again, and then they are there, and no other root has
 * gone that need not.
 * Tests: lib/index/table/memo.c lib/index/segment/root.c */
#include "t/lib/counts.h"
#include "index/segment/segment.h"

#include "t/lib/dies.h"

enum { BLOCKS = 8, STORES = 1000, FULL = 300 };

static bool has(uint64_t n, uint32_t len)
{
	struct gpc_field f;
	char want[64], data[GPC_ROOT_BYTES];
	gpc_key root;

	memset(want, (int)('a' + n % 26), sizeof(want));
	memcpy(want, &n, sizeof(n));
	must(gpc_key_root(c, &(struct gpc_field){ .tag = 3, .len = len, .data = want }, 1, &root));
	return gpc_root_get(c, &root, &f, 1, data, sizeof(data)) == 1 && f.tag == 3 &&
	       f.len == len && !memcmp(f.data, want, len);
}

/* What gpc_root_keep gives to the writer. */
static struct shm_command request(uint64_t n, uint32_t len)
{
	struct shm_words *words = &dies_seat(c)->words;
	char want[64];
	uint64_t head = 3 | (uint64_t)len << 32;
	gpc_key root;

	memset(want, (int)('a' + n % 26), sizeof(want));
	memcpy(want, &n, sizeof(n));
	must(gpc_key_root(c, &(struct gpc_field){ .tag = 3, .len = len, .data = want }, 1, &root));
	memset(words, 0, sizeof(*words));
	words->field[0] = head;
	memcpy(&words->field[1], want, len);
	words->words = 1 + len / 8;
	return (struct shm_command){ .op = CMD_ROOT, .root.key = { root.w[0], root.w[1] } };
}

static int kept(uint64_t from, uint64_t to, uint32_t len)
{
	int there = 0;

	for (; from < to; from++)
		there += has(from, len);
	return there;
}

static void fill(uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		char want[64];

		memset(want, (int)('a' + i % 26), sizeof(want));
		memcpy(want, &i, sizeof(i));
		must(gpc_root_keep(c, &(struct gpc_field){ .tag = 3, .len = 16, .data = want }, 1,
				   NULL, 0, -1));
	}
}

static bool round_of(uint64_t n, uint64_t store, bool *died)
{
	int before = kept(0, FULL, 16), after, i;
	bool good;

	must(gpc_writer_drop(c));
	*died = writer_dies(request(n, 48), store);
	after = kept(0, FULL, 16);
	good = after >= before - 1;
	must(gpc_writer_take(c, 0, 0));
	good = good && counts_agree(c);
	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	return good && command(c)->result == 0 && has(n, 48) && kept(0, FULL, 16) >= after - 1 &&
	       kept(0, FULL, 16) >= before - 1 && gpc_check(c, NULL, NULL) == 0;
}

static void test_stores(const char *what, uint64_t others)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	bool died = true, good = true;
	uint64_t n;

	cfg.keep_digests = 1;
	c = cache_make(&cfg, NULL);
	fill(others);
	for (n = 1; n < STORES && died && good; n++)
		good = round_of(FULL + n, n, &died);
	ok(good, "a writer dies before store %d of a root %s", (int)n - 1, what);
	ok(!good || (!died && n > 10), "all of its stores: %d", (int)n - 2);
	clean(c, what);
	cache_end(c);
}

/* Who can write to its seat can ask for anything. */
static void test_liars(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	struct shm_command cmd;
	int i, k;

	cfg.keep_digests = 1;
	c = cache_make(&cfg, NULL);
	for (k = 0; k < 4; k++) {
		cmd = request(1, 48);
		if (k == 0)
			dies_seat(c)->words.field[1] ^= 1;
		if (k == 1)
			dies_seat(c)->words.words = UINT64_MAX;
		if (k == 2)
			dies_seat(c)->words.field[0] |= 0xffull << 56;
		if (k == 3)
			dies_seat(c)->words.words = 6;
		submit(c, cmd);
		for (i = 0; i < 2000 && waits(c); i++)
			must(gpc_writer_serve(c, 1));
		is_int(command(c)->result, -EINVAL, "liar %d is refused", k);
	}
	ok(!has(1, 48), "and nothing is kept");
	clean(c, "liars");
	cache_end(c);
}

static int body(void)
{
	test_stores("where there is room", 0);
	test_stores("in a full bucket", FULL);
	test_liars();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
