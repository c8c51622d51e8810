/* SPDX-License-Identifier: Apache-2.0 */
/* When a copy has ended: not before the slowest of the threads that share it, not before the part
 * of it that was not refused; and with a handle that is closed every descriptor tells.
 * Tests: lib/bytes/payload/host.c lib/bytes/payload/wait.c lib/bytes/payload/copy.c */
#include "t/lib/bytes.h"

#include <poll.h>

#include "bytes/device/device.h"
#include "bytes/device/host_bytes.h"
#include "bytes/payload/transfers.h"

enum { BLOCK = 2 << 20, BLOCKS = 4 };

/* ---- threads share a copy: the one that has slot 0 waits for us ---- */

static const uint8_t *slow;
static uint32_t is_open, ops;

void __real_host_copy_op(const struct copy_op *op);
void __wrap_host_copy_op(const struct copy_op *op);
void __wrap_host_copy_op(const struct copy_op *op)
{
	while (op->from == slow && !__atomic_load_n(&is_open, __ATOMIC_ACQUIRE))
		usleep(200);
	__real_host_copy_op(op);
	__atomic_fetch_add(&ops, 1, __ATOMIC_SEQ_CST);
}

static int ram(gpc *c, uint32_t space)
{
	struct gpc_pool p = pool_of(GPC_RAM, BLOCKS, space);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BLOCK };

	p.transit = 1;
	return must(gpc_pool_make(c, &p, &m, -1));
}

static uint8_t *base_of(gpc *c, int pool)
{
	uint64_t bytes;
	void *base;

	must(gpc_pool_map(c, pool, 0, &base, &bytes));
	return base;
}

static bool comes(const uint32_t *word, uint32_t n)
{
	int i;

	for (i = 0; i < 20000 && __atomic_load_n(word, __ATOMIC_SEQ_CST) < n; i++)
		usleep(200);
	return i < 20000;
}

static void test_shares(void)
{
	gpc *c = bytes_cache();
	int from = ram(c, 0), to = ram(c, 1), i, same = 0;
	gpc_block a[BLOCKS], b[BLOCKS];
	struct gpc_move m[BLOCKS];
	gpc_transfer t;

	must(gpc_reserve(c, from, BLOCKS, a, NULL, 0, 60000));
	must(gpc_reserve(c, to, BLOCKS, b, NULL, 0, 60000));
	for (i = 0; i < BLOCKS; i++) {
		memset(base_of(c, from) + (size_t)GPC_SLOT(a[i]) * BLOCK, i + 1, BLOCK);
		m[i] = (struct gpc_move){ .from = a[i], .to = b[i] };
	}
	slow = base_of(c, from) + (size_t)GPC_SLOT(a[0]) * BLOCK;
	c->transfers->most = 2; /* threads, on any machine */
	must(gpc_copy(c, m, BLOCKS, 0, NULL, &t));
	ok(comes(&ops, 1), "the second of two threads has copied its share");
	refused(gpc_transfer_wait(c, t, 30), ETIMEDOUT, "that is not the end");
	__atomic_store_n(&is_open, 1, __ATOMIC_RELEASE);
	is_int(gpc_transfer_wait(c, t, 10000), 0, "both have");
	for (i = 0; i < BLOCKS; i++)
		same += !memcmp(base_of(c, from) + (size_t)GPC_SLOT(a[i]) * BLOCK,
				base_of(c, to) + (size_t)GPC_SLOT(b[i]) * BLOCK, BLOCK);
	is_int(same, BLOCKS, "every byte");
	slow = NULL;
	must(gpc_release(c, a, BLOCKS));
	must(gpc_release(c, b, BLOCKS));
	cache_end(c);
}

/* ---- some of it is refused ---- */

/* Such a slot is never used again, and its handle leaves as the dead do. */
static uint32_t lost_slots(const gpc *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < SHM_TRANSFERS; i++)
		n += c->transfers->channel[i].state == CHANNEL_LOST;
	return n;
}

static void test_refused(void)
{
	gpc *c = bytes_cache();
	int from = bytes_ram(c, 4, 0, 0), to = bytes_vram(c, 4, 0, from, 0), i;
	gpc_block a[2], b[2];
	struct gpc_move m[2];
	gpc_transfer t = 0;

	must(gpc_reserve(c, from, 2, a, NULL, 0, 60000));
	must(gpc_reserve(c, to, 2, b, NULL, 0, 60000));
	for (i = 0; i < 2; i++) { /* no neighbours */
		bytes_write(c, a[i], 5 + (uint64_t)i, BYTES_IMAGE);
		bytes_write(c, b[i], 70, BYTES_IMAGE);
		m[i] = (struct gpc_move){ .from = a[i], .to = b[!i] };
	}
	device_host_delay_us = 50000;
	device_host_copy_fail_at = 3; /* two operations a block */
	refused(gpc_copy(c, m, 2, 0, NULL, &t), EIO, "the second block is refused");
	is_int(gpc_transfer_wait(c, t, 0), -EAGAIN, "the first one's bytes are still to come");
	is_int(gpc_transfer_wait(c, t, 5000), -EIO, "then it has failed");
	ok(bytes_are(c, m[0].to, 5, BYTES_IMAGE), "and they are there");
	device_host_delay_us = 0;
	is_int(bytes_copy(c, m, 2), 0, "the same again");
	must(gpc_release(c, a, 2));
	must(gpc_release(c, b, 2));
	is_int(lost_slots(c), 0, "and no slot is lost");
	cache_end(c);
}

/* ---- told at the end ---- */

static void test_close(void)
{
	gpc *c = cache_new(4, 0);
	struct map *m = calloc(1, sizeof(*m) + sizeof(m->part[0]));
	struct pollfd p = { .events = POLLIN };
	uint64_t value, *word;
	uint32_t slot;
	gpc_transfer t;

	m->pool = 99;
	m->device = &device_bytes_host;
	m->transfers = 1000; /* never unmapped */
	must(transfer_begin(c, m, m, &slot));
	t = transfer_end(c, slot, 0, true);
	p.fd = must(gpc_transfer_fd(c, t));
	map_stop(c); /* nobody looks any more */
	word = transfer_word(c, slot, &value);
	is_int(poll(&p, 1, 0), 0, "a copy is under way");
	store_release(word, value);
	must(gpc_close(c));
	is_int(poll(&p, 1, 0), 1, "it ended with the handle, and the descriptor tells");
	close(p.fd);
	free(m);
}

static int body(void)
{
	test_shares();
	test_refused();
	test_close();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
