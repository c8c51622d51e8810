/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a cache, and the process that has a seat; list, stat and peers say the same.
 *
 * Could a process attach to the files?  The library tells (gpc_info.refused), by the checks that
 * gpcd makes when it attaches.
 * Tests: t/tools/stopped-writer.t t/pages/containers.t t/tools/inspect-damage.t
 *   t/tools/verdicts.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Do the files only belong to another user, or is this place only read-only?  Then they are good
 * for other users, and their state matters more than the refusal. */
bool inspect_is_closed(const struct inspect *in, const char *name, int refused)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", inspect_dir(in), name);
	return refused == -EROFS ||
	       (refused == -EACCES && lstat(path, &st) == 0 && st.st_uid != geteuid());
}

/* A table has a word; the sentence is in `refused`.
 *
 *   why no process of this user can attach       the state of the cache
 *   -------------------------------------------  --------------------------------
 *   another version of gpc has made it           other layout
 *   its files are damaged, or no files of it     damaged
 *   its files are another user's, and closed     where it can be read: served, closed to this user, and so on
 *                                                else closed
 *   it is being made or removed                  not there
 *   another cache has the name by now            replaced
 *   anything else, as no memory                  unusable */
const char *inspect_refusal(int err)
{
	switch (err) {
	case -EPROTO:
		return "other layout";
	case -EBADMSG:
		return "damaged";
	case -EACCES:
		return "closed";
	case -ENOENT:
		return "not there";
	case -ESTALE:
		return "replaced";
	default:
		return "unusable";
	}
}

static void say_state(const struct inspect *in, const char *name, struct inspect_look *l)
{
	const char *use = l->info.writer_pid ? l->writer_stopped == 1 ? "writer stopped" : "served"
			  : l->alive         ? "no writer"
					     : "unused";

	if (!l->info.refused)
		snprintf(l->state, sizeof(l->state), "%s", use);
	else if (inspect_is_closed(in, name, l->info.refused))
		snprintf(l->state, sizeof(l->state), "%s, closed to this user", use);
	else
		snprintf(l->state, sizeof(l->state), "%s", inspect_refusal(l->info.refused));
}

int inspect_look(const struct inspect *in, const char *name, gpc *c, struct inspect_look *ret)
{
	struct inspect_look l = { .info = { .size = sizeof(l.info) }, .writer_stopped = -1 };
	struct gpc_stats st = { .size = sizeof(st) };
	int r = gpc_info_get(c, &l.info);

	if (r < 0)
		return r;
	l.alive = (int)l.info.peers_alive + (l.info.writer_pid && l.info.writer_peer < 0);
	l.dead = (int)l.info.peers_dead;
	if (l.info.writer_peer >= 0 && gpc_stats_get(c, l.info.writer_peer, &st) >= 0)
		l.writer_stopped = cli_stopped(&st);
	say_state(in, name, &l);
	*ret = l;
	return 0;
}

/* null: it cannot be told, or there is nothing to tell. */
static json_t *yes_no(int v)
{
	return v < 0 ? json_null() : json_boolean(v);
}

void inspect_put_state(json_t *o, const struct inspect_look *l)
{
	json_object_set_new(o, "peers", out_need(json_integer(l->alive)));
	json_object_set_new(o, "dead", out_need(json_integer(l->dead)));
	json_object_set_new(o, "writer_pid",
			    !l->info.writer_pid ? json_null()
						: out_need(json_integer(l->info.writer_pid)));
	json_object_set_new(o, "writer_stopped", yes_no(l->writer_stopped));
	json_object_set_new(o, "state", out_string(l->state, sizeof(l->state)));
	json_object_set_new(o, "refused",
			    !l->info.refused ? json_null()
					     : out_string(l->info.why, sizeof(l->info.why)));
}
