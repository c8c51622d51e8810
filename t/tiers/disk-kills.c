/* SPDX-License-Identifier: Apache-2.0 */
/* A process is killed before each call that it makes on the file, and in the middle of each that
 * writes: while the file is made, grown and cut, while a block is written, replaced, forgotten,
 * cleared, while it is scanned.  The next one opens it, and finds what was answered.
 * Tests: lib/tiers/disk/make.c lib/tiers/disk/slot.c lib/tiers/disk/super.c */
#include <sys/mman.h>
#include <sys/wait.h>

#include "t/lib/disk_shim.h"
#include "t/lib/disks.h"

#define SLOTS 6u

/* What the caller was told; in memory that outlives it.  has[s]: block in slot s + 1; MAYBE: it was
 * at it. */
enum { MAYBE = 1000 };
static struct told {
	uint32_t has[SLOTS + 2];
	uint32_t done, stage;
} * told;

static void seen(enum shim_call call, int fd, uint64_t at, size_t n, bool before)
{
	(void)call;
	(void)fd;
	(void)at;
	(void)n;
	(void)before;
}

static void put(struct disk *d, uint32_t slot, uint32_t n)
{
	told->has[slot] = MAYBE;
	if (disk_put(d, slot, n, 0, n))
		_exit(3);
	told->has[slot] = n + 1;
}

static void forget(struct disk *d, uint32_t slot)
{
	uint64_t s = slot;

	told->has[slot] = MAYBE;
	if (disk_remove(d, &s, 1))
		_exit(3);
	told->has[slot] = 0;
}

static struct disk *open_with(uint32_t slots)
{
	struct disk_options opt = disk_opt(slots);
	struct disk *d = NULL;

	opt.threads = 1;
	opt.flags |= DISK_RESIZE;
	if (disk_open(disk_path, &opt, &d))
		_exit(4);
	return d;
}

static void live(void)
{
	struct disk_slot *s;
	struct disk *d;
	uint64_t n;
	uint32_t i;

	d = open_with(SLOTS);
	for (i = 0; i < SLOTS; i++)
		put(d, i, i);
	put(d, 2, 20);
	put(d, 2, 21);
	forget(d, 3);
	told->has[4] = MAYBE;
	if (disk_free(d, 4))
		_exit(3);
	told->has[4] = 0;
	disk_close(d);

	d = open_with(SLOTS + 2);
	put(d, SLOTS + 1, 30);
	put(d, 4, 21); /* a twin: the earlier one goes with the scan */
	told->has[2] = MAYBE;
	if (disk_scan(d, &s, &n))
		_exit(3);
	told->has[2] = 0;
	free(s);
	disk_close(d);

	told->has[SLOTS] = told->has[SLOTS + 1] = MAYBE;
	d = open_with(SLOTS);
	told->has[SLOTS] = told->has[SLOTS + 1] = 0;
	for (i = 0; i < SLOTS; i++)
		told->has[i] = told->has[i] ? MAYBE : 0;
	if (disk_clear(d))
		_exit(3);
	memset(told->has, 0, sizeof(told->has));
	put(d, 1, 40);
	disk_close(d);
	told->done = 1;
}

static struct {
	uint32_t lives, wrong, lost, back, closed, empty;
} sum;

static void look(void)
{
	struct disk_options opt = disk_opt(0);
	struct disk_slot s;
	struct disk *d = NULL;
	uint64_t i;
	struct disk_info info;
	int err;

	opt.flags = 0;
	err = disk_open(disk_path, &opt, &d);
	if (err == -ENOENT) { /* it was not made yet: the next one makes it */
		sum.empty++;
		opt.flags = DISK_CREATE;
		opt.slots = SLOTS;
		err = disk_open(disk_path, &opt, &d);
	}
	if (err) {
		sum.closed++;
		diag("step %u: %s", shim_death.die, gpc_last_error());
		return;
	}
	disk_info(d, &info);
	for (i = 0; i < info.slots; i++) {
		err = disk_any(d, i, &s);
		sum.wrong += err == 1 || err == -EBADMSG;
		if (err == 1 || err == -EBADMSG)
			diag("step %u: slot %d has wrong bytes", shim_death.die, (int)i);
		if (told->has[i] == MAYBE)
			continue;
		if (told->has[i] && (err || s.tag != told->has[i] - 1)) {
			sum.lost++;
			diag("step %u: slot %d lacks block %u", shim_death.die, (int)i,
			     told->has[i] - 1);
		}
		if (!told->has[i] && !err) {
			sum.back++;
			diag("step %u: slot %d has block %u", shim_death.die, (int)i, s.tag);
		}
	}
	disk_close(d);
}

static int body(void)
{
	int status;
	pid_t pid;

	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		bail("no memory");
	do {
		unlink(disk_path);
		memset(told, 0, sizeof(*told));
		shim_death.die++;
		shim_death.step = 0;
		pid = fork();
		if (!pid) {
			shim_seen = seen;
			live();
			_exit(0);
		}
		waitpid(pid, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status))
			bail("a call failed (%d) at step %u", WEXITSTATUS(status), shim_death.die);
		sum.lives++;
		status = (int)shim_death.die;
		shim_death.die = 0;
		if (access(disk_path, F_OK))
			sum.empty++;
		else
			look();
		shim_death.die = (uint32_t)status;
	} while (!told->done && sum.lives < 2000);
	diag("%u lives, %u files of nothing", sum.lives, sum.empty);
	ok(told->done && sum.lives > 60, "a process died at each step");
	is_int(sum.closed, 0, "each file opens");
	is_int(sum.wrong, 0, "no wrong bytes");
	is_int(sum.lost, 0, "what was answered is there");
	is_int(sum.back, 0, "what was removed is not");
	ok(sum.empty > 2, "files that were not finished are made anew");
	return done_testing();
}

int main(void)
{
	disk_make_folder();
	shim_dry = true;
	return tap_guard(60, body, disk_remove_folder);
}
