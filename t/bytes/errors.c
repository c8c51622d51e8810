/* SPDX-License-Identifier: Apache-2.0 */
/* One errno for each cause, with a sentence, and nothing changed: no handle, no writer, a
 * full ring, a forked child, arguments out of range.
 * Tests: lib/index/base/err.c lib/index/peer/handle.c */
#include "t/lib/cache.h"

#include "gpc_device.h"

enum { RING = 4096 }; /* commands that a peer may have under way */

/* ---- texts ---- */

static void test_texts(void)
{
	static const int errs[] = { EINVAL, ENOENT, EEXIST, EPROTO,    EBADMSG,   EACCES,
				    ENOSPC, EDQUOT, EAGAIN, ETIMEDOUT, ENOTCONN,  EDEADLK,
				    ESTALE, EPERM,  EUSERS, EXDEV,     EOVERFLOW, ECHILD,
				    EBUSY,  EROFS,  ENODEV, ENOMEM,    EINTR,     EIO };
	enum { N = sizeof(errs) / sizeof(errs[0]) };
	uint32_t i, j, same = 0, signs = 0, empty = 0;

	for (i = 0; i < N; i++) {
		empty += !*gpc_strerror(errs[i]);
		signs += strcmp(gpc_strerror(errs[i]), gpc_strerror(-errs[i])) != 0;
		for (j = 0; j < i; j++)
			same += !strcmp(gpc_strerror(errs[i]), gpc_strerror(errs[j]));
	}
	is_int(empty, 0, "each errno has a sentence");
	is_int(same, 0, "of its own");
	is_int(signs, 0, "with either sign");
	ok(*gpc_strerror(0) && *gpc_strerror(123456), "others have one, too");
	ok(gpc_version() >> 16 < 100 && gpc_version(), "a version");
}

/* ---- no handle ---- */

static void test_no_handle(void)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 1, 0);
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_mirror mirror = { .size = sizeof(mirror) };
	struct gpc_move m = { .to = 1 };
	struct gpc_entry e;
	struct gpc_event ch;
	gpc_key k = { { 1, 1 } };
	struct gpc_prompt prompt = { .ret_keys = &k };
	gpc_block b = 0;
	uint32_t start[2] = { 0, 1 }, len, tok = 1;
	uint64_t cursor = 0;
	gpc_dev *d;

	refused(gpc_info_get(NULL, &info), EINVAL, "gpc_info_get");
	refused(gpc_pool_make(NULL, &p, NULL, -1), EINVAL, "gpc_pool_make");
	refused(gpc_pool_get(NULL, 0, &p), EINVAL, "gpc_pool_get");
	refused(gpc_pool_available(NULL, 0), EINVAL, "gpc_pool_available");
	refused(gpc_pool_clear(NULL, 0, 0, 0, 1000), EINVAL, "gpc_pool_clear");
	refused(gpc_key_root(NULL, NULL, 0, &k), EINVAL, "gpc_key_root");
	refused(hash_keys(NULL, NULL, &tok, 1, NULL, 0, 0, &k), EINVAL, "gpc_key_hash");
	refused(hash_group(NULL, 1, 16, NULL, &tok, 1, NULL, 0, 0, &k), EINVAL,
		"gpc_key_hash of a group");
	refused(gpc_key_hash(NULL, &prompt, 1, 0), EINVAL, "gpc_key_hash of a prompt");
	refused(gpc_key_import(NULL, &tok, 4, 4, 1, 0, &k), EINVAL, "gpc_key_import");
	refused(gpc_alias(NULL, &k, &k, 1, 0, 0), EINVAL, "gpc_alias");
	refused(gpc_alias_resolve(NULL, &k, 1), EINVAL, "gpc_alias_resolve");
	refused(gpc_root_keep(NULL, NULL, 0, &k, 0, 0), EINVAL, "gpc_root_keep");
	refused(gpc_root_get(NULL, &k, NULL, 0, NULL, 0), EINVAL, "gpc_root_get");
	refused(gpc_lookup(NULL, 0, &k, 1, &b, 0), EINVAL, "gpc_lookup");
	refused(gpc_match(NULL, 0, &k, start, 1, &len, &b, 0), EINVAL, "gpc_match");
	refused(gpc_match_groups(NULL, 0, NULL, 0, NULL, 0), EINVAL, "gpc_match_groups");
	refused(gpc_acquire(NULL, 0, &k, 1, &b, 0), EINVAL, "gpc_acquire");
	refused(gpc_ref(NULL, &k, &b, 1), EINVAL, "gpc_ref");
	refused(gpc_release(NULL, &b, 1), EINVAL, "gpc_release");
	refused(gpc_reserve(NULL, 0, 1, &b, NULL, 0, 1000), EINVAL, "gpc_reserve");
	refused(gpc_publish(NULL, NULL, &k, &b, 1, NULL, 0, -1), EINVAL, "gpc_publish");
	refused(gpc_ticket_wait(NULL, 0, 0), EINVAL, "gpc_ticket_wait");
	refused(gpc_evict(NULL, 0, 1, &b, 0, 1000), EINVAL, "gpc_evict");
	refused(gpc_drop(NULL, &b, 1, NULL, 0, -1), EINVAL, "gpc_drop");
	refused(gpc_demote(NULL, 0, 1, &b, 1, &m, 0, 1000), EINVAL, "gpc_demote");
	refused(gpc_promote(NULL, &b, 1, 0, &m, 0, 1000), EINVAL, "gpc_promote");
	refused(gpc_commit(NULL, &m, 1, NULL, 0, -1), EINVAL, "gpc_commit");
	refused(gpc_section_enter(NULL), EINVAL, "gpc_section_enter");
	refused(gpc_grace_done(NULL, 0), EINVAL, "gpc_grace_done");
	refused(gpc_mirror_sync(NULL, GPC_TICKET_ALL, 0), EINVAL, "gpc_mirror_sync");
	refused(gpc_dev_open(NULL, "host", &d), EINVAL, "gpc_dev_open");
	refused(gpc_stats_get(NULL, -1, &st), EINVAL, "gpc_stats_get");
	refused(gpc_mirror_get(NULL, 0, &mirror), EINVAL, "gpc_mirror_get");
	refused(gpc_walk(NULL, &cursor, &e, 1), EINVAL, "gpc_walk");
	refused(gpc_event_read(NULL, &cursor, &ch, 1), EINVAL, "gpc_event_read");
	refused(gpc_check(NULL, NULL, NULL), EINVAL, "gpc_check");
	refused(gpc_writer_take(NULL, 0, 0), EINVAL, "gpc_writer_take");
	refused(gpc_writer_serve(NULL, 0), EINVAL, "gpc_writer_serve");
	refused(gpc_writer_drop(NULL), EINVAL, "gpc_writer_drop");
}

/* ---- arguments ---- */

static void test_keys(void)
{
	gpc *c = cache_new(4, 0);
	struct gpc_extra x[2] = { { 20, 1, "a" }, { 4, 1, "b" } };
	struct gpc_field f = { .tag = 1, .len = 3, .data = NULL };
	gpc_key k = { { 7, 7 } }, was = k;
	uint32_t tok[64] = { 0 };

	refused(hash_keys(c, NULL, NULL, 16, NULL, 0, 0, &k), EINVAL, "no tokens");
	refused(hash_keys(c, NULL, tok, 16, NULL, 0, 0, NULL), EINVAL, "no place for keys");
	refused(hash_keys(c, NULL, tok, 16, NULL, 0, GPC_QUIET, &k), EINVAL, "a flag of others");
	refused(hash_keys(c, NULL, tok, 64, NULL, 1, 0, &k), EINVAL, "no extras");
	refused(hash_keys(c, NULL, tok, 64, x, 2, 0, &k), EINVAL, "extras that descend");
	refused(hash_keys(c, NULL, tok, 16, x, 1, 0, &k), EINVAL, "an extra beyond the end");
	x[0].data = NULL;
	refused(hash_keys(c, NULL, tok, 64, x, 1, 0, &k), EINVAL, "an extra without data");
	refused(gpc_key_root(c, &f, 1, &k), EINVAL, "a field without data");
	refused(gpc_key_root(c, NULL, 1, &k), EINVAL, "no fields");
	refused(gpc_key_root(c, NULL, 0, NULL), EINVAL, "no place for the root");
	f.data = "abc";
	f.reserved = 1;
	refused(gpc_key_root(c, &f, 1, &k), EINVAL, "a field of the future");
	refused(gpc_key_import(c, tok, 0, 4, 1, 0, &k), EINVAL, "digests of no bytes");
	refused(gpc_key_import(c, tok, 8, 4, 1, 0, &k), EINVAL, "digests that overlap");
	refused(gpc_key_import(c, NULL, 4, 4, 1, 0, &k), EINVAL, "no digests");
	refused(gpc_key_import(c, tok, 4, 4, 1, 0, NULL), EINVAL, "no place for keys");
	ok(key_is(k, was), "nothing was written");
	cache_end(c);
}

static void test_arguments(void)
{
	gpc *c = cache_new(4, 0);
	struct gpc_stats st = { .size = sizeof(st) };
	gpc_key k = key_of(c, 1);
	gpc_block b = -7;

	refused(gpc_reserve(c, 16, 1, &b, NULL, 0, 1000), EINVAL, "a pool out of range");
	refused(gpc_reserve(c, -1, 1, &b, NULL, 0, 1000), EINVAL, "no pool");
	refused(gpc_reserve(c, 3, 1, &b, NULL, 0, 1000), ENOENT, "a pool that is not");
	refused(gpc_reserve(c, 0, 1, NULL, NULL, 0, 1000), EINVAL, "no place for blocks");
	refused(gpc_reserve(c, 0, 1, &b, NULL, GPC_COPY, 1000), EINVAL, "a flag of others");
	refused(gpc_evict(c, 16, 1, &b, 0, 1000), EINVAL, "a pool out of range");
	refused(gpc_evict(c, 3, 1, &b, 0, 1000), ENOENT, "a pool that is not");
	refused(gpc_evict(c, 0, 1, NULL, 0, 1000), EINVAL, "no place for ids");
	refused(gpc_evict(c, 0, 1, &b, GPC_PARTIAL, 1000), EINVAL, "a flag of others");
	is_int(gpc_evict(c, 0, 0, NULL, 0, 1000), 0, "no ids");
	refused(gpc_publish(c, NULL, NULL, &b, 1, NULL, 0, -1), EINVAL, "no keys");
	refused(gpc_publish(c, NULL, &k, NULL, 1, NULL, 0, -1), EINVAL, "no blocks");
	refused(gpc_publish(c, NULL, &k, &b, 1, NULL, GPC_REF, -1), EINVAL, "a flag");
	refused(gpc_publish(c, NULL, &k, &b, RING + 1, NULL, 0, 0), EINVAL,
		"more than a ring without waiting");
	refused(gpc_stats_get(c, 99, &st), EINVAL, "a seat out of range");
	refused(gpc_stats_get(c, 3, &st), ENOENT, "an empty seat");
	refused(gpc_stats_get(c, -1, NULL), EINVAL, "no place for statistics");
	st.size = 0;
	refused(gpc_stats_get(c, -1, &st), EINVAL, "no size");
	refused(gpc_info_get(c, NULL), EINVAL, "no place for information");
	is_int(b, -7, "nothing was written");
	is_int(gpc_pool_available(c, 0), 4, "nothing was done");
	clean(c, "arguments");
	cache_end(c);
}

/* ---- a full ring ---- */

static void test_full_ring(void)
{
	gpc *c, *d;
	gpc_block held[4], b = 0;
	gpc_key k[5];
	gpc_ticket t = 0, last = 0;
	int i, n = 0;

	if (cache_thread)
		return;
	c = cache_new(8, 0);
	d = cache_attach(0, 0);
	serve_begin(c);
	must(gpc_reserve(d, 0, 4, held, NULL, 0, 60000));
	serve_end();
	chain_keys(d, 1, 4, k);
	for (i = 0; i < RING && gpc_drop(d, &b, 1, &t, 0, 0) == 0; i++) {
		n += t > last;
		last = t;
	}
	is_int(i, RING, "a ring full of commands that nobody serves");
	is_int(n, RING, "each with its ticket");
	refused(gpc_drop(d, &b, 1, &t, 0, 0), EAGAIN, "not one more");
	refused(gpc_publish(d, k, k + 1, held, 4, GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0,
			    0),
		EAGAIN, "of any kind");
	is_int(stats_of(c, info_of(d).peer).refs, 0, "and no reference is left over");
	refused(gpc_reserve(d, 0, 1, &b, NULL, 0, 0), EAGAIN, "nor a reservation");
	ok(stats_of(c, info_of(d).peer).ring_full >= 3, "which is counted");
	is_int(gpc_release(d, held, 2), 0, "unref never fails for a full ring");
	refused(gpc_release(d, held, 1), EPERM, "it has forgotten the block");
	is_int(find(d, 1), -1, "lookups do not need it");
	refused(gpc_ticket_wait(d, last, 0), EAGAIN, "nothing is done yet");
	serve_begin(c);
	is_int(gpc_ticket_wait(d, last, 2000), 0, "served, all are done");
	is_int(gpc_publish(d, k, k + 1, held + 2, 2, NULL, 0, -1), 2, "there is room again");
	done(d);
	serve_end();
	is_int(stats_of(c, info_of(d).peer).reserved, 0, "what went back late came back");
	is_int(gpc_pool_available(c, 0), 6, "all but what is held");
	must(gpc_close(d));
	clean(c, "a full ring");
	cache_end(c);
}

/* Reservations go back while the ring is full and the writer empties it. */
static void test_ring_pressure(void)
{
	static const gpc_block none[RING];
	gpc *c = cache_new(64, 0), *d = cache_attach(0, 0);
	gpc_block b[64];
	int i, j, n = 0, full = 0;

	serve_begin(c);
	for (i = 0; i < 60; i++) {
		n += gpc_reserve(d, 0, 64, b, NULL, 0, 2000) == 64;
		for (j = 0; j < 8 && gpc_drop(d, none, 1365, NULL, 0, 0) == 0; j++)
			;
		full += j < 8;
		for (j = 0; j < 64; j++)
			n += gpc_release(d, &b[j], 1) == 0;
		done(d);
	}
	serve_end();
	is_int(n, 60 * 65, "64 blocks come and go, each by itself");
	diag("the ring was full %d times", full);
	is_int(stats_of(c, -1).reserved, 0, "none is lost");
	is_int(gpc_pool_available(c, 0), 64, "all can be had");
	must(gpc_close(d));
	clean(c, "a ring under pressure");
	cache_end(c);
}

/* ---- no writer ---- */

struct call {
	gpc *c;
	gpc_key key[2];
	gpc_block block, live, res;
	int result;
	int which;
};

/* Each waits some time before it knows, so they do it side by side. */
static void *call_in_vain(void *arg)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 2, 0);
	struct call *x = arg;
	gpc_block b;

	switch (x->which) {
	case 0:
		x->result = gpc_reserve(x->c, 0, 1, &b, NULL, 0, 5000);
		break;
	case 1:
		x->result =
			gpc_publish(x->c, NULL, x->key, &x->block, 1,
				    GPC_OPTIONS(gpc_publish_options, .resident = &x->res), 0, -1);
		break;
	case 2:
		x->result = gpc_drop(x->c, &x->live, 1, NULL, 0, -1);
		break;
	case 3:
		x->result = gpc_pool_make(x->c, &p, NULL, -1);
		break;
	case 4:
		x->result = gpc_evict(x->c, 0, 1, &b, 0, -1);
		break;
	case 5:
		x->result = gpc_pool_clear(x->c, -1, 77, 0, 5000);
		break;
	}
	return (void *)(intptr_t)(x->result == -ENOTCONN && *gpc_last_error());
}

static void test_no_writer(void)
{
	enum { CALLS = 6 };
	static const char *const name[CALLS] = { "reserve",  "publish", "drop",
						 "pool_add", "evict",   "clear" };
	struct gpc_config cfg = cache_config(8, 0);
	struct call x[CALLS];
	pthread_t thread[CALLS];
	gpc_block mine[2], got;
	gpc_key k;
	void *good;
	gpc *c;
	int i;

	if (cache_thread)
		return;
	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	k = key_of(c, 1);
	chain_make(c, 0, 1, 1, NULL);
	must(gpc_reserve(c, 0, 2, mine, NULL, 0, 60000));
	must(gpc_writer_drop(c));
	is_int(info_of(c).writer_pid, 0, "no writer");
	is_int(gpc_acquire(c, 0, &k, 1, &got, 0), 1, "lookups go on");
	for (i = 0; i < CALLS; i++) {
		x[i] = (struct call){ .c = c,
				      .which = i,
				      .block = mine[0],
				      .live = got,
				      .key = { key_of(c, 2) },
				      .res = -77 };
		if (pthread_create(&thread[i], NULL, call_in_vain, &x[i]))
			bail("no thread");
	}
	for (i = 0; i < CALLS; i++) {
		pthread_join(thread[i], &good);
		ok(good != NULL, "%s: -ENOTCONN and a sentence", name[i]);
	}
	is_int(gpc_release(c, &got, 1), 0, "references go back all the same");
	is_int(gpc_release(c, &mine[1], 1), 0, "and reservations");
	is_int(find(c, 1), got, "nothing changed");
	is_int(gpc_writer_take(c, 0, 0), 0, "a writer");
	done(c);
	is_int(find(c, 2), mine[0], "does what was sent: the publish");
	is_int(find(c, 1), -1, "and the drop");
	is_int(x[1].res, mine[0], "whose answers come then");
	is_int(stats_of(c, info_of(c).peer).reserved, 0,
	       "what nobody waited for any more is not kept");
	must(gpc_release(c, &mine[0], 1));
	settle(c);
	is_int(gpc_pool_available(c, 0), 8, "all can be had");
	clean(c, "a time without a writer");
	cache_end(c);
}

/* ---- a forked child ---- */

#define CHILD(call, want)                                    \
	do {                                                 \
		if ((call) != -(want) || !*gpc_last_error()) \
			_exit(__LINE__ % 250 + 1);           \
		cache_spoil();                               \
	} while (0)

static void use_in_child(gpc *c, gpc_dev *d)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc_key k = { { 1, 1 } };
	gpc_block b = 0;

	cache_spoil();
	CHILD(gpc_lookup(c, 0, &k, 1, &b, 0), ECHILD);
	CHILD(gpc_acquire(c, 0, &k, 1, &b, 0), ECHILD);
	CHILD(gpc_reserve(c, 0, 1, &b, NULL, 0, 0), ECHILD);
	CHILD(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), ECHILD);
	CHILD(gpc_release(c, &b, 1), ECHILD);
	CHILD(gpc_drop(c, &b, 1, NULL, 0, -1), ECHILD);
	CHILD(gpc_section_enter(c), ECHILD);
	CHILD(gpc_info_get(c, &info), ECHILD);
	CHILD(gpc_check(c, NULL, NULL), ECHILD);
	CHILD(gpc_writer_serve(c, 0), ECHILD);
	CHILD(gpc_dev_enter(d), ECHILD);
	gpc_section_leave(c, 0);
	if (gpc_close(c))
		_exit(251);
	_exit(0);
}

static void test_fork(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	int status = 0, section;
	gpc_block b;
	gpc_key k;
	gpc_dev *d;
	pid_t pid;
	gpc *c;

	cfg.devices = "host";
	c = cache_make(&cfg, NULL);
	must(gpc_dev_open(c, "host", &d));
	k = key_of(c, 1);
	chain_hold(c, 0, 1, 1, &b);
	section = must(gpc_section_enter(c));
	fflush(stdout);
	pid = fork();
	if (!pid)
		use_in_child(c, d);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		bail("no child");
	is_int(status, 0, "every call of a forked child is -ECHILD, and closing is fine");
	is_int(stats_of(c, info_of(c).peer).refs, 1, "the parent has what it had");
	is_int(stats_of(c, info_of(c).peer).sections, 1, "its section, too");
	gpc_section_leave(c, section);
	is_int(gpc_acquire(c, 0, &k, 1, &b, 0), 1, "and goes on");
	must(gpc_release(c, &b, 1));
	must(gpc_release(c, &b, 1));
	is_int(gpc_evict(c, 0, 1, &b, 0, 60000), 1, "as its own writer");
	must(gpc_dev_close(d));
	clean(c, "a fork");
	cache_end(c);
}

static void tests(void)
{
	test_keys();
	test_arguments();
	test_full_ring();
	test_ring_pressure();
	test_no_writer();
	test_fork();
}

static int body(void)
{
	test_texts();
	test_no_handle();
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
