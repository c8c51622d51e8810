/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of transfers: values, names, words that a device stores, and those that it never does.
 * The maps are of no pool, and the test plays the device.
 * Tests: lib/bytes/payload/transfer.c lib/bytes/payload/transfers.h */
#include "t/lib/cache.h"

#include <fcntl.h>
#include <poll.h>

#include "bytes/device/host_bytes.h"
#include "bytes/mapping/maps.h"
#include "bytes/payload/transfers.h"

static struct map *fake(void)
{
	struct map *m = calloc(1, sizeof(*m) + sizeof(m->part[0]));

	m->pool = 99;
	m->device = &device_bytes_host;
	m->transfers = 1000; /* never unmapped */
	return m;
}

static struct map *to, *from;

static uint32_t users(gpc *c)
{
	uint32_t n;

	pthread_mutex_lock(&c->maps->lock);
	n = to->transfers;
	pthread_mutex_unlock(&c->maps->lock);
	return n;
}

static gpc_transfer begin_one(gpc *c, uint32_t *ret_slot, int err, bool marked)
{
	must(transfer_begin(c, to, from, ret_slot));
	return transfer_end(c, *ret_slot, err, marked);
}

static void play_device(gpc *c, uint32_t slot)
{
	uint64_t value, *word = transfer_word(c, slot, &value);

	store_release(word, value);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void test_values(void)
{
	gpc *c = cache_new(4, 0);
	gpc_transfer t[GPC_TRANSFERS], x;
	uint32_t slot[GPC_TRANSFERS], i, s;
	bool grows = true;

	is_int(gpc_transfer_wait(c, 0, 0), 0, "transfer 0 is done");
	is_int(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 0), 0, "and so are all of none");
	refused(gpc_transfer_wait(c, 77, 0), EINVAL, "a name that was never given");
	refused(gpc_transfer_fd(c, 77), EINVAL, "nor has it a descriptor");
	refused(gpc_transfer_wait(c, 5, 0), EINVAL, "a slot without a value");
	refused(gpc_transfer_wait(c, 123456, 0), EINVAL, "a value of long ago");
	refused(gpc_transfer_fd(c, 5), EINVAL, "these have no descriptor");
	refused(gpc_transfer_fd(c, 123456), EINVAL, "either");
	refused(gpc_transfer_fd(c, GPC_TRANSFER_ALL), EINVAL, "nor have all");
	refused(gpc_transfer_wait(c, 0, -2), EINVAL, "a timeout of -2");
	for (i = 0; i < GPC_TRANSFERS; i++) {
		t[i] = begin_one(c, &slot[i], 0, true);
		grows &= !i || t[i] > t[i - 1];
	}
	refused(gpc_transfer_wait(c, t[0] - GPC_TRANSFERS, 0), EINVAL,
		"what a peer before it may "
		"have given out");
	ok(grows, "names grow");
	is_int(to->transfers, 1000, "a transfer takes over holds, and adds none");
	refused(transfer_begin(c, to, from, &s), EAGAIN, "all slots are taken");
	refused(gpc_transfer_wait(c, t[5], 0), EAGAIN, "one is under way");
	refused(gpc_transfer_wait(c, t[5], 5), ETIMEDOUT, "and still is");
	refused(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 0), EAGAIN, "all are");
	play_device(c, slot[5]);
	is_int(gpc_transfer_wait(c, t[5], 0), 0, "the device says done");
	is_int(to->transfers + from->transfers, 1998, "both maps are put");
	is_int(gpc_transfer_wait(c, t[5], 0), 0, "done stays done");
	is_int(to->transfers + from->transfers, 1998, "and they are put once");
	x = begin_one(c, &s, 0, true);
	is_int(s, slot[5], "its slot is used again");
	ok(x > t[GPC_TRANSFERS - 1], "under a later name");
	is_int(gpc_transfer_wait(c, t[5], 0), 0, "the earlier one is done still");
	refused(gpc_transfer_wait(c, x, 0), EAGAIN, "the later is not");
	store_release(&seg_transfer(&c->seg, c->peer)->done[s], UINT64_MAX);
	refused(gpc_transfer_wait(c, x, 0), EAGAIN, "another value than its own is not done");
	for (i = 0; i < GPC_TRANSFERS; i++)
		play_device(c, slot[i]);
	is_int(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 0), 0, "all are done");
	to->transfers = from->transfers = 1000;
	cache_end(c);
}

static void test_failures(void)
{
	gpc *c = cache_new(4, 0);
	gpc_transfer first, t, last = 0;
	uint32_t s, i;

	first = t = begin_one(c, &s, -EIO, true);
	refused(gpc_transfer_wait(c, t, 0), EAGAIN,
		"one that failed ends when its stream gets there");
	play_device(c, s);
	refused(gpc_transfer_wait(c, t, 0), EIO, "in an error");
	refused(gpc_transfer_wait(c, t, -1), EIO, "which stays");
	ok(strstr(gpc_last_error(), "not all of its blocks"), "and says what it means");
	refused(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 0), EIO, "a wait for all tells of it");
	is_int(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 0), 0, "once");
	for (i = 0; i < TRANSFER_FAILURES; i++) {
		last = begin_one(c, &s, -EIO, true);
		play_device(c, s);
		transfer_sweep(c);
	}
	is_int(gpc_transfer_wait(c, first, 0), 0, "1024 failures later it is forgotten");
	is_int(gpc_transfer_wait(c, last, 0), -EIO, "the last one is not");
	is_int(gpc_transfer_wait(c, last - SHM_TRANSFERS * (TRANSFER_FAILURES - 1ull), 0), -EIO,
	       "nor the one 1023 before it");
	to->transfers = from->transfers = 1000;
	cache_end(c);
}

static void test_lost(void)
{
	gpc *c = cache_new(4, 0);
	uint32_t s, again, i, n = 0;
	gpc_transfer t = begin_one(c, &s, 0, true);
	int fd = must(gpc_transfer_fd(c, t));

	ok(!readable(fd), "a descriptor of one under way is not readable");
	device_host_copy_lost = true;
	refused(gpc_transfer_wait(c, t, 1000), EIO, "a lost device: it has failed");
	for (i = 0; i < 2000 && !readable(fd); i++)
		usleep(1000);
	ok(readable(fd), "and the descriptor says that it has ended");
	close(fd);
	play_device(c, s);
	refused(gpc_transfer_wait(c, t, 0), EIO, "what comes late changes nothing");
	is_int(to->transfers, 1000, "its maps are kept");
	device_host_copy_lost = false;
	for (i = 0; i < GPC_TRANSFERS - 1; i++) {
		begin_one(c, &again, 0, true);
		n += again == s;
		play_device(c, again);
		if (i % 2)
			transfer_sweep(c);
	}
	is_int(n, 0, "and its slot is not used again");
	device_host_copy_lost = true; /* which it is for good */
	transfer_sweep(c);
	to->transfers = from->transfers = 1000;
	cache_end(c);
	device_host_copy_lost = false;
}

/* No mark: nobody will ever say that what was enqueued has ended, so the seat is not given up. */
static void test_no_mark(void)
{
	gpc *c = cache_new(4, 0), *d = cache_attach(0, 0);
	int seat = info_of(d).peer;
	uint32_t s;
	gpc_transfer t = begin_one(d, &s, -EIO, false);

	refused(gpc_transfer_wait(d, t, -1), EIO, "a transfer without a mark has failed");
	is_int(gpc_transfer_wait(d, GPC_TRANSFER_ALL, -1), -EIO, "and nobody waits for it");
	must(gpc_close(d));
	is_int(seg_seat(&c->seg, (uint32_t)seat)->state, SEAT_TAKEN,
	       "its handle leaves as the dead do, not as one that writes no more");
	d = cache_attach(0, 0);
	must(gpc_close(d));
	cache_end(c);
}

/* A new peer goes on from what stands there, sane or not. */
static void test_next_peer(void)
{
	gpc *c = cache_new(4, 0), *d = cache_attach(0, 0);
	uint64_t *done = seg_transfer(&c->seg, (uint32_t)info_of(d).peer)->done, value;
	const uint64_t before = (uint64_t)1 << 55; /* a clock that is far ahead */
	int seat = info_of(d).peer;
	uint32_t s, i;
	gpc_transfer t;

	must(gpc_close(d));
	for (i = 0; i < SHM_TRANSFERS; i++)
		done[i] = i == 3 ? before : i == 4 ? UINT64_MAX : i;
	for (i = 0; i < 100; i++)
		gpc_writer_serve(c, 1);
	d = cache_attach(0, 0);
	is_int(info_of(d).peer, seat, "the next one in that seat");
	t = begin_one(d, &s, 0, true);
	transfer_word(d, s, &value);
	is_int(value, before + SHM_TRANSFERS + 1,
	       "begins above all that can have been given out there");
	refused(gpc_transfer_wait(d, t, 0), EAGAIN, "and is not done");
	play_device(d, s);
	is_int(gpc_transfer_wait(d, t, 0), 0, "until it is");
	is_int(gpc_transfer_wait(d, GPC_TRANSFER_ALL, 0), 0, "and nothing else is under way");
	to->transfers = from->transfers = 1000;
	must(gpc_close(d));
	cache_end(c);
}

static void test_descriptors(void)
{
	gpc *c = cache_new(4, 0);
	uint32_t s[2], i;
	gpc_transfer t[2] = { begin_one(c, &s[0], 0, true), begin_one(c, &s[1], 0, true) };
	int a = must(gpc_transfer_fd(c, t[0])), b = must(gpc_transfer_fd(c, t[1]));
	int again = must(gpc_transfer_fd(c, t[0])), other;

	ok(a > 2 && b > 2 && a != b && a != again, "descriptors of their own");
	play_device(c, s[0]);
	for (i = 0; i < 2000 && !(readable(a) && readable(again)); i++)
		usleep(1000);
	ok(readable(a) && readable(again), "both of one transfer are readable when it is done");
	ok(!readable(b), "that of another is not");
	for (i = 0; i < 2000 && users(c) != 999; i++)
		usleep(1000);
	is_int(users(c), 999, "the thread has put its maps");
	/* the number is the program's: when it is another file's by then, nothing is written to
	 * that */
	close(b);
	other = open("/dev/null", O_RDWR);
	is_int(dup2(other, b), b, "the program closes one, and has another file there");
	close(other);
	play_device(c, s[1]);
	for (i = 0; i < 2000 && to->transfers != 998; i++)
		usleep(1000);
	is_int(to->transfers, 998, "the end of its transfer is seen all the same");
	ok(fcntl(b, F_GETFD) >= 0, "and that file is open");
	close(b);
	a = (close(a), must(gpc_transfer_fd(c, t[1])));
	ok(readable(a), "of one that is done: readable at once");
	close(a);
	a = must(gpc_transfer_fd(c, 0));
	ok(readable(a), "of none: too");
	close(a);
	close(again);
	to->transfers = from->transfers = 1000;
	cache_end(c);
}

/* Of two devices the one that has its memory apart copies. */
static void test_device(void)
{
	struct device_bytes apart = { .in_ram = false };
	struct map *gpu = fake(), *ram = fake();

	gpu->device = &apart;
	ram->device = NULL;
	ok(transfer_device(gpu, to) == gpu && transfer_device(to, gpu) == gpu,
	   "a GPU copies from and to the host device");
	ok(transfer_device(to, ram) == to && transfer_device(ram, to) == to,
	   "the host device from and to RAM");
	ok(!transfer_device(ram, ram), "threads from RAM to RAM");
	free(gpu);
	free(ram);
}

static int body(void)
{
	to = fake();
	from = fake();
	test_device();
	test_values();
	test_failures();
	test_lost();
	test_no_mark();
	test_next_peer();
	test_descriptors();
	free(to);
	free(from);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
