/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - what one command of a peer does. */
#ifndef GPC_WRITER_COMMAND_H
#define GPC_WRITER_COMMAND_H

#include "writer/state.h"

/* What this command will touch is asked for. */
void command_prefetch(struct writer *w, const struct shm_command *cmd);
/* false: waits for a bucket, come again */
bool command_run(struct writer *w, uint32_t peer, uint64_t position,
		 const struct shm_command *cmd);
void command_answer(struct writer *w, uint32_t peer, uint64_t position, int32_t result);

#endif
