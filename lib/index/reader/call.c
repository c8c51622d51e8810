/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - steps that calls of lookup, match, acquire and ref do once: see call.h.
 * Tests: t/index/touch.t t/index/lookup-calls.t t/index/ask.t */
#include "config.h"

#include "index/reader/call.h"

#include "index/peer/handle.h"
#include "index/peer/refs.h"

#include <errno.h>
#include <string.h>

int call_check_arrays(const gpc_key *keys, uint32_t n, const gpc_block *blocks)
{
	int err = err_count(n, "keys");

	if (err < 0)
		return err;
	if (n && (!keys || !blocks))
		return err_set(EINVAL, "%s is NULL", keys ? "blocks" : "keys");
	return 0;
}

static void start(struct call *a, gpc *c, uint32_t spaces, uint32_t flags, bool refs)
{
	a->c = c;
	a->spaces = spaces;
	a->quiet = (flags & GPC_QUIET) || c->readonly;
	a->counts = !a->quiet && !(flags & GPC_TOUCH);
	a->refs = refs;
	a->overflow = false;
	a->n = 0;
	a->first = a->vram = a->ram = a->stale = 0;
	a->section = -1;
	a->there = (struct device_result){ 0 };
	if (refs)
		memset(&a->sum, 0, sizeof(a->sum));
}

int call_begin(struct call *a, gpc *c, uint32_t spaces, uint32_t flags, bool refs)
{
	start(a, c, spaces, flags, refs);
	a->section = handle_enter(c);
	if (a->section < 0)
		return a->section;
	probe_begin(&a->probe, c, spaces);
	return 0;
}

int call_begin_any(struct call *a, gpc *c, uint32_t spaces, uint32_t flags, bool refs)
{
	int err;

	if (__builtin_expect(!c->readonly, 1))
		return call_begin(a, c, spaces, flags, refs);
	err = handle_need_copy(c);
	if (err)
		return err;
	start(a, c, spaces, flags, refs);
	probe_begin(&a->probe, c, spaces);
	return 0;
}

static void count_if(uint64_t *counter, uint64_t n)
{
	if (n)
		count_add(counter, n);
}

void call_end(struct call *a, uint64_t asked)
{
	struct shm_seat *seat;

	if (a->refs) /* it ends within the section: see seat_is_clean() */
		refs_account(a->c, &a->sum);
	if (a->section >= 0)
		handle_leave(a->c, a->section);
	if (!a->counts)
		return;
	seat = seg_seat(&a->c->seg, a->c->peer);
	count_if(&seat->lookups, asked);
	count_if(&seat->hit_vram, a->vram);
	count_if(&seat->hit_ram, a->ram);
	count_if(&seat->miss, asked - MIN(asked, a->vram + a->ram));
	count_if(&seat->stale_refs, a->stale);
}

void call_end_offload(struct call *a, uint64_t asked)
{
	if (a->there.blocks)
		hooks.offload_end(a->c, &a->there);
	call_end(a, asked);
}

int call_offload(struct call *a, const struct device_query *q, uint32_t flags)
{
	int err;

	if (!(flags & (GPC_ANYWHERE | GPC_DEVICE)) || a->c->readonly)
		return 0;
	err = hooks.offload_query(a->c, q, flags & GPC_DEVICE, &a->there);
	return err == -EAGAIN && !(flags & GPC_DEVICE) ? 0 : err;
}

void call_answers(const struct call *a, uint32_t from, uint32_t n, gpc_block *blocks)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		gpc_block b = a->there.blocks[from + i];

		if (b < 0 || !pool_set_has(&a->probe.live, (uint32_t)b >> 24))
			b = GPC_NONE;
		blocks[i] = b;
	}
}
