/* SPDX-License-Identifier: Apache-2.0 */
/* stores.h - a peer that is killed before its n-th store into anything that is shared: its control
 * segment, the tables of a pool's memory, the bytes of blocks; by whichever of its threads.
 *
 * As in stops.h the mappings are read-only, each store faults, is counted, and passes
 * single-stepped.  Pages that the kernel is asked to write to are a store, too.  Mappings come and
 * go: those of files are seen by segment_map_ranges, and forgotten by munmap.  Threads of the
 * library block all signals; these two they must not.
 *
 * Elsewhere than on x86-64 a timer stands in for the count.
 *
 * The program is linked with --wrap=segment_map_ranges,--wrap=munmap,--wrap=madvise,
 * --wrap=pthread_sigmask. */
#ifndef GPC_T_STORES_H
#define GPC_T_STORES_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "index/segment/files.h"
#include "index/peer/handle.h"

#define STORES_REGIONS 32

static struct {
	struct {
		uint8_t *at;
		size_t bytes;
	} region[STORES_REGIONS];
	uint32_t regions;
	uint32_t count, last; /* stores so far; the one that is not carried out */
	bool on;
} stores;

static inline void stores_step(void)
{
	if (!stores.on || ++stores.count < stores.last)
		return;
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static inline void stores_protect(int prot)
{
	uint32_t i;

	for (i = 0; i < stores.regions; i++)
		mprotect(stores.region[i].at, stores.region[i].bytes, prot);
}

static inline bool stores_covers(const void *at)
{
	const uint8_t *p = at;
	uint32_t i;

	for (i = 0; i < stores.regions; i++)
		if (p >= stores.region[i].at && p < stores.region[i].at + stores.region[i].bytes)
			return true;
	return false;
}

#ifdef __x86_64__

#define STORES_TRAP 0x100

static inline void stores_set(int prot)
{
	if (stores.on)
		stores_protect(prot);
}

static void stores_store(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	if (!stores_covers(info->si_addr)) {
		signal(sig, SIG_DFL); /* a bug, not ours */
		return;
	}
	stores_step();
	stores_protect(PROT_READ | PROT_WRITE);
	uc->uc_mcontext.gregs[REG_EFL] |= STORES_TRAP;
}

static void stores_stored(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)sig;
	(void)info;
	stores_protect(PROT_READ);
	uc->uc_mcontext.gregs[REG_EFL] &= ~STORES_TRAP;
}

static inline void stores_watch(void)
{
	struct sigaction store = { .sa_sigaction = stores_store, .sa_flags = SA_SIGINFO };
	struct sigaction stored = { .sa_sigaction = stores_stored, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &store, NULL);
	sigaction(SIGTRAP, &stored, NULL);
	stores_protect(PROT_READ);
}

#else

static inline void stores_set(int prot)
{
	(void)prot;
}

static inline void stores_watch(void)
{
	struct itimerval t = { .it_value = { 0, (suseconds_t)stores.last * 10 } };

	signal(SIGALRM, SIG_DFL); /* ends the process as SIGKILL would */
	setitimer(ITIMER_REAL, &t, NULL);
}

#endif

static inline void stores_add(uint8_t *at, size_t bytes)
{
	if (stores.regions == STORES_REGIONS)
		abort();
	stores.region[stores.regions].at = at;
	stores.region[stores.regions++].bytes = ROUND_UP(bytes, 4096);
}

/* From here on; the handle's maps so far are watched if they came by segment_map_ranges. */
static inline void stores_begin(gpc *d, uint32_t last)
{
	stores_add(d->seg.control, d->seg.at.control_bytes);
	stores.count = 0;
	stores.last = last;
	stores.on = true;
	stores_watch();
}

/* Nothing is counted any more. */
static inline void stores_end(void)
{
	stores_set(PROT_READ | PROT_WRITE);
	stores.on = false;
}

int __real_segment_map_ranges(const struct segment *s, const struct segment_range *range,
			      uint32_t n, int prot, uint8_t **ret);
int __wrap_segment_map_ranges(const struct segment *s, const struct segment_range *range,
			      uint32_t n, int prot, uint8_t **ret);
int __wrap_segment_map_ranges(const struct segment *s, const struct segment_range *range,
			      uint32_t n, int prot, uint8_t **ret)
{
	int err = __real_segment_map_ranges(s, range, n, prot, ret);
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		bytes += range[i].bytes;
	if (!err && prot & PROT_WRITE) {
		stores_add(*ret, bytes);
		stores_set(PROT_READ);
	}
	return err;
}

int __real_munmap(void *p, size_t bytes);
int __wrap_munmap(void *p, size_t bytes);
int __wrap_munmap(void *p, size_t bytes)
{
	uint32_t i;

	for (i = 0; i < stores.regions; i++)
		if (stores.region[i].at == p)
			stores.region[i--] = stores.region[--stores.regions];
	return __real_munmap(p, bytes);
}

int __real_madvise(void *p, size_t bytes, int what);
int __wrap_madvise(void *p, size_t bytes, int what);
int __wrap_madvise(void *p, size_t bytes, int what)
{
	int err;

	if (!stores_covers(p))
		return __real_madvise(p, bytes, what);
	stores_step();
	stores_set(PROT_READ | PROT_WRITE);
	err = __real_madvise(p, bytes, what);
	stores_set(PROT_READ);
	return err;
}

int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t some;

	if (!set)
		return __real_pthread_sigmask(how, set, old);
	some = *set;
	sigdelset(&some, SIGSEGV);
	sigdelset(&some, SIGTRAP);
	sigdelset(&some, SIGALRM);
	return __real_pthread_sigmask(how, &some, old);
}

#endif
