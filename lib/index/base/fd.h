/* SPDX-License-Identifier: Apache-2.0 */
/* fd.h - descriptors that no forked child keeps, and that nobody mistakes for a standard stream.
 *
 * The library opens all its files here, at 3 or above.  A program whose standard streams are
 * closed goes on printing to 0, 1 and 2: a segment with such a number would get the text into its
 * header.
 *
 * A child shares the open file descriptions of its parent, hence the parent's locks.  A child with
 * a description of a lock file keeps a seat, or the writer's seat, as long as it lives.  So no
 * fork happens between the opening of such a file and the note that it is open.  The child closes
 * all noted files before fork(2) returns there. */
#ifndef GPC_FD_H
#define GPC_FD_H

#include <sys/types.h>
#include "index/base/base.h"

/* open(2) with O_CLOEXEC: a descriptor, or -1 and errno. */
int fd_open(const char *path, int flags, mode_t mode);
/* The same for a file that belongs to no cache; the caller closes it soon, by close(2). */
int fd_peek(const char *path, int flags);
/* An eventfd.  One descriptor is noted like those of fd_open().  The other is not noted: it is for
 * the program, whose children may have it.  0, or -1 and errno. */
int fd_event(int *ret_fd, int *ret_other);
/* pipe2(2) with O_CLOEXEC and O_NONBLOCK, both noted.  0, or -1 and errno. */
int fd_pipe(int ret_fd[2]);
/* Only for descriptors of fd_open(), fd_event() and fd_pipe().  In a forked child there is
 * nothing left to close. */
void fd_close(int fd);

/* Between these calls no thread of this process forks.  The time between them is short, and nothing
 * in it calls the caller's code. */
void fd_hold(void);
void fd_release(void);

#endif
