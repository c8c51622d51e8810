/* SPDX-License-Identifier: Apache-2.0 */
/* release: ends a process, so that all that it holds is let go.  Nothing is taken from a process
 * that lives, since it may read and write the bytes of its blocks at any moment.
 *
 * The number of a process may belong to another process by the time it is used, and a peer can
 * write any number into its own seat.  So the command first opens a pidfd of the process.  Then it
 * checks the number, once before the question and once after the answer:
 *
 *   the number ...                           then
 *   ---------------------------------------  --------------------------------------------------------
 *   belongs to another PID namespace         refused: here it stands for another process
 *   was given to another process since       refused: the start time is not that of the seat
 *   belongs to a process that has left the   refused: the seat no longer belongs to that process
 *     cache
 *   is a lie of the seat's owner             refused: that process does not have this cache open
 *   is given to another process after both   the signal goes to the pidfd, whose process is gone
 *     checks
 * Tests: t/tools/release.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEADLINE_MS = 10000, TURN_MS = 20, SEATS_TEXT = 64 };

struct target {
	const struct inspect *in;
	gpc *c;
	struct gpc_info info;
	struct gpc_stats st; /* of its seat */
	int pidfd;
	uint64_t end_ns;
};

/* ---- is it the process of the seat? ---- */

/* The 22nd field of /proc/PID/stat; 0 if it cannot be read. */
static uint64_t start_of(int pid)
{
	char path[64], text[1024], *at;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	at = strrchr(text, ')'); /* the name before it may contain any character */
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* 1, 0, or -1 if this user cannot see it. */
static int has_open(int pid, const struct stat *file)
{
	char path[64];
	const struct dirent *e;
	struct stat st;
	int found = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	if (!fds)
		return -1;
	while (!found && (e = readdir(fds)))
		found = e->d_name[0] != '.' && fstatat(dirfd(fds), e->d_name, &st, 0) == 0 &&
			st.st_ino == file->st_ino && st.st_dev == file->st_dev;
	closedir(fds);
	return found;
}

static int refuse(const struct target *t, const char *why)
{
	cli_error("%s: peer %d: process %d %s; nothing was done", t->in->name, t->in->peer,
		  t->st.pid, why);
	return EXIT_RUNTIME;
}

/* Checks the process of the pidfd, as long as that has not exited. */
static int check_process(const struct target *t)
{
	struct pollfd at = { .fd = t->pidfd, .events = POLLIN };
	uint64_t start = start_of(t->st.pid);
	char path[PATH_MAX];
	struct stat file;
	int open;

	snprintf(path, sizeof(path), "%s/gpc.%s.lock", inspect_dir(t->in), t->in->name);
	open = stat(path, &file) ? -1 : has_open(t->st.pid, &file);
	if (poll(&at, 1, 0))
		return refuse(t, "has exited by itself");
	if (!t->st.start_time || start != t->st.start_time)
		return refuse(t, "has another start time than that of the seat: it is another one");
	if (open < 0)
		return refuse(t,
			      "may have this cache open or not: that cannot be seen by this user");
	if (!open)
		return refuse(t, "has not this cache open, whatever its seat says");
	return 0;
}

/* Does the seat still belong to that process? */
static int check_seat(struct target *t)
{
	struct gpc_stats st = { .size = sizeof(st) };
	int r = gpc_stats_get(t->c, t->in->peer, &st);

	if (r < 0 || !st.alive || st.pid != t->st.pid || st.start_time != t->st.start_time)
		return refuse(t, "has left its seat");
	t->st = st;
	return check_process(t);
}

static int find(struct target *t)
{
	int r = gpc_stats_get(t->c, t->in->peer, &t->st);

	if (r < 0) {
		cli_gpc_error(r, "%s", t->in->name);
		return EXIT_RUNTIME;
	}
	if (!t->st.alive) {
		cli_error("%s: peer %d: process %d is dead or has left; 'gpc-inspect reap %s' "
			  "clears its seat",
			  t->in->name, t->in->peer, t->st.pid, t->in->name);
		return EXIT_RUNTIME;
	}
	if (!t->st.here)
		return refuse(t, "is in another PID namespace: run gpc-inspect there");
	t->pidfd = (int)syscall(SYS_pidfd_open, t->st.pid, 0);
	if (t->pidfd < 0) {
		cli_error("%s: peer %d: process %d: %s", t->in->name, t->in->peer, t->st.pid,
			  strerror(errno));
		return EXIT_RUNTIME;
	}
	return check_seat(t);
}

/* ---- the question ---- */

/* Names all seats of that process, since all of them end with it. */
static void name_seats(const struct target *t, char *ret, size_t room)
{
	size_t used = 0;

	ret[0] = 0;
	for (uint32_t i = 0; i < t->info.max_peers && used + 8 < room; i++) {
		struct gpc_stats st = { .size = sizeof(st) };

		if (gpc_stats_get(t->c, (int)i, &st) == 0 && st.alive && st.pid == t->st.pid &&
		    st.start_time == t->st.start_time)
			used += (size_t)snprintf(ret + used, room - used, "%s%u", used ? ", " : "",
						 i);
	}
}

static bool is_yes(void)
{
	char line[16] = "";

	if (!fgets(line, sizeof(line), stdin))
		return false;
	line[strcspn(line, "\n")] = 0;
	return !strcmp(line, "y") || !strcmp(line, "yes");
}

/* 0 means that it may be ended. */
static int ask(const struct target *t)
{
	char seats[SEATS_TEXT];

	if (t->in->yes)
		return 0;
	if (!isatty(STDIN_FILENO))
		return cli_usage("release: process %d is killed by --yes, or by an answer on a "
				 "terminal, which the standard input is not",
				 t->st.pid);
	name_seats(t, seats, sizeof(seats));
	cli_error("%s: process %d (%s)%s has seat %s; it holds %" PRIu64 " references and %" PRIu64
		  " reserved blocks, and all its work is lost",
		  t->in->name, t->st.pid, t->st.label,
		  t->in->peer == t->info.writer_peer ? ", the writer," : "", seats, t->st.refs,
		  t->st.reserved);
	fputs("Kill it? [y/N] ", stderr);
	fflush(stderr);
	if (is_yes())
		return 0;
	cli_error("%s: nothing was done", t->in->name);
	return EXIT_RUNTIME;
}

/* ---- its end ---- */

static int left_ms(const struct target *t)
{
	uint64_t now = cli_now_ns();

	return now < t->end_ns ? (int)((t->end_ns - now) / 1000000 + 1) : 0;
}

static int kill_it(struct target *t)
{
	struct pollfd at = { .fd = t->pidfd, .events = POLLIN };
	int status = check_seat(t), r;

	if (status)
		return status;
	if (syscall(SYS_pidfd_send_signal, t->pidfd, SIGKILL, NULL, 0) && errno != ESRCH) {
		cli_error("%s: peer %d: process %d: %s", t->in->name, t->in->peer, t->st.pid,
			  strerror(errno));
		return EXIT_RUNTIME;
	}
	do
		r = poll(&at, 1, left_ms(t));
	while (r < 0 && errno == EINTR);
	if (r > 0)
		return 0;
	cli_error("%s: process %d has SIGKILL and has not exited yet: the kernel holds it",
		  t->in->name, t->st.pid);
	return EXIT_RUNTIME;
}

/* Is the life of that process on the seat over? */
static bool is_clear(const struct target *t)
{
	struct gpc_stats st = { .size = sizeof(st) };
	int r = gpc_stats_get(t->c, t->in->peer, &st);

	return r == -ENOENT ||
	       (r == 0 && (st.pid != t->st.pid || st.start_time != t->st.start_time));
}

static bool is_led(const struct target *t)
{
	for (uint32_t i = 0; i < t->info.max_peers; i++) {
		struct gpc_stats st = { .size = sizeof(st) };

		if (gpc_stats_get(t->c, (int)i, &st) == 0 && st.alive && st.leader == t->in->peer)
			return true;
	}
	return false;
}

/* Is the seat worth waiting for?  A companion may end, and a writer may come. */
static const char *why_not_clear(struct target *t)
{
	struct gpc_info info = { .size = sizeof(info) };

	if (is_led(t))
		return "is kept until its companions end (gpc-inspect peers)";
	if (gpc_info_get(t->c, &info) == 0 && !info.writer_pid)
		return "is not clear, as there is no writer (gpc-inspect reap)";
	return "is not clear yet; its writer may be stopped";
}

static int wait_clear(struct target *t)
{
	while (!is_clear(t) && left_ms(t))
		cli_sleep_ms(TURN_MS);
	if (is_clear(t))
		return 0;
	cli_error("%s: process %d has exited, and seat %d %s", t->in->name, t->st.pid, t->in->peer,
		  why_not_clear(t));
	return EXIT_RUNTIME;
}

static void show(const struct target *t)
{
	json_t *o;

	if (!t->in->json) {
		out_line("%s: process %d (%s) has exited, and seat %d is clear", t->in->name,
			 t->st.pid, t->st.label, t->in->peer);
		return;
	}
	o = out_need(json_object());
	json_object_set_new(o, "name", out_string(t->in->name, GPC_MAX_NAME));
	json_object_set_new(o, "peer", out_need(json_integer(t->in->peer)));
	json_object_set_new(o, "pid", out_need(json_integer(t->st.pid)));
	json_object_set_new(o, "label", out_string(t->st.label, sizeof(t->st.label)));
	json_object_set_new(o, "refs", out_need(json_integer((json_int_t)t->st.refs)));
	json_object_set_new(o, "reserved", out_need(json_integer((json_int_t)t->st.reserved)));
	out_json(o);
}

static int release(struct target *t)
{
	int status, r = gpc_info_get(t->c, &t->info);

	if (r < 0) {
		cli_gpc_error(r, "%s", t->in->name);
		return EXIT_RUNTIME;
	}
	status = find(t);
	if (!status)
		status = ask(t);
	t->end_ns = cli_now_ns() +
		    (t->in->deadline ? t->in->deadline : DEADLINE_MS) * UINT64_C(1000000);
	if (!status)
		status = kill_it(t);
	if (!status)
		status = wait_clear(t);
	if (!status)
		show(t);
	return status;
}

int inspect_release(struct inspect *in)
{
	struct target t = { .in = in,
			    .info = { .size = sizeof(t.info) },
			    .st = { .size = sizeof(t.st) },
			    .pidfd = -1 };
	int status;

	if (!in->name)
		return cli_usage("release: NAME is missing");
	if (in->peer < 0)
		return cli_usage("release: --peer is missing: 'gpc-inspect peers %s' shows which",
				 in->name);
	status = inspect_open(in, GPC_READONLY, &t.c);
	if (status)
		return status;
	status = release(&t);
	if (t.pidfd >= 0)
		close(t.pidfd);
	gpc_close(t.c);
	return status;
}
