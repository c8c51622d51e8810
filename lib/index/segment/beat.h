/* SPDX-License-Identifier: Apache-2.0 */
/* beat.h - does the steward of the tiers below RAM take questions now?
 *
 * The steward's lock says that it lives.  A stopped process lives, too, and so does a process
 * whose answering threads all hang in a read.  So each answering thread stores the time in `beat`
 * whenever it looks for a question, and whenever it has read a part or a block of a file.  A
 * steward with nothing to do looks ten times a second.  A peer that has waited in vain stores in
 * `late` the beat that it found old.
 *
 *   beat                 late       the steward                    a question
 *   -------------------  ---------  -----------------------------  -----------------------------------------
 *   not old              another    takes questions                is put, and waited for
 *   old for BEAT_LATE    another    nobody has waited in vain yet  is put, and waited for; if there is no
 *                                                                  answer when the peer's time is up, the
 *                                                                  peer stores the beat in `late`
 *   old for BEAT_LATE    the beat   is stopped, or hangs           is not put: a miss, without a wait
 *   old for BEAT_GONE    any        is stopped, or hangs           is not put; waits for other questions end
 *   a later one          an older   goes on                        is put, and waited for: the mark names a
 *                        beat                                      past beat, and nobody need clear it
 *
 * A successor stores a beat before it says that it is the steward.  If a peer dies before it has
 * stored `late`, the next peer that waits in vain does so.  If somebody scribbles over the time,
 * the steward's next beat replaces it; until then other peers may wait too long, or not at all.
 * Tests: t/bytes/stopped-steward.t */
#ifndef GPC_SEGMENT_BEAT_H
#define GPC_SEGMENT_BEAT_H

#include "index/base/base.h"

#define BEAT_LATE (500 * NS_PER_MS)
#define BEAT_GONE (5000 * NS_PER_MS)

static inline bool beat_is_old(uint64_t beat, uint64_t now, uint64_t than)
{
	return beat < now && now - beat >= than;
}

/* Nobody waits for an answer any more. */
static inline bool beat_is_over(uint64_t beat, uint64_t late, uint64_t now)
{
	return beat == late || beat_is_old(beat, now, BEAT_GONE);
}

#endif
