/* SPDX-License-Identifier: Apache-2.0 */
/* namespaces.h - namespaces of a test's own: as they are for root, in a user namespace of
 * one's own for everybody else. */
#ifndef GPC_T_NAMESPACES_H
#define GPC_T_NAMESPACES_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "tap.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

TAP_FN bool namespaces_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return good;
}

/* PID and time namespaces are those of the children to come.  0, or -1 and errno. */
TAP_FN int namespaces_leave(int flags)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char uids[64], gids[64];

	if (!unshare(flags))
		return 0;
	if (errno != EPERM || unshare(flags | CLONE_NEWUSER))
		return -1;
	snprintf(uids, sizeof(uids), "0 %u 1", (unsigned)uid);
	snprintf(gids, sizeof(gids), "0 %u 1", (unsigned)gid);
	namespaces_put("/proc/self/setgroups", "deny");
	return namespaces_put("/proc/self/uid_map", uids) &&
			       namespaces_put("/proc/self/gid_map", gids)
		       ? 0
		       : -1;
}

/* After CLONE_NEWNS: what is mounted from now on is seen in here alone. */
TAP_FN int namespaces_own_mounts(void)
{
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

#endif
