/* SPDX-License-Identifier: Apache-2.0 */
/* enqueue.c - prepares a device for copies, and enqueues the copies of a list of pairs.
 * Tests: t/bytes/pin-meanwhile.t t/bytes/pin-refused.t t/bytes/copy.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory that GPUs read and write ---- */

static int pin_slot(gpc *c, struct map *m, const struct device_bytes *device, uint32_t slot)
{
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < m->memory.nruns; i++) {
		const struct shm_run *r = &m->memory.run[i];

		err = map_pin(c, m, device, r->offset + slot * r->slot_stride,
			      (r->count - 1) * r->run_stride + r->bytes, false);
	}
	return err;
}

/* The first copy of a process also registers the page of words that say done; a rank registers
 * that of its leader.  If the driver refuses that, the device has another way to store there
 * (bytes.h). */
int pin_words(gpc *c, const struct device_bytes *device, uint32_t peer)
{
	struct transfers *t = c->transfers;
	int err = 0;

	if (device->in_ram)
		return 0;
	pthread_mutex_lock(&t->marks);
	if (t->pinned[peer] == CHUNK_NEW) {
		err = device->pin(seg_transfer(&c->seg, peer), sizeof(struct shm_transfer));
		t->pinned[peer] = err ? CHUNK_REFUSED : CHUNK_PINNED;
		t->words_by = err ? t->words_by : device;
	}
	pthread_mutex_unlock(&t->marks);
	if (err)
		pin_say_refused(c, "the words that tell the ends of copies");
	return 0;
}

int pin_pair(gpc *c, const struct pair *p, const struct copy_pair *pairs, uint32_t n)
{
	const struct device_bytes *device;
	uint32_t i;
	int err;

	if (!p->by || p->by->device->in_ram)
		return 0;
	device = p->by->device;
	err = pin_words(c, device, c->peer);
	for (i = 0; !err && i < n; i++) {
		err = pin_slot(c, p->to, device, pairs[i].to);
		if (!err)
			err = pin_slot(c, p->from, device, pairs[i].from);
	}
	return err;
}

int check_stream(const struct map *by, void *stream)
{
	if (by)
		return by->device->check_stream(by->memory.uuid, stream);
	if (stream)
		return err_set(EINVAL,
			       "stream is %p: copies from RAM to RAM are of no stream, so it "
			       "must be NULL",
			       stream);
	return 0;
}

/* ---- operations ---- */

struct target {
	const struct map *by;
	void *stream;
};

static int emit(void *arg, const struct copy_op *ops, uint32_t nops)
{
	const struct target *t = arg;
	uint32_t done;

	return t->by->device->copy(t->by->memory.uuid, ops, nops, t->stream, &done);
}

int enqueue_pairs(const struct pair *p, uint32_t stage, const struct copy_pair *pairs, uint32_t n,
		  void *stream)
{
	const struct plan *plan = &p->plan[stage];
	struct target target = { p->by, stream };
	struct plan_host host = { 0 };

	if (p->limits.pairs)
		return p->by->device->copy_pairs(p->by->memory.uuid, plan->shape, plan->nshapes,
						 pairs, n, stream);
	if (p->to->images && p->by != p->to)
		host = (struct plan_host){ p->to->images, map_pin_chunk, true };
	else if (p->from->images && p->by != p->from)
		host = (struct plan_host){ p->from->images, map_pin_chunk, false };
	return plan_run(plan, &p->limits, &host, pairs, n, emit, &target);
}

/* ---- events ---- */

static struct events *find_events(const struct channel *s)
{
	struct events *e = s->all_events;

	while (e && (e->device != s->device || memcmp(e->uuid, s->uuid, sizeof(e->uuid))))
		e = e->next;
	return e;
}

static struct events *new_events(struct channel *s)
{
	struct events *e = calloc(1, sizeof(*e));

	if (!e) {
		err_set(ENOMEM, "no memory for the events of a transfer");
		return NULL;
	}
	e->device = s->device;
	memcpy(e->uuid, s->uuid, sizeof(e->uuid));
	e->next = s->all_events;
	s->all_events = e;
	return e;
}

/* The channel belongs to the caller, and so does its list.  Others see the events of this transfer
 * when it is marked. */
int events_make(gpc *c, uint32_t channel, uint32_t stages)
{
	struct channel *s = &c->transfers->channel[channel];
	struct events *e;
	uint32_t i;
	int err = 0;

	if (!s->device)
		return 0;
	e = find_events(s);
	if (!e)
		e = new_events(s);
	if (!e)
		return -ENOMEM;
	for (i = 0; !err && i < stages; i++)
		if (!e->event[i])
			err = s->device->event_make(s->uuid, &e->event[i]);
	if (err)
		return err;
	pthread_mutex_lock(&c->transfers->lock);
	s->events = e;
	s->stages = stages;
	pthread_mutex_unlock(&c->transfers->lock);
	return 0;
}
