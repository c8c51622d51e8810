/* SPDX-License-Identifier: Apache-2.0 */
/* Traces with one turn in a row, as AIPerf writes them; hash_ids has the blocks that are new in
 * this turn.  A turn's prompt begins with all prompts and answers of its session so far.  The new
 * blocks follow.  An answer has the whole blocks of its output_length, and no other answer has
 * these blocks.
 *
 * Such an id names the contents of a block.  The same contents after another prefix are another
 * block of a cache.  So the ids of `struct trace` are numbers of pairs (id, the prefix before it).
 *
 * A turn waits for the answer to the turn before and for its own timestamp.  It is sent its delay
 * after the later of both.  A session begins when fewer than `concurrency` other sessions are under
 * way.  Time is counted in microseconds, by the two speeds that AIPerf's own report has.  So the order of the
 * requests is a function of the trace.
 * Tests: t/tools/replay-turns.t t/fuzz/trace.t */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/replay/trace.h"

#include <stdlib.h>
#include <string.h>

#define PREFILL_PER_S 20000u /* tokens */
#define DECODE_PER_S  60u
#define US_MOST       UINT64_C(4000000000000000000)
#define NONE          UINT32_MAX

struct context {
	uint64_t *ids;
	size_t n, room;
}; /* the context of a session so far; a restart begins another one */

struct turn {
	uint64_t start_us, delay_us, service_us, at_us;
	uint32_t context, n; /* the prompt: the first n of that context */
	uint32_t session, next, line;
};

struct speaker {
	uint32_t first, last; /* first and last turn */
	uint32_t context;
	uint64_t answer; /* blocks of the answer, which come before those of the next turn */
};

struct timed {
	uint64_t at_us;
	uint32_t which;
};

struct turns {
	struct context *contexts;
	struct turn *all;
	struct speaker *speakers;
	size_t n_contexts, n_all, n_speakers, contexts_room, all_room, speakers_room;
	struct known chain;
	uint64_t ids; /* number of ids given so far */
	uint64_t refs;
};

void turns_free(struct turns *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_contexts; i++)
		free(t->contexts[i].ids);
	free(t->contexts);
	free(t->all);
	free(t->speakers);
	free(t->chain.pairs);
	free(t);
}

/* ---- prompts ---- */

static int say(struct context *c, uint64_t id)
{
	if (trace_room((void **)&c->ids, &c->room, c->n, sizeof(*c->ids)))
		return -1;
	c->ids[c->n++] = id;
	return 0;
}

static int begin_context(struct turns *t, struct speaker *s)
{
	if (trace_room((void **)&t->contexts, &t->contexts_room, t->n_contexts,
		       sizeof(*t->contexts)))
		return -1;
	t->contexts[t->n_contexts] = (struct context){ 0 };
	s->context = (uint32_t)t->n_contexts++;
	s->answer = 0;
	return 0;
}

/* Sessions are numbered in the order in which they appear. */
static struct speaker *speaker_of(struct turns *t, uint32_t session, bool restart)
{
	struct speaker *s;
	bool is_new = session == t->n_speakers;

	if (is_new) {
		if (trace_room((void **)&t->speakers, &t->speakers_room, session,
			       sizeof(*t->speakers)))
			return NULL;
		t->speakers[t->n_speakers++] = (struct speaker){ .first = NONE, .last = NONE };
	}
	s = &t->speakers[session];
	return (is_new || restart) && begin_context(t, s) ? NULL : s;
}

static int check_size(struct loader *l, const struct row *r, const struct speaker *s)
{
	uint64_t tokens = l->o->tokens ? l->o->tokens : TURN_TOKENS;
	uint64_t wanted = (r->input + tokens - 1) / tokens;
	uint64_t n = l->turns->contexts[s->context].n + s->answer + r->n;

	if (r->n != wanted)
		return trace_complain(
			l,
			"hash_ids: %u ids, and input_length %llu makes %llu blocks of %llu tokens: "
			"--block-tokens says how many a block has",
			r->n, (unsigned long long)r->input, (unsigned long long)wanted,
			(unsigned long long)tokens);
	if (n > PROMPT_MOST)
		return trace_complain(l, "hash_ids: with it the prompt has %llu blocks: at most %d",
				      (unsigned long long)n, PROMPT_MOST);
	if (l->turns->refs + n > REFS_MOST)
		return trace_complain(
			l, "hash_ids: with it all prompts have more than %d blocks together",
			REFS_MOST);
	return 0;
}

/* Adds the last answer and the new blocks. */
static int extend(struct loader *l, const struct row *r, struct speaker *s)
{
	struct turns *t = l->turns;
	struct context *c = &t->contexts[s->context];
	const struct known_pair *p;
	const json_t *item;
	size_t i;

	for (; s->answer; s->answer--)
		if (say(c, t->ids++))
			return -1;
	json_array_foreach((json_t *)r->ids, i, item)
	{
		p = known_add(&t->chain, (uint64_t)json_integer_value(item),
			      c->n ? c->ids[c->n - 1] : NO_ID, t->ids, l->line);
		if (!p)
			return -1;
		t->ids += p->value == t->ids;
		if (say(c, p->value))
			return -1;
	}
	return 0;
}

int turns_take(struct loader *l, const struct row *r, uint32_t session)
{
	uint64_t tokens = l->o->tokens ? l->o->tokens : TURN_TOKENS;
	struct turns *t = l->turns ? l->turns : calloc(1, sizeof(*t));
	struct speaker *s;

	l->turns = t;
	if (!t) {
		cli_error("out of memory");
		return -1;
	}
	s = speaker_of(t, session, r->restart);
	if (!s || check_size(l, r, s) || extend(l, r, s) ||
	    trace_room((void **)&t->all, &t->all_room, t->n_all, sizeof(*t->all)))
		return -1;
	t->all[t->n_all] = (struct turn){
		.start_us = r->start_us,
		.delay_us = r->delay_us,
		.service_us =
			r->input * 1000000 / PREFILL_PER_S + r->output * 1000000 / DECODE_PER_S,
		.context = s->context,
		.n = (uint32_t)t->contexts[s->context].n,
		.session = session,
		.next = NONE,
		.line = l->line,
	};
	if (s->last == NONE)
		s->first = (uint32_t)t->n_all;
	else
		t->all[s->last].next = (uint32_t)t->n_all;
	s->last = (uint32_t)t->n_all++;
	s->answer = r->output / tokens;
	t->refs += t->all[s->last].n;
	return 0;
}

/* ---- times ---- */

static int by_time(const void *a, const void *b)
{
	const struct timed *x = a, *y = b;

	if (x->at_us != y->at_us)
		return x->at_us < y->at_us ? -1 : 1;
	return x->which < y->which ? -1 : x->which > y->which;
}

/* ends[0 .. n) is a heap with the earliest end first; that end becomes `us`. */
static void replace_first(uint64_t *ends, size_t n, uint64_t us)
{
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && ends[child + 1] < ends[child])
			child++;
		if (ends[child] >= us)
			break;
		ends[i] = ends[child];
	}
	ends[i] = us;
}

/* Computes when each turn of a session is sent if the session begins at the time `us`; *ret is its
 * end. */
static int time_session(struct loader *l, uint32_t session, uint64_t us, uint64_t *ret)
{
	struct turns *t = l->turns;

	for (uint32_t i = t->speakers[session].first; i != NONE; i = t->all[i].next) {
		struct turn *turn = &t->all[i];

		us = (us > turn->start_us ? us : turn->start_us) + turn->delay_us;
		turn->at_us = us;
		us += turn->service_us;
		if (us > US_MOST) {
			l->line = turn->line;
			return trace_complain(
				l, "timestamp, delay: the turn would end after more than 4e15 ms");
		}
	}
	*ret = us;
	return 0;
}

/* Sorts sessions, the earliest timestamp first. */
static struct timed *order_sessions(struct loader *l)
{
	struct turns *t = l->turns;
	struct timed *order = calloc(t->n_speakers, sizeof(*order));

	for (uint32_t i = 0; order && i < t->n_speakers; i++)
		order[i] = (struct timed){ t->all[t->speakers[i].first].start_us, i };
	if (order)
		qsort(order, t->n_speakers, sizeof(*order), by_time);
	else
		cli_error("out of memory");
	return order;
}

static int schedule(struct loader *l)
{
	struct timed *order = order_sessions(l);
	size_t n = l->turns->n_speakers;
	uint64_t limit = l->o->concurrency, *ends = NULL, end = 0;
	int r = order ? 0 : -1;

	if (!r && !limit && order[0].at_us == order[n - 1].at_us)
		limit = TURN_CONCURRENCY;
	l->t.concurrency = (uint32_t)limit;
	if (!r && limit) {
		ends = calloc(limit, sizeof(*ends));
		r = ends ? 0 : -1;
		if (r)
			cli_error("out of memory");
	}
	for (size_t i = 0; !r && i < n; i++) {
		r = time_session(l, order[i].which, limit ? ends[0] : 0, &end);
		if (!r && limit)
			replace_first(ends, limit, end);
	}
	free(ends);
	free(order);
	return r;
}

/* ---- requests ---- */

static int make_requests(struct loader *l, const struct timed *order)
{
	const struct turns *t = l->turns;
	struct trace *to = &l->t;

	to->ids = calloc(t->refs + 1, sizeof(*to->ids));
	free(to->start);
	to->start = calloc(t->n_all + 1, sizeof(*to->start));
	to->session = calloc(t->n_all + 1, sizeof(*to->session));
	if (!to->ids || !to->start || !to->session) {
		cli_error("out of memory");
		return -1;
	}
	for (size_t i = 0; i < t->n_all; i++) {
		const struct turn *turn = &t->all[order[i].which];

		if (turn->n)
			memcpy(to->ids + to->refs, t->contexts[turn->context].ids,
			       turn->n * sizeof(*to->ids));
		to->refs += turn->n;
		to->session[to->requests] = turn->session;
		to->start[++to->requests] = to->refs;
		if (turn->n > to->longest)
			to->longest = turn->n;
	}
	return 0;
}

int turns_end(struct loader *l)
{
	struct turns *t = l->turns;
	struct timed *order;
	int r;

	if (!t)
		return 0;
	if (schedule(l))
		return -1;
	order = calloc(t->n_all, sizeof(*order));
	if (!order) {
		cli_error("out of memory");
		return -1;
	}
	for (uint32_t i = 0; i < t->n_all; i++)
		order[i] = (struct timed){ t->all[i].at_us, i };
	qsort(order, t->n_all, sizeof(*order), by_time);
	r = make_requests(l, order);
	free(order);
	return r;
}
