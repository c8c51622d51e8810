/* SPDX-License-Identifier: Apache-2.0 */
/* commit.h - the commits of a command. */
#ifndef GPC_WRITER_COMMIT_H
#define GPC_WRITER_COMMIT_H

#include "index/table/state.h"

/* Targets in the order of their commit (guarantee G). */
void move_order(struct writer *w, uint32_t *targets, uint32_t n);
/* One group of CMD_COMMIT.  False: it waits for a bucket, so call it again later. */
bool move_commit(struct writer *w, uint32_t peer, uint64_t position, uint32_t n);

#endif
