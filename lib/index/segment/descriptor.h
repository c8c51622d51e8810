/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.h - the index's description of a mirror.
 *
 * A descriptor is published like this: state = NONE; the other fields; the generation;
 * state = READY, each of the last two with release.  A reader's copy counts when it
 * stands between two equal pairs of state and generation.  No two mirrors of a segment
 * ever have the same generation: it tells readers that there is another mirror behind
 * the descriptor, and names the file of a host mirror. */
#ifndef GPC_DESCRIPTOR_H
#define GPC_DESCRIPTOR_H

#include "index/segment/segment.h"

/* A stable private copy of mirror descriptor i as it is now; false: there is none, or it is
 * being changed. */
bool descriptor_read(const struct segment *s, uint32_t i, struct shm_mirror *ret);

#endif
