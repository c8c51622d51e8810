/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of each request.
 *
 *                      first turn of a session                      its other turns
 *   STICKY_NONE        the request's number                         the request's number
 *   STICKY_SESSION     the worker with the fewest sessions under    the same worker
 *                      way, then with the fewest so far, then the
 *                      lowest number
 *   STICKY_HASH        the worker with the highest hash of name     the same, of the workers that
 *                      and worker                                   exist at that time
 *
 * A session is under way from its first request to its last.  A change takes place before the
 * request in the middle:
 *
 *   CHANGE_DIES        from there on another cache, number N, takes the place of cache 0
 *   CHANGE_ADDED       worker N may be chosen, too
 *   CHANGE_REMOVED     worker 0 is not chosen any more; its sessions choose again
 *
 * Tests: t/tools/replay-sticky.t */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/replay/trace.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

struct dealer {
	const struct trace *t;
	enum sticky how;
	uint32_t from, to;    /* workers that can be chosen */
	uint32_t *pin, *last; /* for each session: its worker, its last request */
	uint64_t *now, *ever; /* for each worker: sessions under way, and so far */
};

static uint64_t mixed(uint64_t x)
{
	x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
	x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
	return x ^ (x >> 33);
}

static uint32_t least_loaded(const struct dealer *d)
{
	uint32_t best = d->from;

	for (uint32_t w = d->from + 1; w < d->to; w++)
		if (d->now[w] < d->now[best] ||
		    (d->now[w] == d->now[best] && d->ever[w] < d->ever[best]))
			best = w;
	return best;
}

static uint32_t by_hash(const struct dealer *d, uint64_t hash)
{
	uint64_t most = 0, weight;
	uint32_t best = d->from;

	for (uint32_t w = d->from; w < d->to; w++) {
		weight = mixed(hash ^ mixed(w + 1));
		if (weight > most) {
			most = weight;
			best = w;
		}
	}
	return best;
}

static uint32_t worker_of(struct dealer *d, uint32_t request)
{
	uint32_t s = d->t->session[request], w;

	if (d->how == STICKY_NONE)
		return d->from + request % (d->to - d->from);
	if (d->how == STICKY_HASH)
		return by_hash(d, d->t->hash[s]);
	if (d->pin[s] == NOBODY || d->pin[s] < d->from) {
		d->pin[s] = least_loaded(d);
		d->now[d->pin[s]]++;
		d->ever[d->pin[s]]++;
	}
	w = d->pin[s];
	if (d->last[s] == request)
		d->now[w]--;
	return w;
}

static void deal(struct dealer *d, uint32_t workers, enum change change, uint32_t *to)
{
	for (uint32_t i = 0; i < d->t->requests; i++) {
		bool late = change != CHANGE_NONE && i >= d->t->requests / 2;

		d->from = late && change == CHANGE_REMOVED ? 1 : 0;
		d->to = workers + (late && change == CHANGE_ADDED ? 1 : 0);
		to[i] = worker_of(d, i);
		if (late && change == CHANGE_DIES && to[i] == 0)
			to[i] = workers;
	}
}

int deal_make(const struct trace *t, uint32_t workers, enum sticky how, enum change change,
	      struct deal *ret)
{
	struct dealer d = { .t = t, .how = how };
	uint32_t *to = calloc((size_t)t->requests + 1, sizeof(*to));
	int r;

	d.pin = calloc((size_t)t->sessions + 1, sizeof(*d.pin));
	d.last = calloc((size_t)t->sessions + 1, sizeof(*d.last));
	d.now = calloc((size_t)workers + 1, sizeof(*d.now));
	d.ever = calloc((size_t)workers + 1, sizeof(*d.ever));
	r = to && d.pin && d.last && d.now && d.ever ? 0 : -1;
	if (!r) {
		memset(d.pin, 0xff, t->sessions * sizeof(*d.pin));
		for (uint32_t i = 0; i < t->requests; i++)
			d.last[t->session[i]] = i;
		deal(&d, workers, change, to);
		*ret = (struct deal){ to,
				      workers + (change == CHANGE_DIES || change == CHANGE_ADDED) };
	} else {
		cli_error("out of memory");
		free(to);
	}
	free(d.pin);
	free(d.last);
	free(d.now);
	free(d.ever);
	return r;
}

void deal_free(struct deal *d)
{
	free(d->to);
	*d = (struct deal){ 0 };
}
