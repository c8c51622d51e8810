/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that act on dead processes and on caches: reap has the seats of dead processes
 * freed, rm removes caches.
 * Tests: t/tools/inspect-rm.t t/daemon/all-dead.t t/tools/inspect-peers.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "gpc_serve.h"
#include "tools/common/output.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	TURN_MS = 20,
	WRITER_MS = 2000, /* time for a writer that should have reaped */
	OWN_MS = 10000,   /* as the writer itself: quarantines take time */
	LEAVE_MS = 2000,  /* time for a process that is about to end */
};

/* ---- reap ---- */

struct gone {
	int dead, left, kept;
};

/* Does a companion of this peer live? */
static bool is_led(gpc *c, uint32_t seats, int peer)
{
	for (uint32_t i = 0; i < seats; i++) {
		struct gpc_stats st = { .size = sizeof(st) };

		if (gpc_stats_get(c, (int)i, &st) == 0 && st.alive && st.leader == peer)
			return true;
	}
	return false;
}

/* The number of seats that a writer has to clear, or -errno.  Seats that it keeps do not count. */
static int count_gone(gpc *c, struct gone *ret)
{
	struct gpc_info info = { .size = sizeof(info) };
	int r = gpc_info_get(c, &info);

	*ret = (struct gone){ 0 };
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < info.max_peers; i++) {
		struct gpc_stats st = { .size = sizeof(st) };

		if (gpc_stats_get(c, (int)i, &st) < 0 || st.alive)
			continue;
		if (is_led(c, info.max_peers, (int)i)) {
			ret->kept++;
			continue;
		}
		ret->left += st.left;
		ret->dead += !st.left;
	}
	return ret->dead + ret->left;
}

/* Waits until no dead process has a seat there any more, or until the time is up; returns how many
 * remain. */
static int wait_reaped(gpc *c, bool serve, unsigned limit_ms)
{
	uint64_t end = cli_now_ns() + limit_ms * UINT64_C(1000000);
	struct gone gone;
	int n, r;

	while ((n = count_gone(c, &gone)) > 0 && cli_now_ns() < end) {
		if (!serve) {
			cli_sleep_ms(TURN_MS);
			continue;
		}
		r = gpc_writer_serve(c, TURN_MS);
		if (r < 0 && r != -EINTR && r != -ETIMEDOUT && r != -EAGAIN)
			return r;
	}
	return n;
}

static int reap(gpc *c, bool *served)
{
	int r = gpc_writer_take(c, 0, 0);

	*served = r >= 0;
	if (r == -EAGAIN)
		return wait_reaped(c, false, WRITER_MS);
	if (r < 0)
		return r;
	return wait_reaped(c, true, OWN_MS); /* closing gives the seat up */
}

static void show_reaped(const struct inspect *in, const struct gone *gone, int remain, bool served)
{
	json_t *o;

	if (!in->json) {
		char kept[64] = "";

		if (gone->kept)
			snprintf(kept, sizeof(kept), "; kept for their companions: %d", gone->kept);
		out_line("%s: seats of processes that are dead: %d, that had closed the cache: %d; "
			 "not cleared yet: %d%s%s",
			 in->name, gone->dead, gone->left, remain, kept,
			 served ? "; there was no writer, gpc-inspect served meanwhile" : "");
		return;
	}
	o = out_need(json_object());
	json_object_set_new(o, "name", out_string(in->name, GPC_MAX_NAME));
	json_object_set_new(o, "dead", out_need(json_integer(gone->dead)));
	json_object_set_new(o, "left", out_need(json_integer(gone->left)));
	json_object_set_new(o, "kept", out_need(json_integer(gone->kept)));
	json_object_set_new(o, "remain", out_need(json_integer(remain)));
	json_object_set_new(o, "served", json_boolean(served));
	out_json(o);
}

/* Looks before it attaches, since an attach clears seats where dead processes have all of them. */
static int look_first(struct inspect *in, struct gone *gone)
{
	gpc *c;
	int status = inspect_open(in, GPC_READONLY, &c), n;

	if (status)
		return status;
	n = count_gone(c, gone);
	if (n < 0)
		cli_gpc_error(n, "%s", in->name);
	gpc_close(c);
	return n < 0 ? EXIT_RUNTIME : 0;
}

int inspect_reap(struct inspect *in)
{
	bool served = false;
	struct gone gone;
	int status, remain;
	gpc *c;

	status = look_first(in, &gone);
	if (!status)
		status = inspect_open(in, 0, &c);
	if (status)
		return status;
	remain = reap(c, &served);
	if (remain < 0)
		cli_gpc_error(remain, "%s", in->name);
	else
		show_reaped(in, &gone, remain, served);
	gpc_close(c);
	if (remain > 0)
		cli_error("%s: %d seats of processes that are dead or have left are not cleared%s",
			  in->name, remain, served ? "" : "; its writer may be stopped");
	return remain ? EXIT_RUNTIME : 0;
}

/* ---- rm ---- */

/* A daemon that was just told to end has its seat for a moment more. */
static int is_used_for_long(const struct inspect *in, const char *name)
{
	uint64_t end = cli_now_ns() + LEAVE_MS * UINT64_C(1000000);
	int used;

	while ((used = inspect_is_used(in, name)) > 0 && cli_now_ns() < end)
		cli_sleep_ms(TURN_MS);
	return used;
}

static int is_of_others(const char *path, void *arg)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_uid != geteuid();
}

static bool is_mine(const struct inspect *in, const char *name)
{
	static const char *const suffixes[] = { "idx", "ctl", "lock" };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		snprintf(path, sizeof(path), "%s/gpc.%s.%s", inspect_dir(in), name, suffixes[i]);
		if (is_of_others(path, NULL))
			return false;
	}
	return !inspect_each_file(in, name, inspect_is_memory, is_of_others, NULL);
}

/* A name, or of remains an object. */
static void show_one(const struct inspect *in, const json_t *name, const json_t *remains)
{
	const char *verb = in->dry_run ? "would remove" : "removed",
		   *text = json_string_value(name);
	const json_t *of = json_object_get(remains, text);
	char bytes[32];

	if (!of) {
		out_line("%s %s", verb, text);
		return;
	}
	out_bytes(bytes, sizeof(bytes), json_integer_value(of));
	out_line("%s the remains of %s, which was no whole cache: %s", verb, text, bytes);
}

static void show_removed(const struct inspect *in, json_t *removed, json_t *remains, bool failed)
{
	size_t i;
	const json_t *name;
	json_t *o;

	if (in->json) {
		o = out_need(json_object());
		json_object_set_new(o, in->dry_run ? "would_remove" : "removed", removed);
		json_object_set_new(o, "remains", remains);
		out_json(o);
		return;
	}
	json_array_foreach(removed, i, name) show_one(in, name, remains);
	if (in->stale && !json_array_size(removed) && !failed)
		out_line("nothing to remove: this user has no cache %s%s%sin %s that nobody uses",
			 in->name ? "like '" : "", in->name ? in->name : "", in->name ? "' " : "",
			 inspect_dir(in));
	json_decref(removed);
	json_decref(remains);
}

/* Is there a cache of that name, whatever its state? */
static int find_it(const struct inspect *in, const char *name)
{
	struct gpc_attach_options o = { .size = sizeof(o), .dir = in->dir };
	char path[PATH_MAX];
	gpc *c;
	int r;

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", inspect_dir(in), name);
	if (!access(path, F_OK))
		return 0;
	r = gpc_attach(name, &o, GPC_READONLY, &c); /* the message of the attach says so */
	if (r >= 0)
		gpc_close(c);
	return r < 0 ? r : 0;
}

/* 0, or the exit status after a message. */
static int remove_one(const struct inspect *in, const char *name, json_t *removed, json_t *remains)
{
	struct inspect_remains was;
	bool rest = inspect_remains(in, name, &was); /* a cache has an index; remains have none */
	int r = in->dry_run && rest ? 0
		: in->dry_run       ? find_it(in, name)
				    : gpc_unlink(name, in->dir);

	if (rest && r == -ENOENT) /* there is no cache, and the files are gone now */
		r = 0;

	/* somebody else may have removed it */
	if (r < 0 && !(r == -ENOENT && in->stale)) {
		cli_cache_error(r, name);
		return EXIT_RUNTIME;
	}
	json_array_append_new(removed, out_string(name, GPC_MAX_NAME));
	if (rest)
		json_object_set_new(remains, name, out_need(json_integer((json_int_t)was.bytes)));
	return 0;
}

static int remove_stale(const struct inspect *in, json_t *removed, json_t *remains)
{
	char **names;
	int n = inspect_scan(in, NULL, &names), status = 0;

	if (n < 0)
		return EXIT_RUNTIME;
	for (int i = 0; i < n; i++)
		if ((!in->name || !fnmatch(in->name, names[i], 0)) && is_mine(in, names[i]) &&
		    inspect_is_used(in, names[i]) == 0 &&
		    remove_one(in, names[i], removed, remains))
			status = EXIT_RUNTIME;
	inspect_free_names(names, n);
	return status;
}

/* The lock file cannot be opened: which file, and whose is it? */
static void say_locked_out(const struct inspect *in, int err)
{
	char path[PATH_MAX];
	const struct passwd *owner;
	struct stat st;

	snprintf(path, sizeof(path), "%s/gpc.%s.lock", inspect_dir(in), in->name);
	if (lstat(path, &st)) {
		cli_error("%s: %s: %s", in->name, path, strerror(err));
		return;
	}
	owner = getpwuid(st.st_uid);
	cli_error("%s: %s: %s: it belongs to user %u (%s)", in->name, path, strerror(err),
		  (unsigned)st.st_uid, owner ? owner->pw_name : "no name");
}

static int remove_named(const struct inspect *in, json_t *removed, json_t *remains)
{
	int used = in->force ? 0 : is_used_for_long(in, in->name);

	if (used < 0) {
		say_locked_out(in, -used);
		return EXIT_RUNTIME;
	}
	if (used) {
		cli_error("%s is in use (gpc-inspect peers %s); --force removes its "
			  "name, and the processes go on",
			  in->name, in->name);
		return EXIT_RUNTIME;
	}
	return remove_one(in, in->name, removed, remains);
}

int inspect_rm(struct inspect *in)
{
	json_t *removed, *remains;
	int status;

	if (!in->stale && !in->name)
		return cli_usage("rm: either NAME or --stale");
	if (in->stale && in->name && !*in->name)
		return cli_usage("rm: the PATTERN is empty");
	if (in->stale && in->force)
		return cli_usage("rm: --force goes with NAME");
	removed = out_need(json_array());
	remains = out_need(json_object());
	status =
		in->stale ? remove_stale(in, removed, remains) : remove_named(in, removed, remains);
	show_removed(in, removed, remains, status != 0);
	return status;
}
