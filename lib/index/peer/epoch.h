/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.h - read-side sections and grace periods between processes.
 *
 * This is liburcu's scheme for processes instead of threads: a reader writes the current epoch
 * into a place of its own before it reads the table, and zero when it is done.  A grace period
 * raises the epoch to e; it is over when every place is idle or at least e.
 *
 *   reader                               writer
 *     place = epoch          (E)           unpublish; flush mirrors
 *     full barrier                         epoch += 1, a full barrier      (F)
 *     read table                           read places
 *
 * Either the writer sees the place, or the reader sees the table without the entry.  A stale
 * epoch in the place only delays.  (G) the release that clears a place pairs with the acquire
 * of the scan: the reader's loads are over before anything is reused.
 *
 * A section around device work: the device raises `done` to the ticket of the place, and only
 * the owner clears the epoch afterwards (rule S1). */
#ifndef GPC_EPOCH_H
#define GPC_EPOCH_H

#include "gpc_device.h"
#include "index/base/order.h"
#include "index/segment/segment.h"

#define SHM_OWN_SECTIONS (SHM_SECTIONS - GPC_SECTIONS)
/* The place of section i of gpc_section_enter and gpc_dev_enter.  Scanners read a seat's places
 * up to its highest used place, so the places of lookups come first. */
#define SHM_SECTION(i) (SHM_OWN_SECTIONS + (i))

/* Open place i of peer's sections if it is idle: one full barrier.  Only the process that owns
 * the seat calls it; its threads compete for the place. */
bool epoch_enter(const struct segment *s, uint32_t peer, uint32_t i);
/* The place becomes idle.  A device section may be left only if no device will signal it any more. */
void epoch_leave(const struct segment *s, uint32_t peer, uint32_t i);
/* The owner of the place has gone, or leaves it: the place becomes idle.  A device may still signal
 * the last use of the place.  That signal must not reach the ticket of the next owner (rule S1). */
void epoch_end(struct shm_section *sec);
bool epoch_is_open(const struct shm_section *sec);
/* End a device section whose work is done; the caller excludes other callers. */
bool epoch_sweep(const struct segment *s, uint32_t peer, uint32_t i);

/* Start a grace period; everything unpublished and flushed before this call is covered. */
uint64_t epoch_start(const struct segment *s);
/* Is the grace period over?  Never waits; scans the sections of all seats at most once. */
bool epoch_done(const struct segment *s, uint64_t cookie);
/* The same, only from the sections, without `completed`. */
bool epoch_over(const struct segment *s, uint64_t cookie);

#endif
