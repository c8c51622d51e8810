/* SPDX-License-Identifier: Apache-2.0 */
/* err.c - one errno for each cause, and a sentence for people. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "gpc.h"

#ifndef GPC_VERSION_MAJOR                /* compiled without configure */
#define GPC_VERSION_MAJOR 0
#define GPC_VERSION_MINOR 1
#endif

#define ERR_TEXT 512

static __thread char last_error[ERR_TEXT];

/* errno stays what it was: callers go on to use it. */
int err_set(int err, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
	errno = saved;
	return -err;
}

int err_sys(int err, const char *fmt, ...)
{
	int saved = errno;
	size_t room = sizeof(last_error);
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(last_error, room, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < room) {
		errno = saved;                   /* %m reads it, safe with threads */
		snprintf(last_error + n, room - (size_t)n, ": %m");
	}
	errno = saved;
	return err ? -err : -saved;
}

GPC_EXPORT const char *gpc_last_error(void)
{
	return last_error;
}

static const struct {
	int err;
	const char *text;
} sentences[] = {
	{0, "success"},
	{EINVAL, "an argument is out of range: gpc_last_error() names it"},
	{ENOENT, "no such name, key, pool or peer: check the spelling and the directory, "
		 "or create it first"},
	{EEXIST, "the name is taken: attach to it, choose another, or remove it with "
		 "gpc_unlink"},
	{EPROTO, "another version, geometry or layout: use the same release and the same "
		 "model configuration in all processes"},
	{EBADMSG, "the segment is damaged: remove it with gpc-inspect rm and create it "
		  "again"},
	{EACCES, "the segment belongs to another user: create it with mode 0660 and a "
		 "common group, or use another name"},
	{ENOSPC, "nothing is free or evictable, or there is too little shared memory: "
		 "release references, or enlarge the file system"},
	{EDQUOT, "your quota of reserved blocks is used up: publish or release some "
		 "first"},
	{EAGAIN, "not yet: the ring is full or the timeout was 0; try again"},
	{ETIMEDOUT, "time is up and nothing was changed: try again, or allow more time"},
	{ENOTCONN, "there is no writer: start gpcd, or attach with GPC_SERVE"},
	{EDEADLK, "this thread has an open section that the call would wait for: call "
		  "gpc_leave first"},
	{ESTALE, "the block, key, mirror or pool has changed since: look it up again"},
	{EPERM, "not your block: only its holder may do that"},
	{EUSERS, "no seat is free: close a handle, or create the cache with more "
		 "max_peers"},
	{EXDEV, "the parent lives only in another space: publish it in this one first"},
	{EOVERFLOW, "32768 references of one peer on one block: release some"},
	{ECHILD, "the handle belongs to the parent process: attach again in the child"},
	{EROFS, "the handle is read-only: attach without GPC_READONLY"},
	{ENODEV, "no such device, a cache made without it, or a library built without it: "
		 "use the host calls"},
	{ENOMEM, "out of memory: make room in this process and try again"},
	{EINTR, "interrupted by a signal: call again"},
	{EIO, "the system or the device reported an error: gpc_last_error() has its "
	      "text"},
};

GPC_EXPORT const char *gpc_strerror(int err)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sentences); i++)
		if (sentences[i].err == err || sentences[i].err == -err)
			return sentences[i].text;
	return "an error of the system: gpc_last_error() has its text";
}

GPC_EXPORT uint32_t gpc_version(void)
{
	return (uint32_t)GPC_VERSION_MAJOR << 16 | GPC_VERSION_MINOR;
}
