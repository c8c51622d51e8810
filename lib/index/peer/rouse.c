/* SPDX-License-Identifier: Apache-2.0 */
/* rouse.c - who waits for a claim is woken while the writer still is.
 * Tests: t/index/rouse.t */
#include "config.h"

#include "index/base/futex.h"
#include "index/peer/rouse.h"
#include "index/peer/wait_word.h"

void rouse_waiters(gpc *c, const struct shm_command *cmds, uint32_t n)
{
	struct shm_shared *shared = seg_shared(&c->seg);
	uint32_t i, record;

	for (i = 0; c->spare_cpus && i < n; i++) {
		gpc_key key = { { cmds[i].claim.key[0], cmds[i].claim.key[1] } };
		struct shm_wait *word = &shared->wait[wait_word(&key)];

		record = pool_record(&c->seg, cmds[i].block);
		/* it may have ended by now, and another one have begun: then somebody is woken for
		 * nothing */
		if (record == SHM_NO_RECORD ||
		    !(load_relaxed(&seg_record(&c->seg, record)->flags) & REC_CLAIM) ||
		    !load_relaxed(&word->waiters))
			continue;
		count_add(&word->seq, 1);
		futex_wake_all(&word->seq);
	}
}
