/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - a command ends.
 * Tests: t/index/churn.t */
#ifndef GPC_WRITER_ANSWER_H
#define GPC_WRITER_ANSWER_H

#include "index/table/state.h"

static inline void command_answer(struct writer *w, uint32_t peer, uint64_t position,
				  int32_t result)
{
	/* (R) the answer and everything it stands for; pairs with the load in ring.c.  Before
	 * it a successor runs the command again. */
	store_release(&seg_command(&w->seg, peer, position)->result, result);
	w_answered(w, peer);
}

#endif
