/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h - a test of several processes.
 *
 * One process speaks TAP: it forks the members, opens gates, kills, and judges.  It has no
 * handle of a cache while it forks, since a child cannot use one.  Members are silent: their
 * exit status speaks, and what need() did not find as it must be leaves a sentence in the
 * page that all share.
 *
 * A gate is a futex word in that page, opened by counting it up.  Whoever waits at one, or in
 * crew_until(), ends when the crew has failed, so that one failure does not cost the
 * watchdog's time.  The watchdog is tap_guard(): it kills the whole crew, and scratch.h's
 * directory goes on every way out. */
#ifndef GPC_T_CREW_H
#define GPC_T_CREW_H

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "gpc.h"
#include "gpc_look.h"
#include "index/base/key.h"
#include "index/base/order.h"
#include "scratch.h"
#include "tap.h"

#define CREW_GATES    64
#define CREW_COUNTS   64
#define CREW_POOLS    8
#define CREW_CHILDREN 1024

struct crew_block {     /* the bytes of a block, in a test */
	uint32_t owner; /* member that may write, + 1 */
	uint32_t pad;
	uint64_t word[7]; /* its key, again and again */
};

struct crew {
	uint32_t failed;
	uint32_t gate[CREW_GATES];
	uint64_t count[CREW_COUNTS];
	char why[600];
	struct crew_block block[CREW_POOLS][CREW_CHILDREN];
};

static struct crew *crew;
static int crew_me;                               /* what this member was forked with */
static bool crew_is_member;                       /* not the one that speaks */
static void (*crew_where)(char *to, size_t size); /* what a failure says, too */

TAP_FN void crew_begin(void)
{
	crew = mmap(NULL, sizeof(*crew), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (crew == MAP_FAILED)
		bail("no shared page");
}

/* ---- gates ---- */

static inline void crew_futex_wait(uint32_t *word, uint32_t value, long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0);
}

TAP_FN void crew_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

TAP_FN void crew_open(int gate)
{
	__atomic_fetch_add(&crew->gate[gate], 1, __ATOMIC_SEQ_CST);
	crew_wake(&crew->gate[gate]);
}

TAP_FN bool crew_is_open(int gate, uint32_t n)
{
	return load_acquire(&crew->gate[gate]) >= n;
}

TAP_FN void crew_give_up(void)
{
	if (!crew_is_member)
		bail("the crew has failed: %s", crew->why);
	_exit(1);
}

/* For loops that go on until a gate has been opened n times. */
TAP_FN bool crew_goes_on(int gate, uint32_t n)
{
	if (load_acquire(&crew->failed))
		crew_give_up();
	return !crew_is_open(gate, n);
}

/* Until the gate has been opened n times. */
TAP_FN void crew_wait(int gate, uint32_t n)
{
	uint32_t now;

	while ((now = load_acquire(&crew->gate[gate])) < n) {
		if (load_acquire(&crew->failed))
			crew_give_up();
		crew_futex_wait(&crew->gate[gate], now, 100);
	}
}

/* What has no gate of its own (the kernel's, the writer's state) is looked at again and again,
 * with `step` between looks. */
#define crew_until(cond, step)                           \
	do {                                             \
		while (!(cond)) {                        \
			if (load_acquire(&crew->failed)) \
				crew_give_up();          \
			step;                            \
		}                                        \
	} while (0)

/* Between two looks. */
TAP_FN void crew_breath(void)
{
	crew_futex_wait(&crew->failed, 0, 1);
}

/* ---- members ---- */

TAP_FN TAP_PRINTF(3, 4) void crew_fail(const char *file, int line, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (!__atomic_exchange_n(&crew->failed, 1, __ATOMIC_SEQ_CST)) {
		snprintf(crew->why, sizeof(crew->why), "member %d, %s:%d: ", crew_me, file, line);
		n = strlen(crew->why);
		va_start(ap, fmt);
		vsnprintf(crew->why + n, sizeof(crew->why) - n, fmt, ap);
		va_end(ap);
		n = strlen(crew->why);
		if (crew_where)
			crew_where(crew->why + n, sizeof(crew->why) - n);
	}
	crew_wake(&crew->failed);
	crew_give_up();
}

#define need(cond, ...)                                             \
	do {                                                        \
		if (!(cond))                                        \
			crew_fail(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)
#define must_be(expr, want)                                                                   \
	do {                                                                                  \
		long long got_ = (long long)(expr), want_ = (long long)(want);                \
		if (got_ != want_)                                                            \
			crew_fail(__FILE__, __LINE__, #expr " is %lld, want %lld (%s)", got_, \
				  want_, gpc_last_error());                                   \
	} while (0)

TAP_FN pid_t crew_fork(int (*member)(int me), int me)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		crew_me = me;
		crew_is_member = true;
		exit(member(me));
	}
	return pid;
}

/* Its exit status; 256 + the signal that ended it. */
TAP_FN int crew_status(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

TAP_FN void crew_join(pid_t pid, const char *who)
{
	if (!is_int(crew_status(pid), 0, "%s ended well", who) && crew->why[0])
		diag("%s", crew->why);
}

TAP_FN void crew_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	crew_status(pid);
}

/* ---- keys, blocks ---- */

TAP_FN uint64_t crew_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Key number n; no two alike, none zero, none a root. */
TAP_FN gpc_key crew_key(uint64_t n)
{
	return (gpc_key){ { crew_mix(2 * n + 1), crew_mix(~n) & ~KEY_ROOT_BIT } };
}

static const gpc_key crew_no_key;

/* xorshift: the same numbers from the same seed everywhere */
TAP_FN uint32_t crew_random(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return below ? (uint32_t)((*state >> 32) % below) : 0;
}

TAP_FN struct crew_block *crew_at(gpc_block b)
{
	need(b >= 0 && GPC_POOL(b) < CREW_POOLS && GPC_SLOT(b) < CREW_CHILDREN,
	     "block 0x%x is none of the test's", (unsigned)b);
	return &crew->block[GPC_POOL(b)][GPC_SLOT(b)];
}

/* A reservation came: nobody else may have it. */
TAP_FN void crew_own(gpc_block b)
{
	uint32_t was =
		__atomic_exchange_n(&crew_at(b)->owner, (uint32_t)crew_me + 1, __ATOMIC_SEQ_CST);

	need(!was, "block 0x%x was given to member %d, but member %d has it", (unsigned)b, crew_me,
	     (int)was - 1);
}

/* Before it is published or given back. */
TAP_FN void crew_disown(gpc_block b)
{
	uint32_t was = __atomic_exchange_n(&crew_at(b)->owner, 0, __ATOMIC_SEQ_CST);

	need(was == (uint32_t)crew_me + 1, "member %d wrote to block 0x%x of member %d",
	     (int)was - 1, (unsigned)b, crew_me);
}

TAP_FN void crew_write(gpc_block b, gpc_key key)
{
	struct crew_block *at = crew_at(b);
	int i;

	for (i = 0; i < 7; i++)
		store_relaxed(&at->word[i], key.w[i & 1]);
}

TAP_FN bool crew_holds(gpc_block b, gpc_key key)
{
	const struct crew_block *at = crew_at(b);
	int i;

	for (i = 0; i < 7; i++)
		if (load_relaxed(&at->word[i]) != key.w[i & 1])
			return false;
	return true;
}

TAP_FN void crew_copy(gpc_block from, gpc_block to)
{
	struct crew_block *a = crew_at(from), *b = crew_at(to);
	int i;

	for (i = 0; i < 7; i++)
		store_relaxed(&b->word[i], load_relaxed(&a->word[i]));
}

/* ---- the cache ---- */

#define CREW_NAME "crew"

TAP_FN gpc *crew_create(struct gpc_config cfg, uint32_t flags)
{
	gpc *c = NULL;

	cfg.size = sizeof(cfg);
	cfg.dir = scratch;
	must_be(gpc_create(CREW_NAME, &cfg, NULL, flags, &c), 0);
	return c;
}

/* Waits for the name and for a seat. */
TAP_FN gpc *crew_attach(const char *label)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .timeout_ms = 20000, .dir = scratch, .label = label
	};
	gpc *c = NULL;

	must_be(gpc_attach(CREW_NAME, &opt, 0, &c), 0);
	return c;
}

TAP_FN int crew_seat(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };

	must_be(gpc_info_get(c, &info), 0);
	return info.peer;
}

TAP_FN struct gpc_stats crew_stats(gpc *c, int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };

	must_be(gpc_stats_get(c, peer, &st), 0);
	return st;
}

/* Is nobody in that seat any more, living or dead? */
TAP_FN bool crew_seat_is_free(gpc *c, int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };

	return gpc_stats_get(c, peer, &st) == -ENOENT;
}

static inline void crew_check_line(void *arg, const char *line)
{
	char *first = arg;

	if (!*first)
		snprintf(first, 300, "%s", line);
}

TAP_FN void crew_check(gpc *c)
{
	char first[300] = "";
	int n = gpc_check(c, crew_check_line, first);

	need(n == 0, "gpc_check: %d, %s", n, n < 0 ? gpc_last_error() : first);
}

/* The writer's work, in the handle that has its seat, until the gate was opened n times. */
TAP_FN void crew_serve(gpc *c, int gate, uint32_t n)
{
	while (crew_goes_on(gate, n))
		need(gpc_writer_serve(c, 5) >= 0, "serving: %s", gpc_last_error());
}

#endif
