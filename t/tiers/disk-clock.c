/* SPDX-License-Identifier: Apache-2.0 */
/* Ages of blocks: the clock of the day jumps both ways, the machine is restarted, the file lies
 * about for a while.  No age jumps, none is negative.
 * Tests: lib/tiers/disk/super.c */
#include <time.h>

#include "index/base/fd.h"
#include "t/lib/disks.h"

#define SECOND 1000000000ll
#define YEAR   (365 * 86400 * SECOND)

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __real_fd_peek(const char *path, int flags);
int __wrap_fd_peek(const char *path, int flags);

static _Atomic int64_t boot_ns = 1000 * SECOND, day_ns = 50 * YEAR;
static char boot_path[128];

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	int64_t ns = clock == CLOCK_BOOTTIME ? boot_ns : day_ns;

	if (clock != CLOCK_BOOTTIME && clock != CLOCK_REALTIME)
		return __real_clock_gettime(clock, t);
	*t = (struct timespec){ ns / SECOND, ns % SECOND };
	return 0;
}

int __wrap_fd_peek(const char *path, int flags)
{
	return __real_fd_peek(strstr(path, "boot_id") ? boot_path : path, flags);
}

/* Another boot of the machine. */
static void boot(uint32_t n)
{
	FILE *f = fopen(boot_path, "we");

	if (!f)
		bail("%s cannot be written", boot_path);
	fprintf(f, "%08x-0000-4000-8000-000000000001\n", n);
	fclose(f);
}

static void pass(int64_t seconds)
{
	boot_ns += seconds * SECOND;
	day_ns += seconds * SECOND;
}

static struct disk *d;

static void reopen(void)
{
	struct disk_options opt = disk_opt(4);

	disk_close(d);
	d = disk_must(&opt);
}

static int64_t age(uint64_t slot)
{
	struct disk_slot s = { .slot = slot };

	if (disk_look(d, &s, NULL))
		bail("no block in slot %d", (int)slot);
	return (int64_t)(disk_now(d) - s.born_ns) / SECOND;
}

static int body(void)
{
	struct disk_slot s = { .slot = 0 };

	boot(1);
	reopen();
	is_int(disk_put(d, 0, 1, 0, 1), 0, "a block");
	pass(100);
	is_int(age(0), 100, "its age");
	day_ns += 10 * YEAR;
	is_int(age(0), 100, "the clock of the day is set forward");
	is_int(disk_put(d, 1, 2, 0, 1), 0, "another block");
	day_ns -= 30 * YEAR;
	pass(10);
	ok(age(0) == 110 && age(1) == 10, "and back");
	if (disk_look(d, &s, NULL))
		bail("no block");
	is_int((int64_t)s.written_ns, 50 * YEAR,
	       "the day on which it was written is told as it was");
	pass(5);
	reopen();
	is_int(age(0), 115, "opened again");
	disk_close(d);
	d = NULL;
	pass(50);
	day_ns += 7 * YEAR;
	reopen();
	is_int(age(0), 165, "closed for a while, with a jump");
	disk_close(d);
	d = NULL;
	day_ns -= 7 * YEAR;
	pass(1);
	reopen(); /* which notes both clocks */
	is_int(age(0), 166, "and back");

	disk_close(d);
	d = NULL;
	boot(2);
	boot_ns = 3 * SECOND;
	day_ns += 1000 * SECOND;
	reopen();
	is_int(age(0), 1166, "the machine was restarted: the days tell for how long");
	disk_close(d);
	d = NULL;
	boot(3);
	boot_ns = 0;
	day_ns -= 20 * YEAR;
	reopen();
	ok(age(0) == 1166 && age(1) == 1066, "restarted with a clock that is behind");
	pass(4);
	is_int(age(0), 1170, "and it goes on");
	is_int(disk_put(d, 2, 3, 0, 1), 0, "a block");

	/* a process that does not close the file */
	pass(100);
	is_int(disk_put(d, 3, 4, 0, 1), 0, "a write, which notes the clock");
	pass(10);
	if (!fork()) { /* its descriptors are closed, the superblocks are as they are */
		disk_close(d);
		_exit(0);
	}
	boot(4);
	boot_ns = 0;
	day_ns += 20 * SECOND;
	reopen();
	ok(age(2) >= 110 && age(2) <= 140 && age(3) <= 40, "the end of the machine: %d s",
	   (int)age(2));
	boot_ns = 0;
	is_int(disk_put(d, 0, 9, 0, 1), 0, "a block");
	unlink(boot_path);
	reopen();
	is_int(age(0), 0, "no boot is told of: no age is negative");
	pass(3);
	is_int(age(0), 3, "and time goes on");
	disk_close(d);
	return done_testing();
}

int main(void)
{
	disk_make_folder();
	snprintf(boot_path, sizeof(boot_path), "%s/boot", disk_folder);
	return tap_guard(30, body, disk_remove_folder);
}
