/* SPDX-License-Identifier: Apache-2.0 */
/* redress.c - the mode and group of an existing cache are changed, when somebody asks for that.
 *
 *   file                          mode that it is made with
 *   ----------------------------  ----------------------------------
 *   idx, ctl, lock                that of the configuration
 *   m<generation>, p<number>,     that of the index at that moment
 *     p<number>.1 and so on
 *   the file of p<number> in its  that of the index at that moment
 *     huge_dir
 *
 * So the index comes first, and the others follow, each compared by itself.  A killed call may
 * leave files with the old mode and group, and another process may make some meanwhile.  The next
 * call changes these.  The group is set before the mode, so that no other group gets in.
 * Tests: t/daemon/mode-and-group.t */
#include "config.h"

#include "index/segment/hooks.h"
#include "index/segment/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"

struct redress {
	mode_t mode;
	gid_t gid; /* or SEGMENT_LEAVE_GROUP */
	bool changed;
	struct stat *old; /* of the first file that is changed */
};

static int not_ours(const struct segment *s, const struct stat *st, const struct redress *r)
{
	char group[32] = "";

	if (r->gid != SEGMENT_LEAVE_GROUP)
		snprintf(group, sizeof(group), ", group %u", (unsigned)r->gid);
	return err_set(EPROTO,
		       "%s exists with mode %03o, group %u, instead of mode %03o%s, and only its "
		       "owner, user %u, can change them: ask for what it has" SEGMENT_OTHER,
		       s->name, st->st_mode & 0777, (unsigned)st->st_gid, (unsigned)r->mode, group,
		       (unsigned)st->st_uid);
}

static int redress_fd(const struct segment *s, const char *what, int fd, struct redress *r)
{
	struct stat st;

	if (fstat(fd, &st))
		return err_sys(0, "%s of %s", what, s->name);
	if ((st.st_mode & 0777) == r->mode &&
	    (r->gid == SEGMENT_LEAVE_GROUP || st.st_gid == r->gid))
		return 0;
	if (st.st_uid != geteuid() && geteuid())
		return not_ours(s, &st, r);
	if (!r->changed)
		*r->old = st;
	if (r->gid != SEGMENT_LEAVE_GROUP && st.st_gid != r->gid && fchown(fd, (uid_t)-1, r->gid))
		return err_sys(errno == EPERM ? EINVAL : 0, "group %u for gpc.%s.%s",
			       (unsigned)r->gid, s->name, what);
	if (fchmod(fd, r->mode))
		return err_sys(0, "mode of gpc.%s.%s", s->name, what);
	r->changed = true;
	return 0;
}

/* A pool's images may lie in another folder. */
static int redress_elsewhere(const struct segment *s, const char *suffix, int fd, struct redress *r)
{
	int there = hooks.memory_open_elsewhere(s, suffix, fd), err;

	if (there < 0)
		return there == -ENOENT ? 0 : there;
	err = redress_fd(s, suffix, there, r);
	fd_close(there);
	return err;
}

static int redress_file(const struct segment *s, const char *suffix, void *arg)
{
	bool memory = hooks.memory_is_file(suffix);
	int fd, err;

	if (!memory && !segment_is_mirror(suffix))
		return 0;
	fd = segment_open_file(s, suffix, O_RDONLY);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd; /* a mirror or a pool that has gone */
	err = redress_fd(s, suffix, fd, arg);
	if (!err && memory)
		err = redress_elsewhere(s, suffix, fd, arg);
	fd_close(fd);
	return err;
}

int segment_redress(const struct segment *s, uint32_t mode, uint32_t gid, struct stat *ret_old)
{
	struct redress r = { .mode = mode, .gid = segment_group(mode, gid), .old = ret_old };
	int err = segment_check_mode(mode);

	if (!mode)
		return 0;
	if (err || (err = redress_fd(s, "idx", s->index_fd, &r)) ||
	    (err = redress_fd(s, "ctl", s->control_fd, &r)) ||
	    (err = redress_fd(s, "lock", s->lock_fd, &r)) ||
	    (err = segment_visit(s, redress_file, &r)))
		return err;
	return r.changed;
}
