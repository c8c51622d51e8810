/* SPDX-License-Identifier: Apache-2.0 */
/* Sections of a device and what callers do wrong: never left, left twice, all in use;
 * work in flight when a block shall be evicted, when a device is closed, when the
 * process forks; devices and arguments that are none.  On the host device, or on the
 * GPU of GPC_TEST_DEVICE.
 * Tests: lib/bytes/mirror/dev.c lib/bytes/device/cuda_peer.c */
#include "t/lib/mirrors.h"
#include "t/lib/lag.h"

#include <dlfcn.h>
#include <sys/wait.h>

enum { KEYS = 8 };

static gpc_key key[KEYS];

/* A cache full of the chain 1 .. KEYS, all of it in the mirror. */
static gpc *full_cache(void)
{
	gpc *c = mirror_cache(KEYS, 0);

	mirror_keys(c, 1, KEYS, key);
	chain_make(c, 0, 1, KEYS, NULL);
	mirror_sync(c);
	return c;
}

static uint64_t sections_of(gpc *c)
{
	return stats_of(c, info_of(c).peer).sections;
}

/* ---- sections ---- */

static void test_numbers(void)
{
	gpc *c = full_cache(), *e = cache_attach(0, 0);
	gpc_dev *d = mirror_open(c), *f = mirror_open(e);
	struct lookup a = ask_new(d, KEYS, 0);
	int s[GPC_SECTIONS], i, n = 0;
	gpc_block b[KEYS];

	ask_put(&a, key, KEYS);
	refused(gpc_dev_lookup(d, 0, a.keys, 1, a.blocks, a.stream), EINVAL,
		"a launch without a section");
	refused(gpc_dev_match(d, 0, a.keys, a.start, 1, a.len, NULL, a.stream), EINVAL,
		"a match without one");
	refused(gpc_dev_leave(d, 0, a.stream), EINVAL, "a section that is not open");
	refused(gpc_dev_leave(d, -1, a.stream), EINVAL, "one that cannot be");
	refused(gpc_dev_leave(d, GPC_SECTIONS, a.stream), EINVAL, "nor this");
	s[0] = must(gpc_dev_enter(d));
	refused(gpc_dev_leave(f, s[0], a.stream), EINVAL, "one of another handle's device");
	refused(gpc_dev_lookup(f, 0, a.keys, 1, a.blocks, a.stream), EINVAL,
		"nor does it open that device");
	is_int(gpc_dev_leave(d, s[0], a.stream), 0, "left");
	refused(gpc_dev_leave(d, s[0], a.stream), EINVAL, "it is left once");
	must(gpc_dev_wait(d, a.stream, 5000));
	for (i = 0; i < GPC_SECTIONS; i++)
		s[i] = must(gpc_dev_enter(d));
	refused(gpc_dev_enter(d), EAGAIN, "as many as there may be");
	refused(gpc_section_enter(c), EAGAIN, "of both kinds together");
	is_int(gpc_lookup(c, 0, key, KEYS, b, 0), KEYS, "the host's calls need none");
	for (i = 0; i < GPC_SECTIONS; i++)
		n += gpc_dev_leave(d, s[i], a.stream) == 0;
	is_int(n, GPC_SECTIONS, "all are left");
	must(gpc_dev_wait(d, a.stream, 5000));
	is_int(sections_of(c), 0, "none is open");
	s[0] = must(gpc_dev_enter(d));
	gpc_section_leave(c, s[0]);
	is_int(sections_of(c), 1, "a host call does not end a device's");
	must(gpc_dev_leave(d, s[0], a.stream));
	for (i = n = 0; i < 300; i++) {
		ask_launch(&a, 0, KEYS);
		ask_get(&a, b, KEYS);
		n += b[KEYS - 1] >= 0;
	}
	is_int(n, 300, "again and again");
	ask_free(&a);
	must(gpc_dev_close(f));
	must(gpc_close(e));
	must(gpc_dev_close(d));
	clean(c, "sections");
	cache_end(c);
}

/* Guarantee C: no id is handed out while work that may have seen it is in flight. */
static void test_eviction_waits(void)
{
	gpc *c = full_cache(), *e = cache_attach(0, 0);
	gpc_dev *f = mirror_open(e);
	struct lookup a = ask_new(f, KEYS, 0);
	gpc_block b[KEYS], hint[KEYS];
	gpc_key k;

	ask_put(&a, key, KEYS);
	device_hold(a.stream);
	ask_launch(&a, 0, KEYS);
	is_int(stats_of(c, info_of(e).peer).sections, 1, "a lookup in flight");
	refused(gpc_evict(c, 0, 1, b, GPC_TAKE, 50), ETIMEDOUT, "is waited for");
	is_int(find(c, KEYS), GPC_NONE, "though the key is gone");
	refused(gpc_reserve(c, 0, 1, b, NULL, 0, 50), ETIMEDOUT, "by a reserve as well");
	refused(gpc_dev_wait(f, a.stream, 0), EAGAIN, "it is in flight still");
	refused(gpc_dev_wait(f, a.stream, 20), ETIMEDOUT, "and not done in time");
	device_let_go();
	is_int(gpc_evict(c, 0, 1, b, GPC_TAKE, 5000), 1, "then ids come");
	must(gpc_release(c, b, 1));
	ask_get(&a, hint, KEYS);
	is_int(hint[0], find(c, 1), "the lookup has its answer");
	k = key_of(c, KEYS);
	is_int(gpc_ref(e, &k, hint + KEYS - 1, 1), 0, "what it saw of the victims is stale");
	ask_free(&a);
	must(gpc_dev_close(f));
	must(gpc_close(e));
	settle(c);
	clean(c, "evictions behind a lookup");
	cache_end(c);
}

/* A section that nobody leaves holds ids back until the device is closed, or the
 * handle. */
static void test_never_left(void)
{
	gpc *c = full_cache(), *e = cache_attach(0, 0);
	gpc_dev *f = mirror_open(e);
	gpc_block b[KEYS];

	must(gpc_dev_enter(f));
	refused(gpc_evict(c, 0, 1, b, 0, 50), ETIMEDOUT, "never left: ids are held back");
	is_int(gpc_dev_close(f), 0, "until the device is closed");
	is_int(gpc_evict(c, 0, 1, b, 0, 5000), 1, "then they come");
	f = mirror_open(e);
	must(gpc_dev_enter(f));
	must(gpc_dev_enter(f));
	must(gpc_close(e));
	is_int(gpc_evict(c, 0, 1, b, 0, 5000), 1, "or until the handle is closed");
	settle(c);
	clean(c, "sections that were never left");
	cache_end(c);
}

/* ---- gpc_mirror_sync ---- */

static void test_sync(void)
{
	gpc *c, *e;
	gpc_block b[4];
	gpc_ticket t = 0;
	gpc_key none = { { 0, 0 } }, k;

	cache_thread = false;
	c = mirror_cache(KEYS, 0);
	e = cache_attach(0, 0);
	k = key_of(c, 1);
	serve_begin(c);
	must(gpc_reserve(e, 0, 1, b, NULL, 0, 60000));
	serve_end();
	/* nobody serves now */
	must(gpc_publish(e, &none, &k, b, 1, GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0, 0));
	refused(gpc_mirror_sync(e, t, 0), EAGAIN, "a command that is not done");
	refused(gpc_mirror_sync(e, t, 20), ETIMEDOUT, "nor in time");
	refused(gpc_mirror_sync(e, t + 1000, 0), EINVAL, "one that was never given");
	is_int(mirror_lag(e), 0, "nothing has changed");
	serve_begin(c);
	is_int(gpc_mirror_sync(e, t, 5000), 0, "the rest goes on");
	is_int(gpc_mirror_sync(e, t, 0), 0, "an old ticket is done");
	serve_end();
	is_int(mirror_lag(e), 0, "all mirrors show it");
	must(gpc_release(e, b, 1));
	must(gpc_close(e));
	cache_end(c);
}

/* ---- open and close ---- */

static void *let_go_later(void *closing)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int i;

	while (!load_acquire((uint32_t *)closing))
		nanosleep(&pause, NULL);
	for (i = 0; i < 30; i++)
		nanosleep(&pause, NULL);
	device_let_go();
	return NULL;
}

static void test_close_in_flight(void)
{
	gpc *c = full_cache();
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, 0);
	gpc_block b[KEYS] = { -77 };
	uint32_t closing = 0;
	pthread_t t;

	device_put(a.blocks, b, sizeof(b));
	ask_put(&a, key, KEYS);
	device_hold(a.stream);
	ask_launch(&a, 0, KEYS);
	if (pthread_create(&t, NULL, let_go_later, &closing))
		bail("no thread");
	store_release(&closing, 1);
	is_int(gpc_dev_close(d), 0, "closed with work in flight");
	ok(load_acquire(&device_gate), "not before it was over");
	device_get(b, a.blocks, sizeof(b));
	ok(b[0] == find(c, 1) && b[KEYS - 1] == find(c, KEYS), "which had its answers");
	is_int(sections_of(c), 0, "no section is left");
	pthread_join(t, NULL);
	ask_free(&a);
	is_int(gpc_reserve(c, 0, KEYS, b, NULL, 0, 5000), KEYS, "nothing is held up");
	must(gpc_release(c, b, KEYS));
	cache_end(c);
}

static void test_open_close(void)
{
	gpc *c = full_cache();
	gpc_dev *d = mirror_open(c), *again = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, 0);
	gpc_block b[KEYS];
	int i, n = 0;

	ok(d == again, "opened twice, it is one device");
	is_int(gpc_dev_close(d), 0, "closed once");
	ask_lookup(&a, 0, key, KEYS, b);
	is_int(b[0], find(c, 1), "it works still");
	is_int(gpc_dev_close(again), 0, "closed");
	for (i = 0; i < 20; i++) {
		a.d = mirror_open(c);
		ask_lookup(&a, 0, key, KEYS, b);
		n += b[KEYS - 1] == find(c, KEYS) && gpc_dev_close(a.d) == 0;
	}
	is_int(n, 20, "opened and closed again and again");
	a.d = mirror_open(c);
	ask_put(&a, key, KEYS);
	ask_launch(&a, 0, KEYS);
	must(gpc_dev_enter(a.d));
	cache_end(c); /* with a device, a lookup and a section open */
	ask_free(&a);
	ok(true, "a handle is closed with all that it has open");
}

/* Also a device that nobody closed is none of the child's. */
static int in_child(gpc *c, gpc_dev *d, const struct lookup *a)
{
	gpc_dev *other;

	if (gpc_dev_enter(d) != -ECHILD || gpc_dev_leave(d, 0, NULL) != -ECHILD)
		return 1;
	if (gpc_dev_lookup(d, 0, a->keys, 1, a->blocks, a->stream) != -ECHILD)
		return 2;
	if (gpc_dev_match(d, 0, a->keys, a->start, 1, a->len, NULL, a->stream) != -ECHILD)
		return 3;
	if (gpc_dev_wait(d, a->stream, 0) != -ECHILD || gpc_dev_close(d) != -ECHILD)
		return 4;
	if (gpc_dev_open(c, device_name(), &other) != -ECHILD ||
	    gpc_mirror_sync(c, GPC_TICKET_ALL, 0) != -ECHILD)
		return 5;
	return gpc_close(c) ? 6 : 0;
}

static void test_fork(void)
{
	gpc *c = full_cache();
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, 0);
	gpc_block b[KEYS];
	int status = -1, s;
	pid_t pid;

	ask_lookup(&a, 0, key, KEYS, b);
	s = must(gpc_dev_enter(d));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(20);
		_exit(in_child(c, d, &a));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		bail("no child");
	is_int(status, 0, "a forked child gets -ECHILD from every call");
	is_int(gpc_dev_leave(d, s, a.stream), 0, "its parent goes on");
	ask_lookup(&a, 0, key, KEYS, b);
	is_int(b[KEYS - 1], find(c, KEYS), "and finds");
	chain_make(c, 0, 101, KEYS, NULL);
	mirror_sync(c);
	ask_lookup(&a, 0, key, KEYS, b);
	is_int(b[0], GPC_NONE, "a mirror that follows the table");
	ask_free(&a);
	must(gpc_dev_close(d));
	clean(c, "a fork");
	cache_end(c);
}

/* ---- bad input ---- */

static void test_bad_devices(void)
{
	gpc *c = full_cache();
	gpc_dev *none = NULL;
	char text[200];

	memset(text, '-', sizeof(text) - 1);
	memcpy(text, "GPU", 3);
	text[sizeof(text) - 1] = 0;
	refused(gpc_dev_open(c, "cuda:99", &none), ENODEV, "a GPU that is not there");
#ifdef HAVE_CUDA
	if (!dlopen("libcuda.so.1", RTLD_LAZY))
		ok(strstr(gpc_last_error(), "no NVIDIA driver (CUDA: "), "nor a driver");
#endif
	refused(gpc_dev_open(c, "GPU-00000000-dead-beef", &none), ENODEV, "a UUID that nobody has");
	refused(gpc_dev_open(c, "tape", &none), EINVAL, "no kind of device");
	refused(gpc_dev_open(c, text, &none), EINVAL, "a name that is too long");
	refused(gpc_dev_open(c, NULL, &none), EINVAL, "none");
	refused(gpc_dev_open(c, "", &none), EINVAL, "an empty one");
	refused(gpc_dev_open(c, device_name(), NULL), EINVAL, "no place for it");
	refused(gpc_dev_open(NULL, device_name(), &none), EINVAL, "no handle");
	ok(!none, "nothing was opened");
	refused(gpc_dev_enter(NULL), EINVAL, "no device");
	refused(gpc_dev_close(NULL), EINVAL, "no device");
	refused(gpc_dev_wait(NULL, NULL, 0), EINVAL, "no device");
	if (device_is_gpu())
		refused(gpc_dev_open(c, "host", &none), ENODEV, "one without a mirror");
	cache_end(c);

	c = cache_new(KEYS, 0);
	refused(gpc_dev_open(c, device_name(), &none), ENODEV, "a cache without mirrors");
	ok(strstr(gpc_last_error(), "its devices are none"), "says so");
	cache_end(c);
}

/* Addresses that a GPU would fault on. */
static void test_bad_addresses(gpc_dev *d, struct lookup *a)
{
	static gpc_key keys[2];
	static gpc_block blocks[2];
	static uint32_t start[2], len[2];
	gpc_key *odd = (gpc_key *)((char *)a->keys + 8);
	gpc_block *odd_blocks = (gpc_block *)((char *)a->blocks + 2);

	refused(gpc_dev_lookup(d, 0, keys, 1, a->blocks, a->stream), EINVAL, "host keys");
	refused(gpc_dev_lookup(d, 0, a->keys, 1, blocks, a->stream), EINVAL, "host blocks");
	refused(gpc_dev_match(d, 0, keys, a->start, 1, a->len, NULL, a->stream), EINVAL,
		"host keys of a match");
	refused(gpc_dev_match(d, 0, a->keys, start, 1, a->len, NULL, a->stream), EINVAL,
		"host starts");
	refused(gpc_dev_match(d, 0, a->keys, a->start, 1, len, NULL, a->stream), EINVAL,
		"host lengths");
	refused(gpc_dev_match(d, 0, a->keys, a->start, 1, a->len, blocks, a->stream), EINVAL,
		"host blocks of a match");
	refused(gpc_dev_lookup(d, 0, odd, 1, a->blocks, a->stream), EINVAL, "keys at half a key");
	refused(gpc_dev_lookup(d, 0, a->keys, 1, odd_blocks, a->stream), EINVAL,
		"blocks at half a block");
}

static void test_bad_launches(void)
{
	gpc *c = full_cache();
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, 2);
	uint32_t n[] = { 0x80000000u, 0x80000001u, 0xffffffffu }, i;
	gpc_block b[KEYS];
	int s = must(gpc_dev_enter(d));

	refused(gpc_dev_lookup(d, 0, NULL, 1, a.blocks, a.stream), EINVAL, "no keys");
	refused(gpc_dev_lookup(d, 0, a.keys, 1, NULL, a.stream), EINVAL, "no blocks");
	refused(gpc_dev_match(d, 0, NULL, a.start, 1, a.len, NULL, a.stream), EINVAL,
		"no keys to match");
	refused(gpc_dev_match(d, 0, a.keys, NULL, 1, a.len, NULL, a.stream), EINVAL, "no starts");
	refused(gpc_dev_match(d, 0, a.keys, a.start, 1, NULL, NULL, a.stream), EINVAL,
		"no lengths");
	refused(gpc_dev_lookup(NULL, 0, a.keys, 1, a.blocks, a.stream), EINVAL, "no device");
	for (i = 0; i < 3; i++) {
		refused(gpc_dev_lookup(d, 0, a.keys, n[i], a.blocks, a.stream), EINVAL,
			"a lookup of %u", n[i]);
		refused(gpc_dev_match(d, 0, a.keys, a.start, n[i], a.len, NULL, a.stream), EINVAL,
			"a match of %u", n[i]);
	}
	if (device_is_gpu())
		test_bad_addresses(d, &a);
	must(gpc_dev_leave(d, s, a.stream));
	must(gpc_dev_wait(d, a.stream, 5000));
	is_int(sections_of(c), 0, "no section is left of all that");
	is_int(stats_of(c, -1).lookups, 0, "and nothing was counted");
	ask_lookup(&a, 0, key, KEYS, b);
	is_int(b[0], find(c, 1), "the device works as before");
	ask_free(&a);
	must(gpc_dev_close(d));
	clean(c, "bad input");
	cache_end(c);
}

static void tests(void)
{
	test_numbers();
	test_eviction_waits();
	test_never_left();
	test_open_close();
	test_close_in_flight();
	test_fork();
}

static int body(void)
{
	cache_both(tests);
	test_bad_devices();
	test_bad_launches();
	test_sync();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
