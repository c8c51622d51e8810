/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_dev_* on the host device: sections around work in flight, mirrors that are replaced
 * or retired meanwhile, closing.
 * Tests: lib/bytes/mirror/dev.c lib/bytes/mirror/view.c */
#include "config.h"

#include "t/lib/host.h"

static uint64_t epoch_of(const struct made *m, int section)
{
	return seg_section(&m->c.seg, MADE_PEER, SHM_SECTION((uint32_t)section))->epoch;
}

static void test_dev_lookup(struct made *m, gpc_dev *dev)
{
	gpc_key keys[3] = { made_key(1), made_key(100), made_key(4000) };
	struct shm_seat *seat = seg_seat(&m->c.seg, MADE_PEER);
	uint32_t start[2] = { 0, 3 }, len = 0;
	gpc_block b[3] = { 9, 9, 9 };
	int s;

	is_int(gpc_dev_lookup(dev, 0, keys, 3, b, NULL), -EINVAL, "a lookup outside of sections");
	s = gpc_dev_enter(dev);
	ok(s >= 0, "a section");
	ok(epoch_of(m, s) != 0, "is open for the writer to see");
	is_int(seg_section(&m->c.seg, MADE_PEER, SHM_SECTION((uint32_t)s))->kind, 1,
	       "as a device's");
	is_int(gpc_dev_lookup(dev, 0, keys, 3, b, NULL), 0, "a lookup");
	is_int(gpc_dev_leave(dev, s, NULL), 0, "the section ends with the stream");
	is_int(gpc_dev_leave(dev, s, NULL), -EINVAL, "once");
	is_int(gpc_dev_wait(dev, NULL, 5000), 0, "which is waited for");
	ok(b[0] == 0 && b[1] == GPC_BLOCK(1, 4) && b[2] == -1, "the results");
	ok(!epoch_of(m, s), "the section is over");
	ok(seat->lookups == 3 && seat->hit_vram == 1 && seat->hit_ram == 1 && seat->miss == 1,
	   "device hits count, by tier");
	s = gpc_dev_enter(dev);
	is_int(gpc_dev_match(dev, 0, keys, start, 1, &len, NULL, NULL), 0, "a match");
	is_int(gpc_dev_lookup(dev, 0, NULL, 0, NULL, NULL), 0, "nothing to look up");
	is_int(gpc_dev_lookup(dev, 0, keys, 0x80000000u, b, NULL), -EINVAL, "far too much");
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
	is_int(imports_of(m, old), 1, "beside the old one, that work in flight still reads");
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
		host->writer.destroy(old); /* at once: importers keep what they have mapped */
		nanosleep(&pause, NULL);
	}
	store_relaxed(&crew.stop, true);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	is_int(crew.bad, 0, "lookups go on while mirrors come and go");
	diag("%llu rounds, %llu met a mirror that had just gone", (unsigned long long)crew.rounds,
	     (unsigned long long)crew.stale);
	i = 0;
	do { /* the last mirror may not have been met yet */
		s = gpc_dev_enter(dev);
		gpc_dev_leave(dev, s, NULL);
		gpc_dev_wait(dev, NULL, 10000);
	} while (++i < 2000 && imports_of(m, NULL) > 1);
	is_int(imports_of(m, NULL), 1, "and only the last one is still imported");
	is_int(imports_of(m, &d), 1, "which is in use");
	host->writer.destroy(next);
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
	host->writer.destroy(mirror);

	store_release(&made_mirror(&m, 0)->state, MIRROR_RETIRED);
	is_int(gpc_dev_enter(dev), -ESTALE, "a retired mirror sends peers to the host path");
	handle_sweep_sections(&m.c);
	ok(!epoch_of(&m, 0), "and leaves no section open");
	store_release(&made_mirror(&m, 0)->state, MIRROR_READY);
	test_dev_crew(&m, dev);
	is_int(gpc_dev_close(dev), 0, "close");
	ok(!m.c.devs, "nothing is open");
	host->writer.destroy(mirror2);
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
	host->writer.destroy(mirror);
	made_free(&m);
}

static int body(void)
{
	test_dev();
	test_dev_close();
	return done_testing();
}

int main(void)
{
	scratch_make("t026");
	return tap_guard(50, body, scratch_remove);
}
