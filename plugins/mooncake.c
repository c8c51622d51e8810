/* SPDX-License-Identifier: Apache-2.0 */
/* mooncake.c - a remote store that is Mooncake Store, by its C interface.
 *
 * An object of Mooncake is one run of bytes at one place.  So a value is two objects: KEY, the
 * image, which goes between the store and the registered memory of the cache without a copy, and
 * KEY:h, the header, which is written after it and asked for by `exists`.  The store evicts each
 * for itself: one without the other is a miss.
 *
 * Its calls have deadlines of their own, which this interface cannot set.  A call that has begun is
 * waited for, since it may store to the memory of images; between calls the deadline is looked
 * at.
 *
 * It has no fence: nothing ends a put that was given up.
 * Tests: t/cluster/mooncake.t */
#include "gpc_remote.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <store_c.h>
#include <sys/mman.h>
#include <time.h>

/* of its results (mooncake's types.h) */
enum {
	NO_SEGMENT = -101,
	NO_HANDLE = -200,
	NOT_READY = -703,
	NOT_FOUND = -704,
	ALREADY = -705,
	LEASED = -706,
	NO_REPLICA = -710,
	GONE = -712,
	RPC_FAIL = -900,
	RPC_TIMEOUT = -901,
	QUOTA = -1700,
};
enum { SOME = 64, RANGES = 64 }; /* items of one call of its; ranges of registered memory */

struct lane {
	char key[2 * SOME][GPC_REMOTE_KEY + 3];
	const char *keys[2 * SOME];
	void *buffers[2 * SOME];
	size_t sizes[2 * SOME];
	int results[2 * SOME];
	int64_t got[2 * SOME];
};

struct range {
	char *base;
	uint64_t bytes;
};

struct mooncake {
	mooncake_store_t store;
	struct gpc_remote_setup setup;
	char master[256], local[256], metadata[256], protocol[64], device[256];
	uint64_t segment_mb, buffer_mb;
	struct lane *lane;
	/* Registered: for each lane headers, and one image that lies elsewhere, or in pieces. */
	char *own;
	uint64_t own_bytes, each;
	struct range range[RANGES];
	uint32_t nranges;
};

static uint64_t now_ns(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int result_of(int64_t r)
{
	switch (r) {
	case NOT_FOUND:
	case NO_REPLICA:
	case GONE:
		return -ENOENT;
	case NO_HANDLE:
	case NO_SEGMENT:
	case QUOTA:
		return -ENOSPC;
	case NOT_READY:
	case LEASED:
		return -EAGAIN;
	case RPC_TIMEOUT:
		return -ETIMEDOUT;
	case ALREADY: /* the same key has the same bytes */
		return 0;
	default:
		return r >= 0 ? 0 : -EIO;
	}
}

/* ---- where bytes lie ---- */

static char *headers_of(const struct mooncake *m, uint32_t lane)
{
	return m->own + lane * m->each;
}

static char *bounce_of(const struct mooncake *m, uint32_t lane)
{
	return headers_of(m, lane) + SOME * GPC_REMOTE_HEADER;
}

static bool is_direct(const struct mooncake *m, const struct gpc_remote_item *item)
{
	const char *at = item->image[0].iov_base;
	uint32_t i;

	if (item->npieces != 1)
		return false;
	for (i = 0; i < m->nranges; i++)
		if (at >= m->range[i].base &&
		    at + item->image_bytes <= m->range[i].base + m->range[i].bytes)
			return true;
	return false;
}

/* Between the pieces of an image and one place. */
static void gather(const struct gpc_remote_item *item, char *to, const char *from)
{
	uint32_t i;
	uint64_t at = 0;

	for (i = 0; i < item->npieces; at += item->image[i++].iov_len) {
		if (to)
			memcpy(to + at, item->image[i].iov_base, item->image[i].iov_len);
		else
			memcpy(item->image[i].iov_base, from + at, item->image[i].iov_len);
	}
}

/* Place i of a call: an object of this item. */
static void name(struct lane *l, uint32_t i, const struct gpc_remote_item *item, bool header,
		 void *at, uint64_t bytes)
{
	memcpy(l->key[i], item->key, item->key_bytes);
	memcpy(l->key[i] + item->key_bytes, header ? ":h" : "", header ? 3 : 1);
	l->keys[i] = l->key[i];
	l->buffers[i] = at;
	l->sizes[i] = bytes;
}

/* ---- calls ---- */

typedef void (*some_call)(struct mooncake *m, uint32_t lane, struct gpc_remote_item *items,
			  uint32_t n);

static void get_some(struct mooncake *m, uint32_t lane, struct gpc_remote_item *items, uint32_t n)
{
	struct lane *l = &m->lane[lane];
	char *headers = headers_of(m, lane), *bounce = bounce_of(m, lane);
	bool direct = is_direct(m, items);
	uint32_t i;
	int64_t wrong;

	for (i = 0; i < n; i++) {
		name(l, i, &items[i], true, headers + i * GPC_REMOTE_HEADER, GPC_REMOTE_HEADER);
		name(l, n + i, &items[i], false, direct ? items[i].image[0].iov_base : bounce,
		     items[i].image_bytes);
	}
	if (mooncake_store_batch_get_into(m->store, l->keys, l->buffers, l->sizes, 2 * n, l->got))
		return;
	for (i = 0; i < n; i++) {
		wrong = l->got[i] < 0 ? l->got[i] : l->got[n + i] < 0 ? l->got[n + i] : 0;
		items[i].result = wrong ? result_of(wrong)
				  : l->got[i] != GPC_REMOTE_HEADER ||
						  (uint64_t)l->got[n + i] != items[i].image_bytes
					  ? -EBADMSG
					  : 0;
		if (items[i].result)
			continue;
		memcpy(items[i].header, headers + i * GPC_REMOTE_HEADER, GPC_REMOTE_HEADER);
		if (!direct)
			gather(&items[i], NULL, bounce);
	}
}

/* Of the first n places. */
static void put_places(struct mooncake *m, struct lane *l, uint32_t n)
{
	mooncake_replicate_config_t one = { .replica_num = 1 };
	uint32_t i;

	if (n && mooncake_store_batch_put_from(m->store, l->keys, l->buffers, l->sizes, n, &one,
					       l->results))
		for (i = 0; i < n; i++)
			l->results[i] = RPC_FAIL;
}

static void put_some(struct mooncake *m, uint32_t lane, struct gpc_remote_item *items, uint32_t n)
{
	struct lane *l = &m->lane[lane];
	char *headers = headers_of(m, lane), *bounce = bounce_of(m, lane);
	bool direct = is_direct(m, items);
	uint32_t at[SOME], i, k = 0;

	for (i = 0; i < n; i++) {
		if (!direct)
			gather(&items[i], bounce, NULL);
		name(l, i, &items[i], false, direct ? items[i].image[0].iov_base : bounce,
		     items[i].image_bytes);
	}
	put_places(m, l, n);
	for (i = 0; i < n; i++) {
		items[i].result = result_of(l->results[i]);
		if (!items[i].result)
			at[k++] = i;
	}
	for (i = 0; i < k; i++) {
		memcpy(headers + i * GPC_REMOTE_HEADER, items[at[i]].header, GPC_REMOTE_HEADER);
		name(l, i, &items[at[i]], true, headers + i * GPC_REMOTE_HEADER, GPC_REMOTE_HEADER);
	}
	put_places(m, l, k);
	for (i = 0; i < k; i++)
		items[at[i]].result = result_of(l->results[i]);
}

static void exists_some(struct mooncake *m, uint32_t lane, struct gpc_remote_item *items,
			uint32_t n)
{
	struct lane *l = &m->lane[lane];
	uint32_t i;

	for (i = 0; i < n; i++)
		name(l, i, &items[i], true, NULL, 0);
	if (mooncake_store_batch_is_exist(m->store, l->keys, n, l->results))
		return;
	for (i = 0; i < n; i++)
		items[i].result = l->results[i] > 0    ? 0
				  : l->results[i] == 0 ? -ENOENT
						       : result_of(l->results[i]);
}

static void remove_some(struct mooncake *m, uint32_t lane, struct gpc_remote_item *items,
			uint32_t n)
{
	struct lane *l = &m->lane[lane];
	uint32_t i, part;
	int r;

	for (i = 0; i < n; i++) {
		items[i].result = 0;
		for (part = 0; part < 2; part++) {
			name(l, 0, &items[i], part == 0, NULL, 0);
			r = result_of(mooncake_store_remove(m->store, l->key[0], 1));
			if (r && r != -ENOENT)
				items[i].result = r;
		}
	}
}

/* Items that go together: those whose images can be used where they lie, or a single one. */
static uint32_t together(const struct mooncake *m, const struct gpc_remote_item *items, uint32_t n,
			 bool images)
{
	uint32_t i = 1;

	if (!images)
		return n < SOME ? n : SOME;
	while (i < n && i < SOME && is_direct(m, &items[0]) && is_direct(m, &items[i]))
		i++;
	return i;
}

static void run(struct mooncake *m, const struct gpc_remote_call *call,
		struct gpc_remote_item *items, uint32_t n, some_call some, bool images)
{
	uint32_t i, k, left;

	for (i = 0; i < n; i += k) {
		left = n - i;
		k = together(m, items + i, left, images);
		for (left = 0; left < k; left++)
			items[i + left].result = now_ns() < call->deadline_ns ? -EIO : -ETIMEDOUT;
		if (now_ns() < call->deadline_ns)
			some(m, call->lane, items + i, k);
	}
}

static void exists(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		   uint32_t n)
{
	run(store, call, items, n, exists_some, false);
}

static void get(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	run(store, call, items, n, get_some, true);
}

static void put(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	run(store, call, items, n, put_some, true);
}

static void take_away(void *store, const struct gpc_remote_call *call,
		      struct gpc_remote_item *items, uint32_t n)
{
	run(store, call, items, n, remove_some, false);
}

static int memory(void *store, void *base, uint64_t bytes, int there)
{
	struct mooncake *m = store;
	uint32_t i;

	if (there) {
		if (m->nranges == RANGES)
			return -ENOSPC;
		if (mooncake_store_register_buffer(m->store, base, bytes))
			return -EIO;
		m->range[m->nranges++] = (struct range){ base, bytes };
		return 0;
	}
	for (i = 0; i < m->nranges && m->range[i].base != base; i++)
		;
	if (i == m->nranges)
		return 0;
	m->range[i] = m->range[--m->nranges];
	return mooncake_store_unregister_buffer(m->store, base) ? -EIO : 0;
}

/* ---- open ---- */

static int take(struct mooncake *m, const struct gpc_remote_option *o, char *why, size_t room)
{
	struct {
		const char *word;
		char *to;
		size_t size;
	} text[] = {
		{ "master", m->master, sizeof(m->master) },
		{ "local", m->local, sizeof(m->local) },
		{ "metadata", m->metadata, sizeof(m->metadata) },
		{ "protocol", m->protocol, sizeof(m->protocol) },
		{ "device", m->device, sizeof(m->device) },
	};
	uint64_t *number = strcmp(o->word, "segment") == 0 ? &m->segment_mb : &m->buffer_mb;
	char *end;
	size_t i;

	for (i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
		if (strcmp(o->word, text[i].word) != 0)
			continue;
		if (strlen(o->value) >= text[i].size) {
			snprintf(why, room, "%s is too long", o->word);
			return -EINVAL;
		}
		memcpy(text[i].to, o->value, strlen(o->value) + 1);
		return 0;
	}
	*number = strtoull(o->value, &end, 10);
	if (!*o->value || *end || *number > 1u << 24) {
		snprintf(why, room, "%s=%s is a number of MiB, at most 16777216", o->word,
			 o->value);
		return -EINVAL;
	}
	return 0;
}

static void close_store(void *store)
{
	struct mooncake *m = store;

	if (m->store) {
		if (m->own)
			mooncake_store_unregister_buffer(m->store, m->own);
		mooncake_store_destroy(m->store);
	}
	if (m->own)
		munmap(m->own, m->own_bytes);
	free(m->lane);
	free(m);
}

static int make_own(struct mooncake *m)
{
	m->each = (SOME * GPC_REMOTE_HEADER + m->setup.value_bytes + 4095) / 4096 * 4096;
	m->own_bytes = m->each * m->setup.lanes;
	m->lane = calloc(m->setup.lanes, sizeof(*m->lane));
	m->own = mmap(NULL, m->own_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (m->own == MAP_FAILED)
		m->own = NULL;
	return m->own && m->lane ? 0 : -ENOMEM;
}

static int connect_store(struct mooncake *m, char *why, size_t room)
{
	m->store = mooncake_store_create();
	if (!m->store)
		return -ENOMEM;
	if (mooncake_store_setup(m->store, m->local, m->metadata, m->segment_mb << 20,
				 m->buffer_mb << 20, m->protocol, m->device, m->master)) {
		snprintf(
			why, room,
			"master=%.80s, metadata=%.80s, local=%.60s: Mooncake does not take them, or is not there",
			m->master, m->metadata, m->local);
		mooncake_store_destroy(m->store);
		m->store = NULL;
		return -EHOSTDOWN;
	}
	if (mooncake_store_register_buffer(m->store, m->own, m->own_bytes)) {
		snprintf(why, room, "Mooncake cannot register %llu MiB of memory",
			 (unsigned long long)m->own_bytes >> 20);
		return -EIO;
	}
	return 0;
}

static int open_store(const struct gpc_remote_setup *setup, void **store, char *why, size_t room)
{
	struct mooncake *m = calloc(1, sizeof(*m));
	uint32_t i;
	int r = 0;

	if (!m)
		return -ENOMEM;
	m->setup = *setup;
	m->buffer_mb = 64;
	snprintf(m->master, sizeof(m->master), "127.0.0.1:50051");
	snprintf(m->local, sizeof(m->local), "127.0.0.1");
	snprintf(m->metadata, sizeof(m->metadata), "P2PHANDSHAKE");
	snprintf(m->protocol, sizeof(m->protocol), "tcp");
	for (i = 0; i < setup->noptions && !r; i++)
		r = take(m, &setup->options[i], why, room);
	if (!r)
		r = make_own(m);
	if (!r)
		r = connect_store(m, why, room);
	if (r < 0) {
		close_store(m);
		return r;
	}
	*store = m;
	return 0;
}

static void where(void *store, char *ret, size_t room)
{
	snprintf(ret, room, "%s", ((struct mooncake *)store)->master);
}

static const struct gpc_remote_word words[] = {
	{ "master", "HOST:PORT of its master; 127.0.0.1:50051" },
	{ "metadata", "its metadata server; P2PHANDSHAKE" },
	{ "local", "name of this machine, by which others reach it; 127.0.0.1" },
	{ "protocol", "tcp or rdma; tcp" },
	{ "device", "devices of rdma" },
	{ "segment", "MiB of memory that this process gives to the store; 0" },
	{ "buffer", "MiB of its own buffer; 64" },
	{ NULL, NULL }
};

const struct gpc_remote_plugin gpc_remote_plugin = {
	.size = sizeof(struct gpc_remote_plugin),
	.abi = GPC_REMOTE_ABI,
	.name = "mooncake",
	.about = "Mooncake Store",
	.words = words,
	.open = open_store,
	.close = close_store,
	.exists = exists,
	.get = get,
	.put = put,
	.remove = take_away,
	.memory = memory,
	.where = where,
};
