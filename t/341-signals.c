/* SPDX-License-Identifier: Apache-2.0 */
/* A signal storm: handlers without SA_RESTART, some ten thousand times a second, in every
 * process.  No call answers -EINTR, no wait ends early or late, nothing is lost. */
#include "torture/team.h"

#include "device.h"

#include <sys/syscall.h>
#include <sys/time.h>

#define TIME   60                /* milliseconds that a wait is given */
#define LATE   3000              /* how late it may end on a busy machine */
#define BLOCKS 8
#define LARGE  (1u << 16)        /* blocks of a creation ... */
#define MOST   65536             /* ... in which so many bytes come between two signals */

enum { GATE_MADE, GATE_IN, GATE_OUT, GATE_STOP, GATE_GOES_ON, GATE_CHECK, GATE_END };
enum { N_HELD = 1, N_SLOW };

static uint64_t *heard;                  /* by all, together */

/* ---- the storm ---- */

static void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(heard, 1, __ATOMIC_RELAXED);
}

static void storm_listen(void)
{
	struct sigaction act = { .sa_handler = on_signal };

	sigaction(SIGALRM, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
}

static void storm(long us)
{
	struct itimerval t = { { 0, us }, { 0, us } };

	setitimer(ITIMER_REAL, &t, NULL);
}

/* Signals from another process, to a whole team. */
static int heckler(int me)
{
	int fd[TEAM], n = 0, i;

	for (i = 0; i < TEAM; i++)
		if (team[i] > 0 && (fd[n] = (int)syscall(SYS_pidfd_open, team[i], 0)) >= 0)
			n++;
	while (load_acquire(&page->leave) < 2) {
		for (i = 0; i < n; i++)
			syscall(SYS_pidfd_send_signal, fd[i], SIGUSR1, NULL, 0);
		nap(20);
	}
	return me;
}

static void test_team(void)
{
	uint64_t until, before = *heard;
	pid_t h;

	opt = (struct options){ .seed = opt.seed, .workers = 3 };
	stage_draw(&chance);
	stage.mirror = true;
	round_begin("signals:");
	h = crew_fork(heckler, 0);
	for (until = clock_ns() + 700 * NS_PER_MS; clock_ns() < until; nap(5000))
		tend();
	round_end();
	crew_status(h);
	ok(*heard - before > 1000 && page->count[N_ACTS] > 100,
	   "%llu acts under %llu signals: nothing lost, wrong or left over",
	   (unsigned long long)page->count[N_ACTS], (unsigned long long)(*heard - before));
}

/* ---- how long waits are ---- */

static uint64_t from_ns;

static bool begin(void)
{
	from_ns = clock_ns();
	return true;
}

static void lasted(const char *what, int r, int want, uint64_t ms)
{
	uint64_t took = (clock_ns() - from_ns) / NS_PER_MS;

	must(r == want, "%s: %d instead of %d, %s", what, r, want, gpc_last_error());
	must(took >= ms && took < ms + LATE, "%s of %d ms took %d ms", what, (int)ms,
	     (int)took);
}

#define lasts(call, want) (begin(), lasted(#call, (call), (want), TIME))

static int slow_writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_blocks = 2 * BLOCKS,
				  .max_peers = 3, .ahead = -1, .devices = "host" };
	gpc *c = crew_create(cfg, 0);

	storm(100);
	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	while (crew_goes_on(GATE_END, 1)) {
		store_relaxed(&device_host_flush_delay_us, (uint32_t)crew->count[N_SLOW]);
		must(gpc_writer_serve(c, 5) >= 0, "serve: %s", gpc_last_error());
	}
	gpc_close(c);
	return me;
}

/* Keeps a section open, and a reference. */
static int reader(int me)
{
	gpc *c = crew_attach("reader");
	gpc_key k = crew_key(1);
	gpc_block b;
	int section;

	storm(100);
	crew_wait(GATE_IN, 1);
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), 1);
	section = gpc_enter(c);
	crew_open(GATE_STOP);
	crew_wait(GATE_OUT, 1);
	gpc_leave(c, section);
	must_be(gpc_unref(c, &b, 1), 0);
	gpc_close(c);
	return me;
}

/* Without a writer's answer: it is stopped meanwhile. */
static void unanswered(gpc *c, pid_t writer, gpc_block spare)
{
	gpc_key k = crew_key(50);
	gpc_block b[2];
	gpc_ticket t;

	kill(writer, SIGSTOP);
	must_be(gpc_publish(c, NULL, &k, &spare, 1, 0, NULL, GPC_NOWAIT, &t), 0);
	lasts(gpc_wait(c, t, TIME), -ETIMEDOUT);
	lasts(gpc_sync(c, t, TIME), -ETIMEDOUT);
	lasts(gpc_reserve(c, 0, 1, 0, b, NULL, 0, TIME), -ETIMEDOUT);
	lasts(gpc_evict(c, 0, 1, b, 0, TIME), -ETIMEDOUT);
	kill(writer, SIGCONT);
	crew_open(GATE_OUT);             /* evictions before it wait for that section */
	must_be(gpc_wait(c, t, -1), 0);
}

static int patient(int me)
{
	struct gpc_options o = { .size = sizeof(o), .dir = scratch, .timeout_ms = TIME };
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_VRAM, .blocks = 2, .space = 1,
			      .demote_to = -1 };
	struct gpc_info info = { .size = sizeof(info) };
	gpc *c, *d = NULL;
	gpc_block b[BLOCKS], x[BLOCKS];
	gpc_key k[BLOCKS];
	gpc_dev *dev;
	int i, pool;

	crew_wait(GATE_MADE, 1);
	storm(100);
	lasts(gpc_attach("nobody", &o, 0, &d), -ENOENT);
	c = crew_attach("patient");
	crew_until(gpc_get_info(c, &info) == 0 && info.peers == 3, crew_breath());
	lasts(gpc_attach(CREW_NAME, &o, 0, &d), -EUSERS);
	must_be(gpc_reserve(c, 0, BLOCKS, 0, b, NULL, 0, -1), BLOCKS);
	for (i = 0; i < BLOCKS; i++)
		k[i] = crew_key((uint64_t)i + 1);
	must_be(gpc_publish(c, NULL, k, b, BLOCKS - 1, 0, NULL, 0, NULL), BLOCKS - 1);
	must_be(gpc_unref(c, b, BLOCKS - 1), 0);
	must_be(gpc_dev_open(c, "host", &dev), 0);
	crew_open(GATE_IN);
	crew_wait(GATE_STOP, 1);
	lasts(gpc_writer_take(c, GPC_STANDBY, TIME), -ETIMEDOUT);
	lasts(gpc_evict(c, 0, 1, x, 0, TIME), -ETIMEDOUT);
	lasts(gpc_reserve(c, 0, BLOCKS - 3, 0, x, NULL, 0, TIME), -ETIMEDOUT);
	unanswered(c, info.writer_pid, b[BLOCKS - 1]);
	must((pool = gpc_pool_add(c, &p)) > 0, "pool: %s", gpc_last_error());
	must_be(gpc_reserve(c, pool, 1, 0, x, NULL, 0, -1), 1);
	lasts(gpc_clear(c, pool, 0, GPC_REMOVE, TIME), -ETIMEDOUT);
	crew->count[N_SLOW] = 200000;
	for (i = 0; i < 20 && gpc_sync(c, 0, 0) == 0; i++) {
		k[0] = crew_key(100 + (uint64_t)i);
		must_be(gpc_reserve(c, 0, 1, 0, x, NULL, 0, -1), 1);
		must_be(gpc_publish(c, NULL, k, x, 1, 0, NULL, 0, NULL), 1);
	}
	must_be(gpc_sync(c, 0, 5), -ETIMEDOUT);
	crew->count[N_SLOW] = 0;
	must_be(gpc_sync(c, 0, -1), 0);
	must_be(gpc_dev_wait(dev, NULL, -1), 0);
	must_be(gpc_dev_close(dev), 0);
	crew_check(c);
	gpc_close(c);
	crew_open(GATE_END);
	return me;
}

static void test_lengths(void)
{
	uint64_t before = *heard;
	pid_t w, r, p;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	w = crew_fork(slow_writer, 0);
	crew_wait(GATE_MADE, 1);
	r = crew_fork(reader, 0);
	p = crew_fork(patient, 0);
	crew_join(p, "a peer whose waits are as long as they should be");
	crew_join(r, "a reader");
	crew_join(w, "the writer");
	diag("%llu signals", (unsigned long long)(*heard - before));
}

/* ---- what is slow in itself ---- */

int __real_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);

/* Many kernels undo all of it at a signal. */
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
	return bytes > MOST ? EINTR : __real_posix_fallocate(fd, at, bytes);
}

static int creator(int me)
{
	struct gpc_config cfg = { .max_blocks = LARGE };
	gpc *c;

	storm(100);
	begin();
	c = crew_create(cfg, 0);
	must(clock_ns() - from_ns < 20000 * NS_PER_MS, "it took %d ms",
	     (int)((clock_ns() - from_ns) / NS_PER_MS));
	gpc_close(c);
	return me;
}

static void test_create(void)
{
	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	crew_join(crew_fork(creator, 0), "the maker of a large cache");
	scratch_files("", true);
}

static int doomed(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 4 };
	gpc *c = crew_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	for (;;)
		gpc_writer_serve(c, 100);
	return me;
}

static int holdup(int me)
{
	gpc *c = crew_attach("holdup");
	int section = gpc_enter(c);

	crew_open(GATE_IN);
	crew_wait(GATE_CHECK, 1);
	nap(300000);
	crew_open(GATE_OUT);
	gpc_leave(c, section);
	gpc_close(c);
	return me;
}

static int heir(int me)
{
	gpc *c = crew_attach("heir");

	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	crew_open(GATE_GOES_ON);
	crew_serve(c, GATE_END, 1);
	gpc_close(c);
	return me;
}

/* A successor that waits for a section repairs no more: so long gpc_check waits, too. */
static int judge_of_heir(int me)
{
	gpc *c = crew_attach("judge");

	crew_wait(GATE_GOES_ON, 1);
	must_be(seg_state(&c->seg)->recovering, 1);
	storm(100);
	crew_open(GATE_CHECK);
	crew_check(c);
	must(crew_is_open(GATE_OUT, 1), "it has not waited");
	gpc_close(c);
	crew_open(GATE_END);
	return me;
}

static void test_check(void)
{
	pid_t w, r, h, j;

	memset(crew, 0, sizeof(*crew));
	w = crew_fork(doomed, 0);
	crew_wait(GATE_MADE, 1);
	r = crew_fork(holdup, 0);
	crew_wait(GATE_IN, 1);
	h = crew_fork(heir, 0);
	j = crew_fork(judge_of_heir, 0);
	crew_kill(w);
	crew_join(j, "gpc_check while a successor repairs");
	crew_join(r, "the reader that held it up");
	crew_join(h, "the successor");
}

static int body(void)
{
	diag("--seed %llu", (unsigned long long)opt.seed);
	chance = crew_mix(opt.seed) | 1;
	torture_begin();
	heard = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	storm_listen();
	test_lengths();
	test_create();
	test_check();
	memset(crew, 0, sizeof(*crew));
	test_team();
	return done_testing();
}

int main(int argc, char **argv)
{
	opt = (struct options){ .workers = 3 };
	options_read(argc, argv);
	scratch_make("t341");
	return tap_guard(90, body, scratch_remove);
}
