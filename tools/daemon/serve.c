/* SPDX-License-Identifier: Apache-2.0 */
/* The cache and its writer's seat: gpcd makes or attaches to it, waits, serves, and removes it.
 * Tests: t/daemon/fails.t t/daemon/limits.t t/daemon/memory.t t/daemon/joins.t t/daemon/fits.t
 *   t/daemon/full.t */
#include "config.h"

#include "tools/daemon/daemon.h"
#include "tools/common/dress.h"
#include "tools/common/shown.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	TURN_MS = 200, /* between two looks for a signal that ends a standby */
	SERVE_MS = 2000,
	SEAT_MS = 5000, /* time that the writer has to free the first handle's seat */
	TRANSIT = 64,   /* slots of the RAM pool beside --ram-blocks */
	PAGE = 4096,
	STEP_MS = 100, /* between two looks for a cache that has not come yet */
	MAKER_MS = 1000,
};

const char *serve_option_words(const char *text, char *ret, size_t room)
{
	static const struct {
		const char *field, *option;
	} words[] = {
		{ "block_tokens", "--block-size" },
		{ "max_blocks", "--max-blocks" },
		{ "vram_blocks", "--vram-blocks" },
		{ "ram_blocks", "--ram-blocks" },
		{ "ram_space", "--ram-space" },
		{ "ram_flags is 0x4, and it has 0x0", "it was not made with --unchained" },
		{ "max_peers", "--max-peers" },
		{ "max_pools", "--max-pools" },
		{ "devices", "--device" },
		{ "tick_us", "--tick (in microseconds)" },
		{ "free_target", "--free-target" },
		{ "quarantine_ms", "--quarantine" },
		{ "peer_quota", "--quota" },
		{ "block_bytes", "--block-bytes" },
		{ "with sums", "with --sums" },
		{ "huge_dir", "--huge-dir" },
		{ "numa is", "--numa is" },
		{ "with another secret than the one that is given",
		  "with another secret than that of --key-file or --disk" },
		{ "with numa 0", "with --numa default" },
		{ "with numa 1", "with --numa interleave" },
		{ "with numa 2", "with --numa bind" },
		{ "instead of 0 on 0x", "instead of default on 0x" },
		{ "instead of 1 on 0x", "instead of interleave on 0x" },
		{ "instead of 2 on 0x", "instead of bind on 0x" },
		{ "exists with mode ", "exists with --mode " },
		{ "instead of mode ", "instead of --mode " },
		{ "nodes is", "--numa: the set of nodes is" },
		{ "keep_tokens", "--keep-tokens" },
		{ "keep_digests", "--keep-digests" },
		{ "max_aliases", "--max-aliases" },
		{ "disk_bytes", "--disk-bytes" },
		{ "disk_blocks", "--disk-blocks" },
		{ "remote_blocks", "--remote-blocks" },
		{ "the version tag is", "--remote-tag is" },
		{ "secret is not that of", "--key-file has not the secret of" },
		{ "ask for fewer slots", "ask for fewer blocks (--disk-blocks)" },
	};
	size_t used = 0, i, len;

	while (*text && used + 1 < room) {
		for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strncmp(text, words[i].field, strlen(words[i].field)) == 0)
				break;
		if (i == sizeof(words) / sizeof(words[0])) {
			ret[used++] = *text++;
			continue;
		}
		len = strlen(words[i].option);
		if (len >= room - used)
			break;
		memcpy(ret + used, words[i].option, len);
		used += len;
		text += strlen(words[i].field);
	}
	ret[used] = 0;
	return ret;
}

/* Room that no option gives follows from pools.  This names the pools of the cache whose size
 * differs from the options. */
static void name_pools(const struct daemon *d, char *ret, size_t room)
{
	const struct gpc_attach_options opt = { .size = sizeof(opt),
						.dir = d->dir[0] ? d->dir : NULL };
	size_t used = strlen(ret);
	gpc *c;

	if (gpc_attach(d->name, &opt, GPC_READONLY, &c) < 0)
		return;
	for (int i = 0; i < 2 && used < room; i++) {
		struct gpc_pool p = { .size = sizeof(p) };
		bool got = gpc_pool_get(c, i, &p) >= 0, ram = got && p.kind == GPC_RAM;
		uint32_t want = ram ? d->cfg.ram_blocks : d->cfg.vram_blocks;

		if (got && (ram || p.kind == GPC_VRAM) && p.blocks != want)
			used += (size_t)snprintf(
				ret + used, room - used,
				"; its pool of %s has %u blocks, and --%s-blocks is %u",
				ram ? "RAM" : "VRAM", p.blocks, ram ? "ram" : "vram", want);
	}
	gpc_close(c);
}

/* For a cache that exists with another geometry: the command that removes it, and the origin of a
 * number that no option gave. */
static const char *how_to_have(const struct daemon *d, int err, char *ret, size_t room)
{
	ret[0] = 0;
	if (err != -EPROTO || !strstr(cli_gpc_text(err), "remove the cache"))
		return ret;
	snprintf(ret, room, " ('gpc-inspect %s%s%srm %s')", d->dir[0] ? "--dir " : "", d->dir,
		 d->dir[0] ? " " : "", d->name);
	if (!d->max_blocks_computed || !strstr(cli_gpc_text(err), "max_blocks"))
		return ret;
	strncat(ret,
		"; --max-blocks was not given, and is what the pools and the tiers of --disk and "
		"--remote need together",
		room - strlen(ret) - 1);
	name_pools(d, ret, room);
	return ret;
}

/* Returns the exit status. */
static int cannot_open(const struct daemon *d, int err)
{
	const char *text = cli_gpc_text(err);
	char words[1024], how[PATH_MAX + 768], at[PATH_MAX + 16];

	serve_option_words(cli_behind_name(text, d->name), words, sizeof(words));
	if (err == -EBADMSG)
		say(LOG_ERR, "%s: %s; 'gpc-inspect %s%s%srm %s' removes it", d->name, text,
		    d->dir[0] ? "--dir " : "", d->dir, d->dir[0] ? " " : "", d->name);
	else
		say(LOG_ERR, "%s: %s%s%s%s%s%s", d->name, words,
		    err == -EAGAIN ? "; --standby waits until that is done" : "",
		    err == -EINVAL ? cli_value_at(words, at, sizeof(at)) : "",
		    how_to_have(d, err, how, sizeof(how)),
		    d->key == KEY_DRAWN ? "; there is no file " : "",
		    d->key == KEY_DRAWN ? d->key_file : "");
	return err == -EINVAL ? EXIT_USAGE : EXIT_RUNTIME;
}

/* Logs one line a second at most; a signal ends the work. */
static int on_progress(void *arg, uint64_t done, uint64_t bytes)
{
	struct daemon *d = arg;
	uint64_t now = cli_now_ns();
	int shift = bytes < 1 << 20 ? 10 : 20;

	if (process_stopping)
		return 1;
	manager_busy(d, "the RAM pool's memory is being made: %llu of %llu %ciB",
		     (unsigned long long)done >> shift, (unsigned long long)bytes >> shift,
		     shift == 20 ? 'M' : 'K');
	if (d->quiet || now < d->next_told)
		return 0;
	d->next_told = now + UINT64_C(1000000000);
	say(LOG_INFO, "%s: the RAM pool's memory is being made: %llu of %llu %ciB", d->name,
	    (unsigned long long)done >> shift, (unsigned long long)bytes >> shift,
	    shift == 20 ? 'M' : 'K');
	return 0;
}

/* Says so when more than a tenth of the memory is between the parts. */
static void say_padding(const struct daemon *d, uint64_t part, uint64_t stride, uint64_t slots)
{
	double all = (double)stride * (double)slots * d->memory.sums;

	if (d->quiet || (stride - part) * 10 <= stride)
		return;
	say(LOG_NOTICE,
	    "%s: --sums %u: each part of a block has %llu bytes and takes %llu: the memory is %.1f MiB, of "
	    "which %.1f MiB stay empty",
	    d->name, d->memory.sums, (unsigned long long)part, (unsigned long long)stride,
	    all / (1 << 20), all / (double)stride * (double)(stride - part) / (1 << 20));
}

/* Each part of a block lies by itself, slot after slot, as engines lay it out.  So the part that
 * one of their workers copies, and registers with its GPU, is in one piece
 * (python/gpc/engines/cache.py). */
static void set_runs(struct daemon *d)
{
	static struct gpc_run runs[GPC_MAX_SUMS];
	uint32_t i, n = d->memory.sums;
	uint64_t part, stride, slots = (uint64_t)d->cfg.ram_blocks + TRANSIT;

	if (n <= 1)
		return;
	part = d->memory.block_bytes / n;
	stride = (part + PAGE - 1) / PAGE * PAGE;
	if (stride > INT64_MAX / slots / n)
		return; /* the library refuses that many */
	for (i = 0; i < n; i++)
		runs[i] = (struct gpc_run){ .count = 1,
					    .bytes = part,
					    .offset = i * slots * stride,
					    .slot_stride = stride };
	say_padding(d, part, stride, slots);
	d->memory.runs = runs;
	d->memory.nruns = n;
}

static void set_memory(struct daemon *d)
{
	if (!d->memory.block_bytes)
		return;
	d->memory.size = sizeof(d->memory);
	d->memory.huge_dir = d->huge_dir[0] ? d->huge_dir : NULL;
	d->memory.progress = on_progress;
	d->memory.progress_arg = d;
	set_runs(d);
	d->cfg.ram_memory = &d->memory;
}

/* The port of --metrics opens before the wait for a cache or for memory.  So a probe gets an answer
 * at that time, too. */
static int answer_scrapes(struct daemon *d)
{
	return d->http ? 0 : http_start(d, &d->http);
}

/* Memory takes its time, so a standby waits for the process that is making the cache.  Each call
 * of the library waits for a while itself. */
static int make(struct daemon *d, const struct gpc_attach_options *opt, gpc **ret)
{
	struct patience p = patience_for("a standby", 0);
	int r;

	do {
		r = gpc_create(d->name, &d->cfg, opt, 0, ret);
	} while (r == -EAGAIN && d->standby &&
		 patience_lasts(d, &p, r, cli_gpc_text(r), "", STEP_MS));
	return r;
}

/* The library compares the configuration before it gives a file another mode or group.  Key, disk
 * and room are compared before that as well, by a handle that asks for neither. */
static int take_made(struct daemon *d, const struct gpc_attach_options *opt, gpc **ret)
{
	struct gpc_config as_it_is = d->cfg;
	int r, status;

	as_it_is.mode = 0;
	as_it_is.gid = 0;
	r = gpc_create(d->name, &as_it_is, opt, GPC_IF_ABSENT, ret);
	if (r < 0)
		return r;
	status = tiers_fit(d, *ret);
	if (!status && !d->cfg.mode)
		return 0;
	gpc_close(*ret);
	*ret = NULL;
	return status ? status : gpc_create(d->name, &d->cfg, opt, GPC_IF_ABSENT, ret);
}

/* d->made says whose cache it is, which matters if gpcd fails before it has announced the
 * cache. */
static int make_or_attach(struct daemon *d, const struct gpc_attach_options *opt, gpc **ret)
{
	int r = make(d, opt, ret);

	if (r >= 0)
		d->made = true;
	return r == -EEXIST ? take_made(d, opt, ret) : r;
}

/* 0, or the exit status. */
static int opened(const struct daemon *d, int r)
{
	if (r > 0)
		return r; /* the message is out */
	if (r < 0 && process_stopping)
		return EXIT_STOPPED; /* the part that was made is removed */
	return r < 0 ? cannot_open(d, r) : 0;
}

/* ---- a cache that another process makes ----
 *
 * Without --block-size gpcd joins what an engine makes, which may take its time to come.
 *
 *   there is                           the library says     gpcd
 *   ---------------------------------  -------------------  -----------------------------------------
 *   no cache of that name, or one that -ENOENT              waits, without a limit: under a service
 *   is being made, or was removed                           manager it would fail for good before
 *                                                           the engine has loaded its model
 *   a cache without a free seat        -EUSERS              waits: a worker that ends leaves one
 *   a cache with a writer, an engine   0                    joins, and is ready; so does each one
 *                                                           that has waited
 *   a cache with a writer, a gpcd      0                    as ever: status 3, with --standby a standby
 *   a cache without a writer           0                    takes the seat; a maker has MAKER_MS first
 *   one of another format or model     -EPROTO              ends, status 1: a person has to choose
 *   a damaged one                      -EBADMSG             the same
 *   one that is closed to this user    -EACCES              the same
 *   no folder for it                   -ENOENT              the same: it is a wrong option
 *
 *   then                                       gpcd
 *   -----------------------------------------  ------------------------------------------------------
 *   it is removed before gpcd is ready         waits for the next one
 *   it is removed later                        ends, status 1, as ever; started anew it waits
 *   SIGTERM or SIGINT comes while it waits     ends, status 0
 *
 * All that needs no cache is checked before: the options, the key file, the file of --disk or its
 * folder, that file against key file and size, the options of the store, the port of --metrics.
 * Files are checked again when the cache is there.
 *
 *   a cache that is there            is left as it is        then its files, and the key file
 *   -------------------------------  ----------------------  ------------------------------------
 *   key, disk or room do not fit it  status 1                stay as they are
 *   it has a writer, or none         joined, or taken over   get --mode and --group
 *
 * A standby of a gpcd compares them as one of an engine does, though it opens no tiers yet. */

/* cli_gpc_text(err) has the library's sentence. */
static bool is_to_come(const struct daemon *d, int err)
{
	struct stat st;

	return err == -EUSERS || (err == -ENOENT && !stat(d->dir[0] ? d->dir : "/dev/shm", &st) &&
				  S_ISDIR(st.st_mode));
}

static bool goes_on_waiting(struct daemon *d, struct patience *p, int err)
{
	const char *text = cli_gpc_text(err);

	turn(d);
	return is_to_come(d, err) &&
	       patience_lasts(d, p, err, text,
			      strncmp(text, "there is no cache", 17)
				      ? ""
				      : "; an engine makes it, or a gpcd with --block-size",
			      STEP_MS);
}

/* Applies --mode and --group as for a cache that was made before: to files of this user.  Files of
 * another user stay as they are.  This process might change their group, but not their mode. */
static void dress_joined(const struct daemon *d, gpc *c, const struct gpc_attach_options *opt)
{
	char path[PATH_MAX + GPC_MAX_NAME + 16];
	struct stat st;
	int r;

	snprintf(path, sizeof(path), "%s/gpc.%s.idx", opt->dir ? opt->dir : "/dev/shm", d->name);
	if (!d->cfg.mode || stat(path, &st))
		return;
	if (st.st_uid == geteuid()) {
		r = dress(c, d->name, &d->cfg, opt);
		if (r < 0)
			say(LOG_WARNING, "%s: --%s: it is joined as it is: %s", d->name,
			    d->cfg.gid ? "group" : "mode", cli_gpc_text(r));
	} else if ((st.st_mode & 0777) != d->cfg.mode ||
		   (d->cfg.gid && (d->cfg.mode & 060) && st.st_gid != dress_group(d->cfg.gid))) {
		say(LOG_WARNING,
		    "%s: --%s: its files have mode %03o and group %u, and user %u, who owns them, can change that "
		    "(gpc-inspect set): it is joined as it is",
		    d->name, d->cfg.gid ? "group" : "mode", st.st_mode & 0777, (unsigned)st.st_gid,
		    (unsigned)st.st_uid);
	}
}

static int join(struct daemon *d, const struct gpc_attach_options *opt, gpc **ret)
{
	struct patience p = patience_for("a daemon", 0);
	int r = gpc_attach(d->name, opt, 0, ret), status = 0;

	if (r < 0 && is_to_come(d, r)) {
		__atomic_store_n(&d->outside, true, __ATOMIC_RELAXED); /* health.c reads it */
		status = answer_scrapes(d);
		if (status)
			return status;
		while (r < 0 && goes_on_waiting(d, &p, r))
			r = gpc_attach(d->name, opt, 0, ret);
		d->waited = true;
	}
	if (r < 0)
		return opened(d, r);
	if (d->waited)
		status = tiers_prepare(d);
	if (!status)
		status = tiers_fit(d, *ret);
	if (status) {
		gpc_close(*ret);
		*ret = NULL;
	} else if (!d->waits) {
		dress_joined(d, *ret, opt);
	}
	return status;
}

static int make_or_join(struct daemon *d, const struct gpc_attach_options *opt, gpc **ret)
{
	int status = d->create && d->memory.block_bytes ? answer_scrapes(d) : 0;

	if (status)
		return status;
	return d->create ? opened(d, make_or_attach(d, opt, ret)) : join(d, opt, ret);
}

int serve_open(struct daemon *d, gpc **ret)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt),
		.dir = d->dir[0] ? d->dir : NULL,
		.label = d->waits ? "gpcd standby" : "gpcd",
		.timeout_ms = d->waits ? SEAT_MS : 0,
		.log = say_library,
		.log_arg = d,
	};
	int r;

	memcpy(opt.layout, d->cfg.layout, sizeof(opt.layout));
	d->cfg.dir = opt.dir;
	d->cfg.devices = d->devices[0] ? d->devices : NULL;
	set_memory(d);
	r = tiers_prepare(d);
	if (r)
		return r;
	r = make_or_join(d, &opt, ret);
	if (r)
		return r;
	__atomic_store_n(&d->opened, true, __ATOMIC_RELAXED);
	/* drawn: the cache has gone meanwhile, and this process makes it */
	return d->key == KEY_DRAWN ? key_make(d) : key_dress(d);
}

/* A stopped writer serves nobody, so --standby would wait for ever. */
static int seat_taken(const struct daemon *d, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };
	bool known = gpc_info_get(c, &info) >= 0;

	if (known && info.writer_peer >= 0 && gpc_stats_get(c, info.writer_peer, &st) >= 0 &&
	    cli_stopped(&st) == 1)
		say(LOG_ERR,
		    "%s has a writer already (process %d), which is stopped: kill -CONT %d lets it "
		    "go on; --standby waits until it ends",
		    d->name, info.writer_pid, info.writer_pid);
	else
		say(LOG_ERR, "%s has a writer already (process %d); --standby waits until it ends",
		    d->name, known ? info.writer_pid : 0);
	return EXIT_SEAT_TAKEN;
}

int serve_find_writer(struct daemon *d)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .label = "gpcd",
					  .dir = d->dir[0] ? d->dir : NULL };
	struct gpc_info info = { .size = sizeof(info) };
	int status = 0;
	gpc *c;

	if (gpc_attach(d->name, &opt, 0, &c) < 0)
		return 0;
	if (gpc_info_get(c, &info) >= 0 && info.writer_pid)
		status = seat_taken(d, c);
	gpc_close(c);
	return status;
}

bool serve_has_engine(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };

	return gpc_info_get(c, &info) >= 0 && info.writer_pid && info.writer_peer >= 0 &&
	       gpc_stats_get(c, info.writer_peer, &st) >= 0 && strncmp(st.label, "gpcd", 4) != 0;
}

/* An engine serves the cache that it has made.  gpcd becomes a standby without being told, and
 * keeps the tiers. */
static void say_joined(const struct daemon *d, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };
	char label[64];

	if (d->quiet || gpc_info_get(c, &info) < 0 || info.writer_peer < 0 ||
	    gpc_stats_get(c, info.writer_peer, &st) < 0)
		return;
	shown_text(label, sizeof(label), st.label);
	say(LOG_INFO,
	    "%s: joined: process %d%s%s%s is the writer, and this one takes over when it ends",
	    d->name, info.writer_pid, label[0] ? " (" : "", label, label[0] ? ")" : "");
}

/* There is a writer, so this waits for its end.  A label is given at the attach, and until now
 * nobody could know which one applies; so it attaches once more. */
static int stand_by(struct daemon *d, gpc **c, int *ret_taken)
{
	int status, r;

	gpc_close(*c);
	*c = NULL;
	d->waits = true;
	status = serve_open(d, c);
	if (!status && serve_has_engine(*c)) {
		say_joined(d, *c);
		status = tiers_join(d, *c);
	}
	if (!status)
		status = process_ready(d, "standing by for the writer's seat");
	if (status)
		return status;
	do {
		turn(d);
		say_level_of(d, *c);
		manager_alive();
		state_tell(d, *c, "standing by");
		reload_look(d, *c);
		tiers_look(d, *c);
		r = gpc_writer_take(*c, GPC_STANDBY, manager_turn(TURN_MS));
	} while (!process_stopping && !name_is_lost(d) &&
		 (r == -ETIMEDOUT || r == -EAGAIN || r == -EINTR));
	*ret_taken = r;
	if (process_stopping || name_is_ours(d))
		return 0;
	say(LOG_ERR, "%s: the cache has lost its name, so there is nothing to stand by for",
	    d->name);
	return EXIT_RUNTIME;
}

/* The name is there a moment before its maker has the seat.  A process that has waited for the
 * name would often be first, and the engine would not serve its own cache. */
static void let_maker_go_first(struct daemon *d, gpc *c)
{
	uint64_t until = cli_now_ns() + MAKER_MS * UINT64_C(1000000);
	struct gpc_info info = { .size = sizeof(info) };

	while (!process_stopping && cli_now_ns() < until && gpc_info_get(c, &info) >= 0 &&
	       !info.writer_pid)
		patience_pause(STEP_MS);
}

int serve_take_seat(struct daemon *d, gpc **c)
{
	int r, status;

	if (d->waited)
		let_maker_go_first(d, *c);
	r = gpc_writer_take(*c, 0, 0);
	if (r == -EAGAIN && (d->standby || serve_has_engine(*c))) {
		status = stand_by(d, c, &r);
		if (status || (process_stopping && r < 0))
			return status;
	}
	if (r == -EAGAIN)
		return seat_taken(d, *c);
	if (r < 0)
		say(LOG_ERR, "%s: cannot take the writer's seat: %s", d->name, cli_gpc_text(r));
	__atomic_store_n(&d->served, r >= 0, __ATOMIC_RELAXED); /* the thread of http.c reads it */
	return r < 0 ? EXIT_RUNTIME : 0;
}

/* Attached processes are served to the end; no other process can come any more. */
static bool is_deserted(struct daemon *d, gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	bool told = d->nameless;

	if (!name_is_lost(d) || gpc_info_get(c, &info) < 0)
		return false;
	if (info.peers <= 1) {
		say(LOG_ERR,
		    "%s: the cache has lost its name and nobody else is attached: "
		    "it is gone",
		    d->name);
		return true;
	}
	if (!told)
		say(LOG_WARNING,
		    "%s: the cache has lost its name: served until the last "
		    "attached process is gone",
		    d->name);
	return false;
}

static int serve_until_end(struct daemon *d, gpc *c)
{
	char status[64];
	int r;

	r = tiers_start(d, c);
	if (r)
		return r;
	snprintf(status, sizeof(status), "serving as process %d", (int)getpid());
	if (process_ready(d, status)) {
		tiers_stop(d, c);
		return EXIT_RUNTIME;
	}
	process_served = c;
	__atomic_store_n(&d->serving, true, __ATOMIC_RELAXED); /* the thread of health.c reads it */
	while (!process_stopping) {
		turn(d);
		say_level_of(d, c);
		say_slow(d, c);
		manager_alive();
		state_tell(d, c, "serving");
		reload_look(d, c);
		tiers_look(d, c);
		r = gpc_writer_serve(c, manager_turn(tiers_wait(d) ? TURN_MS : SERVE_MS));
		if (r < 0 && r != -EINTR && r != -ETIMEDOUT && r != -EAGAIN) {
			say(LOG_ERR, "%s: cannot go on serving: %s", d->name, cli_gpc_text(r));
			break;
		}
		if (is_deserted(d, c))
			break;
	}
	process_served = NULL;
	__atomic_store_n(&d->serving, false, __ATOMIC_RELAXED);
	tiers_stop(d, c);
	return process_stopping ? 0 : EXIT_RUNTIME;
}

/* Only the process that has the seat publishes events, so two never do. */
int serve_run(struct daemon *d, gpc *c)
{
	struct events *events = NULL;
	int status = d->events ? events_start(d, c, &events) : 0;

	if (!status)
		status = serve_until_end(d, c);
	events_stop(events);
	return status;
}

int serve_remove(struct daemon *d)
{
	int r = gpc_unlink(d->name, d->cfg.dir);

	if (r >= 0 || r == -ENOENT)
		return 0;
	say(LOG_ERR, "%s: cannot remove it: %s", d->name, cli_gpc_text(r));
	return EXIT_RUNTIME;
}
