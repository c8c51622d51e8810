/* SPDX-License-Identifier: Apache-2.0 */
/* ask.h - questions to the process that keeps the tiers below RAM. */
#ifndef GPC_PAYLOAD_ASK_H
#define GPC_PAYLOAD_ASK_H

#include "index/request/request.h"

struct asked {
	uint32_t i, word;
}; /* a question of this handle */
/* May any of these tiers have a key, as far as this process can see?  Not if the steward is
 * stopped.  spaces: the spaces of all these tiers; is_below: the key is in one of them. */
bool ask_may_help(const gpc *c, uint32_t spaces, bool is_below);
/* how: ASK_...  At most SHM_ASK_KEYS keys.  -ENOTCONN: there is no steward.  -EAGAIN: SHM_ASKS
 * questions are under way.  watched: the caller calls ask_wait(); else nobody waits for the
 * answer. */
int ask_post(gpc *c, uint32_t how, uint32_t to, const gpc_key *keys, uint32_t n, uint64_t deadline,
	     bool watched, struct asked *ret);
/* The number of first keys that are in VRAM or RAM now; *ret_why says why there are no more.
 * -ETIMEDOUT: the question goes on without the caller, because its time is up or the steward is
 * stopped.  -ENOTCONN: the steward has ended. */
int ask_wait(gpc *c, const struct asked *a, uint64_t deadline, int *ret_why);

#endif
