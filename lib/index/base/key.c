/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - keyed hashing of prompts.
 *
 * SipHash with 128 bits of output.  Every message is made of whole 64-bit words, so
 * nothing is buffered and a prompt is hashed where it lies.  Byte strings are padded
 * with zeros to whole words and have their length in front; the first word of a message
 * has its domain in the low byte.  So no two different inputs make the same message.
 *
 *   block    {domain 8, tokens 24, extras 32}  parent 16 bytes  tokens u32 each, padded
 *            for each extra: {offset in the block 32, len 32}  data padded
 *   of group {domain 8, tokens 24, extras 32}  {group 32, block_tokens 32}  parent and on as in a
 *   block
 *   root     {domain 8, fields 32 << 32}
 *            for each field: {tag 16, len 32 << 32}  data padded
 *   import   {domain 8, group 32 << 32}  {bytes}  data padded
 *   mask     {domain 8, space 32 << 32}
 *
 * All words are little endian.  These layouts are for ever: a change is another hash
 * name.  many.c makes the messages of blocks without extras, too.
 * Tests: t/index/key.t t/index/keys.t */
#include "index/base/key.h"

#include <errno.h>
#include <string.h>

#include "index/base/err.h"
#include "index/base/sip.h"

/* ---- SipHash ---- */

/* n < 8 bytes, zeros above */
static inline uint64_t load_part(const void *p, size_t n)
{
	uint64_t v = 0;

	if (n)
		memcpy(&v, p, n);
	return le64toh(v);
}

gpc_key siphash128(const struct key_secret *s, const void *data, size_t n, int c, int d)
{
	struct sip sip = sip_start(s);
	const uint8_t *p = data;
	size_t left;

	for (left = n; left >= 8; left -= 8, p += 8)
		sip_word(&sip, load_word(p), c);
	return sip_end(&sip, load_part(p, left) | (uint64_t)n << 56, c, d);
}

/* ---- messages of whole words ---- */

struct message {
	struct sip sip;
	uint64_t bytes;
};

static inline struct message message_start(const struct key_secret *s)
{
	return (struct message){ .sip = sip_start(s) };
}

static inline void message_word(struct message *m, uint64_t word)
{
	sip_word(&m->sip, word, ROUNDS_C);
	m->bytes += 8;
}

static void message_data(struct message *m, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (; n >= 8; n -= 8, p += 8)
		message_word(m, load_word(p));
	if (n)
		message_word(m, load_part(p, n));
}

static inline gpc_key message_end(struct message *m)
{
	return sip_end(&m->sip, m->bytes << 56, ROUNDS_C, ROUNDS_D);
}

/* Zero means no key.  This is a call of its own so that it stays a branch.  With a conditional
 * move w[0] would wait for w[1], and the next block of a chain waits for w[0]. */
static __attribute__((cold, noinline)) gpc_key key_one(void)
{
	return (gpc_key){ { 1, 0 } };
}

static inline gpc_key block_key(gpc_key key)
{
	key.w[1] &= ~KEY_ROOT_BIT;
	return __builtin_expect(key_is_zero(&key), 0) ? key_one() : key;
}

/* ---- masks and checksums ---- */

void key_masks(const struct key_secret *s, gpc_key mask[GPC_MAX_SPACES])
{
	uint32_t i;

	mask[0] = (gpc_key){ { 0, 0 } };
	for (i = 1; i < GPC_MAX_SPACES; i++) {
		struct message m = message_start(s);

		message_word(&m, DOMAIN_MASK | (uint64_t)i << 32);
		mask[i] = block_key(message_end(&m));
	}
}

static const struct key_secret no_secret = { { 0x6770632068656164ull, 0x657220636865636bull } };

/* Against accidents, not people: a process that can write a record can write its check. */
uint64_t key_checksum(const void *data, size_t n)
{
	gpc_key key = siphash128(&no_secret, data, n, ROUNDS_C, ROUNDS_D);

	return key.w[0] ^ key.w[1];
}

/* ---- roots and imports ---- */

int key_root(const struct key_secret *s, const struct gpc_field *f, uint32_t n, gpc_key *ret)
{
	struct message m = message_start(s);
	gpc_key key;
	uint32_t i;

	if (!ret || (n && !f))
		return err_set(EINVAL, "root: %s is NULL",
			       ret ? "the list of fields" : "the place of the result");
	if (n > INT32_MAX)
		return err_bad_count(n, "fields");
	message_word(&m, DOMAIN_ROOT | (uint64_t)n << 32);
	for (i = 0; i < n; i++) {
		if (f[i].len && !f[i].data)
			return err_set(EINVAL, "f[%u].data is NULL, and f[%u].len is %u", i, i,
				       f[i].len);
		if (f[i].reserved)
			return err_set(EINVAL, "f[%u].reserved is %u: it must be 0", i,
				       f[i].reserved);
		message_word(&m, f[i].tag | (uint64_t)f[i].len << 32);
		message_data(&m, f[i].data, f[i].len);
	}
	key = message_end(&m);
	key.w[1] |= KEY_ROOT_BIT;
	*ret = key;
	return 0;
}

int key_import(const struct key_secret *s, const void *digests, uint32_t bytes, uint32_t stride,
	       uint32_t n, uint32_t group, gpc_key *ret)
{
	const uint8_t *item = digests;
	struct message begun = message_start(s), m;
	uint32_t i;

	if (n > INT32_MAX)
		return err_set(EINVAL, "import: %u digests are more than one call takes", n);
	if (n && (!digests || !ret))
		return err_set(EINVAL, "import: %s is NULL",
			       digests ? "the list of keys" : "the list of digests");
	if (!bytes)
		return err_set(EINVAL, "bytes is 0: a digest has at least 1");
	if (stride < bytes)
		return err_set(EINVAL,
			       "stride is %u: it must be at least bytes, %u, so that digests "
			       "do not overlap",
			       stride, bytes);
	message_word(&begun, DOMAIN_IMPORT | (uint64_t)group << 32);
	message_word(&begun, bytes);
	for (i = 0; i < n; i++, item += stride) {
		m = begun;
		message_data(&m, item, bytes);
		ret[i] = block_key(message_end(&m));
	}
	return 0;
}

/* ---- chains ---- */

/* Blocks of one kind: the cache's own, or the blocks of a KV group. */
struct kind {
	const struct key_secret *s;
	uint32_t block_tokens;
	bool is_group;
	uint64_t group; /* second word, of a group */
};

/* Append the words in front of the parent. */
static inline void kind_words(const struct kind *kind, struct message *m, uint64_t tokens,
			      uint64_t extras)
{
	message_word(m,
		     (kind->is_group ? DOMAIN_GROUP : DOMAIN_BLOCK) | tokens << 8 | extras << 32);
	if (kind->is_group)
		message_word(m, kind->group);
}

static inline uint64_t two_tokens(const uint32_t *t)
{
	return t[0] | (uint64_t)t[1] << 32;
}

/* The usual case: an even number of tokens, no extras.  m has the words in front of the parent,
 * which are the same in all such blocks. */
static inline gpc_key plain_block(struct message m, gpc_key parent, const uint32_t *t,
				  uint32_t tokens)
{
	struct sip s = m.sip;
	uint32_t i;

	sip_word(&s, parent.w[0], ROUNDS_C);
	sip_word(&s, parent.w[1], ROUNDS_C);
#pragma GCC unroll 4
	for (i = 0; i < tokens; i += 2)
		sip_word(&s, two_tokens(t + i), ROUNDS_C);
	return block_key(sip_end(&s, (m.bytes + 16 + 4ull * tokens) << 56, ROUNDS_C, ROUNDS_D));
}

/* first: the number of the block's first token in the call */
static gpc_key any_block(const struct kind *kind, gpc_key parent, const uint32_t *t,
			 uint32_t tokens, const struct gpc_extra *x, uint32_t nx, uint64_t first)
{
	struct message m = message_start(kind->s);
	uint32_t i;

	kind_words(kind, &m, tokens, nx);
	message_word(&m, parent.w[0]);
	message_word(&m, parent.w[1]);
	for (i = 0; i + 1 < tokens; i += 2)
		message_word(&m, two_tokens(t + i));
	if (i < tokens)
		message_word(&m, t[i]);
	for (i = 0; i < nx; i++) {
		message_word(&m, (x[i].token - first) | (uint64_t)x[i].len << 32);
		message_data(&m, x[i].data, x[i].len);
	}
	return block_key(message_end(&m));
}

/* How many of x begin before token `end`. */
static uint32_t extras_before(const struct gpc_extra *x, uint32_t nx, uint64_t end)
{
	uint32_t i = 0;

	while (i < nx && x[i].token < end)
		i++;
	return i;
}

static void hash_chain(const struct kind *kind, gpc_key parent, const uint32_t *tokens, size_t n,
		       const struct gpc_extra *x, uint32_t nx, size_t keys, gpc_key *ret)
{
	struct message begun = message_start(kind->s);
	size_t first = 0, i;

	kind_words(kind, &begun, kind->block_tokens, 0);
	for (i = 0; i < keys; i++, first += kind->block_tokens) {
		uint32_t here = (uint32_t)MIN(n - first, (size_t)kind->block_tokens);
		uint32_t own = nx ? extras_before(x, nx, first + here) : 0;

		if (here == kind->block_tokens && !own && !(here & 1))
			parent = plain_block(begun, parent, tokens + first, here);
		else
			parent = any_block(kind, parent, tokens + first, here, x, own, first);
		ret[i] = parent;
		if (own) {
			x += own;
			nx -= own;
		}
	}
}

static uint32_t tokens_of(uint32_t block_tokens, const struct gpc_prompt *p, uint32_t flags)
{
	return (flags & GPC_GROUP) && p->block_tokens ? p->block_tokens : block_tokens;
}

void key_hash_rest(const struct key_secret *s, uint32_t block_tokens, const struct gpc_prompt *p,
		   uint32_t flags, size_t at, const gpc_key *parent)
{
	uint32_t block = tokens_of(block_tokens, p, flags);
	struct kind kind = { .s = s,
			     .block_tokens = block,
			     .is_group = flags & GPC_GROUP,
			     .group = p->group | (uint64_t)block << 32 };
	size_t n = p->n - at, keys = n / block + (flags & GPC_TAIL && n % block);

	if (keys)
		hash_chain(&kind, parent ? *parent : (gpc_key){ { 0, 0 } }, p->tokens + at, n, p->x,
			   p->nx, keys, p->ret_keys + at / block);
}

/* ---- what is refused ---- */

static int check_extras(const struct gpc_prompt *p, uint32_t at)
{
	const struct gpc_extra *x = p->x;
	uint32_t i;

	for (i = 0; i < p->nx; i++) {
		if (x[i].token >= p->n)
			return err_set(
				EINVAL,
				"p[%u].x[%u].token is %u: the prompt has the tokens 0 to %zu", at,
				i, x[i].token, p->n - 1);
		if (i && x[i].token < x[i - 1].token)
			return err_set(EINVAL,
				       "p[%u].x[%u].token is %u, less than that of x[%u], %u: "
				       "extras are sorted by token",
				       at, i, x[i].token, i - 1, x[i - 1].token);
		if (x[i].len && !x[i].data)
			return err_set(EINVAL, "p[%u].x[%u].data is NULL, and its len is %u", at, i,
				       x[i].len);
	}
	return 0;
}

static int check_group(const struct gpc_prompt *p, uint32_t at, uint32_t flags)
{
	if (p->block_tokens > KEY_MAX_TOKENS)
		return err_set(EINVAL, "p[%u].block_tokens is %u: it is at most %u", at,
			       p->block_tokens, KEY_MAX_TOKENS);
	if (!(flags & GPC_GROUP) && (p->group || p->block_tokens))
		return err_set(EINVAL, "p[%u].%s is %u: it must be 0 without GPC_GROUP", at,
			       p->group ? "group" : "block_tokens",
			       p->group ? p->group : p->block_tokens);
	if (p->reserved)
		return err_set(EINVAL, "p[%u].reserved is %u: it must be 0", at, p->reserved);
	return 0;
}

int key_hash_check(uint32_t block_tokens, const struct gpc_prompt *p, uint32_t i, uint32_t flags)
{
	const struct gpc_prompt *one = p + i;
	int err = check_group(one, i, flags);
	size_t keys;

	if (err)
		return err;
	block_tokens = tokens_of(block_tokens, one, flags);
	keys = one->n / block_tokens + (flags & GPC_TAIL && one->n % block_tokens);
	if (keys > INT32_MAX)
		return err_set(EINVAL, "p[%u].n is %zu: at most %d keys a call, of %u tokens each",
			       i, one->n, INT32_MAX, block_tokens);
	if ((one->n && !one->tokens) || (keys && !one->ret_keys) || (one->nx && !one->x))
		return err_set(EINVAL, "p[%u].%s is NULL", i,
			       one->n && !one->tokens   ? "tokens"
			       : keys && !one->ret_keys ? "ret_keys"
							: "x");
	err = check_extras(one, i);
	return err ? err : (int)keys;
}
