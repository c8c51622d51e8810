/* SPDX-License-Identifier: Apache-2.0 */
/* points.h - where a victim is killed: after instructions that others can notice, or after any.
 *
 * The first pass over an operation finds the former; kills lead to them. */
#ifndef GPC_T_POINTS_H
#define GPC_T_POINTS_H

#include "round.h"

/* A flush waits for another thread, which waits for a processor. */
#define MOST_STEPS 2000000

static uint32_t k_now;
static uint64_t kills, drifts;

/* ---- the first pass ---- */

TAP_FN void add_point(uint32_t k)
{
	if (!(now->npoints & 63))
		now->point = realloc(now->point, (now->npoints + 64) * sizeof(*now->point));
	if (!now->point)
		bail("no memory");
	now->point[now->npoints++] = k;
}

/* How often each instruction has come up to each moment. */
TAP_FN void count_times(void)
{
	uint32_t i, at, mask = 1023, *last;

	while (mask < 2 * now->steps)
		mask = 2 * mask + 1;
	last = calloc(mask + 1, sizeof(*last));
	if (!last)
		bail("no memory");
	for (i = 1; i <= now->steps + 1; i++) {
		at = (uint32_t)crew_mix(now->place[i].pc) & mask;
		while (last[at] && now->place[last[at]].pc != now->place[i].pc)
			at = (at + 1) & mask;
		now->place[i].times = last[at] ? now->place[last[at]].times + 1 : 1;
		last[at] = i;
	}
	free(last);
}

/* Which instructions others can notice, and what an undisturbed run leaves. */
TAP_FN void map_points(void)
{
	bool call, store;

	k_now = 0;
	round_begin();
	tracee_kill();
	round_end(&now->before);
	round_begin();
	now->place = calloc(MOST_STEPS + 2, sizeof(*now->place));
	if (!now->place)
		bail("no memory");
	small_look();
	for (k_now = 1; k_now <= MOST_STEPS; k_now++) {
		now->place[k_now].pc = tracee_pc();
		call = tracee_calls_system();
		store = tracee_may_store();
		if (!tracee_step())
			break;
		if (((call || store) && small_changed()) || call)
			add_point(k_now);
	}
	need(k_now <= MOST_STEPS, "it does not end");
	now->steps = k_now - 1;
	tracee_kill();
	round_end(&now->after);
	memcpy(now->answer, job.answer, sizeof(now->answer));
	now->place = realloc(now->place, (now->steps + 2) * sizeof(*now->place));
	count_times();
	if (getenv("GPC_T_VERBOSE"))
		diag("%-16s %-10s %-8s %6u instructions, %4u distinct%s", name_of(now),
		     now->role->name, now->state->name, now->steps, now->npoints,
		     is_as(&now->before, &now->after) ? "" : ", two outcomes");
	if (getenv("GPC_T_VERBOSE") && !is_as(&now->before, &now->after))
		diag("%s <> %s", now->before.text, now->after.text);
}

/* ---- kills ---- */

TAP_FN bool is_ours(uint64_t pc)
{
	return pc >= (uintptr_t)__executable_start && pc < (uintptr_t)etext;
}

/* The instruction, at or before k + 1, from which it is least work: one of ours that has not
 * come often. */
TAP_FN uint32_t nearest(uint32_t k)
{
	uint32_t j, cost, best = 0, best_cost = k;

	for (j = k + 1; j && k + 1 - j < best_cost; j--) {
		cost = k + 1 - j + 4 * now->place[j].times;
		if (cost < best_cost && is_ours(now->place[j].pc)) {
			best = j;
			best_cost = cost;
		}
	}
	return best;
}

/* Led to where k instructions are behind it.  False: it ended before. */
TAP_FN bool lead(uint32_t k)
{
	uint32_t i, from = k <= now->steps ? nearest(k) : 0;
	bool alive = true;

	if (from)
		alive = tracee_run_to(now->place[from].pc, now->place[from].times);
	for (i = from ? from : 1; i <= k && alive; i++)
		alive = tracee_step();
	for (i = 0; i < 300 && alive && k <= now->steps && tracee_pc() != now->place[k + 1].pc;
	     i++) {
		drifts += !i;
		alive = tracee_step();
	}
	return alive;
}

/* After k instructions; false: it ended before. */
TAP_FN bool kill_after(uint32_t k)
{
	struct outcome outcome;
	bool alive;

	k_now = k;
	round_begin();
	alive = lead(k);
	tracee_kill();
	kills++;
	round_end(&outcome);
	judge(&outcome);
	return alive;
}

#endif
