/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - calls the plugin with a batch, in the lane's thread, and counts the results.
 * Tests: t/tiers/lane-lost.t t/tiers/remote-folder.t */
#include "config.h"

#include "tiers/remote/batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "index/base/err.h"
#include "index/base/log.h"
#include "index/base/order.h"

#define CLOSE_NS (5000 * NS_PER_MS)
/* the time between two log lines that the store is full */
#define FULL_TOLD_NS (600000 * NS_PER_MS)

int batch_open(struct remote *r)
{
	uint32_t i;

	r->batch = calloc(r->o.lanes + 1, sizeof(*r->batch));
	if (!r->batch)
		return err_set(ENOMEM, "no memory for the batches of %u lanes", r->o.lanes);
	for (i = 0; i <= r->o.lanes; i++) {
		r->batch[i].r = r;
		lane_open(&r->batch[i].lane, r->o.grace_ms * NS_PER_MS);
	}
	return 0;
}

void batch_close(struct remote *r)
{
	uint32_t i;

	for (i = 0; r->batch && i <= r->o.lanes; i++) {
		lane_close(&r->batch[i].lane);
		free(r->batch[i].piece);
	}
	free(r->batch);
}

void batch_stop(struct remote *r)
{
	uint32_t i;

	for (i = 0; i <= r->o.lanes; i++)
		lane_stop(&r->batch[i].lane);
}

bool remote_is_lost(struct remote *r, uint32_t lane)
{
	return lane_is_lost(&r->batch[lane].lane);
}

static void call_make(const struct remote *r, uint32_t lane, uint64_t deadline_ns,
		      struct gpc_remote_call *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->size = sizeof(*ret);
	ret->lane = lane;
	ret->deadline_ns = deadline_ns ? deadline_ns : clock_ns() + r->o.deadline_ms * NS_PER_MS;
	ret->cancel_fd = r->cancel_fd;
}

/* ---- results ---- */

static uint64_t *counter_of(struct remote_state *c, int result)
{
	switch (result) {
	case -EHOSTDOWN:
		return &c->down;
	case -ETIMEDOUT:
	case -EINPROGRESS:
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

bool batch_failed(int result)
{
	return result == -EIO || result == -ETIMEDOUT || result == -EHOSTDOWN || result == -EACCES;
}

/* An answer that the contract does not have counts as -EIO: a miss, whatever the plugin means by
 * it. */
int32_t batch_result(int32_t result)
{
	return result != 0 && result != -ENOENT && result != -EAGAIN && result != -ECANCELED &&
			       result != -EBADMSG && result != -ENOSPC && result != -EFBIG &&
			       result != -EOPNOTSUPP && !batch_failed(result)
		       ? -EIO
		       : result;
}

/* Count the failed items by cause.  A key that the store does not have is no failure. */
static void count_failures(struct remote *r, const struct batch *b, uint32_t n, uint64_t ns)
{
	uint64_t now = clock_ns();
	uint32_t i, failed = 0;
	bool full = false;

	pthread_mutex_lock(&r->lock);
	r->counts.ns += ns;
	for (i = 0; i < n; i++) {
		failed += batch_failed(b->result[i]);
		full |= b->result[i] == -ENOSPC;
		if (b->result[i] && b->result[i] != -ENOENT && b->result[i] != -ECANCELED)
			++*counter_of(&r->counts, b->result[i]);
	}
	full &= !r->full_ns || now - r->full_ns > FULL_TOLD_NS;
	if (full)
		r->full_ns = now;
	pthread_mutex_unlock(&r->lock);
	if (full)
		store_say(
			r, LOG_WARNING,
			"is full: it takes no blocks until it has room; give it more, or let it evict by itself");
	if (failed < n)
		store_relaxed(&r->answered, 1);
	if (!r->plugin.own.tick && n && failed == n)
		store_down(r, b->result[0] == -ETIMEDOUT ? "no answer within the deadline"
							 : strerror(-b->result[0]));
}

void batch_answer(struct batch *b, uint32_t n, int result)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		b->result[i] = result;
}

static const char *name_of(const struct remote *r, plugin_call call)
{
	const struct gpc_remote_plugin *p = &r->plugin.own;

	return call == p->get      ? "get"
	       : call == p->put    ? "put"
	       : call == p->exists ? "exists"
	       : call == p->fence  ? "fence"
				   : "remove";
}

/* The next answer to any question will be the same, so a person has to know. */
static void tell_refusal(struct remote *r, plugin_call call, const struct batch *b, uint32_t n)
{
	const struct gpc_remote_plugin *p = &r->plugin.own;
	uint32_t bit = call == p->get ? 1 : call == p->put ? 2 : call == p->exists ? 4 : 8, i;

	if (call == p->fence)
		bit = 16;

	for (i = 0; i < n && b->result[i] != -EACCES; i++)
		;
	if (i < n && !(order_or64(&r->refused, bit) & bit))
		store_say(
			r, LOG_WARNING,
			"refuses %s to us: let this user have it (gpc_remote(7) says what is needed); until "
			"then that is a miss",
			name_of(r, call));
}

/* May the plugin be asked?  A plugin with a tick knows itself whether a server is down. */
static int may_ask(const struct remote *r)
{
	uint32_t state = load_relaxed(&r->state);

	if (load_relaxed(&r->stopped))
		return -ECANCELED;
	if (load_relaxed(&r->lost) || clock_ns() < load_relaxed(&r->lost_until))
		return -EHOSTDOWN;
	if (state == REMOTE_OFF || (state == REMOTE_DOWN && !r->plugin.own.tick))
		return -EHOSTDOWN;
	return 0;
}

static void run_call(void *arg)
{
	struct batch *b = arg;

	b->call(b->r->store, &b->with, b->item, b->n);
}

/* Runs in the lane's thread.  False: the lane is LOST, or nothing was called. */
bool batch_call_plugin(struct remote *r, plugin_call call, uint32_t lane, uint32_t n,
		       uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];

	b->call = call;
	b->n = n;
	call_make(r, lane, deadline_ns, &b->with);
	if (lane_run(&b->lane, run_call, b, b->with.deadline_ns))
		return true;
	if (lane_is_lost(&b->lane))
		store_lost(r, lane, name_of(r, call));
	return false;
}

void batch_ask(struct remote *r, plugin_call call, uint32_t lane, uint32_t n, uint64_t deadline_ns)
{
	struct batch *b = &r->batch[lane];
	int refused = may_ask(r);
	uint64_t began = clock_ns();
	uint32_t i;

	if (refused) {
		batch_answer(b, n, refused);
		pthread_mutex_lock(&r->lock);
		r->counts.down += refused == -EHOSTDOWN ? n : 0;
		pthread_mutex_unlock(&r->lock);
		return;
	}
	if (batch_call_plugin(r, call, lane, n, deadline_ns))
		for (i = 0; i < n; i++)
			b->result[i] = batch_result(b->item[i].result);
	else
		batch_answer(b, n, lane_is_lost(&b->lane) ? -EINPROGRESS : -EIO);
	if (call != r->plugin.own.fence) /* fence is called again and again */
		count_failures(r, b, n, clock_ns() - began);
	tell_refusal(r, call, b, n);
}

/* Nothing of a LOST lane may be touched. */
bool batch_is_mine(struct remote *r, uint32_t lane, uint32_t n)
{
	struct batch *b = &r->batch[lane];

	if (!lane_is_lost(&b->lane))
		return true;
	batch_answer(b, n, -EHOSTDOWN);
	pthread_mutex_lock(&r->lock);
	r->counts.down += n;
	pthread_mutex_unlock(&r->lock);
	return false;
}

static void run_tick(void *arg)
{
	struct batch *b = arg;

	b->tick = b->r->plugin.own.tick(b->r->store, &b->with, b->why, sizeof(b->why));
}

int batch_tick(struct remote *r, char *why, size_t room)
{
	struct batch *b = &r->batch[r->o.lanes];

	call_make(r, r->o.lanes, 0, &b->with);
	snprintf(b->why, sizeof(b->why), "it does not answer");
	if (!lane_run(&b->lane, run_tick, b, b->with.deadline_ns)) {
		if (lane_is_lost(&b->lane))
			store_lost(r, r->o.lanes, "tick");
		snprintf(why, room, "tick has not returned");
		return -ETIMEDOUT;
	}
	snprintf(why, room, "%.*s", (int)sizeof(b->why) - 1, b->why);
	return b->tick > 0 ? -EIO : b->tick;
}

static void run_close(void *arg)
{
	struct batch *b = arg;

	b->r->plugin.own.close(b->r->store);
}

bool batch_end(struct remote *r)
{
	struct batch *b = &r->batch[0];

	if (lane_run(&b->lane, run_close, b, clock_ns() + CLOSE_NS))
		return true;
	if (lane_is_lost(&b->lane))
		return false;
	run_close(b); /* there is no thread for it */
	return true;
}
