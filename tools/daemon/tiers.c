/* SPDX-License-Identifier: Apache-2.0 */
/* The tiers below RAM: several processes may be configured with them, and one keeps them.
 *
 * A thread opens and closes them, and the writer's own thread carries out its commands meanwhile.
 * If the file is refused, gpcd ends before it says that it is ready.  Engines do the same
 * (python/gpc/engines/tiers.py), so the tables hold for both.  The library's lock decides which
 * process is first.
 *
 * Column 2 has the process that keeps tiers of this cache, and whether they are the tiers that this
 * process is configured with.  A process without the seat opens tiers at its turn: gpcd at its next
 * look, one each GRACE_MS; an engine when no process has kept them for that time.
 *
 *   who has the seat     who keeps tiers        this process, at its start        later
 *   -------------------  ---------------------  --------------------------------  -----------------------
 *   this process         no process             opens them; if it cannot, it      opens them; if it
 *                                               ends with the reason              cannot, it tries again
 *                                                                                 each second
 *   this process         another process, the   waits                             opens them when that
 *                        same tiers                                               process ends
 *   an engine            no process             opens them; if it cannot, it      opens them at its turn
 *                                               ends with the reason
 *   an engine            another process, the   waits                             when that process has
 *                        same tiers                                               ended: opens them at its
 *                                                                                 turn
 *   a gpcd, or none yet  any or none            gpcd waits for the seat; an       the same
 *                                               engine does as in the two rows
 *                                               above
 *   any or none          another process,       ends, and names that process and  logs that once
 *                        different tiers        its tiers
 *
 *   event                              then
 *   ---------------------------------  ------------------------------------------------------------------
 *   the steward, which has the seat,   the next writer opens them at once, if it is configured with them;
 *     ends or dies                     else another process opens them at its turn
 *   the steward, without the seat,     the writer opens them at once, if it is configured with them; else
 *     ends or dies                     another process opens them at its turn
 *   the writer, which is no steward,   nothing: the steward goes on, whichever process wins the seat
 *     ends or dies
 *   the steward loses the writer's     (engines) the steward closes them, and the new writer opens them
 *     seat to another process
 * Tests: t/daemon/disk-aside.t t/daemon/remote.t t/daemon/disk.t t/daemon/exists.t
 *   t/daemon/joins.t t/daemon/reload.t */
#include "config.h"

#include "tools/daemon/daemon.h"
#include "tools/common/shown.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	STEP_MS = 50, /* a step of serving, while the thread works */
	TURN_MS = 5,  /* ... or of waiting, where another process serves */
	/* between attempts, and between looks of a process without the seat: a writer goes first */
	GRACE_MS = 1000,
};

struct tiers_thread {
	pthread_t thread;
	struct daemon *d;
	gpc_tiers *tiers;
	int result;
	char text[512];
	bool done; /* the thread has ended */
};

/* ---- the thread ---- */

static void *open_run(void *arg)
{
	struct tiers_thread *t = arg;

	t->result = gpc_tiers_open(t->d->name, &t->d->tiers, &t->tiers);
	if (t->result < 0)
		snprintf(t->text, sizeof(t->text), "%s", cli_gpc_text(t->result));
	__atomic_store_n(&t->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void *close_run(void *arg)
{
	struct tiers_thread *t = arg;

	gpc_tiers_close(t->tiers);
	__atomic_store_n(&t->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Without a thread the call is made here, and waits for its own timeouts. */
static void run_beside(struct tiers_thread *t, gpc *c, void *(*run)(void *arg))
{
	t->done = false;
	if (pthread_create(&t->thread, NULL, run, t)) {
		run(t);
		return;
	}
	while (!__atomic_load_n(&t->done, __ATOMIC_ACQUIRE)) {
		turn(t->d);
		manager_busy(t->d, "opening the tiers below RAM");
		manager_alive();
		if (gpc_writer_serve(c, manager_turn(STEP_MS)) == -ENOTCONN)
			cli_sleep_ms(TURN_MS); /* another process serves */
	}
	pthread_join(t->thread, NULL);
}

static void say_tiers(const struct daemon *d, gpc *c)
{
	struct gpc_tier t = { .size = sizeof(t) };
	struct gpc_pool p = { .size = sizeof(p) };
	uint32_t i;

	for (i = 0; !gpc_tier_get(c, i, &t); i++)
		if (!gpc_pool_get(c, t.pool, &p))
			say(LOG_INFO, "%s: tier %s: %s, %u blocks of %llu bytes", d->name,
			    t.kind == GPC_DISK ? "disk" : "remote",
			    t.kind == GPC_DISK ? d->disk : d->tiers.remote, p.blocks,
			    (unsigned long long)t.block_bytes);
}

/* ---- which process keeps them ---- */

static bool is_same(uint32_t kind, const char *ours, const char *theirs)
{
	struct stat a, b;

	if (strncmp(ours, theirs, sizeof(((struct gpc_tier *)NULL)->what) - 1) == 0)
		return true;
	return kind == GPC_DISK && !stat(ours, &a) && !stat(theirs, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* The process that keeps a tier of this cache, or 0; *ret_what: the first option in which its
 * tiers differ from ours, or NULL. */
static int32_t find_steward(const struct daemon *d, gpc *c, const char **ret_what)
{
	static struct gpc_tier t;
	struct gpc_stats st = { .size = sizeof(st) };
	uint32_t i, n = 0;
	int32_t steward = -1;

	*ret_what = NULL;
	for (i = 0; t = (struct gpc_tier){ .size = sizeof(t) }, !gpc_tier_get(c, i, &t); i++) {
		const char *ours = t.kind == GPC_DISK ? d->tiers.disk : d->tiers.remote;

		if (t.steward < 0)
			return 0;
		steward = t.steward;
		n++;
		if (!ours || !is_same(t.kind, ours, t.what)) {
			*ret_what = t.what;
			break;
		}
	}
	if (steward < 0 || gpc_stats_get(c, steward, &st) < 0)
		return 0;
	if (!*ret_what && n < (uint32_t) !!d->tiers.disk + !!d->tiers.remote)
		*ret_what = "one tier less";
	return st.pid;
}

/* Logs a text once, until there is another text, since tiers_look tries again and again. */
static void say_once(struct daemon *d, const char *text)
{
	if (strcmp(d->tiers_why, text))
		say(LOG_ERR, "%s: %s", d->name, text);
	snprintf(d->tiers_why, sizeof(d->tiers_why), "%s", text);
}

static int refuse(struct daemon *d, gpc *c, int err, const char *why)
{
	char words[1024], text[1280];
	bool secret = d->key_file[0] && strstr(why, "secret is not that of");

	snprintf(text, sizeof(text), "--%s: %s%s%s%.128s%s",
		 !tiers_wanted(d)                                                 ? "key-file"
		 : d->disk[0] && !strstr(why, "remote") && !strstr(why, "plugin") ? "disk"
										  : "remote",
		 serve_option_words(why, words, sizeof(words)),
		 strstr(why, "resized") ? " (--disk-resize)" : "", secret ? "; --key-file is " : "",
		 secret ? d->key_file : "",
		 err == -ENOSPC && serve_has_engine(c)
			 ? ": engines make it with room for the tiers that they are told of "
			   "(gpc_config, gpc_disk, gpc_remote), or with gpc_max_blocks"
			 : "");
	say_once(d, text);
	return EXIT_RUNTIME;
}

static int refused(struct daemon *d, gpc *c, const struct tiers_thread *t)
{
	return refuse(d, c, t->result, t->text);
}

static void check_options(const struct daemon *d, struct gpc_tiers_options *ret)
{
	*ret = d->tiers;
	ret->size = sizeof(*ret);
	ret->flags |= GPC_TIERS_CHECK;
	ret->dir = d->dir[0] ? d->dir : NULL;
	ret->log = NULL; /* warnings come when the tiers are opened */
	ret->log_arg = NULL;
}

int tiers_fit(struct daemon *d, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_tiers_options o;
	gpc_tiers *t = NULL;
	char why[1024];
	int r, status;

	check_options(d, &o);
	if (!tiers_wanted(d) && !o.secret)
		return 0;
	r = gpc_tiers_open(d->name, &o, &t);
	if (r >= 0 || r == -EAGAIN)
		return 0;
	snprintf(why, sizeof(why), "%s", cli_gpc_text(r));
	/* a cache that has gone is looked for again, and an engine may add its RAM later */
	if (strncmp(why, "there is no cache", 17) == 0)
		return 0;
	if (strstr(why, "no pool of RAM") &&
	    (gpc_info_get(c, &info) < 0 || !info.writer_pid || serve_has_engine(c)))
		return 0;
	/* one that does not stand by hears of the other writer first */
	status = d->standby || serve_has_engine(c) ? 0 : serve_find_writer(d);
	return status ? status : refuse(d, c, r, why);
}

/* Names a process by the label of its own seat, since the seat of its tiers has only the label
 * "tiers". */
static const char *name_process(gpc *c, int32_t pid, char *ret, size_t room)
{
	struct gpc_stats st;
	char label[64];

	snprintf(ret, room, "process %d", pid);
	for (int i = 0; i < GPC_MAX_PEERS; i++) {
		st = (struct gpc_stats){ .size = sizeof(st) };
		if (gpc_stats_get(c, i, &st) < 0 || st.pid != pid || !strcmp(st.label, "tiers"))
			continue;
		shown_text(label, sizeof(label), st.label);
		snprintf(ret, room, "process %d (%s)", pid, label);
		break;
	}
	return ret;
}

/* Another process keeps tiers or has the file.  0: that process keeps the same tiers, and this one
 * waits until it ends. */
static int find_kept(struct daemon *d, gpc *c, const struct tiers_thread *t)
{
	const char *other;
	int32_t steward = find_steward(d, c, &other);
	char text[1024], who[96];

	if (!steward)
		return refused(d, c, t);
	name_process(c, steward, who, sizeof(who));
	if (!other) {
		if (steward != d->tiers_of && !d->quiet)
			say(LOG_INFO,
			    "%s: %s keeps the tiers: this one, process %d, takes them over when that "
			    "one ends, unless another is first",
			    d->name, who, (int)getpid());
		d->tiers_of = steward;
		return 0;
	}
	snprintf(text, sizeof(text),
		 "%s keeps other tiers of it, with %s: give the same ones, or end that process",
		 who, other);
	say_once(d, text);
	return EXIT_RUNTIME;
}

static int open_tiers(struct daemon *d, gpc *c)
{
	struct tiers_thread *t = calloc(1, sizeof(*t));
	int status;

	if (!t) {
		say_once(d, "no memory for a thread");
		return EXIT_RUNTIME;
	}
	t->d = d;
	run_beside(t, c, open_run);
	if (t->result >= 0) {
		d->tiers_thread = t;
		d->tiers_why[0] = 0;
		d->tiers_of = 0;
		say_tiers(d, c);
		status = d->key == KEY_OF_DISK ? key_make(d) : 0;
		if (status)
			tiers_stop(d, c);
		return status;
	}
	status = t->result == -EBUSY ? find_kept(d, c, t) : refused(d, c, t);
	free(t);
	return status;
}

int tiers_start(struct daemon *d, gpc *c)
{
	return tiers_wanted(d) && !d->tiers_thread ? open_tiers(d, c) : 0;
}

int tiers_join(struct daemon *d, gpc *c)
{
	return serve_has_engine(c) ? tiers_start(d, c) : 0;
}

bool tiers_wait(const struct daemon *d)
{
	return tiers_wanted(d) && !d->tiers_thread;
}

void tiers_look(struct daemon *d, gpc *c)
{
	uint64_t now = cli_now_ns();
	const char *other;

	if (!tiers_wait(d) || now < d->tiers_next)
		return;
	if (find_steward(d, c, &other) || (!d->served && !serve_has_engine(c))) {
		d->tiers_next = now + (d->served ? 0 : GRACE_MS * UINT64_C(1000000));
		return;
	}
	d->tiers_next = now + GRACE_MS * UINT64_C(1000000);
	open_tiers(d, c);
}

void tiers_stop(struct daemon *d, gpc *c)
{
	struct tiers_thread *t = d->tiers_thread;

	if (!t)
		return;
	run_beside(t, c, close_run);
	free(t);
	d->tiers_thread = NULL;
}

/* ---- other tiers, while gpcd runs ---- */

struct wish {
	struct gpc_tiers_options tiers;
	char disk[PATH_MAX];
	uint64_t disk_bytes;
};

static void wish_of(const struct daemon *d, struct wish *ret)
{
	ret->tiers = d->tiers;
	memcpy(ret->disk, d->disk, sizeof(ret->disk));
	ret->disk_bytes = d->disk_bytes;
}

static void take_wish(struct daemon *d, const struct wish *w)
{
	d->tiers = w->tiers;
	memcpy(d->disk, w->disk, sizeof(d->disk));
	d->disk_bytes = w->disk_bytes;
	d->tiers.disk = d->disk[0] ? d->disk : NULL;
	d->tiers.dir = d->dir[0] ? d->dir : NULL;
	d->tiers.log_arg = d;
	d->tiers_why[0] = 0;
	d->tiers_next = 0;
}

bool tiers_change(struct daemon *d, struct daemon *n, gpc *c)
{
	static struct wish old, new; /* large */
	bool kept = d->tiers_thread, served;

	/* the messages of a start were logged before, and the cache stays the same */
	n->quiet = true;
	n->create = false;
	n->key_file[0] = 0;
	n->name = d->name;
	n->cfg = d->cfg;
	n->memory = d->memory;
	memcpy(n->dir, d->dir, sizeof(n->dir));
	if (tiers_prepare(n))
		return false;
	wish_of(d, &old);
	wish_of(n, &new);
	tiers_stop(d, c);
	take_wish(d, &new);
	served = d->served && tiers_wanted(d);
	if ((!kept && !served) || !tiers_start(d, c))
		return true; /* if they are not open yet, tiers_look opens them */
	take_wish(d, &old);
	tiers_start(d, c);
	return false;
}
