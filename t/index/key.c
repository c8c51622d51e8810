/* SPDX-License-Identifier: Apache-2.0 */
/* index/key - SipHash against another implementation, and what chains of keys promise.
 *
 * Vectors: key 00 01 .. 0f, message 00 01 02 .., 128 bits of output, as
 *	openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f -macopt size:16 \
 *		-macopt c-rounds:1 -macopt d-rounds:3 -in FILE SIPHASH
 * prints them; those of 2-4 are the published ones of the algorithm.
 * Tests: lib/index/base/key.c lib/index/base/sip.h */
#include <errno.h>
#include <stdint.h>

#include "index/base/key.h"
#include "t/lib/tap.h"

static const struct key_secret secret = { { 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull } };

static const struct vector {
	int c, d;
	size_t n;
	const char *mac;
} vectors[] = {
	{ 2, 4, 0, "a3817f04ba25a8e66df67214c7550293" },
	{ 2, 4, 1, "da87c1d86b99af44347659119b22fc45" },
	{ 2, 4, 7, "a1f1ebbed8dbc153c0b84aa61ff08239" },
	{ 2, 4, 8, "3b62a9ba6258f5610f83e264f31497b4" },
	{ 2, 4, 9, "264499060ad9baabc47f8b02bb6d71ed" },
	{ 2, 4, 15, "5493e99933b0a8117e08ec0f97cfc3d9" },
	{ 2, 4, 16, "6ee2a4ca67b054bbfd3315bf85230577" },
	{ 2, 4, 63, "5150d1772f50834a503e069a973fbd7c" },
	{ 2, 4, 64, "1eaf077dc0d4cd3f8cad4d383658a74b" },
	{ 2, 4, 255, "1c9bb67528165f8e468248e3799b0eab" },
	{ 2, 4, 256, "67a00304d3834c4612eaee7b5f579acb" },
	{ 2, 4, 1000, "24dafa789ae03d86536a4b57372f0ba6" },
	{ 1, 3, 0, "e77ebcb22788a5befd62db6add303001" },
	{ 1, 3, 1, "fc6f370460d3eda85e0573cc2b2ff063" },
	{ 1, 3, 7, "1084b923f2aae0c3a62f2ec80848ab77" },
	{ 1, 3, 8, "aa12fee1d5e3dab4724f16ab35f9c799" },
	{ 1, 3, 9, "81ddb8042cf33994f4720e0094137c42" },
	{ 1, 3, 15, "c17e5505b2bd526c2921cdec1e7e0109" },
	{ 1, 3, 16, "d0a8d95715518eebb513b0f83d9e1793" },
	{ 1, 3, 63, "4c5800e34efe426f079f6b0aa75260ad" },
	{ 1, 3, 64, "1253def24b4aa5364ec8a759ba6a66c2" },
	{ 1, 3, 255, "f528a4c10a2158a5f1a465d0aebb3ee9" },
	{ 1, 3, 256, "f56c8b243a0c025a6a687aa2b99c707a" },
	{ 1, 3, 1000, "e782faff9d1d1648254286a620d3f3fa" },
};

/* the bytes of a key as they lie in memory on a little endian machine */
static const char *hex(gpc_key key)
{
	static char text[4][33];
	static int turn;
	char *out = text[turn++ & 3];
	int i;

	for (i = 0; i < 16; i++)
		sprintf(out + 2 * i, "%02x", (unsigned)(key.w[i >> 3] >> (8 * (i & 7)) & 0xff));
	return out;
}

static void test_vectors(void)
{
	uint8_t data[1000];
	size_t i;

	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	for (i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];

		is_str(hex(siphash128(&secret, data, v->n, v->c, v->d)), v->mac,
		       "SipHash-%d-%d-128 of %zu bytes", v->c, v->d, v->n);
	}
}

/* The layouts of messages are part of the hash's name: these came from openssl too, with
 * the message put together by hand as key.c describes it, bit 127 cleared or set after
 * that. */
static void test_layouts(void)
{
	const char *group = "\x88\x77\x66\x55\x44\x33\x22\x11";
	struct gpc_field f[] = { { 1, 0, 7, "model-x" }, { 3, 0, 0, NULL } };
	struct gpc_extra x[] = { { 0, 5, "hello" }, { 2, 8, "eightbyt" } };
	uint32_t t[16], i, odd[] = { 7, 8, 9 };
	gpc_key k, parent, mask[GPC_MAX_SPACES];
	uint8_t bytes[16];

	for (i = 0; i < 16; i++)
		t[i] = 100 + i;
	is_int(key_hash(&secret, 16, &(struct gpc_prompt){ .tokens = t, .n = 16, .ret_keys = &k },
			1, 0, NULL),
	       1, "one block");
	is_str(hex(k), "8cb4aa614bd859411333823a4516c125", "its key");
	for (i = 0; i < 16; i++)
		bytes[i] = (uint8_t)(i + 1);
	memcpy(&parent, bytes, 16);
	is_int(key_hash(&secret, 3,
			&(struct gpc_prompt){ .parent = &parent,
					      .tokens = odd,
					      .n = 3,
					      .x = x,
					      .nx = 2,
					      .ret_keys = &k },
			1, 0, NULL),
	       1, "odd, extras");
	is_str(hex(k), "284319015f8e5384f592aea256459346", "its key");
	is_int(key_root(&secret, f, 2, &k), 0, "root");
	is_str(hex(k), "b336b0bb8eca6c21da8c06c90400c5b6", "its key");
	is_int(key_import(&secret, group, 8, 8, 1, 5, &k), 0, "import");
	is_str(hex(k), "85609b4f0c9cef723790b0b050cff53e", "its key");
	is_int(key_hash(&secret, 16,
			&(struct gpc_prompt){ .group = 7, .tokens = t, .n = 16, .ret_keys = &k }, 1,
			GPC_GROUP, NULL),
	       1, "one of a group");
	is_str(hex(k), "08d5d659490131a874873c239f2f3565", "its key");
	is_int(key_hash(&secret, 16,
			&(struct gpc_prompt){ .group = 7,
					      .parent = &parent,
					      .tokens = odd,
					      .n = 3,
					      .x = x,
					      .nx = 2,
					      .ret_keys = &k },
			1, GPC_GROUP | GPC_TAIL, NULL),
	       1, "a tail, extras");
	is_str(hex(k), "9f50662d263e2386e8f6c392dab95f24", "its key");
	key_masks(&secret, mask);
	is_str(hex(mask[1]), "0211dbbadafcc919645cced478fc3928", "mask of space 1");
}

static void test_masks(void)
{
	gpc_key mask[GPC_MAX_SPACES];
	int i, j, bad = 0;

	key_masks(&secret, mask);
	ok(key_is_zero(&mask[0]), "space 0 has no mask");
	for (i = 1; i < GPC_MAX_SPACES; i++) {
		bad += key_is_zero(&mask[i]) || key_is_root(&mask[i]);
		for (j = 0; j < i; j++)
			bad += key_same(&mask[i], &mask[j]);
	}
	is_int(bad, 0, "masks differ, none is zero or has the root bit");
}

#define TOKENS 1000
static uint32_t tokens[TOKENS];

/* keys of the first n tokens; returns their number */
static int chain(uint32_t block, const gpc_key *parent, size_t n, bool tail, gpc_key *keys)
{
	return key_hash(&secret, block,
			&(struct gpc_prompt){
				.parent = parent, .tokens = tokens, .n = n, .ret_keys = keys },
			1, tail ? GPC_TAIL : 0, NULL);
}

static void test_length(void)
{
	static const uint32_t blocks[] = { 1, 2, 3, 16, 17, 999, 1000, 1001 };
	gpc_key keys[TOKENS + 1];
	size_t i, n;
	int bad = 0;

	for (i = 0; i < ARRAY_SIZE(blocks); i++)
		for (n = 0; n <= TOKENS; n += 1 + n / 7) {
			uint32_t b = blocks[i];

			keys[n / b] = (gpc_key){ { 7, 7 } };
			bad += chain(b, NULL, n, false, keys) != (int)(n / b);
			bad += keys[n / b].w[0] != 7;
			bad += chain(b, NULL, n, true, keys) != (int)((n + b - 1) / b);
		}
	is_int(bad, 0, "one key a full block, one more with a tail, nothing written beyond");
}

static void test_chain(void)
{
	gpc_key a[64], b[64], c[64], root;
	struct key_secret other = { { 1, 2 } };
	int n, i, bad = 0;

	n = chain(16, NULL, TOKENS, false, a);
	is_int(n, 62, "62 blocks");
	is_int(chain(16, NULL, TOKENS, false, b), n, "again");
	ok(!memcmp(a, b, sizeof(*a) * (size_t)n), "same tokens, same keys");
	for (i = 0; i < n; i++)
		bad += key_is_zero(&a[i]) || key_is_root(&a[i]);
	is_int(bad, 0, "no key is zero or has the root bit");

	key_hash(
		&secret, 16,
		&(struct gpc_prompt){
			.parent = &a[9], .tokens = tokens + 160, .n = TOKENS - 160, .ret_keys = b },
		1, 0, NULL);
	ok(!memcmp(a + 10, b, sizeof(*a) * 52), "a chain goes on from any of its keys");
	memcpy(c, a, sizeof(c));
	key_hash(&secret, 16,
		 &(struct gpc_prompt){ .parent = &c[9],
				       .tokens = tokens + 160,
				       .n = TOKENS - 160,
				       .ret_keys = c + 9 },
		 1, 0, NULL);
	ok(!memcmp(a + 10, c + 9, sizeof(*a) * 52), "the parent may lie in the output");

	tokens[500] ^= 1;
	chain(16, NULL, TOKENS, false, b);
	tokens[500] ^= 1;
	for (i = 0; i < n; i++)
		bad += key_same(&a[i], &b[i]) != (i < 31);
	is_int(bad, 0, "one token changes its block and all after it");

	key_hash(&other, 16, &(struct gpc_prompt){ .tokens = tokens, .n = TOKENS, .ret_keys = b },
		 1, 0, NULL);
	key_root(&secret, NULL, 0, &root);
	key_hash(&secret, 16,
		 &(struct gpc_prompt){
			 .parent = &root, .tokens = tokens, .n = TOKENS, .ret_keys = c },
		 1, 0, NULL);
	for (i = 0; i < n; i++)
		bad += key_same(&a[i], &b[i]) || key_same(&a[i], &c[i]);
	is_int(bad, 0, "another secret or root, other keys");
	chain(8, NULL, 256, false, b);
	ok(!key_same(&a[0], &b[1]), "the size of blocks matters");
}

static void test_tail(void)
{
	gpc_key a[8], b[8];
	int i, j, bad = 0;

	for (i = 1; i < 16; i++) {
		chain(16, NULL, 32 + (size_t)i, true, a);
		chain(16, NULL, 48, true, b);
		bad += !key_same(&a[1], &b[1]) || key_same(&a[2], &b[2]);
		for (j = 1; j < i; j++) {
			chain(16, NULL, 32 + (size_t)j, true, b);
			bad += key_same(&a[2], &b[2]);
		}
	}
	is_int(bad, 0, "tails of every length have keys of their own");
	tokens[32] = tokens[33] = 0;
	chain(16, NULL, 33, true, a);
	chain(16, NULL, 34, true, b);
	ok(!key_same(&a[2], &b[2]), "a token 0 is not padding");
	tokens[32] = tokens[33] = 12345;
}

static void with_extra(const struct gpc_extra *x, uint32_t nx, gpc_key keys[4])
{
	if (key_hash(&secret, 16,
		     &(struct gpc_prompt){
			     .tokens = tokens, .n = 64, .x = x, .nx = nx, .ret_keys = keys },
		     1, 0, NULL) != 4)
		bail("key_hash failed: %s", gpc_last_error());
}

static void test_extras(void)
{
	struct gpc_extra one = { 20, 9, "image one" }, moved = { 21, 9, "image one" };
	struct gpc_extra longer = { 20, 10, "image one" }, last = { 63, 1, "x" };
	struct gpc_extra two[] = { { 20, 4, "imag" }, { 20, 5, "e one" } };
	struct gpc_extra empty = { 20, 0, NULL }, first_of_next = { 32, 9, "image one" };
	gpc_key none[4], a[4], b[4];

	with_extra(NULL, 0, none);
	with_extra(&one, 1, a);
	ok(key_same(&none[0], &a[0]), "an extra leaves the blocks before it alone");
	ok(!key_same(&none[1], &a[1]) && !key_same(&none[2], &a[2]),
	   "and changes its own and those after it");
	with_extra(&moved, 1, b);
	ok(!key_same(&a[1], &b[1]), "its place in the block matters");
	with_extra(&longer, 1, b);
	ok(!key_same(&a[1], &b[1]), "padding is not content");
	with_extra(two, 2, b);
	ok(!key_same(&a[1], &b[1]), "two extras are not one");
	with_extra(&empty, 1, b);
	ok(!key_same(&none[1], &b[1]), "an empty extra is there too");
	with_extra(&first_of_next, 1, b);
	ok(key_same(&none[1], &b[1]) && !key_same(&none[2], &b[2]), "edge of a block");
	with_extra(&last, 1, b);
	ok(key_same(&none[2], &b[2]) && !key_same(&none[3], &b[3]), "the last token");

	with_extra(two, 2, a);
	key_hash(&secret, 16, &(struct gpc_prompt){ .tokens = tokens, .n = 16, .ret_keys = b }, 1,
		 0, NULL);
	two[0].token -= 16;
	two[1].token -= 16;
	key_hash(&secret, 16,
		 &(struct gpc_prompt){ .parent = &b[0],
				       .tokens = tokens + 16,
				       .n = 48,
				       .x = two,
				       .nx = 2,
				       .ret_keys = b + 1 },
		 1, 0, NULL);
	ok(!memcmp(a, b, sizeof(a)), "offsets count from the block, not from the call");
	ok(key_hash(
		   &secret, 16,
		   &(struct gpc_prompt){
			   .tokens = tokens, .n = 40, .x = &first_of_next, .nx = 1, .ret_keys = b },
		   1, 0, NULL) == 2 &&
		   key_same(&b[1], &none[1]),
	   "an extra in an unhashed tail does nothing");
}

static void test_roots(void)
{
	struct gpc_field ab[] = { { 1, 0, 1, "a" }, { 2, 0, 1, "b" } };
	struct gpc_field ba[] = { { 2, 0, 1, "b" }, { 1, 0, 1, "a" } };
	struct gpc_field joined[] = { { 1, 0, 2, "ab" } }, tag[] = { { 2, 0, 2, "ab" } };
	struct gpc_field empty[] = { { 1, 0, 0, NULL } };
	gpc_key k[6];
	int i, j, bad = 0;

	key_root(&secret, ab, 2, &k[0]);
	key_root(&secret, ba, 2, &k[1]);
	key_root(&secret, joined, 1, &k[2]);
	key_root(&secret, tag, 1, &k[3]);
	key_root(&secret, empty, 1, &k[4]);
	key_root(&secret, NULL, 0, &k[5]);
	for (i = 0; i < 6; i++) {
		bad += !key_is_root(&k[i]);
		for (j = 0; j < i; j++)
			bad += key_same(&k[i], &k[j]);
	}
	is_int(bad, 0, "roots differ by tag, content, order, number; all have the bit");
}

static void test_imports(void)
{
	uint8_t digests[100], shifted[101];
	gpc_key a[4], b[4], root;
	struct gpc_field f = { 0, 0, 16, digests };
	int i;

	for (i = 0; i < 100; i++)
		digests[i] = (uint8_t)(i * 37);
	memcpy(shifted + 1, digests, 100);
	is_int(key_import(&secret, digests, 16, 20, 4, 0, a), 0, "four digests");
	key_import(&secret, shifted + 1, 16, 20, 4, 0, b);
	ok(!memcmp(a, b, sizeof(a)), "alignment does not matter");
	key_import(&secret, digests + 20, 16, 20, 1, 0, b);
	ok(key_same(&a[1], &b[0]), "nor does the place in the list");
	key_import(&secret, digests, 16, 20, 4, 1, b);
	ok(!key_same(&a[0], &b[0]), "the group matters");
	key_import(&secret, digests, 15, 20, 1, 0, b);
	ok(!key_same(&a[0], &b[0]), "the length matters");
	key_root(&secret, &f, 1, &root);
	root.w[1] &= ~KEY_ROOT_BIT;
	ok(!key_same(&root, &a[0]), "a root is no import");
	ok(!key_is_root(&a[0]) && !key_is_root(&a[1]) && !key_is_root(&a[2]) && !key_is_root(&a[3]),
	   "imported keys are no roots");
	is_int(key_import(&secret, NULL, 8, 8, 0, 0, NULL), 0, "none is fine");
}

static void test_refusals(void)
{
	struct gpc_extra x[] = { { 9, 1, "a" }, { 3, 1, "b" } }, past = { 32, 1, "a" };
	struct gpc_extra no_data = { 3, 1, NULL };
	struct gpc_field f = { 1, 0, 3, NULL }, reserved = { 1, 9, 1, "a" };
	gpc_key k[4] = { { { 5, 5 } } };

#define REFUSED(call, what)                                                     \
	do {                                                                    \
		is_int(call, -EINVAL, "refused: %s", what);                     \
		ok(*gpc_last_error(), "with a sentence: %s", gpc_last_error()); \
	} while (0)
	REFUSED(key_hash(&secret, 16, &(struct gpc_prompt){ .n = 16, .ret_keys = k }, 1, 0, NULL),
		"no tokens");
	REFUSED(key_hash(&secret, 16, &(struct gpc_prompt){ .tokens = tokens, .n = 16 }, 1, 0,
			 NULL),
		"no output");
	REFUSED(key_hash(&secret, 16,
			 &(struct gpc_prompt){ .tokens = tokens, .n = 32, .nx = 1, .ret_keys = k },
			 1, 0, NULL),
		"no extras");
	REFUSED(key_hash(&secret, 16,
			 &(struct gpc_prompt){
				 .tokens = tokens, .n = 32, .x = x, .nx = 2, .ret_keys = k },
			 1, 0, NULL),
		"unsorted extras");
	REFUSED(key_hash(&secret, 16,
			 &(struct gpc_prompt){
				 .tokens = tokens, .n = 32, .x = &past, .nx = 1, .ret_keys = k },
			 1, 0, NULL),
		"extra past the end");
	REFUSED(key_hash(&secret, 16,
			 &(struct gpc_prompt){
				 .tokens = tokens, .n = 32, .x = &no_data, .nx = 1, .ret_keys = k },
			 1, 0, NULL),
		"extra, no data");
	REFUSED(key_hash(&secret, 1,
			 &(struct gpc_prompt){ .tokens = tokens, .n = 1ull << 31, .ret_keys = k },
			 1, 0, NULL),
		"2^31 keys");
	REFUSED(key_root(&secret, NULL, 1, k), "no fields");
	REFUSED(key_root(&secret, &f, 1, k), "field without data");
	REFUSED(key_root(&secret, &reserved, 1, k), "reserved word of a field");
	REFUSED(key_root(&secret, NULL, 0, NULL), "no place for the root");
	REFUSED(key_import(&secret, tokens, 0, 8, 1, 0, k), "digests of 0 bytes");
	REFUSED(key_import(&secret, tokens, 8, 7, 1, 0, k), "overlapping digests");
	REFUSED(key_import(&secret, NULL, 8, 8, 1, 0, k), "no digests");
	REFUSED(key_import(&secret, tokens, 8, 8, 1, 0, NULL), "no place for keys");
	REFUSED(key_import(&secret, tokens, 8, 8, 1u << 31, 0, k), "2^31 digests");
	ok(k[0].w[0] == 5 && k[0].w[1] == 5, "and nothing was written");
	is_int(key_hash(&secret, 16, &(struct gpc_prompt){}, 1, GPC_TAIL, NULL), 0,
	       "0 tokens: 0 keys");
}

static void test_checks(void)
{
	uint64_t words[4] = { 1, 2, 3, 4 };
	uint16_t first = key_check(words, words + 2, 5, 6);
	uint8_t data[64] = "some bytes";
	uint64_t sum = key_checksum(data, 64);
	int i, same = 0, same_sum = 0;

	for (i = 0; i < 256; i++) {
		words[i >> 6] ^= 1ull << (i & 63);
		same += key_check(words, words + 2, 5, 6) == first;
		words[i >> 6] ^= 1ull << (i & 63);
	}
	same += key_check(words, words + 2, 4, 6) == first;
	same += key_check(words, words + 2, 5, 7) == first;
	is_int(same, 0, "every bit of a record changes its check");
	for (i = 0; i < 512; i++) {
		data[i >> 3] ^= (uint8_t)(1 << (i & 7));
		same_sum += key_checksum(data, 64) == sum;
		data[i >> 3] ^= (uint8_t)(1 << (i & 7));
	}
	is_int(same_sum, 0, "every bit of a header changes its checksum");
}

static int body(void)
{
	uint32_t i;

	for (i = 0; i < TOKENS; i++)
		tokens[i] = i * 2654435761u;
	test_vectors();
	test_layouts();
	test_masks();
	test_length();
	test_chain();
	test_tail();
	test_extras();
	test_roots();
	test_imports();
	test_refusals();
	test_checks();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
