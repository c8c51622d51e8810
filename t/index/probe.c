/* SPDX-License-Identifier: Apache-2.0 */
/* index/probe - the walk that host and device share: buckets, entries, overflow flag.
 * Tests: kernels/probe.h */
#include <stdint.h>

#include "index/base/base.h"
#include "index/base/key.h"
#include "kernels/probe.h"
#include "t/lib/tap.h"

static const struct key_secret secret = { { 4, 2 } };

static gpc_key random_key(uint64_t i)
{
	gpc_key key = siphash128(&secret, &i, sizeof(i), 1, 3);

	key.w[1] &= ~KEY_ROOT_BIT;
	return key;
}

static struct probe_key prepare(gpc_key key, uint32_t buckets)
{
	return probe_prepare(key.w[0], key.w[1], buckets);
}

static struct probe_entry entry_of(struct probe_key p, int32_t block)
{
	return (struct probe_entry){ { p.w[0], p.w[1], p.w[2], (uint32_t)block + 1 } };
}

static void test_buckets(void)
{
	static const uint32_t buckets[] = { 2,    3,     4,       5,        7,         64,
					    1000, 32768, 1000003, 1u << 27, UINT32_MAX };
	size_t i;
	uint64_t k;
	int same = 0, out = 0;

	for (i = 0; i < ARRAY_SIZE(buckets); i++)
		for (k = 0; k < 20000; k++) {
			struct probe_key p = prepare(random_key(k), buckets[i]);

			same += p.first == p.second;
			out += p.first >= buckets[i] || p.second >= buckets[i];
		}
	is_int(same, 0, "the second bucket is never the first");
	is_int(out, 0, "both are in the table");

	same = out = 0;
	for (i = 0; i < ARRAY_SIZE(buckets); i++)
		for (k = 0; k < 128; k++) { /* keys with hardly a bit set */
			gpc_key key = { { k < 64 ? 1ull << k : 0, k < 64 ? 0 : 1ull << (k - 64) } };
			struct probe_key p = prepare(key, buckets[i]);

			same += p.first == p.second;
			out += p.first >= buckets[i] || p.second >= buckets[i];
		}
	is_int(same + out, 0, "not for the poorest keys either");
}

/* Buckets come only from bits that the entry does not store (rule T4). */
static void test_independence(void)
{
	gpc_key key = random_key(1), flipped;
	struct probe_key p = prepare(key, 1u << 20), q;
	int i, moved = 0, stayed = 0, equal = 0;

	for (i = 0; i < 88; i++) {
		flipped = key;
		flipped.w[i >> 6] ^= 1ull << (i & 63);
		q = prepare(flipped, 1u << 20);
		moved += q.first != p.first || q.second != p.second;
		equal += !memcmp(q.w, p.w, sizeof(p.w));
	}
	is_int(moved, 0, "the 88 stored bits do not choose the buckets");
	is_int(equal, 0, "and each of them is stored");
	for (i = 88; i < 128; i++) {
		flipped = key;
		flipped.w[1] ^= 1ull << (i - 64);
		q = prepare(flipped, 1u << 20);
		stayed += q.first == p.first && q.second == p.second;
		equal += memcmp(q.w, p.w, sizeof(p.w)) != 0;
	}
	is_int(stayed, 0, "each of the other 40 does");
	is_int(equal, 0, "and is not stored");
}

#define SPREAD 1024u
static void test_spread(void)
{
	static uint32_t first[SPREAD], second[SPREAD];
	uint32_t i, low = UINT32_MAX, high = 0;

	for (i = 0; i < SPREAD * 100; i++) {
		struct probe_key p = prepare(random_key(i), SPREAD);

		first[p.first]++;
		second[p.second]++;
	}
	for (i = 0; i < SPREAD; i++) {
		low = MIN(low, MIN(first[i], second[i]));
		high = MAX(high, MAX(first[i], second[i]));
	}
	ok(low > 45 && high < 165, "buckets get their share: %u to %u of 100", low, high);
}

static void test_match(void)
{
	struct probe_entry none = { { 0, 0, 0, 0 } };
	int i, j, own = 0, others = 0, empty = 0;
	struct probe_key p[64];

	for (i = 0; i < 64; i++)
		p[i] = prepare(random_key((uint64_t)i), 64);
	for (i = 0; i < 64; i++) {
		empty += probe_entry_block(none, p[i]) != -1;
		for (j = 0; j < 64; j++) {
			int32_t got = probe_entry_block(entry_of(p[i], i << 24 | 77), p[j]);

			own += i == j && got == (i << 24 | 77);
			others += i != j && got != -1;
		}
	}
	is_int(own, 64, "an entry answers to its own key");
	is_int(others, 0, "and to no other");
	is_int(empty, 0, "an empty one to none");
	is_int(probe_entry_block(entry_of(p[0], 0), p[0]), 0, "block 0 is a block");
	is_int(probe_entry_block(entry_of(p[0], INT32_MAX), p[0]), INT32_MAX, "the last, too");
	is_int(probe_entry_block(entry_of(p[0], -1), p[0]), -1, "block word 0 is a miss");
}

static void test_flag(void)
{
	struct probe_key p = prepare(random_key(9), 64);
	struct probe_entry e = entry_of(p, 5), none = { { 0, 0, PROBE_OVERFLOW, 0 } };

	ok(!probe_overflows(e), "no flag");
	e.w[2] |= PROBE_OVERFLOW;
	ok(probe_overflows(e), "a flag");
	is_int(probe_entry_block(e, p), 5, "does not disturb the key");
	ok(probe_overflows(none), "nor needs one");
	is_int(probe_entry_block(none, p), -1, "an empty entry with the flag is a miss");
	is_int(PROBE_OVERFLOW & PROBE_KEY2, 0, "flag and key bits are apart");
}

/* Zero words in a key: half of an entry must not look like one (rule T4). */
static void test_torn(void)
{
	uint64_t zeros[] = { 0, 1ull << 32, 0xffffffff00000000ull, 1, 0xffffffff };
	int i, mix, words = 0, wrong = 0;
	size_t z;

	for (z = 0; z < ARRAY_SIZE(zeros); z++)
		for (i = 0; i < 2; i++) {
			gpc_key key = { { zeros[z], i ? 0xabcdefull << 24 : 0 } };
			struct probe_key p = prepare(key, 64);
			struct probe_entry e = entry_of(p, 3), torn;

			words += !p.w[0] || !p.w[1] || !(p.w[2] & PROBE_KEY2);
			for (mix = 0; mix < 15; mix++) {
				int w;

				for (w = 0; w < 4; w++)
					torn.w[w] = mix >> w & 1 ? e.w[w] : 0;
				wrong += probe_entry_block(torn, p) != -1;
			}
			wrong += probe_entry_block(e, p) != 3;
		}
	is_int(words, 0, "no key word of an entry is zero, whatever the key");
	is_int(wrong, 0, "any mix of an entry and zeros is the entry or a miss");
}

static int body(void)
{
	test_buckets();
	test_independence();
	test_spread();
	test_match();
	test_flag();
	test_torn();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
