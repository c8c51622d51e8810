/* SPDX-License-Identifier: Apache-2.0 */
/* err.c - one errno for each cause, and a sentence for people.
 * Tests: t/index/err-log.t t/index/touch.t t/bytes/errors.t t/bytes/counts.t t/bytes/sentences.t
 *   t/tiers/later-structs.t */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "index/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gpc.h"
#include "index/base/text.h"

#define ERR_TEXT 512

static __thread char last_error[ERR_TEXT];

/* Sentences quote names and devices, which may come from damaged segments. */
static void clean_last_error(void)
{
	char raw[ERR_TEXT];
	size_t n = strlen(last_error);

	if (text_bad_byte(last_error, n) == n)
		return;
	memcpy(raw, last_error, n + 1);
	text_clean(last_error, sizeof(last_error), raw);
}

/* errno keeps its value: callers go on to use it. */
int err_set(int err, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
	clean_last_error();
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
		errno = saved; /* %m reads it, safe with threads */
		snprintf(last_error + n, room - (size_t)n, ": %m");
	}
	clean_last_error();
	errno = saved;
	return err ? -err : -saved;
}

void err_clear(void)
{
	last_error[0] = 0;
}

/* ---- arguments that many calls take ---- */

static const char *const flag_names[] = {
	/* by bit */
	"GPC_IF_ABSENT", "GPC_SERVE",      "GPC_READONLY", "GPC_QUIET",  "GPC_REF",
	"GPC_ANYWHERE",  "GPC_PARTIAL",    "GPC_TAKE",     "GPC_COPY",   "GPC_CANCEL",
	"GPC_TAIL",      "GPC_STANDBY",    "GPC_REMOVE",   "GPC_DEVICE", "GPC_VERIFY_FIRST",
	"GPC_IF_IDLE",   "GPC_NO_REF",     "GPC_PEEK",     "GPC_TOUCH",  "GPC_IN_HAND",
	"GPC_GROUP",     "GPC_EVERYWHERE", "GPC_FREE",
};
_Static_assert(1u << (ARRAY_SIZE(flag_names) - 1) == GPC_FREE, "each flag has its name");

static void name_flags(char *ret, size_t room, uint32_t flags)
{
	size_t i, used = 0;

	ret[0] = 0;
	for (i = 0; i < ARRAY_SIZE(flag_names); i++)
		if (flags >> i & 1)
			used += (size_t)snprintf(ret + used, room - used, "%s%s", used ? ", " : "",
						 flag_names[i]);
}

int err_bad_flags(uint32_t flags, uint32_t known)
{
	char names[ARRAY_SIZE(flag_names) * 20];

	name_flags(names, sizeof(names), known);
	if (known)
		return err_set(EINVAL,
			       "flags is 0x%x: this call takes %s, and 0x%x is not "
			       "among them",
			       flags, names, flags & ~known);
	return err_set(EINVAL, "flags is 0x%x: this call takes none", flags);
}

int err_bad_count(uint32_t n, const char *what)
{
	return err_set(EINVAL, "n is %u: at most %d %s a call", n, INT32_MAX, what);
}

int err_bad_timeout(int timeout_ms)
{
	return err_set(EINVAL,
		       "timeout_ms is %d: it must be -1 (no limit), 0 (do not wait) or "
		       "more",
		       timeout_ms);
}

int err_range(const char *field, uint64_t value, uint64_t low, uint64_t high)
{
	if (value >= low && value <= high)
		return 0;
	return err_set(EINVAL, "%s is %llu: it must be %llu to %llu", field,
		       (unsigned long long)value, (unsigned long long)low,
		       (unsigned long long)high);
}

int err_size(const char *type, uint32_t size, size_t least)
{
	if (size >= least)
		return 0;
	return err_set(EINVAL,
		       "the field size of struct %s is %u: set it to sizeof(struct %s), "
		       "at least %zu",
		       type, size, type, least);
}

/* No struct will ever have this many bytes, so a larger size is refused unread. */
#define STRUCT_MOST 4096u

static int check_struct(const char *type, const void *from, size_t least, size_t size)
{
	uint32_t has = *(const uint32_t *)from, i;
	int err = err_size(type, has, least);

	if (err == 0 && has > STRUCT_MOST)
		return err_set(EINVAL,
			       "the field size of struct %s is %u: set it to sizeof(struct %s), "
			       "%zu here, and at most %u in any release",
			       type, has, type, size, STRUCT_MOST);
	for (i = (uint32_t)size; err == 0 && i < has; i++)
		if (((const uint8_t *)from)[i])
			err = err_set(EINVAL,
				      "the field size of struct %s is %u: this library knows "
				      "%zu bytes of it, and byte %u is not 0: set it to "
				      "sizeof(struct %s), or use a newer library",
				      type, has, size, i, type);
	return err;
}

int err_known(const char *type, const void *from, size_t size)
{
	return check_struct(type, from, size, size);
}

int err_struct(const char *type, const void *from, size_t least, void *to, size_t size)
{
	uint32_t has = *(const uint32_t *)from;
	int err = check_struct(type, from, least, size);

	memset(to, 0, size);
	if (err == 0)
		memcpy(to, from, MIN((size_t)has, size));
	return err;
}

int err_text(const char *argument, const char *text, size_t most)
{
	size_t n = strnlen(text, most + 1), at = text_bad_byte(text, n);

	if (n > most)
		return err_set(EINVAL, "%s is longer than %zu bytes", argument, most);
	if (at == n)
		return 0;
	return err_set(EINVAL, "%s \"%s\" has a control character, or no UTF-8, at byte %zu",
		       argument, text, at + 1);
}

/* ---- what users ask ---- */

GPC_EXPORT const char *gpc_last_error(void)
{
	return last_error;
}

static const struct {
	int err;
	const char *text;
} sentences[] = {
	{ 0, "success" },
	{ EINVAL, "an argument is out of range: compare what you pass with the page of the "
		  "function" },
	{ ENOENT, "no such name, key, pool or peer: check the spelling and the directory, "
		  "or create it first" },
	{ EEXIST, "the name is taken: attach to it, choose another, or remove it with "
		  "gpc_unlink" },
	{ EPROTO, "another version, geometry or layout: use the same release and the same "
		  "model configuration in all processes" },
	{ EBADMSG, "bytes are not what they were: of a transfer, its bad block has been dropped: "
		   "compute it again; of any other call, the segment is damaged: remove it with "
		   "gpc-inspect rm and create it again" },
	{ EACCES, "the segment belongs to another user: create it with mode 0660 and a "
		  "common group, or use another name" },
	{ ENOSPC, "nothing is free or evictable, or there is too little shared memory: "
		  "release references, or enlarge the file system" },
	{ EFBIG, "a file may not have so many bytes: raise the limit of this process (ulimit -f), "
		 "or ask for fewer" },
	{ EDQUOT, "your quota of reserved blocks is used up: publish or release some "
		  "first" },
	{ EAGAIN, "not yet: the ring is full or the timeout was 0; try again" },
	{ ETIMEDOUT, "time is up: try again, or allow more time" },
	{ ENOTCONN, "there is no writer: start gpcd, or attach with GPC_SERVE" },
	{ EDEADLK,
	  "the call would wait for its own caller: leave the section first "
	  "(gpc_section_leave); before gpc_claim_wait, give reservations and claims back" },
	{ EALREADY,
	  "another peer computes, loads or moves it already, or it has been said already: "
	  "look again later, or go on without it" },
	{ ECANCELED,
	  "it was ended before it was done, by progress() or by whoever removed the cache: "
	  "nothing of it is left; call again if you still want it" },
	{ EMFILE, "this process may open no more descriptors: close some, or raise the limit "
		  "(ulimit -n)" },
	{ ESTALE, "the block, key, mirror, pool or leader has changed since: look it up again" },
	{ EPERM, "not your block or pool, or not yet yours again: only its holder may do that" },
	{ EUSERS, "no seat is free: close a handle, or create the cache with more "
		  "max_peers" },
	{ EBUSY,
	  "somebody holds a block of it, so nothing has changed: release it first, or do without "
	  "the condition" },
	{ EXDEV, "the parent, the pool or the file is in another space, or of another kind: "
		 "publish the parent in this space, copy by way of RAM, or name another file" },
	{ EOPNOTSUPP, "the device cannot do this: do it on the host, or without the option" },
	{ EOVERFLOW, "32768 references of one peer on one block: release some" },
	{ ECHILD, "the handle belongs to the parent process: attach again in the child" },
	{ EROFS, "the handle is read-only: attach without GPC_READONLY" },
	{ ENODEV, "no such device, a cache made without it, or a library built without it: "
		  "use the host calls" },
	{ ENOMEM, "out of memory: make room in this process and try again" },
	{ EINTR, "interrupted by a signal: call again" },
	{ EIO, "the system or the device reported an error: look into the log of the kernel "
	       "or of the driver" },
};

GPC_EXPORT const char *gpc_strerror(int err)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sentences); i++)
		if (sentences[i].err == err || sentences[i].err == -err)
			return sentences[i].text;
	return "an error of the system, not of gpc: errno(3) has the meaning of the number";
}

GPC_EXPORT uint32_t gpc_version(void)
{
	return GPC_VERSION;
}
