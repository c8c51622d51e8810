/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - checks the request for a steward of tiers: its options, the RAM whose images it has,
 * and the size of the file.
 * Tests: t/tiers/resize.t t/tiers/store.t t/tiers/later-structs.t t/daemon/disk-aside.t
 *   t/daemon/fits.t t/daemon/files.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "index/segment/peek.h"
#include "tiers/disk/disk.h"
#include "tiers/steward/steward.h"

/* an estimate for each image: its header, with its share of the part before all images */
#define DISK_HEAD_BYTES 128u
#define DISK_FRONT      ((uint64_t)131072)
#define PAGE            4096u

#define FLAGS                                                                             \
	(GPC_TIERS_EXCLUSIVE | GPC_TIERS_RESIZE | GPC_TIERS_BUFFERED | GPC_TIERS_STRICT | \
	 GPC_TIERS_CHECK)

/* ---- options ---- */

int plan_check(const char *name, const struct gpc_tiers_options *opt, gpc_tiers **ret)
{
	int err;

	if (!ret || !name || !opt)
		return err_set(EINVAL, "%s is NULL", !ret ? "ret" : name ? "opt" : "name");
	err = err_known("gpc_tiers_options", opt, sizeof(*opt));
	if (err == 0 && opt->flags & ~FLAGS)
		err = err_set(
			EINVAL,
			"flags is 0x%x: it may have GPC_TIERS_EXCLUSIVE, GPC_TIERS_RESIZE, GPC_TIERS_BUFFERED, "
			"GPC_TIERS_STRICT and GPC_TIERS_CHECK, and 0x%x is not among them",
			opt->flags, opt->flags & ~FLAGS);
	if (err == 0)
		err = err_timeout(opt->timeout_ms);
	if (err == 0 && !opt->disk && !opt->remote && !(opt->flags & GPC_TIERS_CHECK))
		err = err_set(EINVAL, "disk and remote are NULL: there is no tier to keep");
	if (err == 0 && opt->disk && !*opt->disk)
		err = err_set(EINVAL, "disk is empty: it must name a file");
	if (err == 0 && !opt->disk && opt->flags & GPC_TIERS_EXCLUSIVE)
		err = err_set(EINVAL, "GPC_TIERS_EXCLUSIVE is about the disk, and disk is NULL");
	if (err == 0 && opt->disk_bytes && opt->disk_blocks)
		err = err_set(EINVAL, "disk_bytes is %llu and disk_blocks %u: give one of them",
			      (unsigned long long)opt->disk_bytes, opt->disk_blocks);
	if (err == 0 && (opt->ram < 0 || opt->ram > GPC_MAX_POOLS))
		err = err_set(EINVAL, "ram is %d: it must be 0, or 1 + the number of a pool",
			      opt->ram);
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
		err = err_range("questions", opt->questions, 0, QUESTIONS_MOST);
	if (err == 0)
		err = err_range("ahead", opt->ahead, 0, 4096);
	return err == 0 ? err_range("reserved", opt->reserved, 0, 0) : err;
}

/* ---- RAM, and the file ---- */

int plan_ram(struct gpc_tiers *t)
{
	const struct segment *s = &t->c->seg;
	uint32_t i, first = t->opt.ram ? (uint32_t)t->opt.ram - 1 : 0;
	uint32_t end = t->opt.ram ? first + 1 : s->header.geometry.max_pools;

	for (i = first; i < end && i < s->header.geometry.max_pools; i++) {
		struct shm_pool p;

		if (seg_peek_pool(s, i, &p) && p.kind == GPC_RAM && p.memory)
			return (int)i;
	}
	return t->opt.ram
		       ? err_set(ENOENT, "ram is %d: pool %u of %s is no RAM with memory",
				 t->opt.ram, first, s->name)
		       : err_set(ENOENT,
				 "%s has no pool of RAM with memory: make one (gpcd --ram-blocks with --block-bytes, "
				 "or gpc_pool_make)",
				 s->name);
}

int plan_secret(const struct gpc_tiers *t)
{
	const struct segment *s = &t->c->seg;

	if (!t->opt.secret || !memcmp(t->opt.secret, s->header.secret, sizeof(s->header.secret)))
		return 0;
	if (t->opt.disk || !t->opt.remote)
		return err_set(
			EPROTO,
			"secret is not that of %s: give the one that %s was made with, or remove the cache "
			"(gpc-inspect --dir %s rm %s), and it is made with this one",
			s->name, s->name, s->dir, s->name);
	return err_set(
		EPROTO,
		"secret is not that of %s: no other node would find what this one stores; remove the cache "
		"(gpc-inspect --dir %s rm %s), and make it with the secret that all nodes have",
		s->name, s->dir, s->name);
}

static uint64_t slots_for(const struct gpc_tiers_options *opt, uint64_t block_bytes,
			  uint32_t note_bytes)
{
	uint64_t each = ROUND_UP(block_bytes, (uint64_t)PAGE) + DISK_HEAD_BYTES + note_bytes;

	if (opt->disk_blocks)
		return opt->disk_blocks;
	return opt->disk_bytes > DISK_FRONT ? MAX((opt->disk_bytes - DISK_FRONT) / each, 1u) : 0;
}

int plan_room(const struct gpc_tiers *t, uint32_t kind, uint64_t blocks)
{
	const struct segment *s = &t->c->seg;
	const struct shm_geometry *g = &s->header.geometry;
	bool check = t->opt.flags & GPC_TIERS_CHECK;
	struct shm_pool p;
	uint64_t taken = check && kind == GPC_REMOTE ? t->lower[0].blocks : 0, left;
	uint32_t i;

	/* the pools of a steward go with it, before another one opens tiers */
	for (i = 0; i < g->max_pools; i++) {
		if (check)
			taken += seg_peek_pool(s, i, &p) && !shm_is_lower(p.kind)
					 ? (uint32_t)p.range
					 : 0;
		else if (load_acquire(&seg_pool(s, i)->state) != POOL_FREE &&
			 load_relaxed(&seg_pool(s, i)->kind) != kind)
			taken += (uint32_t)load_relaxed(&seg_pool(s, i)->range);
	}
	left = g->max_blocks - MIN(taken, (uint64_t)g->max_blocks);
	if (blocks <= left)
		return 0;
	return err_set(
		ENOSPC,
		"%s%llu%s too many: %s has max_blocks %u, of which %llu are left; ask for fewer, or make it with more",
		kind == GPC_DISK ? "disk: " : "remote_blocks is ", (unsigned long long)blocks,
		kind == GPC_DISK ? " blocks are" : ", and these are", s->name, g->max_blocks,
		(unsigned long long)left);
}

/* slots: the requested number, or 0.  *ret_slots: the number that the file is going to have. */
static int check_size(const struct gpc_tiers *t, uint64_t slots, uint64_t image,
		      uint32_t *ret_slots)
{
	const struct gpc_tiers_options *opt = &t->opt;
	struct disk_info there;
	int err;

	if (opt->disk_bytes && !slots)
		return err_set(
			EINVAL,
			"disk_bytes is %llu: it must be %llu or more, for one block of %llu bytes and what "
			"the file says of itself",
			(unsigned long long)opt->disk_bytes, (unsigned long long)DISK_FRONT + 1,
			(unsigned long long)image);
	err = slots ? 0 : disk_peek(opt->disk, &there);
	if (err == -ENOENT)
		return err_set(
			EINVAL,
			"disk_bytes and disk_blocks are 0, and %s %s: one of them must say how large it is "
			"to be",
			access(opt->disk, F_OK) ? "there is no file"
						: "there is nothing in the file",
			opt->disk);
	if (err == -EBADMSG && !(opt->flags & GPC_TIERS_STRICT))
		return err_set(
			EBADMSG,
			"both superblocks of %s are damaged, so it does not tell how large a new one is to "
			"be: disk_bytes or disk_blocks must say that, or remove it",
			opt->disk);
	if (err < 0)
		return tier_disk_error(err);
	err = slots ? EINVAL : ENOSPC;
	slots = slots ? slots : there.slots;
	if (slots > 1u << 24)
		return err_set(err, "%s would have %llu blocks: a pool has at most %u", opt->disk,
			       (unsigned long long)slots, 1u << 24);
	*ret_slots = (uint32_t)slots;
	return plan_room(t, GPC_DISK, slots);
}

/* Room for notes is made with the file, and cannot be added.  ret_room: of each block in the file that
 * is there, or is made. */
static uint32_t note_bytes(struct gpc_tiers *t, uint32_t *ret_room)
{
	uint32_t most = notes_most(&t->c->seg);
	struct disk_info there;

	*ret_room = disk_peek(t->opt.disk, &there) < 0 ? most : there.note_bytes;
	if (*ret_room >= most)
		return most;
	log_say(&t->c->log, LOG_WARNING,
		"%s has room for notes of %u bytes, and those of %s may have %u: what does not "
		"fit is not there after a restart; remove the file to have one with room",
		t->opt.disk, there.note_bytes, t->c->seg.name, most);
	return there.note_bytes;
}

int plan_disk(struct gpc_tiers *t, uint32_t ram, struct disk_options *ret, uint32_t *ret_slots)
{
	const struct gpc_tiers_options *opt = &t->opt;
	uint32_t room, notes = note_bytes(t, &room);
	struct shm_pool p;

	if (!seg_peek_pool(&t->c->seg, ram, &p))
		return err_set(EAGAIN, "pool %u of %s changes: try again", ram, t->c->seg.name);
	*ret = (struct disk_options){
		.flags = DISK_CREATE | DISK_LATER |
			 (opt->flags & GPC_TIERS_RESIZE ? DISK_RESIZE : 0) |
			 (opt->flags & GPC_TIERS_BUFFERED ? DISK_BUFFERED : 0) |
			 (opt->flags & GPC_TIERS_STRICT ? 0 : DISK_ASIDE) |
			 (opt->secret ? 0 : DISK_KEEP_SECRET),
		.image_bytes = p.block_bytes,
		.slots = slots_for(opt, p.block_bytes, room),
		.note_bytes = notes,
		.secret = t->c->seg.header.secret,
		.threads = opt->disk_threads,
		.write_rate = opt->write_rate,
		.log = &t->c->log,
	};
	memcpy(ret->fingerprint, p.fingerprint, sizeof(ret->fingerprint));
	return check_size(t, ret->slots, ret->image_bytes, ret_slots);
}

/* ---- a check alone ---- */

/* There may be no cache yet, so the file is compared with the options alone. */
static int check_file(const struct gpc_tiers *t)
{
	const struct gpc_tiers_options *opt = &t->opt;
	struct disk_info there;
	struct disk_options o = {
		.flags = DISK_CREATE | DISK_ANY_LAYOUT |
			 (opt->flags & GPC_TIERS_RESIZE ? DISK_RESIZE : 0) |
			 (opt->flags & GPC_TIERS_STRICT ? 0 : DISK_ASIDE),
		.secret = opt->secret,
	};

	if (disk_peek(opt->disk, &there) == 0)
		o.slots = slots_for(opt, there.image_bytes, there.note_bytes);
	return tier_disk_error(disk_check(opt->disk, &o));
}

static int check_cache(struct gpc_tiers *t)
{
	struct disk_options disk;
	int ram, err = plan_secret(t);

	if (err < 0 || (!t->opt.disk && !t->opt.remote))
		return err;
	ram = plan_ram(t);
	if (ram < 0)
		return ram;
	if (t->opt.disk)
		err = plan_disk(t, (uint32_t)ram, &disk, &t->lower[0].blocks);
	if (err == 0 && t->opt.disk)
		err = tier_disk_error(disk_check(t->opt.disk, &disk));
	if (err == 0 && t->opt.remote)
		err = plan_room(t, GPC_REMOTE, tier_remote_blocks(t, (uint32_t)ram));
	return err;
}

int plan_try(const char *name, const struct gpc_tiers_options *opt)
{
	struct gpc_tiers *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return err_set(ENOMEM, "no memory for a check of tiers");
	t->opt = *opt;
	err = opt->disk ? check_file(t) : 0;
	if (err == 0)
		err = gpc_attach(name,
				 GPC_OPTIONS(gpc_attach_options, .timeout_ms = opt->timeout_ms,
					     .dir = opt->dir, .log = opt->log,
					     .log_arg = opt->log_arg),
				 GPC_READONLY, &t->c);
	if (err == 0)
		err = check_cache(t);
	gpc_close(t->c);
	free(t);
	return err;
}
