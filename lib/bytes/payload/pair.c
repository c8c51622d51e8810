/* SPDX-License-Identifier: Apache-2.0 */
/* pair.c - the way of blocks from one pool to another: planned once for two maps, and kept with
 * them.
 * Tests: t/bytes/pin-refused.t t/bytes/copy.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_images(const struct map *to, const struct map *from)
{
	if (to->memory.block_bytes != from->memory.block_bytes)
		return err_set(EPROTO,
			       "pool %u has images of %llu bytes and pool %u of %llu: only "
			       "images of one size can be copied",
			       from->pool, (unsigned long long)from->memory.block_bytes, to->pool,
			       (unsigned long long)to->memory.block_bytes);
	if (memcmp(to->memory.fingerprint, from->memory.fingerprint,
		   sizeof(to->memory.fingerprint)))
		return err_set(EPROTO,
			       "the images of pools %u and %u have different fingerprints: "
			       "they mean different things",
			       from->pool, to->pool);
	return 0;
}

/* The addresses of the parts, in the form that a plan needs. */
static void side_of(const struct map *m, uint8_t *base[SHM_PARTS], struct plan_side *ret)
{
	uint32_t i;

	for (i = 0; i < MAX(m->memory.nparts, 1u); i++)
		base[i] = m->part[i].base;
	*ret = (struct plan_side){ .nruns = m->memory.nruns, .run = m->memory.run, .base = base };
}

/* The map's device, if it is of the kind that copies.  NULL: to that kind the map is host
 * memory. */
static const uint8_t *on_device(const struct pair *p, const struct map *m)
{
	return m->device == p->by->device ? m->memory.uuid : NULL;
}

/* A driver copies between devices of its own kind and host memory. */
static int check_kinds(const struct map *to, const struct map *from)
{
	if (!to->device || !from->device || to->device == from->device || to->device->in_ram ||
	    from->device->in_ram)
		return 0;
	return err_set(EXDEV,
		       "pools %u and %u are of devices of two kinds, which do not copy from each "
		       "other: copy by way of RAM",
		       from->pool, to->pool);
}

static int pair_plan(struct pair *p)
{
	uint8_t *bases[2][SHM_PARTS];
	struct plan_side to, from;
	uint64_t bytes = p->to->memory.block_bytes / p->stages;
	uint32_t i;
	int err = 0;

	p->limits = (struct copy_limits){ .max_pitch = UINT64_MAX, .slices = true };
	side_of(p->to, bases[0], &to);
	side_of(p->from, bases[1], &from);
	if (p->by)
		err = p->by->device->limits(on_device(p, p->to), on_device(p, p->from), &p->limits);
	if (p->stages == 1)
		return err ? err : plan_make(&to, &from, &p->limits, p->plan);
	for (i = 0; !err && i < p->stages; i++)
		err = plan_make_part(&to, &from, &p->limits, i * bytes, bytes, &p->plan[i]);
	return err;
}

static void pair_free(struct pair *p)
{
	uint32_t i;

	for (i = 0; i < p->stages; i++)
		plan_free(&p->plan[i]);
	free(p->slots);
	free(p);
}

/* The parts must have equal size, since a cut within one access of a device would be slow. */
static int check_stages(const struct map *to, uint32_t stages)
{
	if (to->memory.block_bytes % stages)
		return err_set(EINVAL,
			       "stages is %u: the images of pool %u have %llu bytes, which is "
			       "not so many parts of equal size",
			       stages, to->pool, (unsigned long long)to->memory.block_bytes);
	return 0;
}

static int pair_make(struct map *to, struct map *from, uint32_t stages, struct pair **ret)
{
	struct pair *p;
	int err = check_images(to, from);

	if (!err)
		err = check_kinds(to, from);
	if (!err)
		err = check_stages(to, stages);
	if (err)
		return err;
	p = calloc(1, sizeof(*p) + stages * sizeof(p->plan[0]));
	if (!p)
		return err_set(ENOMEM, "no memory for copies between pools %u and %u", from->pool,
			       to->pool);
	p->to = to;
	p->from = from;
	p->stages = stages;
	p->by = transfer_device(to, from);
	err = pair_plan(p);
	if (!err && !(p->slots = calloc(to->memory.slots / 64 + 1, 8)))
		err = err_set(ENOMEM, "no memory for copies within pool %u", to->pool);
	if (err)
		pair_free(p);
	else
		*ret = p;
	return err;
}

static struct pair *find(const struct transfers *t, const struct map *to, const struct map *from,
			 uint32_t stages)
{
	struct pair *p = t->pairs;

	while (p && (p->to != to || p->from != from || p->stages != stages))
		p = p->next;
	return p;
}

static void say_integrated(gpc *c, const struct pair *p)
{
	bool tiers = p->by && p->to->memory.kind != p->from->memory.kind;

	if (!tiers || !p->by->device->is_integrated(p->by->memory.uuid) ||
	    order_swap32(&c->transfers->integrated_told, 1))
		return;
	log_say(&c->log, LOG_WARNING,
		"%s: pools %u and %u: the GPU has its memory in RAM, so a copy in a pool of RAM takes the same "
		"memory twice: make the pool of VRAM larger instead",
		c->seg.name, p->from->pool, p->to->pool);
}

/* The plan is made without the lock; a thread that comes second drops its own plan. */
int pair_get(gpc *c, struct map *to, struct map *from, uint32_t stages, const struct pair **ret)
{
	struct transfers *t = c->transfers;
	struct pair *p, *mine = NULL;
	int err;

	pthread_mutex_lock(&t->lock);
	p = find(t, to, from, stages);
	pthread_mutex_unlock(&t->lock);
	if (!p) {
		err = pair_make(to, from, stages, &mine);
		if (err)
			return err;
		say_integrated(c, mine);
		pthread_mutex_lock(&t->lock);
		p = find(t, to, from, stages);
		if (!p) {
			mine->next = t->pairs;
			t->pairs = mine;
		}
		pthread_mutex_unlock(&t->lock);
		if (p)
			pair_free(mine);
		else
			p = mine;
	}
	*ret = p;
	return 0;
}

void pair_forget(gpc *c, struct map *m)
{
	struct pair **at, *p;

	pthread_mutex_lock(&c->transfers->lock);
	for (at = &c->transfers->pairs; (p = *at) != NULL;) {
		if (p->to == m || p->from == m) {
			*at = p->next;
			pair_free(p);
		} else {
			at = &p->next;
		}
	}
	pthread_mutex_unlock(&c->transfers->lock);
}

void pair_free_all(struct transfers *t)
{
	struct pair *p;

	while ((p = t->pairs) != NULL) {
		t->pairs = p->next;
		pair_free(p);
	}
}
