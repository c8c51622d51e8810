/* SPDX-License-Identifier: Apache-2.0 */
/* stops.h - a writer that is killed at its n-th store into a cache.
 *
 * The mappings are made read-only.  Each store faults; the handler counts it, lets this one
 * instruction pass, single-stepped, and protects them again.  So every state of the segments
 * that a SIGKILL can leave is within reach, one after the other, and no instruction of the
 * library knows.
 *
 * Elsewhere than on x86-64 a timer stands in for the count.
 *
 * The program is linked with --wrap=segment_map_writer, through which every writer comes. */
#ifndef GPC_T_STOPS_H
#define GPC_T_STOPS_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "index/segment/segment.h"

int __real_segment_map_writer(const struct segment *s, uint8_t **ret_index);
int __wrap_segment_map_writer(const struct segment *s, uint8_t **ret_index);

static struct {
	uint8_t *at[2];
	size_t bytes[2];
	uint64_t *count; /* stores so far, where the others see it */
	uint64_t last;   /* the one that is not carried out */
	bool on_map;     /* from a takeover's first store on */
} stops;

static inline void stops_die(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

#ifdef __x86_64__

#define TRAP_FLAG 0x100

static void stops_protect(int prot)
{
	int i;

	for (i = 0; i < 2; i++)
		mprotect(stops.at[i], stops.bytes[i], prot);
}

static bool stops_covers(const uint8_t *p)
{
	return (p >= stops.at[0] && p < stops.at[0] + stops.bytes[0]) ||
	       (p >= stops.at[1] && p < stops.at[1] + stops.bytes[1]);
}

static void stops_store(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	if (!stops_covers(info->si_addr)) {
		signal(sig, SIG_DFL); /* a bug, not ours */
		return;
	}
	if (++*stops.count >= stops.last)
		stops_die();
	stops_protect(PROT_READ | PROT_WRITE);
	uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void stops_stored(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	stops_protect(PROT_READ);
	uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static inline void stops_begin(void)
{
	struct sigaction store = { .sa_sigaction = stops_store, .sa_flags = SA_SIGINFO };
	struct sigaction stored = { .sa_sigaction = stops_stored, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &store, NULL);
	sigaction(SIGTRAP, &stored, NULL);
	stops_protect(PROT_READ);
}

#else

static inline void stops_begin(void)
{
	struct itimerval t = { .it_value = { 0, (suseconds_t)stops.last * 3 } };

	signal(SIGALRM, SIG_DFL); /* ends the process as SIGKILL would */
	setitimer(ITIMER_REAL, &t, NULL);
}

#endif

int __wrap_segment_map_writer(const struct segment *s, uint8_t **ret_index)
{
	int err = __real_segment_map_writer(s, ret_index);

	if (err)
		return err;
	stops.at[0] = *ret_index;
	stops.at[1] = s->control;
	stops.bytes[0] = ROUND_UP(s->at.index_bytes, s->unit);
	stops.bytes[1] = ROUND_UP(s->at.control_bytes, s->unit);
	if (stops.on_map)
		stops_begin();
	return 0;
}

#endif
