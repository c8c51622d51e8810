/* SPDX-License-Identifier: Apache-2.0 */
/* lockfile.h - OFD byte locks: liveness, seats and the writer's seat.
 *
 * The kernel drops a lock when the last descriptor of its open file description goes, after
 * SIGKILL as well.  The locks work across PID namespaces, and no store in shared memory can fake
 * them.  A lock never conflicts with its own description, so every handle and every writer role
 * opens the file anew (rule S2).  All descriptors are O_CLOEXEC and closed in forked children.
 *
 * A lock does not exclude threads that share a description: each would get the other's lock, and
 * the first one that drops it would drop it for both.  So each lock has one thread of its
 * description at a time:
 *
 *   lock                      description           one thread, because
 *   ------------------------  --------------------  ---------------------------------------------
 *   LOCK_WRITER               of struct writer      the writer is opened and closed with serve_lock
 *   LOCK_CREATE, LOCK_MAKE    of segment_create,    the call has opened it, and no other thread
 *                             segment_unlink        sees it before the call returns
 *   LOCK_PIN, LOCK_PIN_NEXT   the handle's          maps->pin_lock: bytes/mapping/pin.c
 *   LOCK_ONCE                 the handle's          once_lock: bytes/mapping/make.c
 *   LOCK_TIERS                the steward's handle  it is private to gpc_tiers, whose opening thread
 *                                                   takes it and whose closing thread drops it
 *   LOCK_PEER, a peer's       the handle's          gpc_attach takes it, gpc_close drops it
 *   LOCK_PEER, of the reaped  of struct writer      the writer's thread: index/writer/reap.c
 *   MEMORY_LOCK_MADE, _USED   of struct memory, or  the maker has it exclusively until
 *                             of one sweep          memory_made(); a map's lock is shared until
 *                                                   the last user is gone; a sweep opens a
 *                                                   description of its own
 *   a tier's file             of struct disk        disk_open() to disk_close(): tiers/disk/open.c */
#ifndef GPC_LOCKFILE_H
#define GPC_LOCKFILE_H

#include "index/base/base.h"

struct segment;

/* Take an exclusive lock of one byte, without waiting: 0, -EAGAIN (another holds it), -errno. */
int lock_try(int fd, uint64_t byte);
/* The same, but shared: it conflicts with an exclusive lock only. */
int lock_share(int fd, uint64_t byte);
void lock_drop(int fd, uint64_t byte);
/* 1 = another description holds it, 0 = free, -errno.  Works on a read-only descriptor. */
int lock_test(int fd, uint64_t byte);

/* Does a process hold the writer's seat?  The kernel says so, not the segment. */
bool segment_writer_alive(const struct segment *s);
bool segment_peer_alive(const struct segment *s, uint32_t peer);

/* The identity of a process, in its own PID and time namespaces; namespaces: 0 = unknown. */
struct identity {
	int32_t pid;
	uint64_t start_time, namespaces;
};
void identity_self(struct identity *ret);
/* Once a process is GONE its files are closed and its GPU work has ended.  Before that neither is
 * certain: a dying process first loses its locks, and only then does the kernel end its work on
 * devices.
 *
 *   its number, seen from here                    answer
 *   --------------------------------------------  -------
 *   other PID or time namespaces, or unknown      UNKNOWN   the number is another process's here
 *   nobody's                                      GONE
 *   in use, but /proc does not show it (hidepid)  UNKNOWN   it may be this process, or a later one
 *   in use since another time                     GONE      the number was given again
 *   a zombie with no other thread, or dead        GONE
 *   a zombie whose other threads run              THERE     they share its files
 *   running, stopped, on its way out              THERE */
enum identity_answer { IDENTITY_GONE, IDENTITY_THERE, IDENTITY_UNKNOWN };
enum identity_answer identity_look(const struct identity *id);
bool identity_gone(const struct identity *id);
/* Is it stopped, by a signal or a debugger?  It is also false if that is not known. */
bool identity_stopped(const struct identity *id);

#endif
