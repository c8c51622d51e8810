/* SPDX-License-Identifier: Apache-2.0 */
/* futex.c - sleeping on a word of shared memory.
 * Tests: t/index/wake.t t/bytes/signals.t */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "index/base/futex.h"

int futex_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	return syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0) ? -errno : 0;
}

void futex_wake_all(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
