/* SPDX-License-Identifier: Apache-2.0 */
/* A signal storm: handlers without SA_RESTART, some ten thousand times a second, in every
 * process.  No call answers -EINTR, no wait ends early or late, nothing is lost.
 * Tests: lib/index/base/futex.c lib/index/segment/pages.c lib/bytes/memfile/pages.c
 *   lib/bytes/memfile/make.c */
#include "t/torture/team.h"
#include "t/lib/waits.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define LARGE (1u << 16) /* blocks of a creation ... */
#define MOST  65536      /* ... in which so many bytes come between two signals */

enum { GATE_GOES_ON = WAITS_GATES, GATE_CHECK };

static uint64_t *heard; /* by all, together */

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

static void storm(void)
{
	struct itimerval t = { { 0, 100 }, { 0, 100 } };

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
	scene_draw(&chance);
	scene.mirror = true;
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

/* ---- what is slow in itself ---- */

int __real_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);

/* Many kernels undo all of it at a signal. */
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
	return bytes > MOST ? EINTR : __real_posix_fallocate(fd, at, bytes);
}

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);

/* A kernel that does not know the advice to make pages (before Linux 5.14). */
int __wrap_madvise(void *at, size_t bytes, int advice)
{
	errno = EINVAL;
	return advice == MADV_POPULATE_WRITE ? -1 : __real_madvise(at, bytes, advice);
}

/* Its pool of RAM has memory, whose checksums and images are longer than that, too. */
static int creator(int me)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = MOST, .sums = 256 };
	struct gpc_config cfg = { .max_blocks = LARGE, .ram_blocks = 8, .ram_memory = &m };
	gpc *c;

	storm();
	waits_begin();
	c = crew_create(cfg, 0);
	need(is_soon(waits_from_ns, 20000), "it took %d ms",
	     (int)((clock_ns() - waits_from_ns) / NS_PER_MS));
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
	struct gpc_config cfg = { .vram_blocks = WAITS_BLOCKS, .max_peers = 4 };
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
	int section = gpc_section_enter(c);

	crew_open(GATE_IN);
	crew_wait(GATE_CHECK, 1);
	nap(300000);
	crew_open(GATE_OUT);
	gpc_section_leave(c, section);
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
	storm();
	crew_open(GATE_CHECK);
	crew_check(c);
	need(crew_is_open(GATE_OUT, 1), "it has not waited");
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
	waits_disturb = storm;
	waits_test();
	diag("%llu signals", (unsigned long long)*heard);
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
