/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - gpc_tiers_open: a peer that keeps the tiers below RAM, from its seat to its end.
 *
 *   1  a seat, and the keeper's lock
 *   2  the RAM whose images the tiers have; how large the file is to be
 *   3  a pool for each tier, of CALLER blocks; the store; then the file, which is made or resized last
 *   4  what the cache has cleared while nobody kept the file is cleared there; what is left is read
 *   5  peers may ask; threads
 *
 * Whatever fails gives back what was taken, in reverse. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "disk/disk.h"
#include "memory/maps.h"
#include "peer/refuse.h"
#include "stage/stage.h"

#define POOL_MS 10000
#define DISK_HEAD_BYTES 128u             /* beside each image, with what stands before all of them: an estimate */
#define DISK_FRONT    ((uint64_t)131072)
#define PAGE          4096u

#define FLAGS (GPC_TIERS_EXCLUSIVE | GPC_TIERS_RESIZE | GPC_TIERS_BUFFERED)
/* ---- options ---- */

static int check_options(const char *name, const struct gpc_tiers_options *opt, gpc_tiers **ret)
{
	int err;

	if (!ret || !name || !opt)
		return err_set(EINVAL, "%s is NULL", !ret ? "ret" : name ? "opt" : "name");
	err = err_size("gpc_tiers_options", opt->size, sizeof(*opt));
	if (err == 0 && opt->flags & ~FLAGS)
		err = err_set(EINVAL, "flags is 0x%x: it may have GPC_TIERS_EXCLUSIVE, GPC_TIERS_RESIZE and GPC_TIERS_BUFFERED, "
			      "and 0x%x is not among them", opt->flags, opt->flags & ~FLAGS);
	if (err == 0)
		err = err_timeout(opt->timeout_ms);
	if (err == 0 && !opt->disk && !opt->remote)
		err = err_set(EINVAL, "disk and remote are NULL: there is no tier to keep");
	if (err == 0 && opt->disk && !*opt->disk)
		err = err_set(EINVAL, "disk is empty: it must name a file");
	if (err == 0 && !opt->disk && opt->flags & GPC_TIERS_EXCLUSIVE)
		err = err_set(EINVAL, "GPC_TIERS_EXCLUSIVE is about the disk, and disk is NULL");
	if (err == 0 && opt->disk_bytes && opt->disk_blocks)
		err = err_set(EINVAL, "disk_bytes is %llu and disk_blocks %u: give one of them",
			      (unsigned long long)opt->disk_bytes, opt->disk_blocks);
	if (err == 0 && (opt->ram < 0 || opt->ram > GPC_MAX_POOLS))
		err = err_set(EINVAL, "ram is %d: it must be 0, or 1 + the number of a pool", opt->ram);
	if (err == 0)
		err = err_range("disk_blocks", opt->disk_blocks, 0, 1u << 24);
	if (err == 0)
		err = err_range("disk_space", opt->disk_space, 0, GPC_MAX_SPACES - 1);
	if (err == 0)
		err = err_range("remote_blocks", opt->remote_blocks, 0, 1u << 24);
	if (err == 0)
		err = err_range("remote_space", opt->remote_space, 0, GPC_MAX_SPACES - 1);
	if (err == 0)
		err = err_range("remote_ms", opt->remote_ms, 0, 600000);
	if (err == 0)
		err = err_range("disk_threads", opt->disk_threads, 0, 64);
	if (err == 0)
		err = err_range("stages", opt->stages, 0, STAGES_MOST);
	if (err == 0)
		err = err_range("ahead", opt->ahead, 0, 4096);
	return err == 0 ? err_range("reserved", opt->reserved, 0, 0) : err;
}

/* ---- 2: RAM, and the file ---- */

static int find_ram(struct gpc_tiers *t)
{
	const struct segment *s = &t->c->seg;
	uint32_t i, first = t->opt.ram ? (uint32_t)t->opt.ram - 1 : 0;
	uint32_t end = t->opt.ram ? first + 1 : s->header.geometry.max_pools;

	for (i = first; i < end && i < s->header.geometry.max_pools; i++) {
		const struct shm_pool *p = seg_pool(s, i);

		if (load_acquire(&p->state) == POOL_READY && load_relaxed(&p->kind) == GPC_RAM &&
		    load_relaxed(&p->memory))
			return (int)i;
	}
	return t->opt.ram ? err_set(ENOENT, "ram is %d: pool %u of %s is no RAM with memory", t->opt.ram, first,
				    s->name) :
	       err_set(ENOENT, "%s has no pool of RAM with memory: make one (gpcd --ram-blocks with --block-bytes, "
		       "or gpc_pool_make)", s->name);
}

static uint64_t slots_for(const struct gpc_tiers_options *opt, uint64_t block_bytes, uint32_t note_bytes)
{
	uint64_t each = ROUND_UP(block_bytes, (uint64_t)PAGE) + DISK_HEAD_BYTES + note_bytes;

	if (opt->disk_blocks)
		return opt->disk_blocks;
	return opt->disk_bytes > DISK_FRONT ? MAX((opt->disk_bytes - DISK_FRONT) / each, 1u) : 0;
}

/* Before the file is made or resized for nothing: records that are no pool's, those of a dead keeper's included. */
static int check_room(const struct segment *s, uint64_t slots)
{
	const struct shm_geometry *g = &s->header.geometry;
	uint64_t taken = 0;
	uint32_t i;

	for (i = 0; i < g->max_pools; i++) {
		const struct shm_pool *p = seg_pool(s, i);

		if (load_acquire(&p->state) != POOL_FREE && load_relaxed(&p->kind) != GPC_DISK)
			taken += (uint32_t)load_relaxed(&p->range);
	}
	taken = MIN(taken, (uint64_t)g->max_blocks);
	if (slots <= g->max_blocks - taken)
		return 0;
	return err_set(ENOSPC, "disk: %llu blocks are too many: %s has max_blocks %u, of which %llu are left; make it with "
		       "more", (unsigned long long)slots, s->name, g->max_blocks,
		       (unsigned long long)(g->max_blocks - taken));
}

/* slots: that are asked for, or 0; *ret_slots: as many as the file is going to have. */
static int check_size(const struct gpc_tiers_options *opt, const struct segment *s, uint64_t slots,
		      uint64_t image, uint32_t *ret_slots)
{
	struct disk_info there;
	int err;

	if (opt->disk_bytes && !slots)
		return err_set(EINVAL, "disk_bytes is %llu: it must be %llu or more, for one block of %llu bytes and what "
			       "the file says of itself", (unsigned long long)opt->disk_bytes,
			       (unsigned long long)DISK_FRONT + 1, (unsigned long long)image);
	err = slots ? 0 : disk_peek(opt->disk, &there);
	if (err == -ENOENT)
		return err_set(EINVAL, "disk_bytes and disk_blocks are 0, and there is no file %s: one of them must say how "
			       "large it is to be", opt->disk);
	if (err < 0)
		return tier_disk_error(err);
	err = slots ? EINVAL : ENOSPC;
	slots = slots ? slots : there.slots;
	if (slots > 1u << 24)
		return err_set(err, "%s would have %llu blocks: a pool has at most %u", opt->disk,
			       (unsigned long long)slots, 1u << 24);
	*ret_slots = (uint32_t)slots;
	return check_room(s, slots);
}

/* Room for notes is made with the file. */
static uint32_t note_bytes(struct gpc_tiers *t)
{
	uint32_t most = notes_most(&t->c->seg);
	struct disk_info there;

	if (!most || disk_peek(t->opt.disk, &there) < 0 || there.note_bytes >= most)
		return most;
	log_say(&t->c->log, LOG_WARNING, "%s has room for notes of %u bytes, and those of %s may have %u: what does not "
		"fit is not there after a restart; remove the file to have one with room", t->opt.disk,
		there.note_bytes, t->c->seg.name, most);
	return there.note_bytes;
}

/* How the file is to be opened; *ret_slots: of how many blocks. */
static int plan_disk(struct gpc_tiers *t, uint32_t ram, struct disk_options *ret, uint32_t *ret_slots)
{
	const struct gpc_tiers_options *opt = &t->opt;
	const struct shm_pool *p = seg_pool(&t->c->seg, ram);
	uint32_t notes = note_bytes(t);

	*ret = (struct disk_options){
		.flags = DISK_CREATE | (opt->flags & GPC_TIERS_RESIZE ? DISK_RESIZE : 0) |
			 (opt->flags & GPC_TIERS_BUFFERED ? DISK_BUFFERED : 0) |
			 (opt->secret ? 0 : DISK_KEEP_SECRET),
		.image_bytes = p->block_bytes, .slots = slots_for(opt, p->block_bytes, notes),
		.note_bytes = notes,
		.secret = t->c->seg.header.secret, .threads = opt->disk_threads,
		.write_rate = opt->write_rate, .log = &t->c->log,
	};
	memcpy(ret->fingerprint, p->fingerprint, sizeof(ret->fingerprint));
	if (opt->secret && memcmp(opt->secret, ret->secret, sizeof(t->c->seg.header.secret)))
		return err_set(EPROTO, "secret is not that of %s: a cache is made with the secret of its file",
			       t->c->seg.name);
	return check_size(opt, &t->c->seg, ret->slots, ret->image_bytes, ret_slots);
}

/* ---- 3: its pool ---- */

static uint32_t free_space(const gpc *c)
{
	const struct shm_state *st = seg_state(&c->seg);
	uint32_t taken = load_acquire(&st->spaces) | load_acquire(&st->cold_spaces), s = GPC_MAX_SPACES - 1;

	while (s && taken >> s & 1)
		s--;
	return s;
}

/* That of the last keeper goes when a writer has seen that it is dead; until then it takes the room. */
static bool has_predecessor(const gpc *c, uint32_t kind)
{
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++) {
		const struct shm_pool *p = seg_pool(&c->seg, i);

		if (load_acquire(&p->state) != POOL_FREE && load_relaxed(&p->kind) == kind)
			return true;
	}
	return false;
}

static int add_when_free(gpc *c, struct gpc_pool *p)
{
	uint64_t deadline = clock_ns() + POOL_MS * NS_PER_MS;
	int n;

	while ((n = gpc_pool_add(c, p, POOL_MS)) == -ENOSPC && has_predecessor(c, p->kind) && clock_ns() < deadline)
		clock_sleep(NS_PER_MS);
	return n;
}

static int add_pool(struct gpc_tiers *t, struct cold *d, uint32_t kind, uint32_t ram, uint32_t blocks, uint32_t space)
{
	const struct shm_pool *r = seg_pool(&t->c->seg, ram);
	struct gpc_pool p = { .size = sizeof(p), .kind = kind, .space = space ? space : free_space(t->c),
			      .flags = GPC_POOL_CALLER | GPC_POOL_UNCHAINED, .blocks = blocks, .demote_to = -1 };
	int n = add_when_free(t->c, &p);

	if (n < 0)
		return n;
	d->pool = (uint32_t)n;
	d->space = p.space;
	d->blocks = blocks;
	d->record = pool_record(&t->c->seg, GPC_BLOCK(n, 0));
	d->block_bytes = r->block_bytes;
	memcpy(d->fingerprint, r->fingerprint, sizeof(d->fingerprint));
	d->told = &seg_desk(&t->c->seg)->tier[d->index];
	memset(d->told, 0, sizeof(*d->told));
	d->told->kind = kind;
	d->told->block_bytes = d->block_bytes;
	d->told->state = kind == GPC_REMOTE ? GPC_TIER_DOWN : GPC_TIER_UP;
	store_relaxed(&d->told->pool, n);
	return slots_new(d);
}

/* ---- 4: what was cleared meanwhile ---- */

/* The cache counts clears of all pools, and its last keeper has noted how many its file had; another file may lack any. */
static int clear_missed(struct gpc_tiers *t, struct disk *disk)
{
	struct shm_desk *desk = seg_desk(&t->c->seg);
	uint64_t cleared = load_acquire(&seg_state(&t->c->seg)->cleared);
	struct disk_info info;
	int err = 0;

	disk_info(disk, &info);
	desk_keeps(t, info.file);
	if (!info.made)
		t->missed_from = load_relaxed(&desk->durable);
	if (!info.made && desk->cleared != cleared)
		err = disk_clear(disk);
	if (err < 0)
		return err_set(-err, "%s: blocks that were cleared while nobody kept it cannot be forgotten: %s",
			       t->opt.disk, gpc_strerror(err));
	store_relaxed(&desk->cleared, cleared);
	return 0;
}

/* ---- 5: threads ---- */

static int start_threads(struct gpc_tiers *t)
{
	uint32_t i, n = t->opt.stages ? t->opt.stages : 4;
	int err = maps_thread(&t->feed, feed_thread, t);

	t->has_feed = err == 0;
	if (err == 0)
		err = maps_thread(&t->down, down_thread, t);
	t->has_down = err == 0;
	if (err == 0 && t->opt.remote) {
		err = maps_thread(&t->afar, afar_thread, t);
		t->has_afar = err == 0;
	}
	for (i = 0; err == 0 && i < n; i++) {
		err = maps_thread(&t->stage[i], up_thread, t);
		t->nstages += err == 0;
	}
	return err;
}

static void stop_threads(struct gpc_tiers *t)
{
	uint32_t i;

	store_release(&t->stop, 1);
	desk_wake(t);
	for (i = 0; i < t->ncold; i++)
		if (t->cold[i].ops && t->cold[i].ops->stop)
			t->cold[i].ops->stop(t->cold[i].tier);
	for (i = 0; i < t->nstages; i++)
		pthread_join(t->stage[i], NULL);
	if (t->has_down)
		pthread_join(t->down, NULL);
	if (t->has_afar)
		pthread_join(t->afar, NULL);
	if (t->has_feed)
		pthread_join(t->feed, NULL);
}

/* ---- the call ---- */

static int open_disk_pool(struct gpc_tiers *t, uint32_t ram, struct disk_options *ret)
{
	struct cold *d = &t->cold[0];
	uint32_t slots = 0;
	int err = plan_disk(t, ram, ret, &slots);

	if (err < 0)
		return err;
	d->t = t;
	d->index = DESK_DISK;
	d->min_uses = t->opt.min_uses;
	t->ncold = 1;
	return add_pool(t, d, GPC_DISK, ram, slots, t->opt.disk_space);
}

static int open_disk_file(struct gpc_tiers *t, const struct disk_options *opt)
{
	struct cold *d = &t->cold[0];
	struct disk_info info;
	struct disk *disk;
	int err = tier_disk_error(disk_open(t->opt.disk, opt, &disk));

	if (err < 0)
		return err;
	disk_info(disk, &info);
	t->made = info.made;
	d->note_room = MIN(info.note_bytes, notes_most(&t->c->seg));
	err = tier_disk(disk, d->note_room != 0, &d->tier);
	if (err < 0) {
		disk_close(disk);
		return err_set(ENOMEM, "no memory for a tier");
	}
	d->ops = d->tier->ops;
	if (info.slots != d->blocks)
		return err_set(EAGAIN, "%s was replaced while it was opened: try again", t->opt.disk);
	return clear_missed(t, disk);
}

static int open_tier_remote(struct gpc_tiers *t, uint32_t ram)
{
	struct cold *d = &t->cold[t->ncold];
	int err = tier_remote(t, ram, &d->tier);

	if (err < 0)
		return err;
	d->t = t;
	d->ops = d->tier->ops;
	d->index = DESK_REMOTE;
	d->min_uses = t->opt.remote_uses;
	t->ncold++;
	err = add_pool(t, d, GPC_REMOTE, ram, tier_remote_blocks(t, ram), t->opt.remote_space);
	return err == 0 ? tier_remote_start(d->tier) : err;
}

static int count_uses(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->ncold; i++) {
		struct cold *d = &t->cold[i];

		if (d->min_uses > 1 && !(d->uses = uses_new()))
			return err_set(ENOMEM, "no memory to count uses");
	}
	return 0;
}

static int open_all(struct gpc_tiers *t)
{
	struct disk_options disk;
	int err = desk_take(t), ram;

	ram = err == 0 ? find_ram(t) : err;
	err = MIN(ram, 0);
	if (err == 0 && t->opt.disk)
		err = open_disk_pool(t, (uint32_t)ram, &disk);
	if (err == 0 && t->opt.remote)
		err = open_tier_remote(t, (uint32_t)ram);
	if (err == 0 && t->opt.disk)
		err = open_disk_file(t, &disk);
	else if (err == 0)
		desk_keeps(t, (const uint8_t[16]){ 0 });
	if (err == 0)
		err = count_uses(t);
	if (err == 0)
		err = feed_begin(t);
	if (err == 0)
		err = restore_begin(t);
	if (err < 0)
		return err;
	drops_missed(t);
	desk_show(t);
	return start_threads(t);
}

static void end(struct gpc_tiers *t)
{
	uint32_t i;

	stop_threads(t);
	feed_end(t);
	restore_end(t);
	desk_leave(t);
	for (i = 0; i < t->ncold; i++) {
		slots_end(&t->cold[i]);
		free(t->cold[i].uses);
		if (t->cold[i].tier)
			t->cold[i].ops->close(t->cold[i].tier);
	}
	gpc_close(t->c);
	free(t->dropped);
	free((char *)t->opt.disk);
	free(t);
}

GPC_EXPORT int gpc_tiers_open(const char *name, const struct gpc_tiers_options *opt, gpc_tiers **ret)
{
	int err = check_options(name, opt, ret);
	struct gpc_tiers *t;

	if (err < 0)
		return err;
	t = calloc(1, sizeof(*t));
	if (t) {
		t->opt = *opt;
		t->opt.disk = opt->disk ? strdup(opt->disk) : NULL;
	}
	if (!t || (opt->disk && !t->opt.disk)) {
		free(t);
		return err_set(ENOMEM, "no memory for tiers");
	}
	pthread_mutex_init(&t->writing, NULL);
	t->missed_from = UINT64_MAX;
	err = gpc_attach(name, GPC_OPTIONS(gpc_attach_options, .timeout_ms = opt->timeout_ms, .dir = opt->dir,
					   .label = "tiers", .log = opt->log, .log_arg = opt->log_arg), 0, &t->c);
	if (err < 0) {
		free((char *)t->opt.disk);
		free(t);
		return err;
	}
	err = open_all(t);
	if (err < 0) {
		if (t->made)
			unlink(t->opt.disk);     /* it is locked still */
		end(t);
		return err;
	}
	*ret = t;
	return 0;
}

GPC_EXPORT int gpc_tiers_close(gpc_tiers *t)
{
	if (!t)
		return 0;
	if (t->c->forked)
		return handle_check(t->c, true);
	end(t);
	return 0;
}
