/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of KV events as MessagePack.  Keys stand in the order in which engines write them.
 * Tests: t/kv/wire.t t/kv/events.t */
#include "config.h"

#include "tools/daemon/events/wire.h"

#include <string.h>

void wire_init(struct wire *w)
{
	msgpack_sbuffer_init(&w->bytes);
	msgpack_packer_init(&w->pack, &w->bytes, msgpack_sbuffer_write);
}

void wire_free(struct wire *w)
{
	msgpack_sbuffer_destroy(&w->bytes);
}

static void put_text(struct wire *w, const char *s)
{
	size_t n = strlen(s);

	msgpack_pack_str(&w->pack, n);
	msgpack_pack_str_body(&w->pack, s, n);
}

static void put_hashes(struct wire *w, const uint64_t *hashes, uint32_t n)
{
	put_text(w, "block_hashes");
	msgpack_pack_array(&w->pack, n);
	for (uint32_t i = 0; i < n; i++)
		msgpack_pack_uint64(&w->pack, hashes[i]);
}

static void put_nil(struct wire *w, const char *field)
{
	put_text(w, field);
	msgpack_pack_nil(&w->pack);
}

static void put_type(struct wire *w, uint32_t fields, const char *type)
{
	msgpack_pack_map(&w->pack, fields);
	put_text(w, "type");
	put_text(w, type);
}

static void put_group(struct wire *w, uint32_t group)
{
	if (!group)
		return;
	put_text(w, "group_idx");
	msgpack_pack_uint32(&w->pack, group);
}

static void put_bytes(struct wire *w, const struct text *t)
{
	msgpack_pack_str(&w->pack, t->n);
	msgpack_pack_str_body(&w->pack, t->bytes, t->n);
}

static bool has_extra(const struct wire_stored *s)
{
	return s->adapter.bytes || (s->salt.bytes && !s->has_parent);
}

/* Puts the other inputs of the engine's hash of each block: the adapter, and in a first block the
 * salt. */
static void put_extra(struct wire *w, const struct wire_stored *s)
{
	bool salt;

	if (!has_extra(s))
		return;
	put_text(w, "extra_keys");
	msgpack_pack_array(&w->pack, s->n);
	for (uint32_t i = 0; i < s->n; i++) {
		salt = s->salt.bytes && !s->has_parent && !i;
		if (!s->adapter.bytes && !salt) {
			msgpack_pack_nil(&w->pack);
			continue;
		}
		msgpack_pack_array(&w->pack, (s->adapter.bytes != NULL) + salt);
		if (s->adapter.bytes)
			put_bytes(w, &s->adapter);
		if (salt)
			put_bytes(w, &s->salt);
	}
}

void wire_begin(struct wire *w, double time, uint32_t events)
{
	msgpack_sbuffer_clear(&w->bytes);
	msgpack_pack_array(&w->pack, 3);
	msgpack_pack_double(&w->pack, time);
	msgpack_pack_array(&w->pack, events);
}

void wire_stored(struct wire *w, const struct wire_stored *s)
{
	put_type(w, 8 + has_extra(s) + (s->group != 0) + (s->salt.bytes != NULL), "BlockStored");
	put_hashes(w, s->hashes, s->n);
	put_text(w, "parent_block_hash");
	if (s->has_parent)
		msgpack_pack_uint64(&w->pack, s->parent);
	else
		msgpack_pack_nil(&w->pack);
	put_text(w, "token_ids");
	msgpack_pack_array(&w->pack, s->ntokens);
	for (uint32_t i = 0; i < s->ntokens; i++)
		msgpack_pack_uint32(&w->pack, s->tokens[i]);
	put_text(w, "block_size");
	msgpack_pack_uint32(&w->pack, s->block_tokens);
	put_nil(w, "lora_id");
	put_text(w, "medium");
	put_text(w, s->medium);
	if (s->adapter.bytes) {
		put_text(w, "lora_name");
		put_bytes(w, &s->adapter);
	} else {
		put_nil(w, "lora_name");
	}
	put_extra(w, s);
	put_group(w, s->group);
	if (s->salt.bytes) {
		put_text(w, "cache_salt");
		put_bytes(w, &s->salt);
	}
}

void wire_removed(struct wire *w, const uint64_t *hashes, uint32_t n, const char *medium,
		  uint32_t group)
{
	put_type(w, 3 + (group != 0), "BlockRemoved");
	put_hashes(w, hashes, n);
	put_text(w, "medium");
	put_text(w, medium);
	put_group(w, group);
}

void wire_cleared(struct wire *w)
{
	put_type(w, 1, "AllBlocksCleared");
}

void wire_end(struct wire *w, uint32_t rank)
{
	msgpack_pack_uint32(&w->pack, rank);
}

uint64_t wire_hash(const uint8_t *digest, uint32_t bytes)
{
	uint64_t hash = 0;

	for (uint32_t i = bytes > 8 ? bytes - 8 : 0; i < bytes; i++)
		hash = hash << 8 | digest[i];
	return hash;
}
