/* SPDX-License-Identifier: Apache-2.0 */
/* attach.c - making a cache, attaching to it, leaving it.
 * Tests: t/index/read-only.t t/bytes/create-fails.t t/bytes/hostile-files.t t/bytes/names.t
 *   t/bytes/dead-seats.t t/bytes/sentences.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "index/base/parallel.h"
#include "index/request/stock.h"
#include "index/segment/lockfile.h"
#include "index/segment/settings.h"
#include "index/peer/companion.h"
#include "index/peer/seat.h"
#include "index/segment/files.h"
#include "index/segment/hooks.h"
#include "index/door/serve.h"

#define LOOK_NS (5 * NS_PER_MS)  /* the time between looks for a name or a seat */
#define DEAD_NS (20 * NS_PER_MS) /* the time between looks for dead peers in seats */
/* CPUs for a peer, the writer and the program's own work */
#define SPARE_CPUS  4
#define PATIENCE_NS (1000 * NS_PER_MS) /* the wait for a writer that has dead seats to clear */
/* the wait for commands that were submitted without waiting */
#define LAST_WORDS_NS (1000 * NS_PER_MS)

/* ---- the handle ---- */

static gpc *handle_new(const struct gpc_attach_options *opt, uint32_t flags)
{
	gpc *c = calloc(1, sizeof(*c));

	if (!c) {
		err_set(ENOMEM, "no memory for a handle");
		return NULL;
	}
	c->flags = flags;
	c->spare_cpus = parallel_size() >= SPARE_CPUS;
	c->peer = SHM_NO_PEER;
	c->ops_end = &c->ops;
	c->seg.index_fd = c->seg.control_fd = c->seg.lock_fd = -1;
	pthread_mutex_init(&c->device_sections, NULL);
	pthread_mutex_init(&c->ring_lock, NULL);
	pthread_mutex_init(&c->pool_lock, NULL);
	pthread_mutex_init(&c->once_lock, NULL);
	pthread_mutex_init(&c->ask_lock, NULL);
	pthread_mutex_init(&c->returns_lock, NULL);
	pthread_mutex_init(&c->serve_lock, NULL);
	pthread_mutex_init(&c->serve_gate, NULL);
	pthread_mutex_init(&c->walk_lock, NULL);
	pthread_mutex_init(&c->dev_lock, NULL);
	log_init(&c->log, opt ? opt->log : NULL, opt ? opt->log_arg : NULL);
	return c;
}

static void stock_free(gpc *c)
{
	uint32_t i;

	for (i = 0; c->stock && i < c->seg.header.geometry.max_pools; i++)
		free(c->stock[i].blocks);
	free(c->stock);
}

static int stock_new(gpc *c, uint32_t want)
{
	uint32_t i;

	if (c->quota) /* the program's own quota comes first */
		want = MIN(want, c->quota / 2);
	if (!want)
		return 0;
	c->stock = calloc(c->seg.header.geometry.max_pools, sizeof(*c->stock));
	for (i = 0; c->stock && i < c->seg.header.geometry.max_pools; i++) {
		c->stock[i].want = want;
		c->stock[i].blocks = calloc(want, sizeof(gpc_block));
		if (!c->stock[i].blocks)
			return err_set(ENOMEM, "no memory for a stock of %u blocks", want);
	}
	return c->stock ? 0 : err_set(ENOMEM, "no memory for a stock of %u blocks", want);
}

/* Free all private memory; the callers deal with the segment and the seat. */
static void handle_free(gpc *c)
{
	stock_free(c);
	ring_free(c);
	returns_free(c);
	hooks.handle_free(c);
	free(c);
}

/* ---- attaching ---- */

static int no_seat(const gpc *c, uint32_t dead)
{
	uint32_t all = c->seg.header.geometry.max_peers, kept = 0, i;

	for (i = 0; i < all; i++)
		kept += !segment_peer_alive(&c->seg, i) &&
			companion_lives(&c->seg, c->seg.lock_fd, i);
	if (kept)
		return err_set(
			EUSERS,
			"all %u seats of %s are taken, %u of them by leaders that have ended and "
			"whose companions go on",
			all, c->seg.name, kept);
	if (!dead)
		return err_set(EUSERS, "all %u seats of %s are taken", all, c->seg.name);
	return err_set(EUSERS,
		       "all %u seats of %s are taken, %u of them by processes that are "
		       "gone, and its writer does not clear those",
		       all, c->seg.name, dead);
}

/* Seats of dead peers are almost free, and without a writer we clear them ourselves.  That needs a
 * whole takeover, since only a takeover knows the holds of dead processes.  It leaves the mirrors
 * alone, so no device is opened.  0.  -EAGAIN: another process has the writer's seat, or something
 * prevents a takeover. */
static int clear_seats(gpc *c, uint32_t *ret_dead)
{
	*ret_dead = seat_count_dead(c);
	return *ret_dead ? serve_reap(c) : 0;
}

/* Wait until the deadline.  Wait at least a little if seats are passing from one peer to another,
 * or if another process has to clear seats of dead peers. */
static int wait_for_seat(gpc *c, const struct gpc_attach_options *opt, uint64_t deadline)
{
	uint64_t quarantine = MIN(c->seg.header.quarantine_ms * NS_PER_MS, PATIENCE_NS);
	uint64_t now = clock_ns(), look = now;
	uint64_t patience = MAX(deadline, now + PATIENCE_NS + quarantine);
	const char *label = opt ? opt->label : NULL;
	uint32_t quota = opt ? opt->quota : 0, dead = 0;
	int err;

	while ((err = seat_take(c, label, quota)) == -EUSERS) {
		if (now >= look) {
			err = clear_seats(c, &dead);
			if (err < 0 && err != -EAGAIN)
				return err;
			if (err == 0 && dead && seat_take(c, label, quota) == 0)
				return 0;
			look = clock_ns() + DEAD_NS;
		}
		if (wait_over(now, patience))
			return no_seat(c, seat_count_dead(c));
		if (now >= deadline && seat_all_living(c))
			return no_seat(c, 0);
		clock_sleep(LOOK_NS);
		now = clock_ns();
	}
	return err;
}

/* The smaller of the program's own quota and the cache's. */
static uint32_t quota_of(const gpc *c, const struct gpc_attach_options *opt)
{
	uint32_t own = opt ? opt->quota : 0;
	uint32_t all = (uint32_t)setting_of(&c->seg, GPC_SET_QUOTA, c->seg.header.peer_quota);

	return all && (!own || own > all) ? all : own;
}

static int leader_of(gpc *c, const struct gpc_attach_options *opt)
{
	if (!opt || !opt->leader)
		return 0;
	c->leader = (uint32_t)opt->leader;
	c->leader_life = opt->life;
	return err_range("leader", c->leader, 1, c->seg.header.geometry.max_peers);
}

static int sit(gpc *c, const struct gpc_attach_options *opt, uint64_t deadline)
{
	int err;

	memcpy(c->secret.k, c->seg.header.secret, sizeof(c->secret.k));
	key_masks(&c->secret, c->mask);
	if (c->readonly)
		return 0;
	c->quota = quota_of(c, opt);
	err = leader_of(c, opt);
	if (err < 0)
		return err;
	err = stock_new(c, opt ? opt->stock : 0);
	if (err == 0)
		err = hooks.handle_open(c);
	if (err == 0)
		err = wait_for_seat(c, opt, deadline);
	if (err == 0 && (err = hooks.handle_seated(c)) < 0)
		seat_leave(c);
	if (err == 0 && (c->flags & GPC_SERVE)) {
		err = serve_start(c);
		if (err < 0)
			seat_leave(c);
	}
	return err;
}

static int leader_check(const struct gpc_attach_options *opt, uint32_t flags)
{
	int err = 0;

	if (opt->leader < 0 || opt->leader > GPC_MAX_PEERS)
		err = err_set(EINVAL, "leader is %d: it must be 0 (none), or 1 + a seat, to %d",
			      (int)opt->leader, GPC_MAX_PEERS);
	if (err == 0 && opt->leader && !opt->life)
		err = err_set(EINVAL, "life is 0: it must be gpc_info.life of the leader");
	if (err == 0 && !opt->leader && opt->life)
		err = err_set(EINVAL, "leader is 0 and life is not: name both, or neither");
	if (err == 0 && opt->leader && (flags & GPC_READONLY))
		err = err_set(EINVAL, "flags has GPC_READONLY: a companion has a seat");
	return err;
}

static int options_check(const struct gpc_attach_options *opt, uint32_t flags, uint32_t known)
{
	int err = err_flags(flags, known);

	if (err == 0 && opt)
		err = err_known("gpc_attach_options", opt, sizeof(*opt));
	if (err == 0 && opt)
		err = err_timeout(opt->timeout_ms);
	if (err == 0 && opt)
		err = err_range("stock", opt->stock, 0, RING_PART);
	if (err == 0 && opt && opt->label)
		err = err_text("label", opt->label, strlen(opt->label));
	if (err == 0 && opt)
		err = leader_check(opt, flags);
	if (err == 0 && (flags & GPC_READONLY) && (flags & GPC_SERVE))
		err = err_set(EINVAL, "flags has GPC_READONLY and GPC_SERVE: a read-only handle "
				      "cannot serve");
	return err;
}

static int open_segment(gpc *c, const char *name, const struct gpc_attach_options *opt,
			const struct gpc_config *cfg)
{
	struct segment_want want = { .layout = opt ? opt->layout : NULL, .config = cfg };
	const char *dir = opt && opt->dir ? opt->dir : cfg ? cfg->dir : NULL;

	if (c->readonly)
		return segment_snapshot(&c->seg, name, dir);
	return segment_open(&c->seg, name, dir, &want);
}

/* The maker cannot have a handle, so the cache that it has just made is removed: nobody else asked
 * for it. */
static void unmake(const gpc *c)
{
	if (segment_is_named(&c->seg, "idx", c->seg.index_fd))
		segment_unlink(c->seg.name, c->seg.dir);
}

/* Finish a handle whose segment is open, or take everything back.  made: take back the cache as
 * well. */
static int complete(gpc *c, const struct gpc_attach_options *opt, uint64_t deadline, bool made,
		    gpc **ret)
{
	int err = fork_register(c);

	if (err == 0) {
		err = sit(c, opt, deadline);
		if (err < 0)
			fork_forget(c);
	}
	if (err < 0) {
		if (made)
			unmake(c);
		segment_close(&c->seg);
		handle_free(c);
		return err;
	}
	if (c->readonly)
		log_say(&c->log, LOG_DEBUG, "reading %s", c->seg.name);
	else
		log_say(&c->log, LOG_DEBUG, "attached to %s as peer %u", c->seg.name, c->peer);
	*ret = c;
	return 0;
}

static int pool_fits(const gpc *c, uint32_t number, uint32_t kind, uint32_t blocks,
		     const char *field)
{
	const struct shm_pool *p = seg_pool(&c->seg, number);

	if (number >= c->seg.header.geometry.max_pools || load_acquire(&p->state) != POOL_READY ||
	    p->kind != kind)
		return err_set(
			EPROTO,
			"%s exists, but has no pool %u of that kind for %s %u: ask for none" SEGMENT_OTHER,
			c->seg.name, number, field, blocks);
	if (p->blocks != blocks)
		return err_set(
			EPROTO,
			"%s exists, but with %s %u, not %u: ask for what it has" SEGMENT_OTHER,
			c->seg.name, field, p->blocks, blocks);
	return 0;
}

/* Compare space and flags of the pool of ram_blocks. */
static int ram_fits(const gpc *c, const struct gpc_config *cfg)
{
	const struct shm_pool *p = seg_pool(&c->seg, cfg->vram_blocks ? 1 : 0);

	if (cfg->ram_space && p->space != cfg->ram_space)
		return err_set(
			EPROTO,
			"%s exists, but with ram_space %u, not %u: ask for what it has" SEGMENT_OTHER,
			c->seg.name, p->space, cfg->ram_space);
	if (cfg->ram_flags & ~p->flags)
		return err_set(
			EPROTO,
			"%s exists, but its RAM pool is chained: ram_flags is 0x%x, and it has "
			"0x%x: ask for what it has" SEGMENT_OTHER,
			c->seg.name, cfg->ram_flags, p->flags);
	return 0;
}

/* Compare the fields of a configuration that the header of the cache lacks (GPC_IF_ABSENT). */
static int config_fits(const gpc *c, const struct gpc_config *cfg)
{
	int err = 0;

	if (cfg->vram_blocks)
		err = pool_fits(c, 0, GPC_VRAM, cfg->vram_blocks, "vram_blocks");
	if (err == 0 && cfg->ram_blocks)
		err = pool_fits(c, cfg->vram_blocks ? 1 : 0, GPC_RAM, cfg->ram_blocks,
				"ram_blocks");
	if (err == 0 && cfg->ram_blocks)
		err = ram_fits(c, cfg);
	if (err == 0 && cfg->ram_blocks && cfg->ram_memory)
		err = hooks.memory_fits(c, cfg);
	if (err == 0 && cfg->devices &&
	    strncmp(cfg->devices, c->seg.header.devices, sizeof(c->seg.header.devices)))
		err = err_set(
			EPROTO,
			"%s exists with devices %.63s instead of %s: ask for what it has" SEGMENT_OTHER,
			c->seg.name, c->seg.header.devices, cfg->devices);
	return err;
}

/* The cache exists: the modes of its files are changed as far as that is allowed. */
static int redress(const gpc *c, const struct gpc_config *cfg)
{
	struct stat old = { 0 }, new = { 0 };
	int changed = segment_redress(&c->seg, cfg->mode, cfg->gid, &old);

	if (changed > 0 && !fstat(c->seg.index_fd, &new))
		log_say(&c->log, LOG_INFO,
			"%s: its files have mode %03o now, and group %u; before, it was "
			"mode %03o, and group %u",
			c->seg.name, new.st_mode & 0777, (unsigned)new.st_gid, old.st_mode & 0777,
			(unsigned)old.st_gid);
	return MIN(changed, 0);
}

static int attach(const char *name, const struct gpc_attach_options *opt, uint32_t flags,
		  const struct gpc_config *cfg, gpc **ret)
{
	uint64_t deadline = deadline_from(opt ? opt->timeout_ms : 0);
	gpc *c = handle_new(opt, flags);
	int err;

	if (!c)
		return -ENOMEM;
	c->readonly = flags & GPC_READONLY;
	while ((err = open_segment(c, name, opt, cfg)) == -ENOENT &&
	       !wait_over(clock_ns(), deadline))
		clock_sleep(LOOK_NS);
	if (err == 0 && cfg) {
		err = config_fits(c, cfg);
		if (err == 0)
			err = redress(c, cfg);
		if (err < 0)
			segment_close(&c->seg);
	}
	if (err < 0) {
		handle_free(c);
		return err;
	}
	return complete(c, opt, deadline, false, ret);
}

GPC_EXPORT int gpc_attach(const char *name, const struct gpc_attach_options *opt, uint32_t flags,
			  gpc **ret)
{
	int err = options_check(opt, flags, GPC_SERVE | GPC_READONLY);

	if (err == 0 && !ret)
		err = err_set(EINVAL, "ret is NULL");
	if (err == 0)
		err = segment_name_check(name);
	/* a cache that other software made may have a name that is no text: it can only be looked
	 * at and removed */
	if (err == 0 && !(flags & GPC_READONLY))
		err = err_text("name", name, GPC_MAX_NAME);
	return err < 0 ? err : attach(name, opt, flags, NULL, ret);
}

GPC_EXPORT int gpc_create(const char *name, const struct gpc_config *cfg,
			  const struct gpc_attach_options *opt, uint32_t flags, gpc **ret)
{
	static const struct gpc_config defaults = { .size = sizeof(defaults) };
	int err = options_check(opt, flags, GPC_IF_ABSENT | GPC_SERVE);
	uint64_t deadline;
	gpc *c;

	if (err == 0 && !ret)
		err = err_set(EINVAL, "ret is NULL");
	if (err == 0 && cfg)
		err = err_known("gpc_config", cfg, sizeof(*cfg));
	if (err == 0 && opt && opt->leader)
		err = err_set(EINVAL, "leader is %d: a companion calls gpc_attach",
			      (int)opt->leader);
	if (err == 0)
		err = segment_name_check(name);
	if (err == 0)
		err = err_text("name", name, GPC_MAX_NAME);
	if (err < 0)
		return err;
	cfg = cfg ? cfg : &defaults;
	deadline = deadline_from(opt ? opt->timeout_ms : 0);
	if (cfg->devices)
		err = hooks.devices_check(cfg->devices);
	if (err < 0)
		return err;
	c = handle_new(opt, flags);
	if (!c)
		return -ENOMEM;
	/* another process may be making the cache, and takes as long as its memory does */
	while ((err = segment_create(&c->seg, name, cfg)) == -EAGAIN &&
	       !wait_over(clock_ns(), deadline))
		clock_sleep(LOOK_NS);
	if (err == 0)
		return complete(c, opt, deadline, true, ret);
	handle_free(c);
	if (err != -EEXIST || !(flags & GPC_IF_ABSENT))
		return err;
	return attach(name, opt, flags & ~(uint32_t)GPC_IF_ABSENT, cfg, ret);
}

/* ---- leaving ---- */

/* Wait for commands that were submitted without waiting; nobody reads the answers any more. */
static void finish_commands(gpc *c)
{
	ring_forget(c, 0);
	if (c->ops || c->back_n || c->back_forgotten)
		ring_wait(c, ring_last_ticket(c), clock_ns() + LAST_WORDS_NS);
}

GPC_EXPORT int gpc_close(gpc *c)
{
	if (!c)
		return 0;
	if (c->forked) { /* the descriptors and mappings are gone already */
		serve_stop(c);
		hooks.handle_forked(c);
		handle_free(c);
		return 0;
	}
	if (!c->readonly) {
		bool ended = hooks.handle_leaves(c);

		finish_commands(c);
		serve_stop(c);
		if (ended)
			seat_leave(c);
		else
			seat_forsake(c);
		serve_leave(c);
		hooks.handle_left(c); /* called while the segment is still there */
	}
	log_say(&c->log, LOG_DEBUG, "left %s", c->seg.name);
	fork_forget(c);
	segment_close(&c->seg);
	handle_free(c);
	return 0;
}

GPC_EXPORT int gpc_unlink(const char *name, const char *dir)
{
	int err = segment_name_check(name);

	return err < 0 ? err : segment_unlink(name, dir);
}
