/* SPDX-License-Identifier: Apache-2.0 */
/* The host device, below and through gpc_dev_*: mirrors, flushes that take their time or
 * fail, imports of good and bad files, sections around work in flight, replacement. */
#include "config.h"

#include "t/lib/made.h"

#include "reader/dev.h"
#include "device/device.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#define KEYS 24 /* published, in block n - 1 */

static const struct device_ops *const host = &device_host;

static void fill(struct made *m)
{
	uint32_t i;

	made_add_pool(m, 0, GPC_VRAM, 0, 0, 32);
	made_add_pool(m, 1, GPC_RAM, 0, 32, 16);
	made_add_pool(m, 2, GPC_VRAM, 3, 48, 8);
	for (i = 0; i < KEYS; i++)
		made_publish(m, (gpc_block)i, i + 1, i, i + 1);
	made_publish(m, GPC_BLOCK(1, 4), 100, KEYS, KEYS + 1);
	made_publish(m, GPC_BLOCK(2, 5), 1, 0, 1); /* key 1 in space 3, too */
	made_publish(m, GPC_BLOCK(2, 6), 101, 0, 1);
}

static uint64_t entries(const struct made *m)
{
	return (uint64_t)m->c.seg.header.geometry.buckets * SHM_BUCKET;
}

static int file_of(const struct made *m, const struct shm_mirror *d, int flags)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/gpc.%s.m%.20s", scratch, m->c.seg.name,
		 (const char *)d->handle);
	return open(path, flags, 0);
}

/* Mappings of that mirror's file (NULL: any mirror's) in this process, read-only ones. */
static int imports_of(const struct made *m, const struct shm_mirror *d)
{
	char line[600], name[400];
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0;

	snprintf(name, sizeof(name), "gpc.%s.m%.20s", m->c.seg.name,
		 d ? (const char *)d->handle : "");
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, name) && strstr(line, "r--s");
	if (f)
		fclose(f);
	return n;
}

/* Pool 1 is RAM. */
static const struct mirror_status *line(uint64_t sequence)
{
	static struct mirror_status l;

	l = (struct mirror_status){ .sequence = sequence,
				  .ram_pools = { 2 },
				  .spaces = 1 };
	return &l;
}

static int wait_flushed(void *mirror)
{
	struct timespec pause = { .tv_nsec = 100000 };
	int err;

	while ((err = host->flushed(mirror)) == -EAGAIN)
		nanosleep(&pause, NULL);
	return err;
}

/* A mirror with the table as it is now. */
static void *make_mirror(struct made *m, uint32_t generation, struct shm_mirror *d)
{
	void *mirror = NULL;

	memset(d, 0, sizeof(*d));
	if (host->create(&m->c.seg, "host", generation, d, &mirror) ||
	    host->upload(mirror, made_entry(m, 0), entries(m),
			 line(made_state(m)->changes)))
		bail("no mirror: %s", gpc_last_error());
	d->generation = generation;
	d->flushed = made_state(m)->changes;
	d->state = MIRROR_READY;
	return mirror;
}

static void publish_mirror(struct made *m, uint32_t i, const struct shm_mirror *d)
{
	struct shm_mirror *to = made_mirror(m, i);

	store_release(&to->state, MIRROR_NONE);
	order_fence();
	to->bytes = d->bytes;
	to->flushed = d->flushed;
	memcpy(to->device, d->device, sizeof(to->device));
	memcpy(to->handle, d->handle, sizeof(to->handle));
	store_release(&to->generation, d->generation);
	store_release(&to->state, MIRROR_READY);
}

/* ---- the driver ---- */

/* With or without CUDA, and with or without a driver. */
static int find(const char *device)
{
	const struct device_ops *ops = NULL;
	uint8_t uuid[16];
	int err = device_find(device, &ops);

	return err ? err : ops->identify(device, uuid);
}

static void test_find(void)
{
	const struct device_ops *ops = NULL;

	is_int(device_find("host", &ops), 0, "the host device");
	ok(ops == host, "is the host device");
	is_int(find("cuda:4095"), -ENODEV, "CUDA is known, and that one absent");
	is_int(find("GPU-12345678"), -ENODEV, "by UUID, too");
	is_int(device_find("tape", &ops), -EINVAL, "other devices are not known");
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
	is_int(blocks[0], GPC_BLOCK(2, 5), "%s: each space has its own block of a key",
	       when);
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
	is_int(host->match(counters, view, 1, keys, start, 4, len, blocks, NULL), 0,
	       "a match");
	host->wait(NULL, NULL, 5000);
	ok(len[0] == 4 && len[1] == 0 && len[2] == 2 && len[3] == 2,
	   "lengths up to the first "
	   "miss");
	ok(blocks[3] == 3 && blocks[5] == 1 && blocks[6] == 0x55555555,
	   "blocks of the matched "
	   "part only");
	ok(counters[COUNT_LOOKUPS] == 12 && counters[COUNT_HIT_VRAM] == 6 &&
		   counters[COUNT_HIT_RAM] == 2 && counters[COUNT_MISS] == 4,
	   "counted by tier");
	start[1] = 3;
	start[2] = 1;
	is_int(host->match(NULL, view, 1, keys, start, 3, len, NULL, NULL), 0,
	       "without blocks");
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
	is_int(host->flush(mirror, &ch, 1, line(n)), 0, "a flush begins");
	is_int(host->flushed(mirror), -EAGAIN, "and is in flight");
	is_int(host->flush(mirror, &ch, 1, line(n)), -EAGAIN, "only one at a time");
	ok(load_acquire(&view->line->sequence) < n, "the mirror does not show it yet");
	is_int(wait_flushed(mirror), 0, "it ends");
	is_int(load_acquire(&view->line->sequence), n, "the mirror says so");
	device_host_flush_delay_us = 0;
	host->lookup(NULL, view, 1, &key, 1, &b, NULL);
	host->wait(NULL, NULL, 5000);
	is_int(b, 31, "and shows the change");

	memset(&ch.entry, 0, sizeof(ch.entry));
	is_int(host->flush(mirror, &ch, 1, line(n + 1)), 0, "an emptied slot");
	is_int(wait_flushed(mirror), 0, "is flushed");
	host->lookup(NULL, view, 1, &key, 1, &b, NULL);
	host->wait(NULL, NULL, 5000);
	is_int(b, GPC_NONE, "and a miss");
	memset(e, 0, sizeof(*e));
	ch.slot = (uint32_t)entries(m);
	is_int(host->flush(mirror, &ch, 1, line(n)), -EINVAL, "no slot beyond the table");
	is_int(host->upload(mirror, made_entry(m, 0), 4, line(n)), -EINVAL, "no other table");
	is_int(host->flush(mirror, NULL, 0, line(n + 7)), 0, "a flush without changes");
	is_int(wait_flushed(mirror), 0, "ends");
	is_int(load_acquire(&view->line->sequence), n + 7, "and moves the number");
}

static void test_flush_fails(struct made *m)
{
	struct shm_mirror d;
	void *mirror = make_mirror(m, 70, &d);
	uint64_t t;
	int fd;

	device_host_fail_after = 2;
	host->flush(mirror, NULL, 0, line(1));
	is_int(wait_flushed(mirror), 0, "the first flush is fine");
	host->flush(mirror, NULL, 0, line(2));
	is_int(wait_flushed(mirror), 0, "the second");
	host->flush(mirror, NULL, 0, line(3));
	is_int(wait_flushed(mirror), -EIO, "the third fails, as asked for");
	ok(strstr(gpc_last_error(), "flush"), "with a sentence");
	device_host_fail_after = 0;
	device_host_flush_delay_us = 100000000;
	host->flush(mirror, NULL, 0, line(4));
	t = clock_ns();
	host->destroy(mirror);
	ok(clock_ns() - t < 20ull * 1000000000,
	   "a flush that never ends does not keep a mirror "
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

static int child_status(int (*run)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(run(arg));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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
	is_int(child_status(child_stream, NULL), 0,
	       "a forked child has a stream of its own");
#endif
	is_int(host->wait(NULL, NULL, 5000), 0, "and the parent goes on with its");
	is_int(done, 1, "jobs");
	device_host_delay_us = 0;
}

/* ---- hostile mirrors ---- */

static void poke(const struct made *m, const struct shm_mirror *d, off_t at,
		 uint32_t value, int want, const char *what)
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
	is_int(host->import(&m->c.seg, &bad, &im, &view), -EBADMSG,
	       "a handle that is a path");
	memset(bad.handle, '8', sizeof(bad.handle));
	is_int(host->import(&m->c.seg, &bad, &im, &view), -EBADMSG,
	       "a handle without end");
	memset(bad.handle, 0, sizeof(bad.handle));
	is_int(host->import(&m->c.seg, &bad, &im, &view), -EBADMSG, "no handle");
	snprintf((char *)bad.handle, sizeof(bad.handle), "81");
	is_int(host->import(&m->c.seg, &bad, &im, &view), -ESTALE,
	       "a mirror that is gone");

	fd = file_of(m, &d, O_RDWR);
	if (ftruncate(fd, 4096 + 64))
		bail("cannot truncate");
	close(fd);
	is_int(host->import(&m->c.seg, &d, &im, &view), -EBADMSG, "a truncated file");
	host->destroy(mirror);

	mirror = make_mirror(m, 82, &d);
	host->sweep(&m->c.seg, &d);
	is_int(file_of(m, &d, O_RDONLY), -1, "sweeping removes what the dead left");
	host->destroy(mirror);
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
	host->destroy(mirror);
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
	host->destroy(mirror);
	test_lookups(&view, "after its writer went");
	host->release(im);
	test_flush_fails(&m);
	test_hostile(&m);
	test_leftover(&m);
	made_free(&m);
}

/* ---- gpc_dev_* ---- */

static uint64_t epoch_of(const struct made *m, int section)
{
	return seg_section(&m->c.seg, MADE_PEER, (uint32_t)section)->epoch;
}

static void test_dev_lookup(struct made *m, gpc_dev *dev)
{
	gpc_key keys[3] = { made_key(1), made_key(100), made_key(4000) };
	struct shm_seat *seat = seg_seat(&m->c.seg, MADE_PEER);
	uint32_t start[2] = { 0, 3 }, len = 0;
	gpc_block b[3] = { 9, 9, 9 };
	int s;

	is_int(gpc_dev_lookup(dev, 0, keys, 3, b, NULL), -EINVAL,
	       "a lookup outside of sections");
	s = gpc_dev_enter(dev);
	ok(s >= 0, "a section");
	ok(epoch_of(m, s) != 0, "is open for the writer to see");
	is_int(seg_section(&m->c.seg, MADE_PEER, (uint32_t)s)->kind, 1, "as a device's");
	is_int(gpc_dev_lookup(dev, 0, keys, 3, b, NULL), 0, "a lookup");
	is_int(gpc_dev_leave(dev, s, NULL), 0, "the section ends with the stream");
	is_int(gpc_dev_leave(dev, s, NULL), -EINVAL, "once");
	is_int(gpc_dev_wait(dev, NULL, 5000), 0, "which is waited for");
	ok(b[0] == 0 && b[1] == GPC_BLOCK(1, 4) && b[2] == -1, "the results");
	ok(!epoch_of(m, s), "the section is over");
	ok(seat->lookups == 3 && seat->hit_vram == 1 && seat->hit_ram == 1 &&
		   seat->miss == 1,
	   "device hits count, by tier");
	s = gpc_dev_enter(dev);
	is_int(gpc_dev_match(dev, 0, keys, start, 1, &len, NULL, NULL), 0, "a match");
	is_int(gpc_dev_lookup(dev, 0, NULL, 0, NULL, NULL), 0, "nothing to look up");
	is_int(gpc_dev_lookup(dev, 0, keys, 0x80000000u, b, NULL), -EINVAL,
	       "far too much");
	is_int(gpc_dev_lookup(dev, 0, NULL, 1, b, NULL), -EINVAL, "no keys");
	gpc_dev_leave(dev, s, NULL);
	gpc_dev_wait(dev, NULL, 5000);
	is_int(len, 2, "the matched length");
	is_int(gpc_dev_leave(dev, 77, NULL), -EINVAL, "no such section");
	is_int(gpc_dev_leave(dev, 30, NULL), -EINVAL, "a section that is not open");
}

/* Guarantee C: a section is open as long as its work is in flight. */
static void test_dev_section(struct made *m, gpc_dev *dev)
{
	gpc_key key = made_key(1);
	gpc_block b = 9;
	uint64_t cookie;
	int s = gpc_dev_enter(dev), i;

	device_host_delay_us = 40000;
	gpc_dev_lookup(dev, 0, &key, 1, &b, NULL);
	gpc_dev_leave(dev, s, NULL);
	cookie = epoch_start(&m->c.seg);
	handle_sweep_sections(&m->c);
	ok(!epoch_done(&m->c.seg, cookie), "a grace period waits for work in flight");
	is_int(gpc_dev_wait(dev, NULL, 5000), 0, "the work ends");
	ok(epoch_done(&m->c.seg, cookie), "and the grace period with it");
	device_host_delay_us = 0;

	for (i = 0; i < GPC_SECTIONS; i++)
		if (gpc_dev_enter(dev) < 0)
			break;
	is_int(i, GPC_SECTIONS, "as many sections as there are");
	is_int(gpc_dev_enter(dev), -EAGAIN, "and no more");
	for (i = 0; i < GPC_SECTIONS; i++)
		gpc_dev_leave(dev, i, NULL);
	gpc_dev_wait(dev, NULL, 5000);
	s = gpc_dev_enter(dev);
	ok(s >= 0, "all came back");
	gpc_dev_leave(dev, s, NULL);
	gpc_dev_wait(dev, NULL, 5000);
}

static bool released(struct made *m, const struct shm_mirror *d)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int i;

	for (i = 0; i < 5000 && imports_of(m, d); i++)
		nanosleep(&pause, NULL);
	return !imports_of(m, d);
}

/* The mirror is replaced while work on the old one is in flight. */
static void test_dev_replace(struct made *m, gpc_dev *dev, const struct shm_mirror *old,
			     const struct shm_mirror *next)
{
	gpc_key key = made_key(200);
	gpc_block b = 9, b2 = 9;
	int s, s2;

	s = gpc_dev_enter(dev);
	is_int(imports_of(m, old), 1, "the old mirror is imported once");
	publish_mirror(m, 0, next);
	device_host_delay_us = 100000;
	gpc_dev_lookup(dev, 0, &key, 1, &b, NULL);
	gpc_dev_leave(dev, s, NULL);
	s2 = gpc_dev_enter(dev);
	ok(s2 >= 0 && s2 != s, "the next section adopts the new mirror");
	is_int(imports_of(m, next), 1, "which is imported");
	is_int(imports_of(m, old), 1,
	       "beside the old one, that work in flight still reads");
	device_host_delay_us = 0;
	gpc_dev_lookup(dev, 0, &key, 1, &b2, NULL);
	gpc_dev_leave(dev, s2, NULL);
	is_int(gpc_dev_wait(dev, NULL, 5000), 0, "the work ends");
	is_int(b, GPC_NONE, "the old mirror did not have the key");
	is_int(b2, 31, "the new one has");
	s = gpc_dev_enter(dev);
	gpc_dev_leave(dev, s, NULL);
	gpc_dev_wait(dev, NULL, 5000);
	ok(released(m, old), "then the old one is released");
	is_int(imports_of(m, next), 1, "the new one stays");
}

struct crew {
	struct made *m;
	gpc_dev *dev;
	bool stop;
	uint64_t rounds, stale, bad;
};

static void crew_lookup(struct crew *c, int section, const gpc_key keys[KEYS])
{
	gpc_block b[KEYS];
	uint32_t i;

	memset(b, 0x55, sizeof(b));
	if (gpc_dev_lookup(c->dev, 0, keys, KEYS, b, NULL) ||
	    gpc_dev_leave(c->dev, section, NULL) || gpc_dev_wait(c->dev, NULL, 10000))
		count_add(&c->bad, 1);
	for (i = 0; i < KEYS; i++)
		if (b[i] != (gpc_block)i)
			count_add(&c->bad, 1);
	count_add(&c->rounds, 1);
}

static void *crew_run(void *arg)
{
	struct crew *c = arg;
	gpc_key keys[KEYS];
	uint32_t i;
	int s;

	for (i = 0; i < KEYS; i++)
		keys[i] = made_key(i + 1);
	while (!load_relaxed(&c->stop)) {
		s = gpc_dev_enter(c->dev);
		if (s >= 0)
			crew_lookup(c, s, keys);
		else
			count_add(s == -ESTALE ? &c->stale : &c->bad, 1);
	}
	return NULL;
}

/* Threads look up while the mirror is replaced again and again: every key is found
 * always, and no import stays behind. */
static void test_dev_crew(struct made *m, gpc_dev *dev)
{
	struct crew crew = { .m = m, .dev = dev };
	struct timespec pause = { .tv_nsec = 500000 };
	struct shm_mirror d;
	pthread_t t[3];
	void *old, *next;
	uint32_t i;
	int s;

	next = make_mirror(m, 200, &d);
	publish_mirror(m, 0, &d);
	for (i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, crew_run, &crew);
	for (i = 1; i <= 60 || load_relaxed(&crew.rounds) < 300; i++) {
		old = next;
		next = make_mirror(m, 200 + i, &d);
		publish_mirror(m, 0, &d);
		host->destroy(old); /* at once: importers keep what they have mapped */
		nanosleep(&pause, NULL);
	}
	store_relaxed(&crew.stop, true);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	is_int(crew.bad, 0, "lookups go on while mirrors come and go");
	diag("%llu rounds, %llu met a mirror that had just gone",
	     (unsigned long long)crew.rounds, (unsigned long long)crew.stale);
	i = 0;
	do {                            /* the last mirror may not have been met yet */
		s = gpc_dev_enter(dev);
		gpc_dev_leave(dev, s, NULL);
		gpc_dev_wait(dev, NULL, 10000);
	} while (++i < 2000 && imports_of(m, NULL) > 1);
	is_int(imports_of(m, NULL), 1, "and only the last one is still imported");
	is_int(imports_of(m, &d), 1, "which is in use");
	host->destroy(next);
}

static int child_forked(void *arg)
{
	struct {
		struct made *m;
		gpc_dev *dev;
	} *a = arg;

	a->m->c.forked = true; /* what fork.c does for a handle of gpc_attach */
	if (gpc_dev_enter(a->dev) != -ECHILD || gpc_dev_close(a->dev) != -ECHILD ||
	    gpc_mirror_sync(&a->m->c, GPC_TICKET_ALL, 0) != -ECHILD)
		return 1;
	dev_close_all(&a->m->c);
	return a->m->c.devs ? 2 : 0;
}

static void test_dev_open(struct made *m, gpc_dev **ret)
{
	gpc_dev *dev = NULL;
	struct made look;

	is_int(gpc_dev_open(&m->c, "host", &dev), -ENODEV, "made without mirrors");
	strcpy(m->c.seg.header.devices, "cuda:0");
	is_int(gpc_dev_open(&m->c, "host", &dev), -ENODEV, "made with others");
	strcpy(m->c.seg.header.devices, "none,host");
	is_int(gpc_dev_open(&m->c, "host", &dev), -ESTALE, "no mirror yet");
	is_int(gpc_dev_open(&m->c, "cuda:0", &dev), -ENODEV, "no such driver");
	is_int(gpc_dev_open(&m->c, "tape", &dev), -EINVAL, "no such device");
	is_int(gpc_dev_open(&m->c, NULL, &dev), -EINVAL, "no name");
	is_int(gpc_dev_open(NULL, "host", &dev), -EINVAL, "no handle");
	ok(!dev, "failures leave the result alone");
	made_look(&look, m);
	is_int(gpc_dev_open(&look.c, "host", &dev), -EROFS, "a read-only handle");
	made_look_end(&look);
	made_mirror(m, 0)->state = MIRROR_RETIRED;
	is_int(gpc_dev_open(&m->c, "host", &dev), -ESTALE, "a retired mirror is none");
	made_mirror(m, 0)->state = MIRROR_READY;
	*ret = dev;
}

static void test_dev(void)
{
	struct made m;
	struct {
		struct made *m;
		gpc_dev *dev;
	} forked;
	struct shm_mirror d, next;
	gpc_dev *dev, *again = NULL;
	void *mirror, *mirror2;

	made_new(&m, "host-dev", MADE_BLOCKS);
	fill(&m);
	made_mirror(&m, 0)->state = MIRROR_NONE;
	test_dev_open(&m, &dev);
	mirror = make_mirror(&m, 9, &d);
	publish_mirror(&m, 0, &d);
	is_int(gpc_dev_open(&m.c, "host", &dev), 0, "with a mirror it opens");
	is_int(gpc_dev_open(&m.c, "host", &again), 0, "again");
	ok(dev == again, "the same device");
	is_int(imports_of(&m, &d), 0, "nothing is imported before it is used");
	is_int(gpc_dev_close(again), 0, "one close");
	test_dev_lookup(&m, dev);
	test_dev_section(&m, dev);

	forked.m = &m;
	forked.dev = dev;
	is_int(child_status(child_forked, &forked), 0, "a forked child is refused");

	made_publish(&m, 31, 200, 0, 1);
	mirror2 = make_mirror(&m, 10, &next);
	test_dev_replace(&m, dev, &d, &next);
	host->destroy(mirror);

	store_release(&made_mirror(&m, 0)->state, MIRROR_RETIRED);
	is_int(gpc_dev_enter(dev), -ESTALE,
	       "a retired mirror sends peers to the host path");
	handle_sweep_sections(&m.c);
	ok(!epoch_of(&m, 0), "and leaves no section open");
	store_release(&made_mirror(&m, 0)->state, MIRROR_READY);
	test_dev_crew(&m, dev);
	is_int(gpc_dev_close(dev), 0, "close");
	ok(!m.c.devs, "nothing is open");
	host->destroy(mirror2);
	is_int(gpc_dev_close(NULL), -EINVAL, "no device");
	made_free(&m);
}

/* Closing waits for work in flight, and ends what was never left. */
static void test_dev_close(void)
{
	struct made m;
	struct shm_mirror d;
	gpc_key key = made_key(1);
	gpc_block b = 9;
	gpc_dev *dev;
	void *mirror;
	int s;

	made_new(&m, "host-close", MADE_BLOCKS);
	fill(&m);
	mirror = make_mirror(&m, 11, &d);
	publish_mirror(&m, 0, &d);
	gpc_dev_open(&m.c, "host", &dev);
	s = gpc_dev_enter(dev);
	device_host_delay_us = 30000;
	gpc_dev_lookup(dev, 0, &key, 1, &b, NULL);
	dev_close_all(&m.c);
	device_host_delay_us = 0;
	is_int(b, 0, "the work was done");
	ok(!epoch_of(&m, s), "its section is over");
	ok(released(&m, &d), "its mirror released");
	ok(!m.c.devs, "all devices are closed");
	host->destroy(mirror);
	made_free(&m);
}

/* ---- gpc_mirror_sync, gpc_mirror_lag, gpc_check ---- */

static void *flush_soon(void *arg)
{
	struct made *m = arg;
	struct timespec pause = { .tv_nsec = 30000000 };

	nanosleep(&pause, NULL);
	store_release(&made_mirror(m, 0)->flushed, made_state(m)->changes);
	return NULL;
}

static void test_sync(void)
{
	struct made m;
	struct shm_mirror d;
	void *mirror;
	pthread_t t;
	int fd;

	made_new(&m, "host-sync", MADE_BLOCKS);
	fill(&m);
	fd = segment_open_lock(&m.c.seg);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), 0, "without mirrors all is in step");
	is_int(gpc_mirror_lag(&m.c), 0, "and nothing dirty");
	mirror = make_mirror(&m, 12, &d);
	publish_mirror(&m, 0, &d);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), 0, "a mirror in step");
	made_publish(&m, 30, 250, 0, 1);
	is_int(gpc_mirror_lag(&m.c), 1, "a change makes it dirty");
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), -ENOTCONN, "without a writer it stays so");
	lock_try(fd, LOCK_WRITER);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), -EAGAIN, "not yet");
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 20), -ETIMEDOUT, "not in time");
	pthread_create(&t, NULL, flush_soon, &m);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 10000), 0, "until it is flushed");
	pthread_join(t, NULL);
	made_publish(&m, 29, 251, 0, 1);
	store_release(&made_mirror(&m, 0)->state, MIRROR_RETIRED);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), 0, "retired mirrors are not waited for");
	close(fd);
	host->destroy(mirror);
	made_free(&m);
}

static char heard[256];

static void hear(void *arg, const char *line)
{
	(void)arg;
	snprintf(heard, sizeof(heard), "%s", line);
}

static void test_check(void)
{
	struct made m;
	struct shm_mirror d;
	void *mirror;
	uint32_t word = 9;
	struct probe_entry *e;
	int fd;

	made_new(&m, "host-check", MADE_BLOCKS);
	fill(&m);
	e = made_put(&m, 0, made_key(400), 30);
	made_publish(&m, 30, 400, 0, 1);
	memset(e, 0, sizeof(*e));
	mirror = make_mirror(&m, 13, &d);
	publish_mirror(&m, 0, &d);
	is_int(gpc_check(&m.c, hear, NULL), 0, "a mirror equal to its table");
	fd = file_of(&m, &d, O_RDWR);
	if (pwrite(fd, &word, 4, 4096 + 16 * 5 + 12) != 4)
		bail("cannot write");
	is_int(gpc_check(&m.c, hear, NULL), 1, "one entry differs");
	ok(strstr(heard, "mirror 0 bucket 1 entry 1 (block 0x00000008)"), "and is named");
	made_mirror(&m, 0)->flushed--;
	is_int(gpc_check(&m.c, hear, NULL), 0, "a mirror that lags is not compared");
	made_mirror(&m, 0)->flushed += 2;
	is_int(gpc_check(&m.c, hear, NULL), 1, "one that is ahead is wrong");
	ok(strstr(heard, "mirror 0: flushed up to"), "and told");
	made_mirror(&m, 0)->flushed--;
	close(fd);
	host->sweep(&m.c.seg, &d);
	is_int(gpc_check(&m.c, hear, NULL), 0, "a mirror may go with its writer");
	fd = segment_open_lock(&m.c.seg);
	lock_try(fd, LOCK_WRITER);
	is_int(gpc_check(&m.c, hear, NULL), 1, "but not before it");
	close(fd);
	host->destroy(mirror);
	made_free(&m);
}

static int body(void)
{
	test_driver();
	test_dev();
	test_dev_close();
	test_sync();
	test_check();
	return done_testing();
}

int main(void)
{
	scratch_make("t022");
	return tap_guard(50, body, scratch_remove);
}
