/* SPDX-License-Identifier: Apache-2.0 */
/* fd.h - descriptors that no forked child keeps.
 *
 * A child shares the open file descriptions of its parent, hence the parent's locks: one that
 * keeps a description of a lock file keeps a seat, or the writer's seat, for as long as it
 * lives.  So no fork happens between the opening of such a file and the note that it is open;
 * the child closes all that were noted, before fork(2) returns there. */
#ifndef GPC_FD_H
#define GPC_FD_H

#include <sys/types.h>
#include "base.h"

/* open(2) with O_CLOEXEC: a descriptor, or -1 and errno. */
int fd_open(const char *path, int flags, mode_t mode);
/* Only what came from fd_open(); in a forked child there is nothing left to close. */
void fd_close(int fd);

/* Between the two no thread of this process forks.  Short, and no call back to the caller's
 * code in between. */
void fd_hold(void);
void fd_release(void);

#endif
