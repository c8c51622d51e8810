/* SPDX-License-Identifier: Apache-2.0 */
/* results.c - the result of each block of a transfer: gpc_transfer_results.
 *
 * The writer counts its refusals, and names the bad block.  The records show the other refused
 * blocks.  They are read when this handle sees that the transfer is over: a committed target is
 * LIVE, and still has owner and op of the command.  A block that has left again by then is
 * reported as refused, since nobody can use it.
 * Tests: t/bytes/fetch.t t/bytes/ranks.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <string.h>

static bool was_committed(const gpc *c, const struct channel *s, uint32_t i)
{
	const struct shm_record *r = seg_record(&c->seg, s->bound[i].record);
	/* pairs with (C): owner and op are stored before LIVE */
	uint32_t word = load_acquire(&r->word);

	return WORD_STATE(word) == LIVE && load_relaxed(&r->owner) == c->peer &&
	       load_relaxed(&r->op) == s->op + s->bound[i].index;
}

static void set_bit(uint64_t *bits, uint32_t i)
{
	bits[i / 64] |= 1ull << (i & 63);
}

void outcome_note(gpc *c, uint32_t channel)
{
	struct transfers *t = c->transfers;
	const struct channel *s = &t->channel[channel];
	const struct shm_xfer *x = seg_xfer(&c->seg, c->peer, channel);
	struct outcome *o = &t->outcome[t->noutcomes++ % OUTCOMES];
	bool ours = load_relaxed(&x->value) == s->value;
	uint32_t i, bad = ours ? load_relaxed(&x->bad) : 0;

	*o = (struct outcome){ .name = transfer_name(t, channel), .n = s->n };
	for (i = 0; bad && i < s->n && s->bound[i].index != bad - 1; i++)
		;
	o->bad = bad ? i + 1 : 0;
	if (bad) {
		memset(o->refused, 0xff, sizeof(o->refused));
		transfer_fail(t, o->name, -EBADMSG);
	} else if (!ours || load_relaxed(&x->refused)) {
		for (i = 0; i < s->n; i++)
			if (!was_committed(c, s, i))
				set_bit(o->refused, i);
	}
}

static int of_outcome(const struct outcome *o, uint32_t i)
{
	if (o->bad == i + 1)
		return -EBADMSG;
	return o->refused[i / 64] >> (i & 63) & 1 ? -ESTALE : 0;
}

/* With the lock held.  -ENOENT: it is not among the remembered ones. */
static int find(struct transfers *t, gpc_transfer name, int *results, uint32_t n)
{
	uint32_t i, k;

	for (i = 0; i < MIN(t->noutcomes, OUTCOMES); i++) {
		const struct outcome *o = &t->outcome[i];

		if (o->name != name)
			continue;
		for (k = 0; k < MIN(n, o->n); k++)
			results[k] = of_outcome(o, k);
		return (int)o->n;
	}
	return -ENOENT;
}

GPC_EXPORT int gpc_transfer_results(gpc *c, gpc_transfer t, int *results, uint32_t n)
{
	int err = handle_check(c, true), got;

	if (err == 0)
		err = err_count(n, "results");
	if (err == 0 && n && !results)
		err = err_set(EINVAL, "results is NULL, and n is %u", n);
	if (err == 0 && (t == 0 || t == GPC_TRANSFER_ALL))
		err = err_set(EINVAL, "transfer is %s: results are of one transfer",
			      t ? "GPC_TRANSFER_ALL" : "0, which names none");
	if (err < 0)
		return err;
	transfer_sweep(c);
	pthread_mutex_lock(&c->transfers->lock);
	got = find(c->transfers, t, results, n);
	pthread_mutex_unlock(&c->transfers->lock);
	if (got >= 0)
		return got;
	err = gpc_transfer_wait(c, t, 0);
	if (err && err != -EBADMSG)
		return err;
	return err_set(ENOENT,
		       "transfer %llu has no results: it is none of the last %u that "
		       "gpc_fetch and gpc_spill have begun and that are done",
		       (unsigned long long)t, OUTCOMES);
}
