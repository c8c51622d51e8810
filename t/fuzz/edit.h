/* SPDX-License-Identifier: Apache-2.0 */
/* edit.h - a cache with something of everything, left by a process that was killed, and the
 * edits that make it a hostile one.
 *
 * An input is two bytes of flags and a list of edits: which kind of thing, which one of them,
 * where in it, how, and the value. */
#ifndef GPC_FUZZ_EDIT_H
#define GPC_FUZZ_EDIT_H

#include "gpc_bytes.h"
#include "image.h"
#include "kernels/probe.h"

#define EDIT_BLOCKS 24
#define EDIT_PEERS  3 /* two are dead */
#define EDIT_POOLS  4

/* kinds of edits beside those of regions */
#define EDIT_GEOMETRY 255
#define EDIT_FORGE    192

/* ---- the cache ---- */

#define MAKE(call, want)                                                               \
	do {                                                                           \
		int got = (call);                                                      \
		if (got != (want)) {                                                   \
			fprintf(stderr, "%s: %d, %s\n", #call, got, gpc_last_error()); \
			_exit(1);                                                      \
		}                                                                      \
	} while (0)

FUZZ_FN void edit_make_moves(gpc *c, gpc_block *b)
{
	struct gpc_move m[4];
	gpc_block leaf;

	leaf = b[11];
	MAKE(gpc_demote(c, 0, 1, &leaf, 1, m, 0, 1000), 1);
	MAKE(gpc_commit(c, m, 1, NULL, 0, -1), 1);
	leaf = b[10];
	MAKE(gpc_demote(c, 0, 1, &leaf, 1, m, 0, 1000), 1); /* for ever */
}

FUZZ_FN void edit_maker(const char *dir)
{
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .vram_blocks = EDIT_BLOCKS,
				  .max_blocks = EDIT_BLOCKS + 8 + 4 + 8,
				  .max_pools = EDIT_POOLS,
				  .max_peers = EDIT_PEERS,
				  .devices = "host",
				  .tick_us = 1,
				  .dir = dir };
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = dir, .stock = 2 };
	struct gpc_pool ram = {
		.size = sizeof(ram), .kind = GPC_RAM, .blocks = 8, .transit = 4, .demote_to = -1
	};
	struct gpc_pool other = { .size = sizeof(other),
				  .kind = GPC_VRAM,
				  .blocks = 4,
				  .space = 1,
				  .demote_to = 1,
				  .flags = GPC_POOL_OWNED };
	gpc_key k[20];
	gpc_block b[20];
	gpc *c, *d;
	int i;

	MAKE(gpc_create(IMAGE_NAME, &cfg, &opt, 0, &c), 0);
	MAKE(gpc_writer_take(c, 0, 0), 0);
	MAKE(gpc_attach(IMAGE_NAME, &opt, 0, &d), 0);
	MAKE(gpc_pool_make(c, &ram, NULL, -1), 1);
	MAKE(gpc_pool_make(c, &other, NULL, -1), 2);
	for (i = 0; i < 20; i++)
		k[i] = image_key((uint64_t)i);
	MAKE(gpc_reserve(c, 0, 12, b, NULL, 0, 1000), 12);
	MAKE(gpc_publish(c, k, k + 1, b, 12, GPC_OPTIONS(gpc_publish_options, .tag = 7), 0, -1),
	     12);
	MAKE(gpc_release(c, b, 12), 0);
	edit_make_moves(c, b);
	MAKE(gpc_reserve(c, 2, 2, b, NULL, 0, 1000), 2);
	MAKE(gpc_publish(c, k, k + 1, b, 1, GPC_OPTIONS(gpc_publish_options, .tag = 7), 0, -1), 1);
	MAKE(gpc_reserve(c, 0, 3, b, NULL, 0, 1000), 3);
	MAKE(gpc_acquire(d, 1, k + 1, 4, b, 0), 4);
	MAKE(gpc_drop(c, b + 3, 1, NULL, 0, -1), 1);
	MAKE(gpc_section_enter(d) >= 0, 1);
}

/* ---- what is edited ---- */

struct region {
	int file;
	uint64_t at;
	uint32_t count, item, fields;
};

/* fields: bytes at the beginning of an item that say something; most edits go there. */
FUZZ_FN struct region edit_region(uint32_t kind)
{
	const struct layout *a = &image_at;
	const struct shm_geometry *g = &image_header.geometry;
	const struct region all[] = {
		{ INDEX, 0, 1, sizeof(struct shm_header), 264 },
		{ CONTROL, 0, 1, sizeof(struct shm_header), 264 },
		{ LOCK, 0, 1, 16, 16 },
		{ INDEX, a->state, 1, sizeof(struct shm_state), 96 },
		{ INDEX, a->state, 1, sizeof(struct shm_state), 256 },
		{ INDEX, a->pool, EDIT_POOLS, sizeof(struct shm_pool), 56 },
		{ INDEX, a->pool, EDIT_POOLS, sizeof(struct shm_pool), 56 },
		{ INDEX, a->pool, EDIT_POOLS, sizeof(struct shm_pool), 2048 },
		{ INDEX, a->pool + offsetof(struct shm_pool, memory), EDIT_POOLS,
		  sizeof(struct shm_pool), 48 },
		{ INDEX, a->mirror, SHM_MIRRORS, sizeof(struct shm_mirror), 136 },
		{ INDEX, a->tally, EDIT_PEERS, sizeof(struct shm_tally), 128 },
		{ INDEX, a->xfer, EDIT_PEERS * SHM_TRANSFERS, sizeof(struct shm_xfer), 64 },
		{ INDEX, a->table, g->buckets * SHM_BUCKET, 16, 16 },
		{ INDEX, a->record, g->max_blocks, sizeof(struct shm_record), 64 },
		{ INDEX, a->record, g->max_blocks, sizeof(struct shm_record), 64 },
		{ INDEX, a->record, 14, sizeof(struct shm_record), 64 },
		{ INDEX, a->change, 40, sizeof(struct shm_change), 64 },
		{ CONTROL, a->shared, 1, sizeof(struct shm_shared), 192 },
		{ CONTROL, a->seat, EDIT_PEERS, sizeof(struct shm_seat), 72 },
		{ CONTROL, a->seat + 128, EDIT_PEERS, sizeof(struct shm_seat), 196 },
		{ CONTROL, a->seat, EDIT_PEERS, sizeof(struct shm_seat), 4096 },
		{ CONTROL, a->section, EDIT_PEERS * SHM_SECTIONS, 64, 40 },
		{ CONTROL, a->ring, 64, sizeof(struct shm_command), 64 },
		{ CONTROL, a->ring + SHM_RING * 64, 16, sizeof(struct shm_command), 64 },
		{ CONTROL, a->ref, EDIT_PEERS, (uint32_t)a->column, (uint32_t)a->column },
		{ CONTROL, a->use, g->max_blocks / 2, 8, 8 },
		{ CONTROL, a->stamp, g->max_blocks, 8, 8 },
		{ CONTROL, a->shared + offsetof(struct shm_shared, wait), SHM_WAITS, 8, 8 },
		{ CONTROL, a->transfer, EDIT_PEERS, sizeof(struct shm_transfer), 1024 },
	};

	return all[kind % ARRAY_SIZE(all)];
}

/* The record is consistent with itself again: it will be believed. */
FUZZ_FN void edit_seal_record(uint64_t at)
{
	struct shm_record *r = (struct shm_record *)(image[INDEX].map + at);

	r->check = key_check(r->key, r->parent, r->depth, r->tag);
}

FUZZ_FN void edit_store(uint8_t *to, uint32_t how, uint64_t value)
{
	uint64_t v = 0;
	uint32_t width = 1u << (how & 3);

	memcpy(&v, to, width);
	switch (how >> 2 & 3) {
	case 0:
	case 1:
		v = value;
		break;
	case 2:
		v ^= value;
		break;
	default:
		v += value < 128 ? value : value - 256;
	}
	memcpy(to, &v, width);
}

/* All of an item, or the rest of its kind: bytes by chance. */
FUZZ_FN void edit_fill(uint8_t *to, size_t n, uint64_t value)
{
	size_t i;

	for (i = 0; i < n; i++)
		to[i] = (uint8_t)(value & 1 ? fuzz_mix(value + i) : value >> 8);
}

FUZZ_FN void edit_copy_item(const struct region *r, uint8_t *to, uint64_t from)
{
	memmove(to, image[r->file].map + r->at + from % r->count * r->item, r->item);
}

/* A header that is sound, of a cache that is larger than its files. */
FUZZ_FN void edit_geometry(struct fuzz_input *in)
{
	struct gpc_config cfg = { .size = sizeof(cfg) };
	struct shm_header *h = (struct shm_header *)image[INDEX].map;
	struct shm_geometry g;
	struct layout at;

	cfg.max_blocks = 1 + (uint32_t)fuzz_take_value(in) % (1u << 28);
	cfg.max_peers = 1 + (uint32_t)fuzz_take(in, 1) % GPC_MAX_PEERS;
	cfg.max_pools = 1 + (uint32_t)fuzz_take(in, 1) % GPC_MAX_POOLS;
	if (geometry_from_config(&cfg, &g) < 0)
		return;
	geometry_layout(&g, &at);
	h->geometry = g;
	h->bytes = at.index_bytes;
}

/* An entry for the record, in one of its buckets. */
FUZZ_FN void edit_enter(const struct shm_record *r, uint32_t pool, uint32_t slot, uint32_t how)
{
	const struct shm_header *h = &image_header;
	struct key_secret secret;
	gpc_key mask[GPC_MAX_SPACES];
	struct probe_entry *e;
	struct probe_key k;

	memcpy(&secret, h->secret, sizeof(secret));
	key_masks(&secret, mask);
	k = probe_prepare(r->key[0] ^ mask[pool == 2].w[0], r->key[1] ^ mask[pool == 2].w[1],
			  h->geometry.buckets);
	e = SEG_AT(image[INDEX].map, image_at.table, struct probe_entry, 0) +
	    (how & 4 ? k.second : k.first) * SHM_BUCKET + (how & 3);
	e->w[0] = k.w[0];
	e->w[1] = k.w[1];
	e->w[2] = k.w[2] | (e->w[2] & PROBE_OVERFLOW);
	e->w[3] = (uint32_t)GPC_BLOCK(pool, slot) + 1;
}

/* A record that could be: of any state, a move's target or source, below any other. */
FUZZ_FN void edit_forge(struct fuzz_input *in)
{
	static const uint32_t first[] = { 0, EDIT_BLOCKS, EDIT_BLOCKS + 12, EDIT_BLOCKS + 16 };
	static const uint32_t slots[] = { EDIT_BLOCKS, 12, 4, 4 };
	uint32_t pool = (uint32_t)fuzz_take(in, 1) & 3, slot = (uint32_t)fuzz_take(in, 1);
	uint32_t how = (uint32_t)fuzz_take(in, 1), keys = (uint32_t)fuzz_take(in, 1);
	uint32_t source = (uint32_t)fuzz_take(in, 1) % 48, move = (uint32_t)fuzz_take(in, 1);
	gpc_key key = image_key(keys & 15), parent = image_key(keys >> 4);
	struct shm_record *all = SEG_AT(image[INDEX].map, image_at.record, struct shm_record, 0);
	struct shm_record *r = &all[first[pool] + slot % slots[pool]];

	r->word = WORD(how & 3, WORD_GEN(r->word) + 1);
	r->owner = how & 4 ? SHM_NO_PEER : how >> 3 & 1;
	r->flags = (uint8_t)(move & 15);
	memcpy(r->key, &key, sizeof(key));
	memcpy(r->parent, &parent, sizeof(parent));
	r->depth = keys >> 4 ? 1 + (move >> 6) + (keys >> 4) : 0;
	r->source = move & 32 ? source + 1 : 0;
	r->source_word = source < image_header.geometry.max_blocks ? all[source].word : 0;
	r->op = fuzz_take(in, 1) % 48;
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
	if (how & 16)
		edit_enter(r, pool, slot % slots[pool], how >> 5);
}

FUZZ_FN void edit_word(struct fuzz_input *in, uint32_t kind)
{
	struct region r = edit_region(kind);
	uint32_t index = (uint32_t)fuzz_take(in, 1) % r.count;
	uint32_t off = (uint32_t)fuzz_take(in, 2), how = (uint32_t)fuzz_take(in, 1);
	uint64_t value = fuzz_take_value(in), at = r.at + (uint64_t)index * r.item;
	uint32_t width = 1u << (how & 3);

	off = off % r.fields & ~(how & 16 ? 0 : width - 1);
	if (off + width > r.item)
		off = r.item - width;
	if ((how & 0xe0) == 0xe0)
		edit_fill(image[r.file].map + at, r.item, value);
	else if ((how & 0xe0) == 0xc0)
		edit_copy_item(&r, image[r.file].map + at, value);
	else
		edit_store(image[r.file].map + at + off, how, value);
	if (r.file == INDEX && r.at == image_at.record && (how & 0x20))
		edit_seal_record(at);
}

/* Only what takeover repairs was touched: records of pools, and entries. */
static bool edit_repairable;

FUZZ_FN void edit_one(struct fuzz_input *in)
{
	uint32_t kind = (uint32_t)fuzz_take(in, 1);
	struct region r = edit_region(kind);

	edit_repairable &= (kind >= EDIT_FORGE && kind != EDIT_GEOMETRY) ||
			   (r.file == INDEX && (r.at == image_at.table || r.at == image_at.record));

	if (kind == EDIT_GEOMETRY)
		edit_geometry(in);
	else if (kind >= EDIT_FORGE)
		edit_forge(in);
	else
		edit_word(in, kind);
}

/* ---- sizes that change at once, or while somebody reads ---- */

static struct {
	int file, how;
	uint64_t to;
	uint32_t reads;
} edit_shrink;

FUZZ_FN void edit_while_read(void)
{
	if (edit_shrink.reads && !--edit_shrink.reads)
		image_resize(edit_shrink.file, edit_shrink.how, edit_shrink.to);
}

enum {
	EDIT_UNSEALED = 1,
	EDIT_HOST = 2,
	EDIT_SIZE = 4,
	EDIT_LATER = 8,
	EDIT_NO_LOOK = 16,
	EDIT_NO_PEER = 32,
	EDIT_NO_WRITER = 64,
	EDIT_CHECK = 128,
};

/* What takeover leaves as it is, and gpc_check tells of: states that there are none of, in records
 * of no pool. */
FUZZ_FN bool edit_left_alone(void)
{
	const struct shm_record *r =
		SEG_AT(image[INDEX].map, image_at.record, struct shm_record, 0);
	uint32_t i;

	for (i = 0; i < image_header.geometry.max_blocks; i++)
		if (WORD_STATE(r[i].word) > DYING)
			return true;
	return false;
}

/* The image as the input will have it; returns the flags. */
FUZZ_FN uint32_t edit_all(struct fuzz_input *in)
{
	uint32_t flags = (uint32_t)fuzz_take(in, 1), size = (uint32_t)fuzz_take(in, 1), n = 0;

	virtual_before_read = NULL;
	edit_repairable = true;
	image_restore();
	image_devices((flags & EDIT_HOST) && (size & 3) == 3 ? "host" : "none");
	edit_shrink.reads = 0;
	if (flags & EDIT_SIZE && (size & 7) < 2) {
		edit_shrink.file = (int)(size >> 3 & 3) % IMAGE_FILES;
		edit_shrink.how = (int)(size >> 5) % SIZE_CHANGES;
		edit_shrink.reads = 1 + (uint32_t)fuzz_take(in, 1) % 16;
		edit_shrink.to = fuzz_take(in, 3) | (uint64_t)(size & 1) << 60;
	}
	while (in->left && n++ < 200)
		edit_one(in);
	edit_repairable = edit_repairable && !edit_left_alone();
	if (!(flags & EDIT_UNSEALED) || !(size & 1))
		image_seal();
	if (edit_shrink.reads && !(flags & EDIT_LATER)) {
		image_resize(edit_shrink.file, edit_shrink.how, edit_shrink.to);
		edit_shrink.reads = 0;
	}
	return flags;
}

/* Some edits, as an input has them. */
static size_t fuzz_seed(uint64_t random, uint8_t *to, size_t room)
{
	uint32_t i, k, n = 1 + fuzz_draw(&random, 12);
	size_t at = 0;

	to[at++] = (uint8_t)(fuzz_draw(&random, 256) & fuzz_draw(&random, 256));
	to[at++] = (uint8_t)fuzz_draw(&random, 256);
	if (!fuzz_draw(&random, 32)) {
		to[at] = EDIT_GEOMETRY;
		for (i = 1; i < 12; i++)
			to[at + i] = (uint8_t)fuzz_draw(&random, 256);
		at += i;
	}
	for (i = 0; i < n && at + 20 < room; i++) {
		if (!fuzz_draw(&random, 2)) {
			to[at] = EDIT_FORGE;
			for (k = 1; k < 8; k++)
				to[at + k] = (uint8_t)fuzz_draw(&random, 256);
			at += k;
			continue;
		}
		/* the first three, of headers, mostly end it all */
		to[at++] = (uint8_t)(fuzz_draw(&random, 4) ? 3 + fuzz_draw(&random, 21)
							   : fuzz_draw(&random, 24));
		to[at++] = (uint8_t)fuzz_draw(&random, 48);
		to[at++] = (uint8_t)fuzz_draw(&random, 256);
		to[at++] = 0;
		to[at++] = (uint8_t)fuzz_draw(&random, 256);
		to[at++] = (uint8_t)fuzz_draw(&random, 3);
		to[at++] = (uint8_t)fuzz_draw(&random, 256);
	}
	return at;
}

#endif
