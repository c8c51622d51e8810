/* SPDX-License-Identifier: Apache-2.0 */
/* beat.h - does the steward of the tiers below RAM take questions now?
 *
 * Its lock says that it lives.  A stopped process lives, and so does a process whose answering
 * threads all hang in a read.  So each of them stores the time in `beat` whenever it looks for a
 * question, and with each part, and each block of a file, that it has read.  A steward with
 * nothing to do looks ten times a second.  A peer that has waited in vain stores in `late` the
 * beat that it found old.
 *
 *   beat                      late       the steward                    a question
 *   not old                   another    takes questions                is put, and waited for
 *   old for BEAT_LATE         another    nobody has waited in vain yet  is put, and waited for; who has no
 *                                                                       answer when its own time is up
 *                                                                       stores the beat in `late`
 *   old for BEAT_LATE         the beat   is stopped, or hangs           is not put: a miss, without a wait
 *   old for BEAT_GONE         any        the same                       is not put; the waits for others end
 *   a later one               the old    goes on                        is put, and waited for: the mark names a
 *                                                                       beat that is over, and nobody clears it
 *
 * A successor beats before it says who keeps the tiers.  A peer that dies before it has stored `late`
 * leaves that to the next one.  A time that is scribbled over is another time of the steward's next
 * beat; until then others wait, or do not.
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

/* Nobody waits for an answer. */
static inline bool beat_is_over(uint64_t beat, uint64_t late, uint64_t now)
{
	return beat == late || beat_is_old(beat, now, BEAT_GONE);
}

#endif
