/* SPDX-License-Identifier: Apache-2.0 */
/* ill DIR NAME mirror|table|bytes - brings a cache into a state that an alert is about.
 *
 *   mirror  makes the cache with a mirror on the host device, is its writer and prints "well"; at SIGUSR1 it has a flush
 *           fail, and the mirror is retired
 *   table   attaches, fills both buckets of a key, publishes that key, which has no place, and gives all of it back
 *   bytes   attaches, spills from the pool of VRAM that demotes to one of RAM, changes a bit of a block there, and fetches
 *
 * Prints "ill" then, and stays so until SIGTERM.  A cache needs 64 blocks of its pool 0 for `table`. */
#include "gpc.h"
#include "gpc_bytes.h"
#include "gpc_device.h"
#include "gpc_look.h"
#include "gpc_serve.h"

#include "bytes/device/device.h"
#include "kernels/probe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHAIN = 4, FULL = 4, MOST = 2 * FULL + 1 };

/* A call without which the rest makes no sense. */
#define must(call) must_work((call), #call)

static int must_work(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "ill: %s: %s\n", what, gpc_last_error());
		exit(1);
	}
	return r;
}

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

static gpc *attach(char **argv)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .dir = argv[1], .label = "ill", .timeout_ms = 10000
	};
	gpc *c;

	must(gpc_attach(argv[2], &opt, 0, &c));
	return c;
}

static gpc_key key_of(gpc *c, uint64_t number)
{
	gpc_key k;

	must(gpc_key_import(c, &number, 8, 8, 1, 0, &k));
	return k;
}

/* ---- a mirror ---- */

static gpc *mirror(char **argv, const sigset_t *gate)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = argv[1], .label = "ill" };
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .dir = argv[1],
				  .block_tokens = 16,
				  .vram_blocks = 64,
				  .max_peers = 8,
				  .devices = "host" };
	gpc_block b;
	gpc_key k;
	gpc *c;
	int sig;

	must(gpc_create(argv[2], &cfg, &opt, GPC_SERVE, &c));
	k = key_of(c, 1);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, -1));
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, -1));
	say("well");
	sigwait(gate, &sig);
	device_host_fail_after = 1;
	must(gpc_publish(c, NULL, &k, &b, 1, NULL, GPC_NO_REF, -1));
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	return c;
}

/* ---- a bucket ---- */

/* The next key behind number *n with these two buckets. */
static gpc_key key_in(gpc *c, uint64_t *n, uint32_t buckets)
{
	struct probe_key p;
	gpc_key k;

	do {
		k = key_of(c, ++*n);
		p = probe_prepare(k.w[0], k.w[1], buckets);
	} while ((p.first != 5 || p.second != 9) && (p.first != 9 || p.second != 5));
	return k;
}

static gpc *table(char **argv)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc_block b[MOST], resident[MOST];
	gpc_key k[MOST];
	uint64_t n = 0;
	gpc *c = attach(argv);
	int i, done;

	must(gpc_info_get(c, &info));
	for (i = 0; i < MOST; i++)
		k[i] = key_in(c, &n, info.buckets);
	must(gpc_reserve(c, 0, MOST, b, NULL, 0, 10000));
	done = must(gpc_publish(c, NULL, k, b, MOST,
				GPC_OPTIONS(gpc_publish_options, .resident = resident), 0, -1));
	if (done != MOST - 1) {
		fprintf(stderr, "ill: %d of %d keys have a place in two buckets\n", done, MOST);
		exit(1);
	}
	must(gpc_release(c, b, MOST));
	return c;
}

/* ---- bytes ---- */

/* The pool of VRAM that demotes to one of RAM. */
static struct gpc_pool above(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int i;

	for (i = 0; gpc_pool_get(c, i, &p) != -EINVAL; i++)
		if (p.kind == GPC_VRAM && p.demote_to >= 0)
			return p;
	fprintf(stderr, "ill: no pool of VRAM demotes to RAM\n");
	exit(1);
}

static gpc *bytes(char **argv)
{
	gpc *c = attach(argv);
	struct gpc_pool p = above(c);
	gpc_block b[CHAIN], up[CHAIN], found;
	gpc_key k[CHAIN + 1] = { 0 };
	gpc_transfer t = 0;
	uint64_t room;
	void *base;
	int i, vram = p.number, ram = p.demote_to;

	for (i = 0; i < CHAIN; i++)
		k[i + 1] = key_of(c, 1000 + (uint64_t)i);
	must(gpc_reserve(c, vram, CHAIN, b, NULL, 0, 10000));
	must(gpc_publish(c, k, k + 1, b, CHAIN, NULL, GPC_NO_REF, 10000));
	must(gpc_spill(c, vram, ram, NULL, CHAIN, NULL, 0, NULL, 10000, &t));
	must(gpc_transfer_wait(c, t, 10000));
	must(gpc_pool_map(c, ram, 0, &base, &room));
	must(gpc_lookup(c, 0, k + CHAIN, 1, &found, GPC_QUIET));
	((uint8_t *)base)[(uint64_t)GPC_SLOT(found) * p.block_bytes + 7] ^= 0x10;
	t = 0;
	i = must(gpc_fetch(c, vram, k + 1, CHAIN, up, NULL, 0, NULL, 10000, &t));
	if (gpc_transfer_wait(c, t, 10000) != -EBADMSG) {
		fprintf(stderr, "ill: a changed bit was not seen: %s\n", gpc_last_error());
		exit(1);
	}
	must(gpc_release(c, up, (uint32_t)i));
	return c;
}

int main(int argc, char **argv)
{
	sigset_t gate;
	int sig;
	gpc *c;

	if (argc != 4)
		return 2;
	sigemptyset(&gate);
	sigaddset(&gate, SIGTERM);
	sigaddset(&gate, SIGUSR1);
	sigprocmask(SIG_BLOCK, &gate, NULL);
	if (!strcmp(argv[3], "mirror"))
		c = mirror(argv, &gate);
	else
		c = !strcmp(argv[3], "table") ? table(argv) : bytes(argv);
	say("ill");
	sigwait(&gate, &sig);
	return gpc_close(c) < 0;
}
