/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever takes part in a tier is killed at each step: its steward while it writes, reads, publishes
 * and starts; a worker that has asked; the writer.  What is found afterwards has its bytes, and the
 * index is sound.
 * Tests: lib/tiers/steward/open.c lib/tiers/steward/up.c lib/tiers/steward/down.c lib/tiers/steward/board.c */
#include "t/lib/below.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "index/request/request.h"

static int ram, vram;

/* Steps of the child: at which it dies, and how many there were. */
static struct {
	uint32_t die_at, steps;
} * shared;
static bool counts;

static void step(void)
{
	if (counts && __atomic_add_fetch(&shared->steps, 1, __ATOMIC_SEQ_CST) == shared->die_at)
		kill(getpid(), SIGKILL);
}

ssize_t __real_pwritev(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev(int fd, const struct iovec *v, int n, off_t at);
int __wrap_fdatasync(int fd);
ssize_t __real_preadv(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at);
int __real_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);
int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);

/* What a killed process has written is there without one. */
int __wrap_fdatasync(int fd)
{
	(void)fd;
	return 0;
}

ssize_t __wrap_pwritev(int fd, const struct iovec *v, int n, off_t at)
{
	step();
	return __real_pwritev(fd, v, n, at);
}

ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at)
{
	step();
	return __real_preadv(fd, v, n, at);
}

/* 1: the next one waits until it is 0; 2: it does. */
static uint32_t hold;

int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop)
{
	int r;

	if (__atomic_load_n(&hold, __ATOMIC_SEQ_CST) == 1)
		__atomic_store_n(&hold, 2, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&hold, __ATOMIC_SEQ_CST))
		usleep(500);
	step();
	r = __real_publish_copies(c, p, n, resident, stop);
	step();
	return r;
}

/* ---- processes ---- */

static pid_t steward_start(const struct gpc_tiers_options *o, uint32_t die_at)
{
	gpc_tiers *t;
	pid_t pid;

	shared->die_at = die_at;
	shared->steps = 0;
	pid = fork();
	if (pid)
		return pid;
	counts = true;
	if (gpc_tiers_open(cache_name, o, &t) < 0)
		_exit(3);
	for (;;)
		pause();
}

static bool is_dead(pid_t pid)
{
	static pid_t dead;

	if (waitpid(pid, NULL, WNOHANG) == pid)
		dead = pid;
	return dead == pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void until_kept(gpc *c, pid_t pid)
{
	struct gpc_tier t = { .size = sizeof(t) };

	while ((gpc_tier_get(c, 0, &t) < 0 || t.steward < 0) && !is_dead(pid))
		usleep(500);
}

/* The bytes of all chains that the index can bring: how many blocks, and none is wrong. */
static void check_all(gpc *c, uint32_t chains, uint32_t die_at)
{
	gpc_block b[8];
	gpc_transfer t;
	gpc_key k[9];
	int n, right = 0, all = 0;
	uint32_t i;

	for (i = 0; i < chains; i++) {
		chain_keys(c, 1 + 8 * i, 8, k);
		t = 0;
		n = gpc_fetch(c, vram, k + 1, 8, b, NULL, GPC_VERIFY_FIRST, NULL, 5000, &t);
		if (n <= 0)
			continue;
		must(gpc_transfer_wait(c, t, 5000));
		all += n;
		right += fetch_right(c, b, (uint32_t)n, 1 + 8 * i);
		must(gpc_release(c, b, (uint32_t)n));
	}
	if (right != all)
		is_int(right, all, "step %u: every byte of %d blocks", die_at, all);
}

static gpc *begin(uint32_t ahead, struct gpc_tiers_options *o, uint32_t flags)
{
	gpc *c = tiers_begin(1024, o, &ram, &vram);

	o->ahead = ahead;
	o->flags = flags;
	return c;
}

static uint32_t lines;
static void count_line(void *arg, const char *line)
{
	(void)arg;
	diag("%s", line);
	lines++;
}

/* ---- the steward ---- */

static void one_life(uint32_t flags, uint32_t die_at, bool *ret_died)
{
	struct gpc_tiers_options o;
	gpc *c = begin(8, &o, flags);
	gpc_block b[8];
	gpc_tiers *t;
	uint32_t i, n = 0;
	pid_t pid;

	pid = steward_start(&o, die_at);
	until_kept(c, pid);
	*ret_died = false;
	for (i = 0; i < 6 && !*ret_died; i++, n++) {
		bytes_chain(c, ram, 1 + 8 * i, 8, b, false);
		*ret_died = gpc_tiers_sync(c, 3000) < 0 && is_dead(pid);
	}
	for (i = 0; i < n && !*ret_died; i++) {
		gpc_key k[9];

		chain_keys(c, 1 + 8 * i, 8, k);
		*ret_died = gpc_prefetch(c, vram, k + 1, 8, 0, 3000) == -ENOTCONN && is_dead(pid);
	}
	if (!*ret_died)
		end(pid);
	o.disk_blocks = 0;
	if (gpc_tiers_open(cache_name, &o, &t) == -EINVAL) { /* it had not made its file */
		o.disk_blocks = 64;
		t = tiers_open(&o);
	} else {
		must(gpc_tiers_close(t));
		t = tiers_open(&o);
	}
	must(gpc_tiers_sync(c, TIERS_MS));
	check_all(c, n, die_at);
	must(gpc_tiers_sync(c, TIERS_MS));
	must(gpc_tiers_close(t));
	settle(c);
	must(gpc_check(c, count_line, NULL));
	unlink(tiers_path);
	cache_end(c);
}

static void test_steward(uint32_t flags, const char *what)
{
	uint32_t at, deaths = 0;
	bool died;

	lines = 0;
	for (at = 1; at < 200; at += at < 30 ? 3 : 8) {
		one_life(flags, at, &died);
		deaths += died;
		if (!died && at > 60)
			break;
	}
	ok(deaths >= 12, "%s: its steward died at %u of its steps", what, deaths);
	is_int(lines, 0, "%s: the index is sound after each", what);
}

/* At each step of its start, with a file of 24 blocks. */
static void test_start(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(8, &o, 0);
	uint32_t at, deaths = 0;
	gpc_tiers *t = tiers_open(&o);
	pid_t pid;
	bool died;

	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	o.disk_blocks = 0;
	for (at = 1, died = true; died && at < 60; at++) {
		pid = steward_start(&o, at);
		until_kept(c, pid);
		died = gpc_tiers_sync(c, 5000) < 0;
		deaths += died;
		end(pid);
	}
	ok(deaths >= 3, "its steward died at %u steps of its start", deaths);
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 24, "the next one finds all of its blocks");
	check_all(c, 5, 0);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "start");
}

struct clearing {
	gpc *c;
	int got;
};

static void *clear_run(void *arg)
{
	struct clearing *q = arg;

	q->got = gpc_pool_clear(q->c, -1, 0, 0, 20000);
	return NULL;
}

/* A clear comes when the first blocks are about to be published again. */
static void test_clear_at_start(void)
{
	struct gpc_tiers_options o;
	struct clearing q = { .c = begin(8, &o, 0) };
	gpc_tiers *t = tiers_open(&o);
	pthread_t thread;

	tiers_fill(q.c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	o.disk_blocks = 0;
	__atomic_store_n(&hold, 1, __ATOMIC_SEQ_CST);
	t = tiers_open(&o);
	while (__atomic_load_n(&hold, __ATOMIC_SEQ_CST) != 2)
		usleep(500);
	pthread_create(&thread, NULL, clear_run, &q);
	usleep(50000);
	__atomic_store_n(&hold, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	ok(q.got >= 0, "all is cleared while a steward starts");
	must(gpc_tiers_sync(q.c, TIERS_MS));
	is_int(tiers_below(q.c, 1, 40), 0, "nothing of the file is published after that");
	must(gpc_tiers_close(t));
	t = tiers_open(&o);
	must(gpc_tiers_sync(q.c, TIERS_MS));
	is_int(tiers_below(q.c, 1, 40), 0, "nor by the next one");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(q.c, "clear at start");
}

/* It dies between the writer's answer and its own. */
static void test_durable(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(8, &o, 0);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_key k = key_of(c, 8);
	gpc_tiers *t = tiers_open(&o);
	gpc_block b = -1;
	pid_t pid;

	tiers_fill(c, ram, 1, 40, 8);
	must(gpc_tiers_close(t));
	o.disk_blocks = 0;
	pid = steward_start(&o, UINT32_MAX);
	until_kept(c, pid);
	must(gpc_tiers_sync(c, TIERS_MS));
	must(gpc_pool_get(c, tier_of(c).pool, &p));
	must(gpc_lookup(c, GPC_SPACE(p.space), &k, 1, &b, 0));
	stop_process(pid);
	if (!fork()) {
		usleep(200000);
		kill(pid, SIGKILL);
		_exit(0);
	}
	refused(gpc_drop(c, &b, 1, NULL, 0, 10000), ENOTCONN,
		"a drop whose steward dies says what may come back");
	while (waitpid(-1, NULL, 0) > 0)
		;
	unlink(tiers_path);
	fetch_end(c, "durable");
}

/* ---- who has asked ---- */

static void test_worker(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(16, &o, 0); /* all of RAM: whatever goes has a copy */
	gpc_tiers *t = tiers_open(&o);
	gpc_key k[9];
	uint32_t i;

	tiers_fill(c, ram, 1, 40, 8);
	for (i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid) {
			gpc *w;

			if (gpc_attach(cache_name,
				       GPC_OPTIONS(gpc_attach_options, .dir = cache_dir,
						   .timeout_ms = 5000),
				       0, &w) < 0)
				_exit(3);
			chain_keys(w, 1 + 8 * (i % 5), 8, k);
			gpc_prefetch(w, vram, k + 1, 8, 0, i % 2 ? 0 : 5000);
			kill(getpid(), SIGKILL);
		}
		usleep(1000 * (i % 7));
		end(pid);
	}
	must(gpc_tiers_sync(c, TIERS_MS));
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 8,
	       "twenty workers died with questions, and the tier goes on");
	check_all(c, 5, 0);
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "worker");
}

/* ---- the writer ---- */

static void test_writer(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_tiers_options o;
	gpc *c = NULL;
	gpc_block b[8];
	gpc_tiers *t;
	uint32_t i, j;
	pid_t pid;

	cfg.max_blocks = 1024;
	cfg.max_peers = 8;
	snprintf(cache_name, sizeof(cache_name), "writer-%d", (int)getpid());
	must(gpc_create(cache_name, &cfg, NULL, 0, &c));
	pid = fork();
	for (i = 0; i < 12; i++) {
		if (!pid) {
			gpc *w;

			if (gpc_attach(cache_name,
				       GPC_OPTIONS(gpc_attach_options, .dir = cache_dir), GPC_SERVE,
				       &w) < 0)
				_exit(3);
			for (;;)
				pause();
		}
		if (!i) {
			ram = bytes_ram(c, 16, 0, 0);
			vram = bytes_vram(c, 64, 0, ram, 0);
			tiers_file();
			o = tiers_options(64);
			o.ahead = 8;
			t = tiers_open(&o);
		}
		for (j = 0; j < 2; j++) {
			int n;

			while ((n = gpc_reserve(c, ram, 8, b, NULL, 0, 1000)) == -ENOTCONN)
				usleep(1000);
			if (n == 8) {
				gpc_key k[9];
				uint32_t x;

				chain_keys(c, 1 + 8 * (2 * i + j), 8, k);
				for (x = 0; x < 8; x++)
					bytes_write(c, b[x], 1 + 8 * (2 * i + j) + x, BYTES_IMAGE);
				while (gpc_publish(c, k, k + 1, b, 8, NULL, 0, 1000) == -ENOTCONN)
					usleep(1000);
				gpc_release(c, b, 8);
			}
		}
		usleep(3000 * (i % 4));
		end(pid);
		pid = fork();
	}
	if (!pid) {
		gpc *w;

		if (gpc_attach(cache_name, GPC_OPTIONS(gpc_attach_options, .dir = cache_dir),
			       GPC_SERVE, &w) < 0)
			_exit(3);
		for (;;)
			pause();
	}
	must(gpc_tiers_sync(c, TIERS_MS));
	/* how many more there are depends on whether the steward kept pace */
	ok(tier_of(c).written >= 8, "twelve writers died, and %d blocks were written",
	   (int)tier_of(c).written);
	check_all(c, 24, 0);
	must(gpc_tiers_sync(c, TIERS_MS));
	must(gpc_tiers_close(t));
	settle(c);
	lines = 0;
	must(gpc_check(c, count_line, NULL));
	is_int(lines, 0, "the index is sound");
	end(pid);
	unlink(tiers_path);
	gpc_close(c);
	gpc_unlink(cache_name, cache_dir);
}

static int body(void)
{
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	test_steward(0, "copies");
	test_steward(GPC_TIERS_EXCLUSIVE, "exclusive");
	test_start();
	test_clear_at_start();
	test_durable();
	test_worker();
	test_writer();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(180, body, cache_dir_remove);
}
