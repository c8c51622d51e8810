/* SPDX-License-Identifier: Apache-2.0 */
/* round.h - one operation, in which a victim of some role dies; and what is left, which must be
 * what one of two runs leaves that nobody disturbed. */
#ifndef GPC_T_ROUND_H
#define GPC_T_ROUND_H

#include "commands.h"
#include "tracee.h"
#include "works.h"
#include "t/lib/stops.h"

enum role_kind { WRITER, SUCCESSOR, WORKER };

struct role {
	const char *name;
	enum role_kind kind;
	uint32_t wreck; /* a writer has died before this store of its own */
	bool orphan;    /* no writer lives beside the worker */
	bool served;    /* the writer runs commands before it reaps */
};

static const struct role roles[] = {
	{ "worker", WORKER, 0, false, false },       { "served", WORKER, 0, false, true },
	{ "orphan", WORKER, 0, true, false },        { "writer", WRITER, 0, false, false },
	{ "successor", SUCCESSOR, 0, false, false }, { "wreck-9", SUCCESSOR, 9, false, false },
	{ "wreck-23", SUCCESSOR, 23, false, false }, { "wreck-41", SUCCESSOR, 41, false, false },
	{ "wreck-70", SUCCESSOR, 70, false, false },
};

struct place { /* of an instruction */
	uint64_t pc;
	uint32_t times; /* it came next, this time included */
};

/* One operation of one role in one state. */
struct pair {
	const struct role *role;
	const struct table_state *state;
	const struct command *command; /* or */
	const struct work *work;
	struct outcome before, after;    /* killed at once; not before its end */
	struct shm_command answer[MOST]; /* in both */
	uint32_t *point, npoints, steps; /* after which others see something new */
	struct place *place;             /* of each instruction, from 1 on */
	uint32_t next;                   /* the next instruction of every one */
};

static struct pair *now;
static uint64_t others; /* second runs that chose other blocks */

TAP_FN const char *name_of(const struct pair *p)
{
	return p->command ? p->command->name : p->work->name;
}

/* ---- victims ---- */

/* What came before it goes on: several turns, until nothing is under way. */
TAP_FN void serve_to_rest(gpc *c)
{
	int i;

	for (i = 0; i < 200 && c->writer; i++) {
		if (gpc_writer_serve(c, 0) == 0 && i && grace_idle(c->writer))
			break;
	}
}

TAP_FN void victim_serves(void)
{
	gpc *c = small_attach("victim", 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	serve_to_rest(c);
	tracee_is_ready();
	c->writer->next_housekeep_ns = 0;
	serve_to_rest(c);
}

TAP_FN void victim_takes_over(void)
{
	gpc *c = small_attach("victim", 0);

	tracee_is_ready();
	must_be(gpc_writer_take(c, 0, 0), 0);
	serve_to_rest(c);
}

TAP_FN void victim_works(void)
{
	if (now->work->run != run_attach)
		mine.c = small_attach("victim", 0);
	if (now->work->ready)
		now->work->ready();
	tracee_is_ready();
	now->work->run();
}

/* Dies before a store, while it does what the next one will find half done. */
TAP_FN int wreck(int store)
{
	static uint64_t stores;
	gpc *c = small_attach("wreck", 0);

	stops.count = &stores;
	stops.last = (uint64_t)store;
	must_be(gpc_writer_take(c, 0, 0), 0);
	stops_begin();
	serve_to_rest(c);
	stops_die();
	return 1;
}

/* ---- a round ---- */

TAP_FN void await_victim(void)
{
	while (!tracee_waits(!boss->writer))
		need(gpc_writer_serve(boss, 0) >= 0, "serve: %s", gpc_last_error());
}

TAP_FN void send_command(void)
{
	if (now->command->send)
		now->command->send();
}

TAP_FN void leave_seat(void)
{
	if (boss->writer)
		must_be(gpc_writer_drop(boss), 0);
}

TAP_FN void begin_writer(void)
{
	leave_seat();
	tracee_fork(victim_serves);
	await_victim();
	send_command();
}

TAP_FN void begin_successor(void)
{
	leave_seat();
	send_command();
	if (now->role->wreck) {
		pid_t pid = crew_fork(wreck, (int)now->role->wreck);

		need(crew_status(pid) == 256 + SIGKILL, "the wreck: %s", crew->why);
	}
	tracee_fork(victim_takes_over);
	await_victim();
}

TAP_FN void begin_worker(void)
{
	tracee_fork(victim_works);
	await_victim();
	if (now->role->orphan)
		leave_seat();
	if (now->work->beside)
		now->work->beside();
}

TAP_FN void round_begin(void)
{
	uint64_t i;

	small_restore();
	small.nused = 0;
	memset(&job, 0, sizeof(job));
	job.publish_key = 30;
	boss = small_attach("boss", 0);
	must_be(gpc_writer_take(boss, 0, 0), 0);
	for (i = 1; i <= 20; i++)
		use_key(i);
	use_key(60);
	use_key(61);
	now->state->build();
	if (now->command && now->command->prepare)
		now->command->prepare();
	switch (now->role->kind) {
	case WRITER:
		begin_writer();
		break;
	case SUCCESSOR:
		begin_successor();
		break;
	case WORKER:
		begin_worker();
		break;
	}
	tracee_begin();
}

/* The victim is dead: all comes to rest, and is looked at; then nothing is left. */
TAP_FN void round_end(struct outcome *o)
{
	other_dies();
	if (!boss->writer)
		must_be(gpc_writer_take(boss, 0, 0), 0);
	else if (now->role->served) {
		boss->writer->next_housekeep_ns = UINT64_MAX;
		need(gpc_writer_serve(boss, 0) >= 0, "serve");
	}
	small_settle();
	small_outcome(o);
	put_answers(o->text, sizeof(o->text));
	crew_check(boss);
	small_give_all_back();
	gpc_close(boss);
	boss = NULL;
}

TAP_FN bool is_as(const struct outcome *o, const struct outcome *want)
{
	return !strcmp(o->text, want->text);
}

/* Of the keys that the undisturbed run leaves none has moved or lost a reference; as many as
 * the command has blocks may be gone, if nobody holds them. */
TAP_FN bool keys_are_kept(const struct outcome *o, const struct outcome *want)
{
	uint32_t i, lost = 0;

	for (i = 0; i < want->nkeys; i++) {
		const struct small_key *k = &want->key[i], *is = small_find(o, k->number);

		if (!is && (k->refs || ++lost > job.slots))
			return false;
		if (is && (is->block != k->block || is->refs != k->refs || is->depth != k->depth))
			return false;
	}
	return true;
}

TAP_FN bool is_answered(gpc_block b)
{
	uint32_t i;

	for (i = 0; i < job.slots; i++)
		if (job.answer[0].result > (int32_t)i && job.answer[i].block == b)
			return true;
	return false;
}

/* No key that was evicted comes back.  After a wreck the undisturbed run may have evicted others
 * than the wreck had, and this one may have been in time to answer with those of the wreck. */
TAP_FN bool none_comes_back(const struct outcome *o, const struct outcome *want)
{
	uint32_t i, spared = 0;

	for (i = 0; i < o->nkeys; i++) {
		if (small_find(want, o->key[i].number))
			continue;
		if (!now->role->wreck || is_answered(o->key[i].block) || ++spared > job.slots)
			return false;
	}
	return true;
}

/* Without GPC_TAKE a victim is free before the answer: the second run evicts another. */
TAP_FN bool evicts_anew(void)
{
	return job.answer[0].op == CMD_EVICT && !(job.answer[0].flags & CF_TAKE);
}

/* ... and one fewer where the runs before it have left no idle key. */
TAP_FN bool is_answer(const struct outcome *o)
{
	const struct shm_command *is = job.answer, *want = now->answer;
	uint32_t i;

	if (answers_are(want, now->command->again))
		return true;
	if (!evicts_anew() || is[0].result < 0 || is[0].result > want[0].result)
		return false;
	for (i = 1; i < job.slots; i++)
		if (is[i].result != want[i].result)
			return false;
	for (i = 0; i < o->nkeys; i++)
		if ((uint32_t)GPC_POOL(o->key[i].block) == is[0].pool && !o->key[i].refs)
			return false;
	return true;
}

/* What a second run may do otherwise: another choice of blocks, as many of them. */
TAP_FN bool is_like(const struct outcome *o, const struct outcome *want)
{
	uint32_t p;

	if (!now->command || !now->command->again || !is_answer(o) || !keys_are_kept(o, want) ||
	    !none_comes_back(o, want) || (!evicts_anew() && o->nkeys < want->nkeys))
		return false;
	for (p = 0; p < POOLS; p++)
		if (o->dying[p] != want->dying[p] || o->reserved[p] != want->reserved[p])
			return false;
	return true;
}

TAP_FN void judge(const struct outcome *o)
{
	if (is_as(o, &now->before) || is_as(o, &now->after))
		return;
	others++;
	if (is_like(o, &now->after))
		return;
	diag("killed before: %s", now->before.text);
	diag("not killed: %s", now->after.text);
	diag("now: %s", o->text);
	need(false, "neither as before nor as after");
}

#endif
