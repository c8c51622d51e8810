/* SPDX-License-Identifier: Apache-2.0 */
/* The host device as a driver: lookups in a mirror, flushes that take their time or fail,
 * its stream, imports of good and bad files.
 * Tests: lib/bytes/device/host.c lib/bytes/device/host_kernel.c lib/bytes/device/host_mirror.c
 *   lib/bytes/device/host_import.c lib/bytes/device/host_stream.c lib/index/segment/descriptor.c */
#include "config.h"

#include "t/lib/host.h"

static int wait_flushed(void *mirror)
{
	struct timespec pause = { .tv_nsec = 100000 };
	int err;

	while ((err = host->writer.flushed(mirror)) == -EAGAIN)
		nanosleep(&pause, NULL);
	return err;
}

/* With or without CUDA, and with or without a driver. */
static int find(const char *device)
{
	const struct driver *driver;
	uint8_t uuid[16];

	return driver_identify(device, &driver, uuid);
}

static void test_find(void)
{
	static const uint8_t zeros[16], gpu[16] = { 1 };
	const struct driver *driver = NULL, *other = NULL;
	uint8_t uuid[16] = { 1 };

	is_int(driver_identify("host", &driver, uuid), 0, "the host device");
	ok(driver->mirror == host && driver->bytes->in_ram, "is the host device");
	ok(!driver_of(uuid, &other) && other == driver, "by its UUID, too");
	ok(!memcmp(uuid, zeros, sizeof(uuid)), "which is zeros");
	ok(driver_of(gpu, &other) == driver_find("cuda:0", &other),
	   "a GPU is known or not, by whichever name");
	ok(other == driver || !other->bytes->in_ram, "and its memory is its own");
	is_int(find("cuda:4095"), -ENODEV, "CUDA is known, and that one absent");
	is_int(find("GPU-12345678"), -ENODEV, "by UUID, too");
	is_int(driver_find("tape", &driver), -EINVAL, "other devices are not known");
}

static void test_lookups(const struct dev_view *view, const char *when)
{
	gpc_key keys[KEYS + 3];
	gpc_block blocks[KEYS + 3];
	uint32_t i, good = 0;

	for (i = 0; i < KEYS; i++)
		keys[i] = made_key(i + 1);
	keys[KEYS] = made_key(100);
	keys[KEYS + 1] = made_key(101);
	keys[KEYS + 2] = made_key(5000);
	memset(blocks, 0x55, sizeof(blocks));
	host->lookup(NULL, view, GPC_SPACE(0), keys, KEYS + 3, blocks, NULL);
	is_int(host->wait(NULL, NULL, 5000), 0, "%s: a lookup is done", when);
	for (i = 0; i < KEYS; i++)
		good += blocks[i] == (gpc_block)i;
	is_int(good, KEYS, "%s: every key is found in its block", when);
	is_int(blocks[KEYS], GPC_BLOCK(1, 4), "%s: RAM answers to the same probe", when);
	is_int(blocks[KEYS + 1], GPC_NONE, "%s: other spaces are not asked", when);
	is_int(blocks[KEYS + 2], GPC_NONE, "%s: an unknown key is a miss", when);
	host->lookup(NULL, view, GPC_SPACE(0) | GPC_SPACE(3), keys, KEYS + 3, blocks, NULL);
	host->wait(NULL, NULL, 5000);
	is_int(blocks[0], 0, "%s: of two spaces the lowest answers", when);
	is_int(blocks[KEYS + 1], GPC_BLOCK(2, 6), "%s: or the one that has it", when);
	host->lookup(NULL, view, GPC_SPACE(3), keys, 1, blocks, NULL);
	host->wait(NULL, NULL, 5000);
	is_int(blocks[0], GPC_BLOCK(2, 5), "%s: each space has its own block of a key", when);
}

static void test_match(const struct dev_view *view)
{
	uint32_t start[] = { 0, 4, 4, 10, 12 }, len[4] = { 9, 9, 9, 9 };
	uint64_t counters[DEVICE_COUNTERS] = { 0 };
	gpc_key keys[12];
	gpc_block blocks[12];
	uint32_t i;

	for (i = 0; i < 12; i++)
		keys[i] = made_key(i < 4 ? i + 1 : i < 10 ? i - 3 : 100);
	keys[6] = made_key(777);
	memset(blocks, 0x55, sizeof(blocks));
	is_int(host->match(counters, view, 1, keys, start, 4, len, blocks, NULL), 0, "a match");
	host->wait(NULL, NULL, 5000);
	ok(len[0] == 4 && len[1] == 0 && len[2] == 2 && len[3] == 2, "lengths up to the first "
								     "miss");
	ok(blocks[3] == 3 && blocks[5] == 1 && blocks[6] == 0x55555555, "blocks of the matched "
									"part only");
	ok(counters[COUNT_LOOKUPS] == 12 && counters[COUNT_HIT_VRAM] == 6 &&
		   counters[COUNT_HIT_RAM] == 2 && counters[COUNT_MISS] == 4,
	   "counted by tier");
	start[1] = 3;
	start[2] = 1;
	is_int(host->match(NULL, view, 1, keys, start, 3, len, NULL, NULL), 0, "without blocks");
	host->wait(NULL, NULL, 5000);
	is_int(len[1], 0, "a sequence that ends before it begins is empty");
}

static void test_flush(struct made *m, void *mirror, const struct dev_view *view)
{
	struct probe_entry *e = made_put(m, 0, made_key(300), 31);
	struct launch_change ch = { .slot = (uint32_t)(e - m->table), .entry = *e };
	uint64_t n = made_state(m)->changes;
	gpc_key key = made_key(300);
	gpc_block b = 0;

	device_host_flush_delay_us = 50000;
	is_int(host->writer.flush(mirror, &ch, 1, status_of(n)), 0, "a flush begins");
	is_int(host->writer.flushed(mirror), -EAGAIN, "and is in flight");
	is_int(host->writer.flush(mirror, &ch, 1, status_of(n)), -EAGAIN, "only one at a time");
	ok(load_acquire(&view->status->sequence) < n, "the mirror does not show it yet");
	is_int(wait_flushed(mirror), 0, "it ends");
	is_int(load_acquire(&view->status->sequence), n, "the mirror says so");
	device_host_flush_delay_us = 0;
	host->lookup(NULL, view, 1, &key, 1, &b, NULL);
	host->wait(NULL, NULL, 5000);
	is_int(b, 31, "and shows the change");

	memset(&ch.entry, 0, sizeof(ch.entry));
	is_int(host->writer.flush(mirror, &ch, 1, status_of(n + 1)), 0, "an emptied slot");
	is_int(wait_flushed(mirror), 0, "is flushed");
	host->lookup(NULL, view, 1, &key, 1, &b, NULL);
	host->wait(NULL, NULL, 5000);
	is_int(b, GPC_NONE, "and a miss");
	memset(e, 0, sizeof(*e));
	ch.slot = (uint32_t)entries(m);
	is_int(host->writer.flush(mirror, &ch, 1, status_of(n)), -EINVAL,
	       "no slot beyond the table");
	is_int(host->writer.upload(mirror, made_entry(m, 0), 4, status_of(n)), -EINVAL,
	       "no other table");
	is_int(host->writer.flush(mirror, NULL, 0, status_of(n + 7)), 0, "a flush without changes");
	is_int(wait_flushed(mirror), 0, "ends");
	is_int(load_acquire(&view->status->sequence), n + 7, "and moves the number");
}

static void test_flush_fails(struct made *m)
{
	struct shm_mirror d;
	void *mirror = make_mirror(m, 70, &d);
	uint64_t t;
	int fd;

	device_host_fail_after = 2;
	host->writer.flush(mirror, NULL, 0, status_of(1));
	is_int(wait_flushed(mirror), 0, "the first flush is fine");
	host->writer.flush(mirror, NULL, 0, status_of(2));
	is_int(wait_flushed(mirror), 0, "the second");
	host->writer.flush(mirror, NULL, 0, status_of(3));
	is_int(wait_flushed(mirror), -EIO, "the third fails, as asked for");
	ok(strstr(gpc_last_error(), "flush"), "with a sentence");
	device_host_fail_after = 0;
	device_host_flush_delay_us = 100000000;
	host->writer.flush(mirror, NULL, 0, status_of(4));
	t = clock_ns();
	host->writer.destroy(mirror);
	ok(clock_ns() - t < 20ull * 1000000000, "a flush that never ends does not keep a mirror "
						"from going");
	device_host_flush_delay_us = 0;
	fd = file_of(m, &d, O_RDONLY);
	is_int(fd, -1, "its file is gone");
}

static void test_stream(const struct dev_view *view)
{
	gpc_key key = made_key(1);
	gpc_block b = 77;
	uint64_t done = 10, t;

	device_host_delay_us = 60000;
	t = clock_ns();
	host->lookup(NULL, view, 1, &key, 1, &b, NULL);
	host->signal(NULL, &done, 11, (void *)8); /* any stream is the one stream */
	ok(clock_ns() - t < 50000000, "launches do not wait");
	is_int(host->wait(NULL, NULL, 0), -EAGAIN, "the stream works");
	is_int(host->wait(NULL, NULL, 5), -ETIMEDOUT, "longer than that");
	is_int(load_acquire(&done), 10, "the signal comes in its turn");
	is_int(host->wait(NULL, NULL, -1), 0, "until it is done");
	is_int(load_acquire(&done), 11, "the ticket shows");
	is_int(b, 0, "after the lookup's result");
	device_host_delay_us = 0;
	host->signal(NULL, &done, 5, NULL);
	host->wait(NULL, NULL, 5000);
	is_int(done, 11, "a signal never lowers a ticket");
}

static void *many_lookups(void *arg)
{
	const struct dev_view *view = arg;
	gpc_key keys[KEYS];
	gpc_block blocks[KEYS];
	uint32_t i, j;
	intptr_t bad = 0;

	for (i = 0; i < KEYS; i++)
		keys[i] = made_key(i + 1);
	for (j = 0; j < 100; j++) {
		memset(blocks, 0x55, sizeof(blocks));
		if (host->lookup(NULL, view, 1, keys, KEYS, blocks, NULL) ||
		    host->wait(NULL, NULL, 10000))
			bad++;
		for (i = 0; i < KEYS; i++)
			bad += blocks[i] != (gpc_block)i;
	}
	return (void *)bad;
}

static void test_stream_threads(struct dev_view *view)
{
	pthread_t t[4];
	intptr_t bad = 0;
	void *one;
	int i;

	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, many_lookups, view);
	for (i = 0; i < 4; i++) {
		pthread_join(t[i], &one);
		bad += (intptr_t)one;
	}
	is_int(bad, 0, "four threads share the stream");
}

UNUSED static int child_stream(void *arg)
{
	uint64_t done = 0;

	(void)arg;
	if (host->wait(NULL, NULL, 0))
		return 1; /* the parent's jobs are the parent's */
	host->signal(NULL, &done, 3, NULL);
	return host->wait(NULL, NULL, 5000) ? 2 : done == 3 ? 0 : 3;
}

static void test_stream_fork(void)
{
	uint64_t done = 0;

	device_host_delay_us = 30000;
	host->signal(NULL, &done, 1, NULL);
#ifdef __SANITIZE_THREAD__
	skip(1, "the thread sanitizer knows no threads after fork");
#else
	is_int(child_status(child_stream, NULL), 0, "a forked child has a stream of its own");
#endif
	is_int(host->wait(NULL, NULL, 5000), 0, "and the parent goes on with its");
	is_int(done, 1, "jobs");
	device_host_delay_us = 0;
}

/* ---- hostile mirrors ---- */

static void poke(const struct made *m, const struct shm_mirror *d, off_t at, uint32_t value,
		 int want, const char *what)
{
	int fd = file_of(m, d, O_RDWR);
	struct dev_view view;
	uint32_t old;
	void *im = NULL;
	int err;

	if (pread(fd, &old, 4, at) != 4 || pwrite(fd, &value, 4, at) != 4)
		bail("cannot write");
	err = host->import(&m->c.seg, d, &im, &view);
	is_int(err, want, "%s", what);
	if (!err)
		host->release(im);
	if (pwrite(fd, &old, 4, at) != 4)
		bail("cannot write");
	close(fd);
}

static void test_hostile(struct made *m)
{
	struct shm_mirror d, bad;
	struct dev_view view;
	void *mirror = make_mirror(m, 80, &d), *im = NULL;
	int fd;

	poke(m, &d, 0, 1, -EBADMSG, "no magic number");
	poke(m, &d, 8, 99, -EBADMSG, "another version");
	poke(m, &d, 12, 99, -EBADMSG, "another byte order");
	poke(m, &d, 16, 1, -EBADMSG, "another table");
	poke(m, &d, 20, 81, -ESTALE, "another mirror");
	poke(m, &d, 24, 1, -EBADMSG, "another size");
	poke(m, &d, 32, 1, -EBADMSG, "another cache's");
	poke(m, &d, 4000, 1, 0, "the rest of the header's page does not matter");

	bad = d;
	snprintf((char *)bad.handle, sizeof(bad.handle), "80/../../etc/passwd");
	is_int(host->import(&m->c.seg, &bad, &im, &view), -EBADMSG, "a handle that is a path");
	memset(bad.handle, '8', sizeof(bad.handle));
	is_int(host->import(&m->c.seg, &bad, &im, &view), -EBADMSG, "a handle without end");
	memset(bad.handle, 0, sizeof(bad.handle));
	is_int(host->import(&m->c.seg, &bad, &im, &view), -EBADMSG, "no handle");
	snprintf((char *)bad.handle, sizeof(bad.handle), "81");
	is_int(host->import(&m->c.seg, &bad, &im, &view), -ESTALE, "a mirror that is gone");

	fd = file_of(m, &d, O_RDWR);
	if (ftruncate(fd, 4096 + 64))
		bail("cannot truncate");
	close(fd);
	is_int(host->import(&m->c.seg, &d, &im, &view), -EBADMSG, "a truncated file");
	host->writer.destroy(mirror);

	mirror = make_mirror(m, 82, &d);
	host->writer.sweep(&m->c.seg, &d);
	is_int(file_of(m, &d, O_RDONLY), -1, "sweeping removes what the dead left");
	host->writer.destroy(mirror);
}

static void test_leftover(struct made *m)
{
	struct shm_mirror d = { .handle = "83" };
	struct dev_view view;
	void *mirror, *im;
	int fd = file_of(m, &d, O_RDWR | O_CREAT | O_EXCL);

	close(fd);
	mirror = make_mirror(m, 83, &d);
	is_int(host->import(&m->c.seg, &d, &im, &view), 0,
	       "a leftover of the name is no "
	       "obstacle");
	ok(!memcmp(view.table, made_entry(m, 0), entries(m) * sizeof(struct probe_entry)),
	   "the mirror is the table, byte for byte");
	host->release(im);
	host->writer.destroy(mirror);
}

static void test_driver(void)
{
	struct made m;
	struct shm_mirror d;
	struct dev_view view;
	void *mirror, *im;

	made_new(&m, "host-driver", MADE_BLOCKS);
	fill(&m);
	test_find();
	mirror = make_mirror(&m, 7, &d);
	is_str(d.device, "host", "the descriptor names the device");
	is_str((char *)d.handle, "7", "and the file");
	is_int(host->import(&m.c.seg, &d, &im, &view), 0, "an import");
	test_lookups(&view, "upload");
	test_match(&view);
	test_flush(&m, mirror, &view);
	test_lookups(&view, "after flushes");
	test_stream(&view);
	test_stream_threads(&view);
	test_stream_fork();
	host->writer.destroy(mirror);
	test_lookups(&view, "after its writer went");
	host->release(im);
	test_flush_fails(&m);
	test_hostile(&m);
	test_leftover(&m);
	made_free(&m);
}

static int body(void)
{
	test_driver();
	return done_testing();
}

int main(void)
{
	scratch_make("t022");
	return tap_guard(50, body, scratch_remove);
}
