/* SPDX-License-Identifier: Apache-2.0 */
/* futex.h - sleeping on a word that other processes may change. */
#ifndef GPC_FUTEX_H
#define GPC_FUTEX_H

#include "index/base/base.h"

/* Sleep while *word == value, at most ns.  Returns for any reason; -EINTR: a signal handler has
 * run. */
int futex_wait(uint32_t *word, uint32_t value, uint64_t ns);
void futex_wake_all(uint32_t *word);

#endif
