/* SPDX-License-Identifier: Apache-2.0 */
/* The time of day jumps by years, to and fro, whenever it is asked for.  Waits are as long as
 * they should be, nothing is lost, and nobody asks but a creator, who notes the day.  What
 * time namespaces do is in t/index/namespaces.c.
 * Tests: lib/index/base/clock.c */
#include "t/torture/team.h"
#include "t/lib/waits.h"

#include <sys/time.h>

static struct asked {
	uint64_t day, others; /* by members: time of day, clocks that nobody needs */
	uint64_t makers;      /* of caches: they may, once */
} * asked;

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_gettimeofday(struct timeval *tv, void *zone);
time_t __wrap_time(time_t *ret);

static time_t some_day(void)
{
	static uint64_t seed = 88172645463325252u;

	if (crew_is_member)
		__atomic_fetch_add(&asked->day, 1, __ATOMIC_RELAXED);
	return (time_t)crew_random(&seed, INT32_MAX);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	int err = __real_clock_gettime(id, ts);

	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		ts->tv_sec = some_day();
	else if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE && crew_is_member)
		__atomic_fetch_add(&asked->others, 1, __ATOMIC_RELAXED);
	return err;
}

int __wrap_gettimeofday(struct timeval *tv, void *zone)
{
	(void)zone;
	*tv = (struct timeval){ .tv_sec = some_day() };
	return 0;
}

time_t __wrap_time(time_t *ret)
{
	time_t t = some_day();

	if (ret)
		*ret = t;
	return t;
}

static void disturb(void)
{
}

static void test_team(void)
{
	uint64_t until;

	opt = (struct options){ .seed = opt.seed, .workers = 3 };
	scene_draw(&chance);
	round_begin("clocks:");
	asked->makers++;
	for (until = clock_ns() + 400 * NS_PER_MS; clock_ns() < until; nap(5000))
		tend();
	round_end();
	ok(page->count[N_ACTS] > 100, "%llu acts: nothing lost, wrong or left over",
	   (unsigned long long)page->count[N_ACTS]);
}

static int body(void)
{
	diag("--seed %llu", (unsigned long long)opt.seed);
	chance = crew_mix(opt.seed) | 1;
	asked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	torture_begin();
	waits_disturb = disturb;
	waits_test();
	asked->makers++;
	memset(crew, 0, sizeof(*crew));
	test_team();
	is_int(asked->day, asked->makers, "nobody asks for the time of day but who makes a cache");
	is_int(asked->others, 0, "nor for any clock but the monotonic one");
	return done_testing();
}

int main(int argc, char **argv)
{
	opt = (struct options){ .workers = 3 };
	options_read(argc, argv);
	scratch_make("t342");
	return tap_guard(90, body, scratch_remove);
}
