/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.h - the index's description of a mirror.
 *
 * A descriptor is published like this: state = NONE; the other fields; the generation;
 * state = READY, each of the last two with release.  A reader's copy counts if state and
 * generation are the same before and after it.  No two mirrors of a segment ever have the same
 * generation.  So the generation shows readers that the descriptor is of another mirror, and
 * it names the file of a host mirror. */
#ifndef GPC_DESCRIPTOR_H
#define GPC_DESCRIPTOR_H

#include "index/segment/segment.h"

/* A stable private copy of mirror descriptor i as it is now.  False: there is no mirror, or its
 * descriptor is being changed. */
bool descriptor_read(const struct segment *s, uint32_t i, struct shm_mirror *ret);

#endif
