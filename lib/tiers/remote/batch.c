/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - exists, get, put and remove of blocks: keys and headers are made, the plugin is asked,
 * its answers are verified and counted.  Images are sent from their place in memory, and received
 * there; only headers are made here.
 * Tests: t/tiers/comes-back.t t/tiers/lane-lost.t t/tiers/late-put.t t/tiers/remote-folder.t */
#include "config.h"

#include "tiers/remote/batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "index/base/err.h"
#include "index/base/order.h"
#include "tiers/remote/lane.h"

#define REMOVE_NS (200 * NS_PER_MS)

static void name_item(const struct remote *r, struct batch *b, uint32_t i, const gpc_key *key)
{
	struct gpc_remote_item *item = &b->item[i];

	memset(item, 0, sizeof(*item));
	memcpy(b->key[i], r->prefix, r->prefix_bytes);
	snprintf(b->key[i] + r->prefix_bytes, sizeof(b->key[i]) - r->prefix_bytes, "%016llx%016llx",
		 (unsigned long long)key->w[0], (unsigned long long)key->w[1]);
	item->key = b->key[i];
	item->key_bytes = r->prefix_bytes + 32;
	item->result = -EIO;
}

/* The list of pieces belongs to the batch, since a LOST plugin may read it long after the caller
 * has gone. */
static bool give_places(const struct remote *r, struct batch *b, const struct remote_block *block,
			uint32_t n)
{
	uint32_t i, at, all = 0;

	for (i = 0; i < n; i++)
		all += block[i].npieces;
	if (all > b->npieces) {
		struct iovec *more = realloc(b->piece, all * sizeof(*more));

		if (!more)
			return false;
		b->piece = more;
		b->npieces = all;
	}
	for (i = at = 0; i < n; at += block[i++].npieces) {
		memcpy(b->piece + at, block[i].image, block[i].npieces * sizeof(*b->piece));
		b->item[i].header = &b->header[i];
		b->item[i].image = b->piece + at;
		b->item[i].npieces = block[i].npieces;
		b->item[i].image_bytes = r->o.image_bytes;
	}
	return true;
}

/* ---- get ---- */

static int verify(struct remote *r, struct batch *b, uint32_t i, struct remote_block *block)
{
	struct image_what want = { .key = block->key,
				   .bytes = r->o.image_bytes,
				   .sum = block->sum },
			  is;
	const char *why = "it has another length";
	int ret = b->result[i];

	memcpy(want.fingerprint, r->o.fingerprint, sizeof(want.fingerprint));
	if (!ret)
		ret = image_header_read(&b->header[i], &want, &block->parts, &is, &why);
	if (!ret &&
	    sums_of(block->image, block->npieces, &block->parts, is.sum.seed) != is.sum.crc) {
		why = "the checksum of its image is wrong";
		ret = -EBADMSG;
	}
	if (ret == -EBADMSG) {
		store_wrong(r, b->key[i], why);
		return ret;
	}
	if (ret)
		return ret;
	block->parent = is.parent;
	block->depth = is.depth;
	block->tag = is.tag;
	block->sum = is.sum;
	if (count_next(&r->right) + 1 >= REMOTE_WRONG_OF && load_relaxed(&r->state) != REMOTE_OFF) {
		store_relaxed(&r->right, 0);
		store_relaxed(&r->wrong, 0);
	}
	return 0;
}

/* A wrong value would be wrong again, for every node, so it is removed.  There is time for that
 * even if the get has used it up. */
static void remove_wrong(struct remote *r, uint32_t lane, const struct remote_block *block,
			 uint32_t n, uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	uint32_t i, wrong = 0;

	for (i = 0; i < n; i++)
		if (block[i].result == -EBADMSG)
			name_item(r, b, wrong++, &block[i].key);
	if (wrong)
		batch_call_plugin(r, r->plugin.own.remove, lane, wrong,
				  deadline_ns ? MAX(deadline_ns, clock_ns() + REMOVE_NS) : 0);
}

static uint32_t get_batch(struct remote *r, uint32_t lane, struct remote_block *block, uint32_t n,
			  uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	uint32_t i, hits = 0, misses = 0, wrong = 0;

	if (batch_is_mine(r, lane, n)) {
		for (i = 0; i < n; i++)
			name_item(r, b, i, &block[i].key);
		memset(b->header, 0, n * sizeof(b->header[0])); /* no header is left from before */
		if (give_places(r, b, block, n))
			batch_ask(r, r->plugin.own.get, lane, n, deadline_ns);
		else
			batch_answer(b, n, -EIO);
	}
	for (i = 0; i < n; i++) {
		bool told = b->result[i] == -EBADMSG; /* it is counted already */

		block[i].result = verify(r, b, i, &block[i]);
		hits += block[i].result == 0;
		misses += block[i].result == -ENOENT || block[i].result == -EAGAIN;
		wrong += block[i].result == -EBADMSG && !told;
	}
	pthread_mutex_lock(&r->lock);
	r->counts.gets += n;
	r->counts.hits += hits;
	r->counts.misses += misses;
	r->counts.wrong += wrong;
	r->counts.bytes_in += hits * r->o.image_bytes;
	pthread_mutex_unlock(&r->lock);
	remove_wrong(r, lane, block, n, deadline_ns);
	return hits;
}

uint32_t remote_get(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
		    uint64_t deadline_ns)
{
	uint32_t i, hits = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		hits += get_batch(r, lane, b + i, MIN(n - i, GPC_REMOTE_BATCH), deadline_ns);
	return hits;
}

/* ---- put ---- */

static void make_headers(struct remote *r, struct batch *b, const struct remote_block *block,
			 uint32_t n)
{
	struct image_what what = { .bytes = r->o.image_bytes };
	uint32_t i;

	memcpy(what.fingerprint, r->o.fingerprint, sizeof(what.fingerprint));
	for (i = 0; i < n; i++) {
		name_item(r, b, i, &block[i].key);
		what.key = block[i].key;
		what.parent = block[i].parent;
		what.depth = block[i].depth;
		what.tag = block[i].tag;
		what.sum = block[i].sum;
		image_header_make(&b->header[i], &what);
	}
}

static uint64_t *unsure(struct remote *r)
{
	return r->o.unsure_ns ? r->o.unsure_ns : &r->unsure_ns;
}

/* The time of a put that no fence can end is stored before the put, since this process may be
 * killed before the answer.  Puts of several lanes share the word: the last one to end restores the
 * value from before the first, or the time of one that was given up among them. */
static void begin_unfenced(struct remote *r)
{
	pthread_mutex_lock(&r->lock);
	if (!r->unfenced++)
		r->unsure_then_ns = load_relaxed(unsure(r));
	store_relaxed(unsure(r), clock_ns());
	pthread_mutex_unlock(&r->lock);
}

static void end_unfenced(struct remote *r, const int32_t *result, uint32_t n)
{
	bool lost = false;
	uint32_t i;

	for (i = 0; i < n; i++)
		lost |= result[i] == -EIO || result[i] == -ETIMEDOUT || result[i] == -ECANCELED ||
			result[i] == -EINPROGRESS;
	pthread_mutex_lock(&r->lock);
	if (lost)
		r->unsure_then_ns = clock_ns();
	if (!--r->unfenced)
		store_relaxed(unsure(r), r->unsure_then_ns);
	pthread_mutex_unlock(&r->lock);
}

static void fence_is_gone(struct remote *r)
{
	pthread_mutex_lock(&r->lock);
	r->unsure_then_ns = clock_ns();
	store_relaxed(unsure(r), r->unsure_then_ns);
	store_relaxed(&r->fenced, 0);
	pthread_mutex_unlock(&r->lock);
}

static uint32_t put_batch(struct remote *r, uint32_t lane, struct remote_block *block, uint32_t n,
			  uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	uint32_t i, stored = 0;
	bool fenced = load_relaxed(&r->fenced);

	if (!fenced)
		begin_unfenced(r);
	if (batch_is_mine(r, lane, n)) {
		make_headers(r, b, block, n);
		if (give_places(r, b, block, n))
			batch_ask(r, r->plugin.own.put, lane, n, deadline_ns);
		else
			batch_answer(b, n, -EIO);
	}
	if (!fenced)
		end_unfenced(r, b->result, n);
	for (i = 0; i < n; i++) {
		block[i].result = b->result[i];
		stored += block[i].result == 0;
	}
	pthread_mutex_lock(&r->lock);
	r->counts.puts += n;
	r->counts.stored += stored;
	r->counts.bytes_out += stored * r->o.image_bytes;
	pthread_mutex_unlock(&r->lock);
	return stored;
}

uint32_t remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
		    uint64_t deadline_ns)
{
	uint32_t i, stored = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		stored += put_batch(r, lane, b + i, MIN(n - i, GPC_REMOTE_BATCH), deadline_ns);
	return stored;
}

/* ---- exists, remove ---- */

static uint32_t keys_batch(struct remote *r, plugin_call call, uint32_t lane, const gpc_key *keys,
			   uint32_t n, int32_t *results, uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	uint32_t i, done = 0;

	if (batch_is_mine(r, lane, n)) {
		for (i = 0; i < n; i++)
			name_item(r, b, i, &keys[i]);
		batch_ask(r, call, lane, n, deadline_ns);
	}
	for (i = 0; i < n; i++) {
		done += b->result[i] == 0;
		if (results)
			results[i] = b->result[i];
	}
	return done;
}

uint32_t remote_exists(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
		       int32_t *results, uint64_t deadline_ns)
{
	uint32_t i, there = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		there += keys_batch(r, r->plugin.own.exists, lane, keys + i,
				    MIN(n - i, GPC_REMOTE_BATCH), results ? results + i : NULL,
				    deadline_ns);
	pthread_mutex_lock(&r->lock);
	r->counts.asked += n;
	r->counts.there += there;
	pthread_mutex_unlock(&r->lock);
	return there;
}

/* ---- remove ---- */

/* If keys could be fenced and cannot be any more, a put may have been given up meanwhile. */
static void note_fence(struct remote *r, const int32_t *result, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (!result[i])
			store_relaxed(&r->fenced, 1);
		else if (result[i] == -EOPNOTSUPP && load_relaxed(&r->fenced))
			fence_is_gone(r);
}

static void ask_fences(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
		       int32_t *results, uint64_t deadline_ns)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		results[i] = -EOPNOTSUPP;
	if (r->plugin.own.fence)
		keys_batch(r, r->plugin.own.fence, lane, keys, n, results, deadline_ns);
	note_fence(r, results, n);
}

/* Remove keys whose fence stands, or that have none. */
static uint32_t remove_batch(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			     int32_t *results, uint64_t deadline_ns)
{
	int32_t fence[GPC_REMOTE_BATCH], result[GPC_REMOTE_BATCH];
	uint32_t at[GPC_REMOTE_BATCH], i, k = 0, gone = 0;
	gpc_key some[GPC_REMOTE_BATCH];
	uint64_t since;
	bool sure;

	ask_fences(r, lane, keys, n, fence, deadline_ns);
	since = load_relaxed(unsure(r));
	sure = !since || clock_ns() - since >= REMOTE_UNSURE_NS;
	for (i = 0; i < n; i++)
		if (!fence[i] || fence[i] == -EOPNOTSUPP) {
			some[k] = keys[i];
			at[k++] = i;
		} else if (results) {
			results[i] = fence[i];
		}
	if (k)
		gone = keys_batch(r, r->plugin.own.remove, lane, some, k, result, deadline_ns);
	for (i = 0; results && i < k; i++)
		results[at[i]] = result[i] ? result[i] : sure ? 0 : -EOPNOTSUPP;
	return gone;
}

uint32_t remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
		       int32_t *results, uint64_t deadline_ns)
{
	uint32_t i, gone = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		gone += remove_batch(r, lane, keys + i, MIN(n - i, GPC_REMOTE_BATCH),
				     results ? results + i : NULL, deadline_ns);
	pthread_mutex_lock(&r->lock);
	r->counts.removed += gone;
	pthread_mutex_unlock(&r->lock);
	return gone;
}

/* ---- is it there? ---- */

int batch_probe(struct remote *r)
{
	struct batch *b = &r->batch[r->o.lanes];
	gpc_key none = { { 0, 0 } };
	int32_t result;

	name_item(r, b, 0, &none);
	if (!batch_call_plugin(r, r->plugin.own.exists, r->o.lanes, 1, 0))
		return -ETIMEDOUT;
	result = batch_result(b->item[0].result);
	return batch_failed(result) ? result : 0;
}

void batch_probe_fence(struct remote *r)
{
	gpc_key none = { { 0, 0 } };
	int32_t result;

	ask_fences(r, r->o.lanes, &none, 1, &result, 0);
	if (result != -EOPNOTSUPP || r->told_unfenced)
		return;
	r->told_unfenced = true;
	store_say(
		r, LOG_NOTICE,
		"has no fence: a put that is given up may come late, so what was dropped is removed again "
		"and again for an hour behind one (gpc_remote(7))");
}
