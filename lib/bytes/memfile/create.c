/* SPDX-License-Identifier: Apache-2.0 */
/* memory_create.c - the memory of the RAM pool that gpc_create() makes: drafted before the cache
 * has a file, made while the cache has no name, and kept or removed with the cache.
 * Tests: t/bytes/ram-memory.t */
#include "config.h"

#include "bytes/memfile/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/base/err.h"
#include "index/peer/handle.h"

struct ram_draft {
	struct memory memory; /* fd -1: not made */
	struct memory_pages pages;
	bool (*wanted)(void *arg);
	void *arg;
};

int ram_draft_new(const struct gpc_config *cfg, uint32_t slots, struct ram_draft **ret)
{
	struct ram_draft *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return err_set(ENOMEM, "no memory to draft the RAM pool");
	err = memory_draft(cfg->ram_memory, slots, cfg->layout, &d->memory, &d->pages);
	if (err < 0) {
		free(d);
		return err;
	}
	*ret = d;
	return 0;
}

uint64_t ram_draft_room(const struct ram_draft *d)
{
	bool elsewhere = d->pages.huge_dir && *d->pages.huge_dir;

	return memory_tables(&d->memory) + (elsewhere ? 0 : d->memory.images_bytes);
}

static int goes_on(void *arg, uint64_t done, uint64_t bytes)
{
	const struct ram_draft *d = arg;

	if (!d->wanted(d->arg))
		return 1;
	return d->pages.progress ? d->pages.progress(d->pages.progress_arg, done, bytes) : 0;
}

int ram_draft_make(const struct segment *s, struct ram_draft *d, bool (*wanted)(void *arg),
		   void *arg, struct shm_pool *pool)
{
	struct memory_pages pages = d->pages;
	int err;

	d->wanted = wanted;
	d->arg = arg;
	pages.progress = goes_on;
	pages.progress_arg = d;
	err = memory_make(s, &d->memory, &pages);
	if (err < 0)
		return err;
	pool->memory = d->memory.number;
	pool->block_bytes = d->memory.block_bytes;
	memcpy(pool->fingerprint, d->memory.fingerprint, sizeof(pool->fingerprint));
	return 0;
}

void ram_draft_end(const struct segment *s, struct ram_draft *d, bool keep)
{
	if (!d)
		return;
	if (d->memory.fd >= 0 && keep)
		memory_made(&d->memory);
	if (d->memory.fd >= 0 && !keep)
		memory_remove(s, d->memory.number);
	memory_close(&d->memory);
	free(d);
}

/* Pages stay on their nodes, so another policy needs another memory. */
static int numa_fits(const gpc *c, uint64_t number, const struct memory_pages *want)
{
	struct memory m;
	uint32_t numa, nodes_differ, unit;
	uint64_t nodes;
	int err = memory_check_pages(want, c->seg.dir, &numa, &nodes, &unit);

	if (err == 0)
		err = memory_open(&c->seg, number, false, &m);
	if (err < 0)
		return err;
	nodes_differ = want->nodes && m.nodes != nodes;
	memory_close(&m);
	if (m.numa == numa && !nodes_differ)
		return 0;
	return err_set(
		EPROTO,
		"%s exists with numa %u on the nodes 0x%llx instead of %u on 0x%llx: ask for "
		"what it has" SEGMENT_OTHER,
		c->seg.name, m.numa, (unsigned long long)m.nodes, numa, (unsigned long long)nodes);
}

/* Programs that seal blocks of this memory rely on the number of its parts. */
static int sums_fit(const gpc *c, uint64_t number, const struct gpc_memory *want)
{
	struct gpc_memory w;
	struct memory m;
	uint32_t have;
	int err = err_struct("gpc_memory", want, sizeof(w), &w, sizeof(w));

	if (err < 0 || !w.sums)
		return MIN(err, 0);
	err = memory_open(&c->seg, number, false, &m);
	if (err < 0)
		return err;
	have = m.trailers ? m.nsums : 0;
	memory_close(&m);
	if (have == w.sums)
		return 0;
	return err_set(EPROTO,
		       "%s exists with sums %u instead of %u: ask for what it has" SEGMENT_OTHER,
		       c->seg.name, have, w.sums);
}

/* The pool of ram_blocks, of a configuration that wants memory for it. */
int ram_draft_fits(const gpc *c, const struct gpc_config *cfg)
{
	const struct shm_pool *p = seg_pool(&c->seg, cfg->vram_blocks ? 1 : 0);
	struct memory_pages pages;
	struct memory m;
	int err = memory_draft(cfg->ram_memory, (uint32_t)load_relaxed(&p->range),
			       c->seg.header.layout, &m, &pages);

	if (err < 0)
		return err;
	if (!load_relaxed(&p->memory))
		return err_set(
			EPROTO,
			"%s exists, but the pool of its ram_blocks has no memory: ask for none" SEGMENT_OTHER,
			c->seg.name);
	if (p->block_bytes != m.block_bytes)
		return err_set(
			EPROTO,
			"%s exists, but with block_bytes %llu, not %llu: ask for what it has" SEGMENT_OTHER,
			c->seg.name, (unsigned long long)p->block_bytes,
			(unsigned long long)m.block_bytes);
	if ((err = sums_fit(c, load_relaxed(&p->memory), cfg->ram_memory)) < 0)
		return err;
	if (pages.numa && (err = numa_fits(c, load_relaxed(&p->memory), &pages)) < 0)
		return err;
	if (memcmp(p->fingerprint, m.fingerprint, sizeof(m.fingerprint)))
		return err_set(EPROTO,
			       "%s exists, but the images of its ram_blocks have another "
			       "fingerprint: use that one" SEGMENT_OTHER,
			       c->seg.name);
	return 0;
}
