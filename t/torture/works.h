/* SPDX-License-Identifier: Apache-2.0 */
/* works.h - the calls that a worker dies in. */
#ifndef GPC_T_WORKS_H
#define GPC_T_WORKS_H

#include "states.h"

static struct {
	gpc *c;
	gpc_key key[2];
	gpc_block block[2];
	int n, section;
} mine;

static void ready_keys(void)
{
	int i;

	for (i = 0; i < 2; i++)
		mine.key[i] = crew_key((uint64_t)i + 1);
	mine.n = gpc_lookup(mine.c, 0, mine.key, 2, mine.block, GPC_QUIET);
	need(mine.n >= 0, "lookup: %s", gpc_last_error());
}

static void ready_refs(void)
{
	ready_keys();
	mine.n = gpc_acquire(mine.c, 0, mine.key, 2, mine.block, 0);
	need(mine.n >= 0, "acquire: %s", gpc_last_error());
}

static void ready_blocks(void)
{
	ready_keys();
	mine.n = gpc_reserve(mine.c, VRAM, 2, mine.block, NULL, GPC_PARTIAL, 2000);
	need(mine.n >= 0 || mine.n == -ENOSPC, "reserve: %s", gpc_last_error());
	mine.n = MAX(mine.n, 0);
}

/* Two leaves: dropping one says nothing of the other. */
static void ready_leaves(void)
{
	mine.key[0] = crew_key(4);
	mine.key[1] = crew_key(15);
	mine.n = gpc_lookup(mine.c, 0, mine.key, 2, mine.block, GPC_QUIET);
	need(mine.n >= 0, "lookup: %s", gpc_last_error());
}

static void ready_section(void)
{
	ready_keys();
	mine.section = gpc_section_enter(mine.c);
	need(mine.section >= 0, "enter: %s", gpc_last_error());
}

static void run_ref(void)
{
	must_be(gpc_ref(mine.c, mine.key, mine.block, (uint32_t)mine.n), mine.n);
}

static void run_unref(void)
{
	must_be(gpc_release(mine.c, mine.block, (uint32_t)mine.n), 0);
}

static void run_acquire(void)
{
	need(gpc_acquire(mine.c, 0, mine.key, 2, mine.block, 0) >= 0, "acquire");
}

static void run_lookup(void)
{
	need(gpc_lookup(mine.c, 0, mine.key, 2, mine.block, 0) >= 0, "lookup");
}

static void run_enter(void)
{
	need(gpc_section_enter(mine.c) >= 0, "enter");
}

static void run_leave(void)
{
	gpc_section_leave(mine.c, mine.section);
}

static void run_drop(void)
{
	if (mine.n == 2)
		must_be(gpc_drop(mine.c, mine.block, 2, NULL, 0, 0), 0);
}

static void run_publish(void)
{
	gpc_key k[2] = { crew_key(60), crew_key(61) };
	gpc_key up[2] = { crew_no_key, k[0] };

	need(gpc_publish(mine.c, up, k, mine.block, (uint32_t)mine.n,
			 GPC_OPTIONS(gpc_publish_options, .tag = 60), 0, 0) >= 0,
	     "publish");
}

static void run_attach(void)
{
	mine.c = small_attach("stepped", 2);
}

static void run_close(void)
{
	gpc_close(mine.c);
}

static void writer_sleeps(void)
{
	seg_shared(&boss->seg)->sleeping = 1;
}

/* ---- the list ---- */

struct work { /* that a worker dies in */
	const char *name;
	action ready, run, beside; /* beside: the boss, before the first step */
};

static const struct work works[] = {
	{ "ref", ready_keys, run_ref, NULL },
	{ "unref", ready_refs, run_unref, NULL },
	{ "give-back", ready_blocks, run_unref, NULL },
	{ "acquire", ready_keys, run_acquire, NULL },
	{ "lookup", ready_keys, run_lookup, NULL },
	{ "enter", NULL, run_enter, NULL },
	{ "leave", ready_section, run_leave, NULL },
	{ "submit-drop", ready_leaves, run_drop, NULL },
	{ "submit-publish", ready_blocks, run_publish, NULL },
	{ "submit-wakes", ready_leaves, run_drop, writer_sleeps },
	{ "attach", NULL, run_attach, NULL },
	{ "close", ready_refs, run_close, NULL },
};

#endif
