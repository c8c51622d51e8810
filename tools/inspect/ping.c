/* SPDX-License-Identifier: Apache-2.0 */
/* ping: does the writer answer, and how soon?  With --put: can a block be stored and found?
 *
 * The question is gpc_evict() with GPC_PEEK, which changes nothing.  The error that there is no
 * such pool is an answer, too.  --put reserves with GPC_FREE, so no key is evicted for its block.
 * A block that it has published is dropped on every way out:
 *
 *   it stops ...                    the block is               it is given back by
 *   ------------------------------  -------------------------  ------------------------------------
 *   before the publish was sent     reserved                   gpc_release(), or the writer when it
 *                                                              clears our seat
 *   after that, in any state        reserved, live, or dying   a drop, which is sent without a wait
 *                                                              and carried out after the publish;
 *                                                              then as in the row above
 * Tests: t/tools/ping.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { DEADLINE_MS = 1000, NOT_SERVED = 1, CANNOT_OPEN = 3, CANNOT_PUT = 4 };

struct ping {
	const struct inspect *in;
	gpc *c;
	uint64_t end_ns; /* when the time for all of it ends */
	uint64_t round_trip_ns;
	struct gpc_info info;
	/* --put */
	struct gpc_pool pool;
	struct gpc_pool_memory memory; /* block_bytes 0: this process cannot write its bytes */
	struct gpc_run *runs;
	gpc_block block;
	gpc_key key;
	bool sent; /* a publish was sent, and no drop was answered */
	uint64_t put_ns;
};

/* At least one, since 0 would not wait at all. */
static int left_ms(const struct ping *p)
{
	uint64_t now = cli_now_ns();

	return now < p->end_ns ? (int)((p->end_ns - now) / 1000000 + 1) : 1;
}

/* ---- the question ---- */

/* 0, or a negative errno if there was no answer. */
static int ask(struct ping *p)
{
	uint64_t begun = cli_now_ns();
	gpc_block any;
	int r = gpc_evict(p->c, 0, 1, &any, GPC_PEEK, left_ms(p));

	p->round_trip_ns = cli_now_ns() - begun;
	return r < 0 && r != -ENOENT && r != -ESTALE ? r : 0;
}

/* ---- a block ---- */

/* Calls each() with every piece of the block's image; false if the image cannot be had, or if a
 * call returned false. */
static bool each_piece(struct ping *p, bool (*each)(uint8_t *at, uint64_t n, uint64_t from))
{
	uint64_t from = 0, bytes;
	void *base;

	for (uint32_t i = 0; i < p->memory.nruns; i++) {
		const struct gpc_run *r = &p->runs[i];

		if (gpc_pool_map(p->c, p->pool.number, r->part, &base, &bytes) < 0)
			return false;
		for (uint32_t k = 0; k < r->count; k++) {
			if (!each((uint8_t *)base + r->offset +
					  (uint64_t)GPC_SLOT(p->block) * r->slot_stride +
					  k * r->run_stride,
				  r->bytes, from))
				return false;
			from += r->bytes;
		}
	}
	return true;
}

/* A byte whose period no layout has. */
static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

static bool fill(uint8_t *at, uint64_t n, uint64_t from)
{
	for (uint64_t i = 0; i < n; i++)
		at[i] = byte_at(from + i);
	return true;
}

static bool is_filled(uint8_t *at, uint64_t n, uint64_t from)
{
	for (uint64_t i = 0; i < n; i++)
		if (at[i] != byte_at(from + i))
			return false;
	return true;
}

/* Looks for bytes that this process can write: those of RAM, and those of VRAM of the host
 * device. */
static void look_at_memory(struct ping *p)
{
	struct gpc_pool_memory m = { .size = sizeof(m) };

	p->memory = m;
	if (gpc_pool_memory_get(p->c, p->pool.number, &m, p->runs, GPC_MAX_RUNS) > 0 &&
	    (p->pool.kind == GPC_RAM || !strcmp(m.device, "host")))
		p->memory = m;
}

/* Blocks of a caller's pool are not reserved, and those below RAM are their steward's. */
static bool can_take(struct ping *p, int number)
{
	p->pool = (struct gpc_pool){ .size = sizeof(p->pool) };
	if (gpc_pool_get(p->c, number, &p->pool) < 0 || (p->pool.flags & GPC_POOL_CALLER) ||
	    (p->pool.kind != GPC_VRAM && p->pool.kind != GPC_RAM))
		return false;
	look_at_memory(p);
	return true;
}

/* Reserves a block of the pool of --pool, or else of the first pool with a block to spare; pools
 * with bytes come first. */
static int reserve(struct ping *p)
{
	bool only = p->in->pool >= 0;
	int r = -ENOENT;

	for (int pass = 0; pass < 2 && r < 0; pass++)
		for (int i = 0; i < (int)p->info.max_pools && r < 0; i++) {
			if ((only && i != p->in->pool) || !can_take(p, i) ||
			    (pass == 0) != (p->memory.block_bytes != 0))
				continue;
			r = gpc_reserve(p->c, i, 1, &p->block, NULL, GPC_FREE, left_ms(p));
			if (r < 0 && r != -ENOSPC && r != -ESTALE)
				return r;
		}
	return r;
}

static int cannot(const struct ping *p, const char *what, int r)
{
	if (r < 0)
		cli_gpc_error(r, "%s: --put: %s", p->in->name, what);
	else
		cli_error("%s: --put: %s", p->in->name, what);
	return CANNOT_PUT;
}

static int cannot_reserve(const struct ping *p, int r)
{
	if (r == -ENOENT)
		return cannot(
			p,
			p->in->pool >= 0
				? "the pool of --pool is not there, or its blocks are another "
				  "process's to give"
				: "there is no pool from which any process may reserve",
			0);
	if (r == -ENOSPC)
		return cannot(
			p,
			"no block is free beyond those that the writer keeps free, and nothing "
			"is evicted for this",
			0);
	return cannot(p, "no block", r);
}

static int publish(struct ping *p)
{
	gpc_block there = GPC_NONE;
	int r;

	if (getrandom(&p->key, sizeof(p->key), 0) != sizeof(p->key))
		return cannot(p, "no random key", -errno);
	r = gpc_key_import(p->c, &p->key, sizeof(p->key), sizeof(p->key), 1, 0, &p->key);
	if (r < 0)
		return cannot(p, "no key", r);
	p->sent = true;
	r = gpc_publish(p->c, NULL, &p->key, &p->block, 1,
			GPC_OPTIONS(gpc_publish_options, .resident = &there), 0, left_ms(p));
	if (r < 0)
		return cannot(p, "the block is not published", r);
	return r == 1 ? 0 : cannot(p, "the block is not published", there < 0 ? there : -EEXIST);
}

static int find(struct ping *p, int want)
{
	gpc_block found = GPC_NONE;
	int r = gpc_lookup(p->c, GPC_SPACE(p->pool.space), &p->key, 1, &found, GPC_QUIET);

	if (r < 0)
		return cannot(p, "a lookup", r);
	if (r != want)
		return cannot(p,
			      want ? "the block that was published is not found"
				   : "the block that was dropped is found still",
			      0);
	return !want || found == p->block ? 0 : cannot(p, "another block has its key", 0);
}

static int store_and_drop(struct ping *p)
{
	int r, status;

	if (p->memory.block_bytes && !each_piece(p, fill))
		return cannot(p, "the memory of the pool cannot be mapped", -EIO);
	status = publish(p);
	if (!status)
		status = find(p, 1);
	if (!status && p->memory.block_bytes && !each_piece(p, is_filled))
		status = cannot(p, "the bytes that are read are not those that were written", 0);
	if (status)
		return status;
	r = gpc_drop(p->c, &p->block, 1, NULL, 0, left_ms(p));
	if (r != 1)
		return cannot(p, "the block is not dropped", r < 0 ? r : -ENOENT);
	p->sent = false;
	return find(p, 0);
}

static int put(struct ping *p)
{
	uint64_t begun = cli_now_ns();
	int status, r = reserve(p);

	if (r < 0)
		return cannot_reserve(p, r);
	status = store_and_drop(p);
	if (p->sent)
		gpc_drop(p->c, &p->block, 1, NULL, 0, 0);
	gpc_release(p->c, &p->block, 1);
	p->put_ns = cli_now_ns() - begun;
	return status;
}

/* ---- the answer ---- */

static json_t *describe_put(const struct ping *p)
{
	json_t *o = out_need(json_object());

	json_object_set_new(o, "pool", out_need(json_integer(p->pool.number)));
	json_object_set_new(o, "bytes", out_need(json_integer((json_int_t)p->memory.block_bytes)));
	json_object_set_new(o, "put_ns", out_need(json_integer((json_int_t)p->put_ns)));
	return o;
}

static void show(const struct ping *p)
{
	json_t *o;

	if (!p->in->json) {
		out_line("%s: process %d serves it, round trip %.1f us", p->in->name,
			 p->info.writer_pid, (double)p->round_trip_ns / 1e3);
		if (p->in->put)
			out_line("%s: a block of pool %d was stored, read and dropped, %" PRIu64
				 " bytes, in %.1f us",
				 p->in->name, p->pool.number, p->memory.block_bytes,
				 (double)p->put_ns / 1e3);
		return;
	}
	o = out_need(json_object());
	json_object_set_new(o, "name", out_string(p->in->name, GPC_MAX_NAME));
	json_object_set_new(o, "writer_pid", out_need(json_integer(p->info.writer_pid)));
	json_object_set_new(o, "round_trip_ns",
			    out_need(json_integer((json_int_t)p->round_trip_ns)));
	json_object_set_new(o, "put", p->in->put ? describe_put(p) : json_null());
	out_json(o);
}

static int ping(struct ping *p)
{
	int status = 0, r = ask(p);

	if (r < 0) {
		cli_gpc_error(r, "%s", p->in->name);
		return NOT_SERVED;
	}
	r = gpc_info_get(p->c, &p->info);
	if (r < 0) {
		cli_gpc_error(r, "%s", p->in->name);
		return CANNOT_OPEN;
	}
	if (p->in->put)
		status = put(p);
	if (!status)
		show(p);
	return status;
}

int inspect_ping(struct inspect *in)
{
	struct ping p = { .in = in, .info = { .size = sizeof(p.info) }, .block = GPC_NONE };
	int status;

	if (in->pool >= 0 && !in->put)
		return cli_usage("ping: --pool goes with --put");
	in->cannot_open = CANNOT_OPEN;
	status = inspect_open(in, 0, &p.c);
	if (status)
		return status;
	p.end_ns = cli_now_ns() + (in->deadline ? in->deadline : DEADLINE_MS) * UINT64_C(1000000);
	p.runs = calloc(GPC_MAX_RUNS, sizeof(*p.runs));
	if (p.runs) {
		status = ping(&p);
	} else {
		cli_error("out of memory");
		status = CANNOT_OPEN;
	}
	gpc_close(p.c);
	free(p.runs);
	return status;
}
