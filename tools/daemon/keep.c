/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper: a process that owns a pool of VRAM, may spill its blocks ahead, and does nothing
 * else.
 *
 * Memory of a GPU goes with the process that allocated it.  Workers restart and writers are
 * replaced, and neither should take the blocks along.  So a process that has no other work and no
 * writer's seat owns them.  When it ends, its pool goes in one step, as any owner's pool does.
 * The next keeper allocates when all processes have let go of the old memory.
 * Tests: t/daemon/keep.t t/daemon/keeper-waits.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	CACHE_MS = 10000, /* for the cache and a seat to appear */
	MAKE_MS = 30000,  /* for a writer, and for the old memory to be let go */
	STEP_MS = 100,    /* a part of these times, after which it looks for a signal */
	LOOK_MS = 1000,   /* between two looks at the pool */
};

/* Puts the pieces at equal distances, as an engine does that has one tensor for each layer: piece
 * j of all slots, then piece j + 1. */
static void lay_out(const struct daemon *d, struct gpc_run *run)
{
	uint64_t piece = d->memory.block_bytes / d->pieces;

	*run = (struct gpc_run){ .count = d->pieces,
				 .bytes = piece,
				 .slot_stride = piece,
				 .run_stride = piece * d->cfg.vram_blocks };
}

/* ---- waits for whatever a keeper needs ----
 *
 *   it lacks              the library says      it waits     and logs that
 *   --------------------  --------------------  -----------  ----------------------------------
 *   the cache             -ENOENT               CACHE_MS     at once
 *   a free seat there     -EUSERS               the same     at once
 *   a writer              -ENOTCONN             MAKE_MS      at once
 *   an answer of it       -ETIMEDOUT            the same     after the first part
 *   the old memory        -ETIMEDOUT            the same     after the first part: who has it
 *   anything else         another error         not at all
 *
 * A signal ends each wait after its current part, with the status of a keeper that was ended. */
static const char *text_of(int err)
{
	return err == -ENOTCONN ? "no process is the writer: start gpcd" : cli_gpc_text(err);
}

/* The remedy, which stands after that text. */
static const char *remedy_of(int err)
{
	const char *text = text_of(err);

	if (err == -ENOENT && strncmp(text, "there is no cache", 17) == 0)
		return "; a gpcd with --block-size and without --keep makes one";
	if (err == -ENOSPC && strstr(text, "max_blocks"))
		return "; ask for less, or make the cache anew with a larger --max-blocks";
	return "";
}

/* True means: try again. */
static bool waits(const struct daemon *d, struct patience *p, int err)
{
	return patience_lasts(d, p, err, text_of(err), remedy_of(err),
			      err == -ETIMEDOUT ? 0 : STEP_MS);
}

/* The pool that an earlier try has asked for, if the answer came too late for that try. */
static int find_own(gpc *c, const struct gpc_info *info, struct gpc_pool *ret)
{
	int i;

	for (i = 0; i < (int)info->max_pools; i++) {
		*ret = (struct gpc_pool){ .size = sizeof(*ret) };
		if (gpc_pool_get(c, i, ret) >= 0 && ret->owner == info->peer)
			return i;
	}
	return -ENOENT;
}

/* One try.  Memory is made only while there is a writer, which can say that it is a pool.  A pool
 * that an earlier try has asked for is found first, so there are never two. */
static int try_make(gpc *c, const struct gpc_pool *want, const struct gpc_memory *m,
		    struct gpc_pool *p)
{
	struct gpc_info info = { .size = sizeof(info) };
	int r = gpc_ticket_wait(c, GPC_TICKET_ALL, STEP_MS);

	if (r < 0 || (r = gpc_info_get(c, &info)) < 0 || (r = find_own(c, &info, p)) >= 0)
		return r;
	if (!info.writer_pid)
		return -ENOTCONN;
	*p = *want;
	return gpc_pool_make(c, p, m, STEP_MS);
}

static int keep_make(const struct daemon *d, gpc *c, struct gpc_pool *p)
{
	struct gpc_run run;
	struct gpc_memory m = { .size = sizeof(m),
				.nruns = 1,
				.runs = &run,
				.block_bytes = d->memory.block_bytes,
				.device = d->devices };
	struct gpc_pool want;
	struct patience patience = patience_for("a keeper", MAKE_MS);
	int r;

	lay_out(d, &run);
	want = (struct gpc_pool){ .size = sizeof(want),
				  .kind = GPC_VRAM,
				  .flags = GPC_POOL_OWNED,
				  .space = d->space,
				  .blocks = d->cfg.vram_blocks,
				  .demote_to = d->demote_to,
				  .spill_ahead = d->spill_ahead };
	memcpy(m.fingerprint, d->cfg.layout, sizeof(m.fingerprint));
	do
		r = try_make(c, &want, &m, p);
	while ((r == -ENOTCONN || r == -ETIMEDOUT) && waits(d, &patience, r));
	if (r < 0 && process_stopping)
		return 0;
	if (r < 0)
		say(LOG_ERR, "%s: cannot make a pool on %s: %s%s", d->name, d->devices, text_of(r),
		    remedy_of(r));
	return r < 0 ? EXIT_RUNTIME : 0;
}

/* The pool may have been removed, and another pool may have its number. */
static bool is_there(const struct daemon *d, gpc *c, const struct gpc_pool *p)
{
	struct gpc_pool now = { .size = sizeof(now) };
	int r = gpc_pool_get(c, p->number, &now);

	if (r >= 0 && now.memory == p->memory)
		return true;
	say(LOG_ERR, "%s: pool %d was removed: its memory goes with this process", d->name,
	    p->number);
	return false;
}

/* Waits until the next look is due or a signal comes. */
static void spend_time(const struct daemon *d, gpc *c, struct ahead *ahead)
{
	uint64_t end = cli_now_ns() + (uint64_t)manager_turn(LOOK_MS) * UINT64_C(1000000);

	if (!d->spill_ahead) {
		patience_pause(manager_turn(LOOK_MS));
		return;
	}
	while (!process_stopping && cli_now_ns() < end)
		patience_pause(ahead_step(ahead, d, c));
}

static int keep_run(struct daemon *d, gpc *c, const struct gpc_pool *p)
{
	struct ahead ahead = { .pool = p->number };
	char status[128];

	snprintf(status, sizeof(status), "keeping pool %d, %u blocks of %llu bytes on %s",
		 p->number, p->blocks, (unsigned long long)d->memory.block_bytes, d->devices);
	if (process_ready(d, status))
		return EXIT_RUNTIME;
	while (!process_stopping) {
		manager_alive();
		spend_time(d, c, &ahead);
		reload_look(d, c);
		state_tell(d, c, "keeping a pool");
		if (process_stopping)
			break;
		if (!is_there(d, c, p))
			return EXIT_RUNTIME;
		if (name_is_lost(d)) {
			say(LOG_ERR,
			    "%s: the cache has lost its name, so nobody can come to the "
			    "pool",
			    d->name);
			return EXIT_RUNTIME;
		}
	}
	return 0;
}

static int keep_attach(const struct daemon *d, const struct gpc_attach_options *opt, gpc **ret)
{
	struct patience patience = patience_for("a keeper", CACHE_MS);
	int r;

	do
		r = gpc_attach(d->name, opt, 0, ret);
	while ((r == -ENOENT || r == -EUSERS) && waits(d, &patience, r));
	if (r < 0 && process_stopping)
		return 0;
	if (r < 0)
		say(LOG_ERR, "%s: %s%s", d->name, cli_gpc_text(r), remedy_of(r));
	return r < 0 ? EXIT_RUNTIME : 0;
}

int keep(struct daemon *d)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt),
		.dir = d->dir[0] ? d->dir : NULL,
		.label = "gpcd keep",
		.log = say_library,
		.log_arg = d,
	};
	struct gpc_pool pool;
	gpc *c = NULL;
	bool keeps;
	int status = d->pidfile[0] ? process_take_pidfile(d) : 0;

	if (status == EXIT_PIDFILE_TAKEN)
		return process_pidfile_taken(d);
	if (status)
		return status;
	memcpy(opt.layout, d->cfg.layout, sizeof(opt.layout));
	status = keep_attach(d, &opt, &c);
	if (!status && !process_stopping)
		status = keep_make(d, c, &pool);
	keeps = !status && !process_stopping;
	if (keeps)
		status = keep_run(d, c, &pool);
	say_notify("STOPPING=1\nSTATUS=leaving");
	gpc_close(c);
	process_remove_pidfile(d);
	if (!d->quiet && !status)
		say(LOG_INFO, "%s: ended by %s%s", d->name, process_end(),
		    keeps ? ", its pool goes" : "");
	return status;
}
