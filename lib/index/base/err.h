/* SPDX-License-Identifier: Apache-2.0 */
/* err.h - errors with a sentence.  err_set(EINVAL, "...") stores the text for gpc_last_error
 * of this thread and returns -EINVAL; err_sys adds strerror(errno) and returns -err (err 0:
 * -errno).  A sentence about an argument has its name, its value and its limits.  A sentence about
 * a block or a pool names it.  No sentence points to gpc_last_error: its reader has called
 * that. */
#ifndef GPC_ERR_H
#define GPC_ERR_H

#include "index/base/base.h"

int err_set(int err, const char *fmt, ...) PRINTF_LIKE(2, 3);
int err_sys(int err, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* For calls that answer for each item: no item is refused until err_set says which. */
void err_clear(void);

/* 0, or -EINVAL with a sentence. */
int err_bad_flags(uint32_t flags, uint32_t known);
int err_bad_timeout(int timeout_ms);
static inline int err_flags(uint32_t flags, uint32_t known)
{
	return flags & ~known ? err_bad_flags(flags, known) : 0;
}
static inline int err_timeout(int timeout_ms)
{
	return timeout_ms < -1 ? err_bad_timeout(timeout_ms) : 0;
}
/* A count that is negative in the caller's own type comes as one beyond this limit. */
int err_bad_count(uint32_t n, const char *what);
static inline int err_count(uint32_t n, const char *what)
{
	return n > INT32_MAX ? err_bad_count(n, what) : 0;
}
int err_range(const char *field, uint64_t value, uint64_t low, uint64_t high);
int err_size(const char *type, uint32_t size, size_t least);
/* Read a struct that a caller fills and that may grow: copy the part that `from` has, and set the
 * rest to zero.  least: the struct's size in the first release that had it.  A caller of a later
 * release may pass a longer struct, as long as the part that is unknown here is zero. */
int err_struct(const char *type, const void *from, size_t least, void *to, size_t size);
/* The same for a struct that is read in place, and that has had this size since its first
 * release. */
int err_known(const char *type, const void *from, size_t size);
/* Text for people, of at most this many bytes. */
int err_text(const char *argument, const char *text, size_t most);

#endif
