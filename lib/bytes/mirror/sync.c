/* SPDX-License-Identifier: Apache-2.0 */
/* sync.c - waits until the mirrors show all acknowledged changes.
 *
 * The writer flushes by itself.  The call only watches the number of changes in each mirror's
 * descriptor.  It asks no device, so it works in processes that have none.
 * Tests: t/bytes/mirror-step.t */
#include "config.h"

#include <errno.h>
#include "index/segment/descriptor.h"
#include "index/peer/handle.h"
#include "index/segment/lockfile.h"

#define SPIN_NS        (40 * NS_PER_MS / 1000) /* about as long as a flush to a GPU takes */
#define WRITER_TEST_NS (100 * NS_PER_MS)

/* The number of changes that the slowest live mirror shows; `all` without mirrors. */
static uint64_t least_flushed(const struct segment *s, uint64_t all)
{
	uint64_t least = all;
	struct shm_mirror m;
	uint32_t i;

	/* pairs with (V) of mirror.c: changes that `flushed` counts are in the mirror */
	for (i = 0; i < SHM_MIRRORS; i++)
		if (descriptor_read(s, i, &m) && m.state == MIRROR_READY)
			least = MIN(least, m.flushed);
	return least;
}

/* Is there a process that will flush?  A handle that serves becomes the writer by itself. */
static int check_writer(const gpc *c, uint64_t *next_ns)
{
	if (clock_ns() < *next_ns)
		return 0;
	*next_ns = clock_ns() + WRITER_TEST_NS;
	if (c->flags & GPC_SERVE || segment_writer_alive(&c->seg))
		return 0;
	return err_set(ENOTCONN, "no process is the writer of %s: its mirrors stay as they are",
		       c->seg.name);
}

static int wait_for_flush(gpc *c, uint64_t want, int timeout_ms, uint64_t deadline)
{
	uint64_t next_test = 0, spin_until = clock_ns() + SPIN_NS;
	struct backoff pause = { .ns = 50000, .most = NS_PER_MS };
	int err = 0;

	while (!err && least_flushed(&c->seg, want) < want) {
		err = check_writer(c, &next_test);
		if (err || wait_over(clock_ns(), deadline))
			break;
		err = MIN(handle_help(c, 0), 0); /* no other process would flush */
		if (clock_ns() < spin_until) {
			order_pause();
			continue;
		}
		backoff_sleep(&pause);
	}
	if (err || least_flushed(&c->seg, want) >= want)
		return err;
	return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "not all mirrors show change %llu yet",
		       (unsigned long long)want);
}

GPC_EXPORT int gpc_mirror_sync(gpc *c, gpc_ticket t, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = handle_check(c, true);

	if (!err)
		err = err_timeout(timeout_ms);
	if (err)
		return err;
	err = gpc_ticket_wait(c, t, timeout_ms);
	if (err)
		return err;
	/* acknowledged changes were stored and counted before their answer */
	return wait_for_flush(c, load_acquire(&seg_state(&c->seg)->changes), timeout_ms, deadline);
}
