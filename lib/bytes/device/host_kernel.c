/* SPDX-License-Identifier: Apache-2.0 */
/* host_kernel.c - lookups in a mirror by the CPU, through the same probing as everywhere
 * (kernels/probe.h).
 *
 * The caller's section is open from before the launch until the stream has passed its signal.  So
 * a slot that is emptied meanwhile is not filled again, and every mixture of old and new words
 * that a load assembles is the entry itself or a miss.
 * Tests: t/bytes/device-host.t */
#include "config.h"

#include "bytes/device/host_kernel.h"

#include "index/base/err.h"
#include "index/base/order.h"
#include "bytes/device/host_stream.h"

#include <errno.h>
#include <stdlib.h>

uint32_t device_host_delay_us;

struct launch {
	struct stream_job job;
	struct dev_view view;
	uint32_t spaces, n;
	const gpc_key *keys;
	const uint32_t *start;
	uint32_t *len;
	gpc_block *blocks;
	uint64_t *counters;
};

struct signal_job {
	struct stream_job job;
	uint64_t *done, ticket;
};

static struct probe_entry load_entry(const struct probe_entry *from)
{
	struct probe_entry e;

	/* the block word is read first: it is stored last, and cleared first */
	e.w[3] = load_acquire(&from->w[3]);
	e.w[2] = load_relaxed(&from->w[2]);
	e.w[1] = load_relaxed(&from->w[1]);
	e.w[0] = load_relaxed(&from->w[0]);
	return e;
}

/* The key's block in this bucket, or -1.  *spills: the bucket's flag. */
static gpc_block probe_bucket(const struct dev_view *v, uint32_t bucket, struct probe_key p,
			      bool *spills)
{
	const struct probe_entry *at = v->table + (uint64_t)bucket * SHM_BUCKET;
	gpc_block found = GPC_NONE, b;
	struct probe_entry e;
	uint32_t i;

	for (i = 0; i < SHM_BUCKET; i++) {
		e = load_entry(&at[i]);
		if (!i)
			*spills = probe_overflows(e);
		b = probe_entry_block(e, p);
		if (b >= 0)
			found = b;
	}
	return found;
}

static gpc_block probe_space(const struct dev_view *v, uint32_t space, const gpc_key *key)
{
	struct probe_key p = probe_masked(key->w, v->mask[space].w, v->buckets);
	bool spills, ignored;
	gpc_block b = probe_bucket(v, p.first, p, &spills);

	if (b < 0 && spills)
		b = probe_bucket(v, p.second, p, &ignored);
	return b;
}

/* The key's block in the lowest space that has it, or -1. */
static gpc_block probe_key_in(const struct dev_view *v, uint32_t spaces, const gpc_key *key)
{
	gpc_block b = GPC_NONE;

	for (; spaces && b < 0; spaces &= spaces - 1)
		b = probe_space(v, (uint32_t)__builtin_ctz(spaces), key);
	return b;
}

/* ---- counters ---- */

static void count_hit(const struct dev_view *v, gpc_block b, uint64_t counts[DEVICE_COUNTERS])
{
	uint32_t pool = (uint32_t)GPC_POOL(b);

	counts[load_relaxed(&v->status->ram_pools[pool >> 6]) >> (pool & 63) & 1
		       ? COUNT_HIT_RAM
		       : COUNT_HIT_VRAM]++;
}

static void add_counts(uint64_t *to, uint64_t counts[DEVICE_COUNTERS])
{
	uint32_t i;

	counts[COUNT_MISS] = counts[COUNT_LOOKUPS] - counts[COUNT_HIT_VRAM] - counts[COUNT_HIT_RAM];
	for (i = 0; to && i < DEVICE_COUNTERS; i++)
		if (counts[i])
			count_add(&to[i], counts[i]);
}

/* ---- jobs ---- */

static void resolve_spaces(struct launch *l)
{
	if (!l->spaces)
		l->spaces = load_relaxed(&l->view.status->spaces);
}

static void probe_run(struct stream_job *job)
{
	struct launch *l = (struct launch *)job;
	uint64_t counts[DEVICE_COUNTERS] = { [COUNT_LOOKUPS] = l->n };
	uint32_t i;

	resolve_spaces(l);
	for (i = 0; i < l->n; i++) {
		l->blocks[i] = probe_key_in(&l->view, l->spaces, &l->keys[i]);
		if (l->blocks[i] >= 0)
			count_hit(&l->view, l->blocks[i], counts);
	}
	add_counts(l->counters, counts);
}

static uint32_t match_one(const struct launch *l, uint32_t from, uint32_t to,
			  uint64_t counts[DEVICE_COUNTERS])
{
	gpc_block b;
	uint32_t i;

	for (i = from; i < to; i++) {
		b = probe_key_in(&l->view, l->spaces, &l->keys[i]);
		if (b < 0)
			break;
		count_hit(&l->view, b, counts);
		if (l->blocks)
			l->blocks[i] = b;
	}
	return i - from;
}

static void match_run(struct stream_job *job)
{
	struct launch *l = (struct launch *)job;
	uint64_t counts[DEVICE_COUNTERS] = { 0 };
	uint32_t i;

	resolve_spaces(l);
	for (i = 0; i < l->n; i++) {
		uint32_t from = l->start[i], to = l->start[i + 1];

		if (to < from)
			to = from;
		counts[COUNT_LOOKUPS] += to - from;
		l->len[i] = match_one(l, from, to, counts);
	}
	add_counts(l->counters, counts);
}

static void signal_run(struct stream_job *job)
{
	struct signal_job *s = (struct signal_job *)job;
	uint64_t old;

	/* (G) a full barrier: the loads of all earlier jobs are over when the ticket shows.  Pairs
	 * with the acquire of the scan that ends grace periods. */
	do {
		old = load_relaxed(s->done);
	} while (old < s->ticket && !order_cas64(s->done, old, s->ticket));
}

static int launch(const struct launch *args, void (*run)(struct stream_job *job))
{
	struct launch *l = malloc(sizeof(*l));

	if (!l)
		return err_set(ENOMEM, "no memory for a job of the host device");
	*l = *args;
	l->job.run = run;
	l->job.delay_us = load_relaxed(&device_host_delay_us);
	return stream_submit(&l->job);
}

int host_kernel_lookup(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		       uint32_t n, gpc_block *blocks, void *stream UNUSED)
{
	struct launch l = { .view = *view,
			    .spaces = spaces,
			    .n = n,
			    .keys = keys,
			    .blocks = blocks,
			    .counters = dev };

	return launch(&l, probe_run);
}

int host_kernel_match(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		      const uint32_t *start, uint32_t nseq, uint32_t *len, gpc_block *blocks,
		      void *stream UNUSED)
{
	struct launch l = { .view = *view,
			    .spaces = spaces,
			    .n = nseq,
			    .keys = keys,
			    .start = start,
			    .len = len,
			    .blocks = blocks,
			    .counters = dev };

	return launch(&l, match_run);
}

int host_kernel_signal(void *dev UNUSED, uint64_t *done, uint64_t ticket, void *stream UNUSED)
{
	struct signal_job *s = malloc(sizeof(*s));

	if (!s)
		return err_set(ENOMEM, "no memory for a job of the host device");
	s->job.run = signal_run;
	s->job.delay_us = load_relaxed(&device_host_delay_us);
	s->done = done;
	s->ticket = ticket;
	return stream_submit(&s->job);
}
