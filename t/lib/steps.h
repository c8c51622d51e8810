/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - a process that is killed before the n-th of the calls that the test wraps. */
#ifndef GPC_T_STEPS_H
#define GPC_T_STEPS_H

#include <signal.h>
#include <unistd.h>

#include "tap.h"

static long steps = -1; /* until the kill; -1: none */

TAP_FN void step(void)
{
	if (steps > 0 && !--steps) {
		kill(getpid(), SIGKILL);
		pause();
	}
}

#define STEP(type, name, args, pass)       \
	type __real_##name args;           \
	type __wrap_##name args;           \
	type __wrap_##name args            \
	{                                  \
		step();                    \
		return __real_##name pass; \
	}
STEP(int, fchmod, (int fd, mode_t mode), (fd, mode))
STEP(int, ftruncate, (int fd, off_t n), (fd, n))
STEP(int, posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n))
STEP(int, lock_share, (int fd, uint64_t byte), (fd, byte))

#endif
