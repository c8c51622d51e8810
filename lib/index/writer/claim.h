/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - keys that a peer claims for its reservations. */
#ifndef GPC_WRITER_CLAIM_H
#define GPC_WRITER_CLAIM_H

#include "index/table/state.h"

int32_t claim_key(struct writer *w, uint32_t peer, uint64_t position,
		  const struct shm_command *cmd);
int32_t claim_end(struct writer *w, uint32_t peer, const struct shm_command *cmd);
/* Takeover: note the marks that the scan has found; transfers add theirs.  Then all waiting
 * threads are woken. */
void claim_load(struct writer *w);

#endif
