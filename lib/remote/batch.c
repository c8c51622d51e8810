/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - exists, get, put and remove of blocks: keys and headers made, the plugin asked, what it answers
 * verified and counted.  Images go to and come from where they lie; only headers are made here. */
#include "config.h"

#include "remote/batch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crc.h"
#include "base/err.h"
#include "base/order.h"

struct batch {                       /* of one lane */
	struct gpc_remote_item item[GPC_REMOTE_BATCH];
	struct image_header header[GPC_REMOTE_BATCH];
	char key[GPC_REMOTE_BATCH][GPC_REMOTE_KEY + 1];
};

typedef void (*plugin_call)(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
			    uint32_t n);

int batch_open(struct remote *r)
{
	r->batch = calloc(r->o.lanes + 1, sizeof(*r->batch));
	return r->batch ? 0 : err_set(ENOMEM, "no memory for the batches of %u lanes", r->o.lanes);
}

void batch_close(struct remote *r)
{
	free(r->batch);
}

void batch_call(const struct remote *r, uint32_t lane, uint64_t deadline_ns, struct gpc_remote_call *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->size = sizeof(*ret);
	ret->lane = lane;
	ret->deadline_ns = deadline_ns ? deadline_ns : clock_ns() + r->o.deadline_ms * NS_PER_MS;
	ret->cancel_fd = r->cancel_fd;
}

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

static void give_place(const struct remote *r, struct batch *b, uint32_t i, const struct remote_block *block)
{
	b->item[i].header = &b->header[i];
	b->item[i].image = block->image;
	b->item[i].npieces = block->npieces;
	b->item[i].image_bytes = r->o.image_bytes;
}

/* ---- what came of it ---- */

static uint64_t *counter_of(struct remote_state *c, int result)
{
	switch (result) {
	case -EHOSTDOWN:
		return &c->down;
	case -ETIMEDOUT:
		return &c->late;
	case -EBADMSG:
		return &c->wrong;
	case -ENOSPC:
		return &c->full;
	case -EACCES:
	case -EFBIG:
		return &c->refused;
	default:
		return &c->other;
	}
}

static bool is_failure(int result)
{
	return result == -EIO || result == -ETIMEDOUT || result == -EHOSTDOWN || result == -EACCES;
}

/* Answers that are none of the contract are -EIO: a miss, whatever a plugin means by them. */
static void check_result(struct gpc_remote_item *item)
{
	if (item->result != 0 && item->result != -ENOENT && item->result != -EAGAIN &&
	    item->result != -ECANCELED && item->result != -EBADMSG && item->result != -ENOSPC &&
	    item->result != -EFBIG && !is_failure(item->result))
		item->result = -EIO;
}

/* Items that came to nothing, by cause; a key that the store does not have is no failure. */
static void count_failures(struct remote *r, const struct batch *b, uint32_t n, uint64_t ns)
{
	uint32_t i, failed = 0;

	pthread_mutex_lock(&r->lock);
	r->counts.ns += ns;
	for (i = 0; i < n; i++) {
		failed += is_failure(b->item[i].result);
		if (b->item[i].result && b->item[i].result != -ENOENT && b->item[i].result != -ECANCELED)
			++*counter_of(&r->counts, b->item[i].result);
	}
	pthread_mutex_unlock(&r->lock);
	if (!r->plugin.own.tick && n && failed == n)
		store_down(r, b->item[0].result == -ETIMEDOUT ? "no answer within the deadline" :
			   strerror(-b->item[0].result));
}

static void answer_all(struct batch *b, uint32_t n, int result)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		b->item[i].result = result;
}

/* May the plugin be asked?  One with a tick knows for itself what is down. */
static int may_ask(const struct remote *r)
{
	uint32_t state = load_relaxed(&r->state);

	if (load_relaxed(&r->stopped))
		return -ECANCELED;
	if (state == REMOTE_OFF || (state == REMOTE_DOWN && !r->plugin.own.tick))
		return -EHOSTDOWN;
	return 0;
}

/* What a plugin writes to may be closed, and SIGPIPE ends programs.  It is blocked in this thread meanwhile, and
 * taken away if the plugin has caused one. */
void batch_quiet(struct quiet *q)
{
	sigset_t pending;

	sigemptyset(&q->pipe);
	sigaddset(&q->pipe, SIGPIPE);
	sigpending(&pending);
	q->was_pending = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &q->pipe, &q->before);
}

void batch_loud(const struct quiet *q)
{
	const struct timespec now = { 0 };

	if (!q->was_pending)
		while (sigtimedwait(&q->pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

static void ask(struct remote *r, plugin_call call, uint32_t lane, uint32_t n, uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	struct gpc_remote_call with;
	int refused = may_ask(r);
	struct quiet q;
	uint64_t began;
	uint32_t i;

	if (refused) {
		answer_all(b, n, refused);
		pthread_mutex_lock(&r->lock);
		r->counts.down += refused == -EHOSTDOWN ? n : 0;
		pthread_mutex_unlock(&r->lock);
		return;
	}
	began = clock_ns();
	batch_call(r, lane, deadline_ns, &with);
	batch_quiet(&q);
	call(r->store, &with, b->item, n);
	batch_loud(&q);
	for (i = 0; i < n; i++)
		check_result(&b->item[i]);
	count_failures(r, b, n, clock_ns() - began);
}

int batch_probe(struct remote *r)
{
	struct batch *b = &r->batch[r->o.lanes];
	struct gpc_remote_call with;
	gpc_key none = { { 0, 0 } };
	struct quiet q;

	name_item(r, b, 0, &none);
	batch_call(r, r->o.lanes, 0, &with);
	batch_quiet(&q);
	r->plugin.own.exists(r->store, &with, b->item, 1);
	batch_loud(&q);
	check_result(&b->item[0]);
	return is_failure(b->item[0].result) ? b->item[0].result : 0;
}

/* ---- get ---- */

static uint32_t crc_of(const struct remote_block *block)
{
	uint32_t crc = 0, i;

	for (i = 0; i < block->npieces; i++)
		crc = crc32c(crc, block->image[i].iov_base, block->image[i].iov_len);
	return crc;
}

static int verify(struct remote *r, struct batch *b, uint32_t i, struct remote_block *block)
{
	struct image_what want = { .key = block->key, .bytes = r->o.image_bytes }, is;
	const char *why = "it has another length";
	int ret = b->item[i].result;

	memcpy(want.fingerprint, r->o.fingerprint, sizeof(want.fingerprint));
	if (!ret)
		ret = image_header_read(&b->header[i], &want, &is, &why);
	if (!ret && crc_of(block) != is.crc) {
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
	block->crc = is.crc;
	if (count_next(&r->right) + 1 >= REMOTE_WRONG_OF && load_relaxed(&r->state) != REMOTE_OFF) {
		store_relaxed(&r->right, 0);
		store_relaxed(&r->wrong, 0);
	}
	return 0;
}

/* What is wrong would be wrong again, for every node. */
static void remove_wrong(struct remote *r, uint32_t lane, const struct remote_block *block, uint32_t n,
			 uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	struct gpc_remote_call with;
	struct quiet q;
	uint32_t i, wrong = 0;

	for (i = 0; i < n; i++)
		if (block[i].result == -EBADMSG)
			name_item(r, b, wrong++, &block[i].key);
	if (!wrong)
		return;
	batch_call(r, lane, deadline_ns, &with);
	batch_quiet(&q);
	r->plugin.own.remove(r->store, &with, b->item, wrong);
	batch_loud(&q);
}

static uint32_t get_batch(struct remote *r, uint32_t lane, struct remote_block *block, uint32_t n,
			  uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	uint32_t i, hits = 0, misses = 0, wrong = 0;

	for (i = 0; i < n; i++) {
		name_item(r, b, i, &block[i].key);
		give_place(r, b, i, &block[i]);
	}
	ask(r, r->plugin.own.get, lane, n, deadline_ns);
	for (i = 0; i < n; i++) {
		bool told = b->item[i].result == -EBADMSG;       /* counted already */

		block[i].result = verify(r, b, i, &block[i]);
		hits += block[i].result == 0;
		misses += block[i].result == -ENOENT;
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

uint32_t remote_get(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n, uint64_t deadline_ns)
{
	uint32_t i, hits = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		hits += get_batch(r, lane, b + i, MIN(n - i, GPC_REMOTE_BATCH), deadline_ns);
	return hits;
}

/* ---- put ---- */

static uint32_t put_batch(struct remote *r, uint32_t lane, struct remote_block *block, uint32_t n,
			  uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	struct image_what what = { .bytes = r->o.image_bytes };
	uint32_t i, stored = 0;

	memcpy(what.fingerprint, r->o.fingerprint, sizeof(what.fingerprint));
	for (i = 0; i < n; i++) {
		name_item(r, b, i, &block[i].key);
		give_place(r, b, i, &block[i]);
		what.key = block[i].key;
		what.parent = block[i].parent;
		what.depth = block[i].depth;
		what.tag = block[i].tag;
		what.crc = block[i].crc;
		image_header_make(&b->header[i], &what);
	}
	ask(r, r->plugin.own.put, lane, n, deadline_ns);
	for (i = 0; i < n; i++) {
		block[i].result = b->item[i].result;
		stored += block[i].result == 0;
	}
	pthread_mutex_lock(&r->lock);
	r->counts.puts += n;
	r->counts.stored += stored;
	r->counts.bytes_out += stored * r->o.image_bytes;
	pthread_mutex_unlock(&r->lock);
	return stored;
}

uint32_t remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n, uint64_t deadline_ns)
{
	uint32_t i, stored = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		stored += put_batch(r, lane, b + i, MIN(n - i, GPC_REMOTE_BATCH), deadline_ns);
	return stored;
}

/* ---- exists, remove ---- */

static uint32_t keys_batch(struct remote *r, plugin_call call, uint32_t lane, const gpc_key *keys, uint32_t n,
			   int32_t *results, uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	uint32_t i, done = 0;

	for (i = 0; i < n; i++)
		name_item(r, b, i, &keys[i]);
	ask(r, call, lane, n, deadline_ns);
	for (i = 0; i < n; i++) {
		done += b->item[i].result == 0;
		if (results)
			results[i] = b->item[i].result;
	}
	return done;
}

uint32_t remote_exists(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n, int32_t *results,
		       uint64_t deadline_ns)
{
	uint32_t i, there = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		there += keys_batch(r, r->plugin.own.exists, lane, keys + i, MIN(n - i, GPC_REMOTE_BATCH),
				    results ? results + i : NULL, deadline_ns);
	pthread_mutex_lock(&r->lock);
	r->counts.asked += n;
	r->counts.there += there;
	pthread_mutex_unlock(&r->lock);
	return there;
}

uint32_t remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n, int32_t *results,
		       uint64_t deadline_ns)
{
	uint32_t i, gone = 0;

	for (i = 0; i < n; i += GPC_REMOTE_BATCH)
		gone += keys_batch(r, r->plugin.own.remove, lane, keys + i, MIN(n - i, GPC_REMOTE_BATCH),
				   results ? results + i : NULL, deadline_ns);
	pthread_mutex_lock(&r->lock);
	r->counts.removed += gone;
	pthread_mutex_unlock(&r->lock);
	return gone;
}
