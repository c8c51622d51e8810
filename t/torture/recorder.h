/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.h - stops a writer before each of its stores.
 *
 * The mappings through which it writes are read-only.  A store faults; while it has not
 * happened, memory is the prefix of all stores before it, and the handler has it judged.  Then
 * this one instruction passes, single-stepped.  Recorders nest: the successor that judges the
 * prefix may itself be stopped before each of its stores. */
#ifndef GPC_T_RECORDER_H
#define GPC_T_RECORDER_H

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "world.h"

#define LEVELS 3 /* the writer, its successor, that one's successor */

struct recorder {
	uint8_t *at[2]; /* index, control */
	size_t bytes[2];
	bool on, on_map;           /* on_map: from a takeover's first store on */
	bool changed;              /* since the last judgement */
	uint64_t stores, same;     /* same: stores that changed nothing */
	uint8_t *line, before[64]; /* what the last store may have changed */
	size_t n;
	int which; /* segment that it goes to */
};

static struct recorder recorder[LEVELS];
static int recorder_steps;               /* whose store is under way */
static void (*recorder_stop)(int level); /* before a store */
static const struct segment *recorder_segment[LEVELS];

int __real_segment_map_writer(const struct segment *s, uint8_t **ret_index);
int __wrap_segment_map_writer(const struct segment *s, uint8_t **ret_index);
void __real_segment_unmap_writer(const struct segment *s, uint8_t *index);
void __wrap_segment_unmap_writer(const struct segment *s, uint8_t *index);

static void recorder_protect(struct recorder *r, int prot)
{
	int i;

	for (i = 0; i < 2; i++)
		mprotect(r->at[i], r->bytes[i], prot);
}

static void recorder_on(int level)
{
	recorder[level].on = recorder[level].changed = true;
	recorder_protect(&recorder[level], PROT_READ);
}

static void recorder_off(int level)
{
	if (recorder[level].on)
		recorder_protect(&recorder[level], PROT_READ | PROT_WRITE);
	recorder[level].on = recorder[level].on_map = false;
}

#ifdef __x86_64__
#define TRAP_FLAG 0x100

static int recorder_of(const uint8_t *p, size_t *left)
{
	int l, i;

	for (l = 0; l < LEVELS; l++)
		for (i = 0; i < 2; i++)
			if (recorder[l].on && p >= recorder[l].at[i] &&
			    p < recorder[l].at[i] + recorder[l].bytes[i]) {
				*left = (size_t)(recorder[l].at[i] + recorder[l].bytes[i] - p);
				return l;
			}
	return -1;
}

static void recorder_store(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	struct recorder *r;
	int saved = errno, level;
	size_t left = 0;

	level = recorder_of(info->si_addr, &left);
	if (level < 0) {
		signal(sig, SIG_DFL); /* a bug, not ours */
		return;
	}
	r = &recorder[level];
	r->stores++;
	if (r->changed)
		recorder_stop(level);
	else
		r->same++;
	r->changed = false;
	r->line = info->si_addr;
	r->n = MIN(sizeof(r->before), left);
	memcpy(r->before, r->line, r->n);
	recorder_steps = level;
	r->which = r->line >= r->at[1] && r->line < r->at[1] + r->bytes[1];
	mprotect(r->at[r->which], r->bytes[r->which], PROT_READ | PROT_WRITE);
	uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
	errno = saved;
}

static void recorder_stored(int sig, siginfo_t *info, void *context)
{
	struct recorder *r = &recorder[recorder_steps];
	ucontext_t *uc = context;

	r->changed |= memcmp(r->before, r->line, r->n) != 0;
	mprotect(r->at[r->which], r->bytes[r->which], PROT_READ);
	uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

TAP_FN void recorder_begin(void)
{
	struct sigaction store = { .sa_sigaction = recorder_store,
				   .sa_flags = SA_SIGINFO | SA_NODEFER };
	struct sigaction stored = { .sa_sigaction = recorder_stored, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &store, NULL);
	sigaction(SIGTRAP, &stored, NULL);
}
#endif

static int recorder_level(const struct segment *s)
{
	int level = LEVELS;

	while (level-- && recorder_segment[level] != s)
		;
	return level;
}

/* A writer of a level has one mapping for the whole sequence: most of a takeover's time would go
 * into making it and into its faults. */
int __wrap_segment_map_writer(const struct segment *s, uint8_t **ret_index)
{
	int level = recorder_level(s), err = 0;
	struct recorder *r = &recorder[level];

	if (level < 0)
		return __real_segment_map_writer(s, ret_index);
	if (!r->at[0])
		err = __real_segment_map_writer(s, &r->at[0]);
	*ret_index = r->at[0];
	r->at[1] = s->control;
	r->bytes[0] = ROUND_UP(s->at.index_bytes, s->unit);
	r->bytes[1] = ROUND_UP(s->at.control_bytes, s->unit);
	if (r->on_map)
		recorder_on(level);
	return err;
}

void __wrap_segment_unmap_writer(const struct segment *s, uint8_t *index)
{
	if (recorder_level(s) < 0)
		__real_segment_unmap_writer(s, index);
}

#endif
