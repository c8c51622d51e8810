/* SPDX-License-Identifier: Apache-2.0 */
/* virtual.h - the time that the library under a fuzzer lives in.
 *
 * Its sources are compiled with the names of some functions of the system replaced (local.mk):
 * a sleep is over at once, the clock has moved on by as much, and chance is the same in every
 * run.  So an execution takes microseconds where a quarantine takes a second, and a wait
 * without end is seen as such. */
#ifndef GPC_FUZZ_VIRTUAL_H
#define GPC_FUZZ_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

/* For each execution. */
void virtual_begin(void);
/* What it would have taken so far. */
uint64_t virtual_spent_ns(void);
/* Whenever the library would sleep: others get their turn. */
extern void (*virtual_idle)(void);
/* Before each pread(2) of the library. */
extern void (*virtual_before_read)(void);
/* When an execution has waited for a minute. */
extern void (*virtual_too_long)(void);

#endif
