/* SPDX-License-Identifier: Apache-2.0 */
/* waits.h - every call that waits is given some time, and takes as long: under signals, and
 * whatever the time of day is. */
#ifndef GPC_T_WAITS_H
#define GPC_T_WAITS_H

#include "crew.h"

#include "bytes/device/device.h"
#include "gpc_device.h"

#define TIME         60   /* milliseconds that a wait is given */
#define LATE         3000 /* how late it may end on a busy machine */
#define WAITS_BLOCKS 8

enum { GATE_MADE, GATE_IN, GATE_OUT, GATE_STOP, GATE_END, WAITS_GATES };
enum { N_SLOW = 1, N_IS_SLOW };

static void (*waits_disturb)(void); /* in each member */

static uint64_t waits_from_ns;

static inline bool waits_begin(void)
{
	waits_from_ns = clock_ns();
	return true;
}

static inline void lasted(const char *what, int r, int want, uint64_t ms)
{
	uint64_t took = (clock_ns() - waits_from_ns) / NS_PER_MS;

	need(r == want, "%s: %d instead of %d, %s", what, r, want, gpc_last_error());
	need(took >= ms && is_soon(waits_from_ns, ms + LATE), "%s of %d ms took %d ms", what,
	     (int)ms, (int)took);
}

#define lasts(call, want) (waits_begin(), lasted(#call, (call), (want), TIME))

static inline int slow_writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = WAITS_BLOCKS,
				  .max_blocks = 2 * WAITS_BLOCKS,
				  .max_peers = 3,
				  .free_target = -1,
				  .devices = "host" };
	gpc *c = crew_create(cfg, 0);

	waits_disturb();
	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	while (crew_goes_on(GATE_END, 1)) {
		store_relaxed(&device_host_flush_delay_us, (uint32_t)crew->count[N_SLOW]);
		crew->count[N_IS_SLOW] = crew->count[N_SLOW];
		need(gpc_writer_serve(c, 5) >= 0, "serve: %s", gpc_last_error());
	}
	gpc_close(c);
	return me;
}

/* Keeps a section open, and a reference. */
static inline int reader(int me)
{
	gpc *c = crew_attach("reader");
	gpc_key k = crew_key(1);
	gpc_block b;
	int section;

	waits_disturb();
	crew_wait(GATE_IN, 1);
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), 1);
	section = gpc_section_enter(c);
	crew_open(GATE_STOP);
	crew_wait(GATE_OUT, 1);
	gpc_section_leave(c, section);
	must_be(gpc_release(c, &b, 1), 0);
	gpc_close(c);
	return me;
}

/* Without a writer's answer: it is stopped meanwhile. */
static inline void unanswered(gpc *c, pid_t writer, gpc_block spare)
{
	gpc_key k = crew_key(50);
	gpc_block b[2];
	gpc_ticket t;

	stop_process(writer);
	must_be(gpc_publish(c, NULL, &k, &spare, 1, GPC_OPTIONS(gpc_publish_options, .ticket = &t),
			    0, 0),
		0);
	lasts(gpc_ticket_wait(c, t, TIME), -ETIMEDOUT);
	lasts(gpc_mirror_sync(c, t, TIME), -ETIMEDOUT);
	lasts(gpc_reserve(c, 0, 1, b, NULL, 0, TIME), -ETIMEDOUT);
	lasts(gpc_evict(c, 0, 1, b, 0, TIME), -ETIMEDOUT);
	kill(writer, SIGCONT);
	crew_open(GATE_OUT); /* evictions before it wait for that section */
	must_be(gpc_ticket_wait(c, t, -1), 0);
}

/* Its flush takes a second; what calls that gave up were given comes back first. */
static inline void wait_for_mirror(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc_key k = crew_key(100);
	gpc_block b;

	crew_until(gpc_reserve(c, 0, 1, &b, NULL, 0, -1) == 1, crew_breath());
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, -1), 0);
	crew->count[N_SLOW] = 1000000;
	crew_until(crew->count[N_IS_SLOW], crew_breath());
	must_be(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), 1);
	must_be(gpc_info_get(c, &info), 0);
	if (info.mirrors) /* else a busy machine was too slow for it before */
		lasts(gpc_mirror_sync(c, GPC_TICKET_ALL, TIME), -ETIMEDOUT);
	crew->count[N_SLOW] = 0;
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, -1), 0);
}

static inline int patient(int me)
{
	struct gpc_attach_options o = { .size = sizeof(o), .dir = scratch, .timeout_ms = TIME };
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_VRAM, .blocks = 2, .space = 1, .demote_to = -1
	};
	struct gpc_info info = { .size = sizeof(info) };
	gpc *c, *d = NULL;
	gpc_block b[WAITS_BLOCKS], x[WAITS_BLOCKS];
	gpc_key k[WAITS_BLOCKS];
	gpc_dev *dev;
	int i, pool;

	crew_wait(GATE_MADE, 1);
	waits_disturb();
	lasts(gpc_attach("nobody", &o, 0, &d), -ENOENT);
	c = crew_attach("patient");
	crew_until(gpc_info_get(c, &info) == 0 && info.peers == 3, crew_breath());
	lasts(gpc_attach(CREW_NAME, &o, 0, &d), -EUSERS);
	must_be(gpc_reserve(c, 0, WAITS_BLOCKS, b, NULL, 0, -1), WAITS_BLOCKS);
	for (i = 0; i < WAITS_BLOCKS; i++)
		k[i] = crew_key((uint64_t)i + 1);
	must_be(gpc_publish(c, NULL, k, b, WAITS_BLOCKS - 1, NULL, 0, -1), WAITS_BLOCKS - 1);
	must_be(gpc_release(c, b, WAITS_BLOCKS - 1), 0);
	must_be(gpc_dev_open(c, "host", &dev), 0);
	crew_open(GATE_IN);
	crew_wait(GATE_STOP, 1);
	lasts(gpc_writer_take(c, GPC_STANDBY, TIME), -ETIMEDOUT);
	lasts(gpc_evict(c, 0, 1, x, 0, TIME), -ETIMEDOUT);
	lasts(gpc_reserve(c, 0, WAITS_BLOCKS - 3, x, NULL, 0, TIME), -ETIMEDOUT);
	unanswered(c, info.writer_pid, b[WAITS_BLOCKS - 1]);
	need((pool = gpc_pool_make(c, &p, NULL, -1)) > 0, "pool: %s", gpc_last_error());
	must_be(gpc_reserve(c, pool, 1, x, NULL, 0, -1), 1);
	lasts(gpc_pool_clear(c, pool, 0, GPC_REMOVE, TIME), -ETIMEDOUT);
	wait_for_mirror(c);
	must_be(gpc_dev_wait(dev, NULL, -1), 0);
	must_be(gpc_dev_close(dev), 0);
	crew_check(c);
	gpc_close(c);
	crew_open(GATE_END);
	return me;
}

TAP_FN void waits_test(void)
{
	pid_t w, r, p;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	w = crew_fork(slow_writer, 0);
	crew_wait(GATE_MADE, 1);
	r = crew_fork(reader, 0);
	p = crew_fork(patient, 0);
	crew_join(p, "a peer whose waits are as long as they should be");
	kill(w, SIGCONT); /* if it failed while the writer was stopped */
	crew_join(r, "a reader");
	crew_join(w, "the writer");
}

#endif
