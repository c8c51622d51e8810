/* SPDX-License-Identifier: Apache-2.0 */
/* gpcd - the writer of one cache, as a daemon.
 *
 * It makes the cache or attaches to it, if need be after a wait.  It takes the writer's seat, and
 * serves until SIGTERM or SIGINT.  The cache stays when gpcd goes, unless --unlink says otherwise;
 * a standby or the next gpcd goes on with it.  "Ready" means that gpcd serves or, as a standby,
 * waits for the seat.  With --keep it owns a pool of VRAM instead, and serves nobody.
 * Tests: t/daemon/life.t t/daemon/fails.t t/daemon/joins.t t/daemon/roles.t */
#include "config.h"

#include "tools/daemon/daemon.h"

/* 0, or the exit status.  A gpcd that is started twice hears of the writer first. */
static int start(struct daemon *d, gpc **c)
{
	int status = d->pidfile[0] ? process_take_pidfile(d) : 0;

	if (status == EXIT_PIDFILE_TAKEN) {
		status = d->standby ? 0 : serve_find_writer(d);
		return status ? status : process_pidfile_taken(d);
	}
	if (!status)
		status = serve_open(d, c);
	if (status)
		process_remove_pidfile(d);
	return status;
}

static int end_early(const struct daemon *d, int status)
{
	http_stop(d->http);
	if (status != EXIT_STOPPED)
		return status;
	say_notify("STOPPING=1\nSTATUS=leaving");
	if (!d->quiet)
		say(LOG_INFO, "%s: ended by %s before it had the cache", d->name, process_end());
	return 0;
}

static int run(struct daemon *d)
{
	gpc *c = NULL;
	int status = start(d, &c);
	bool ours, gone;

	if (status)
		return end_early(d, status);
	/* a process that has waited, or made memory, has it already */
	status = d->http ? 0 : http_start(d, &d->http);
	if (!status)
		status = serve_take_seat(d, &c);
	if (!status && !process_stopping)
		status = serve_run(d, c);
	http_stop(d->http);
	tiers_stop(d, c);
	say_notify("STOPPING=1\nSTATUS=leaving");
	ours = c && name_is_ours(d);
	gpc_close(c); /* gives up the writer's seat, too */
	/* a standby that never served leaves the cache to its writer; the name may stand for
	 * another cache by now */
	gone = d->unlink_at_end && d->served && ours && !status;
	if (gone)
		status = serve_remove(d);
	/* before readiness no process was told of a new cache; a process that serves it knows
	 * it */
	if (status && status != EXIT_SEAT_TAKEN && d->made && !d->ready && ours)
		serve_remove(d);
	process_remove_pidfile(d);
	if (!d->quiet && !status)
		say(LOG_INFO, "%s: ended by %s, the cache %s", d->name, process_end(),
		    gone   ? "is removed"
		    : ours ? "stays"
			   : "has lost its name and goes with its last user");
	return status == EXIT_STOPPED ? 0 : status;
}

int main(int argc, char **argv)
{
	static struct daemon d;
	int status;

	cli_init("gpcd");
	options_begin(&d);
	status = options_parse(&d, argc, argv);
	if (status < 0 && d.background)
		status = process_detach(&d);
	if (status >= 0)
		return status;
	process_raise_descriptors();
	process_catch_signals();
	manager_start();
	say_level(&d);
	if (d.unused[0] && !d.quiet)
		say(LOG_INFO,
		    "%s: there is no --block-size, so it makes no cache, and these keys of its file count for nothing: %s",
		    d.name, d.unused);
	if (d.cfg.gid && !(d.cfg.mode & 0060))
		say(LOG_WARNING, "%s: --group counts for nothing: --mode %03o lets no group in",
		    d.name, d.cfg.mode);
	return d.keep ? keep(&d) : run(&d);
}
