/* SPDX-License-Identifier: Apache-2.0 */
/* Which options go together: the table below; gpc-replay(1) has it in words.  An option that
 * stands in no row goes with all others.
 * Tests: t/tools/replay-options.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <stdio.h>
#include <string.h>

enum {
	NAME = 1 << 0,
	DEVICE = 1 << 1,
	ON_DEVICE = 1 << 2, /* a device other than none */
	PAYLOAD = 1 << 3,
	PIECES = 1 << 4,
	VRAM = 1 << 5,
	RAM = 1 << 6,
	SOME_RAM = 1 << 7, /* not 0 */
	FETCH = 1 << 8,
	KILL = 1 << 9,
	DISK_BLOCKS = 1 << 10,
	DISK = 1 << 11,
	RESTART = 1 << 12,
	PLOT = 1 << 13,
};

/* In the order in which messages name them. */
static const struct {
	uint32_t bit;
	const char *option;
} words[] = {
	{ NAME, "--name" },        { PAYLOAD, "--payload" },     { DEVICE, "--device" },
	{ ON_DEVICE, "--device" }, { FETCH, "--fetch" },         { VRAM, "--vram-blocks" },
	{ RAM, "--ram-blocks" },   { SOME_RAM, "--ram-blocks" }, { PIECES, "--pieces" },
	{ KILL, "--kill" },        { DISK, "--disk" },           { DISK_BLOCKS, "--disk-blocks" },
	{ RESTART, "--restart" },
};

static const char own[] = "it is for a cache of its own";
static const char shared[] = "a tier on disk is for a cache of its own that all workers share";

/* All exclusions come first, then the rows from above. */
static const struct rule {
	uint32_t bit;
	const char *option;
	uint32_t excludes, needs;
	const char *why; /* reason of the exclusion */
} rules[] = {
	{ PLOT, "--plot",
	  NAME | DEVICE | FETCH | VRAM | RAM | PAYLOAD | PIECES | KILL | DISK | DISK_BLOCKS |
		  RESTART,
	  0, "--plot computes the hits of all capacities, and replays nothing" },
	{ PIECES, "--pieces", NAME, PAYLOAD | ON_DEVICE,
	  "the pools of a cache have their layouts" },
	{ KILL, "--kill", NAME, FETCH, own },
	{ FETCH, "--fetch", NAME, PAYLOAD | ON_DEVICE, own },
	{ DISK, "--disk", NAME | FETCH | KILL, DISK_BLOCKS, shared },
	{ RESTART, "--restart", NAME | FETCH | KILL, DISK_BLOCKS, shared },
	{ DISK_BLOCKS, "--disk-blocks", NAME | FETCH | KILL, PAYLOAD | ON_DEVICE | SOME_RAM,
	  shared },
};

static uint32_t given(const struct args *a)
{
	return (a->name ? NAME : 0) | (a->device ? DEVICE : 0) |
	       (a->device && strcmp(a->device, "none") ? ON_DEVICE : 0) |
	       (a->payload_given ? PAYLOAD : 0) | (a->pieces ? PIECES : 0) |
	       (a->vram_given ? VRAM : 0) | (a->ram_given ? RAM : 0) | (a->ram ? SOME_RAM : 0) |
	       (a->fetch ? FETCH : 0) | (a->kills ? KILL : 0) | (a->disk ? DISK_BLOCKS : 0) |
	       (a->disk_path ? DISK : 0) | (a->restarts ? RESTART : 0) | (a->plot ? PLOT : 0);
}

static const char *first_of(uint32_t bits)
{
	size_t i = 0;

	while (!(words[i].bit & bits))
		i++;
	return words[i].option;
}

/* "--payload, --device and --ram-blocks" */
static int need(const struct rule *rule)
{
	char list[96] = "";
	uint32_t left = rule->needs;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t at = strlen(list);

		if (!(left & words[i].bit))
			continue;
		left &= ~words[i].bit;
		snprintf(list + at, sizeof(list) - at, "%s%s",
			 !at    ? ""
			 : left ? ", "
				: " and ",
			 words[i].option);
	}
	return cli_usage("%s: give %s, too", rule->option, list);
}

int options_legal(const struct args *a)
{
	uint32_t have = given(a);

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		const struct rule *rule = &rules[i];

		if ((have & rule->bit) && (have & rule->excludes))
			return cli_usage("%s and %s exclude each other: %s", rule->option,
					 first_of(have & rule->excludes), rule->why);
	}
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if ((have & rules[i].bit) && (rules[i].needs & ~have))
			return need(&rules[i]);
	return -1;
}
