/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that wait for subscribers, and one bound of their bytes over all subscribers:
 * --events-memory.
 *
 * libzmq counts the batches of each subscriber separately.  The bytes of a batch exist once,
 * however many subscribers it waits for, and libzmq reports when the last one has taken it.  A
 * subscriber's queue has three places of SLOT bytes for a batch.  So waiting batches take at most
 *
 *   	bytes + batches * (BATCH_BYTES + 3 * SLOT * subscribers)
 *
 * for any set of subscribers.  A connection costs CONNECTION_BYTES beside that.  The number of
 * connections that are let in is such that all of them take a quarter of the bound.
 *
 *   waiting bytes        a batch that is to be sent       the subscribers
 *   -------------------  -------------------------------  ------------------------------------------
 *   less than 3/4 of     is sent                          are checked: which of them take nothing, and
 *   the bound                                             since when
 *   more                 is sent                          each LOOK_NS the one that has taken nothing
 *                                                         for longest is disconnected
 *   the whole bound      is left out, which all see as a  all that take nothing are disconnected
 *                        gap in the sequence
 *
 * libzmq connects a subscriber that was disconnected again by itself.  The subscriber gets the last
 * batch and asks for the batches that it has missed.  malloc keeps freed memory, so it is told to
 * give memory back when most of the waiting bytes have gone.
 * Tests: t/daemon/events-memory.t */
#include "config.h"

#include "tools/daemon/events/events.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
	SLOT = 64,
	BATCH_BYTES = 160, /* bytes that malloc and libzmq take beside those of a batch */
	CONNECTION_BYTES = 65536,
	FEW = 16, /* at least as many connections are let in, however small the bound is */
};
#define LOOK_NS UINT64_C(100000000)

/* waiting ones: the publisher adds, the thread that frees subtracts */
static uint64_t bytes, batches;

static uint64_t cost(void)
{
	return __atomic_load_n(&bytes, __ATOMIC_RELAXED) +
	       __atomic_load_n(&batches, __ATOMIC_RELAXED) *
		       (BATCH_BYTES + 3 * SLOT * (uint64_t)accept_subscribers());
}

/* ---- frames ---- */

static void forget(void *data, void *hint)
{
	__atomic_sub_fetch(&bytes, (uint64_t)(uintptr_t)hint, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&batches, 1, __ATOMIC_RELAXED);
	free(data);
}

bool waiting_frame(struct endpoint *to, const void *data, size_t n)
{
	void *copy = malloc(n ? n : 1);
	zmq_msg_t m;

	if (!copy) {
		errno = ENOMEM;
		return false;
	}
	memcpy(copy, data, n);
	__atomic_add_fetch(&bytes, n, __ATOMIC_RELAXED);
	__atomic_add_fetch(&batches, 1, __ATOMIC_RELAXED);
	if (zmq_msg_init_data(&m, copy, n, forget, (void *)(uintptr_t)n)) {
		forget(copy, (void *)(uintptr_t)n);
		return false;
	}
	if (zmq_msg_send(&m, to->socket, ZMQ_DONTWAIT) >= 0)
		return true;
	zmq_msg_close(&m);
	return false;
}

/* ---- the bound ---- */

void waiting_begin(struct waiting *w, uint64_t limit)
{
	uint64_t most = limit / 4 / CONNECTION_BYTES;

	w->limit = limit;
	accept_at_most(most < FEW ? FEW : most < UINT32_MAX ? (unsigned)most : UINT32_MAX);
}

static void give_back(struct waiting *w, uint64_t now)
{
	if (w->peak < now || w->peak - now < w->limit / 16 || now > w->peak / 2)
		return;
	malloc_trim(0);
	w->peak = now;
}

void waiting_look(struct waiting *w)
{
	uint64_t now = cli_now_ns(), have = cost();

	if (now - w->looked < LOOK_NS)
		return;
	if (accept_subscribers())
		accept_look(now);
	if (have >= w->limit / 4 * 3)
		w->hung_up += accept_hang_up(now, have >= w->limit);
	give_back(w, have);
	w->looked = now;
}

bool waiting_has_room(struct waiting *w)
{
	uint64_t now = cost();

	w->peak = now > w->peak ? now : w->peak;
	if (now < w->limit / 4 * 3)
		return true;
	waiting_look(w);
	return cost() < w->limit;
}

uint64_t waiting_bytes(void)
{
	return cost();
}
