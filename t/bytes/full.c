/* SPDX-License-Identifier: Apache-2.0 */
/* /dev/shm is full: whoever makes a cache is told what is needed and what is there, nothing is
 * left behind, and what is there goes on.  In a mount namespace, with a /dev/shm of its own.
 * Tests: lib/index/segment/space.c lib/index/segment/create.c lib/bytes/memfile/make.c
 *   lib/bytes/memfile/pages.c */
#include "t/lib/crew.h"
#include "gpc_device.h"
#include "t/lib/namespaces.h"

#include <sys/resource.h>
#include <sys/statfs.h>

#define MIB     (1ull << 20)
#define BLOCKS  16384
#define FILES   3
#define SKIPPED 100

static int lies; /* so many answers say that much is free */

uint64_t __real_segment_free_space(int fd);
uint64_t __wrap_segment_free_space(int fd);

uint64_t __wrap_segment_free_space(int fd)
{
	return lies-- > 0 ? 1ull << 42 : __real_segment_free_space(fd);
}

static bool mount_size(uint64_t bytes, unsigned long flags, int inodes)
{
	char o[64];

	snprintf(o, sizeof(o), "size=%llu,nr_inodes=%d", (unsigned long long)bytes, inodes);
	return !mount("tmpfs", "/dev/shm", "tmpfs", flags, o);
}

static void resize(uint64_t bytes)
{
	need(mount_size(bytes, MS_REMOUNT, 100), "remount: %s", strerror(errno));
}

static uint64_t used(void)
{
	struct statfs fs;

	need(!statfs("/dev/shm", &fs), "statfs: %s", strerror(errno));
	return (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

static int create(const char *devices, gpc **c)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg), .vram_blocks = BLOCKS, .max_peers = 8, .devices = devices
	};

	return gpc_create("full", &cfg, NULL, 0, c);
}

/* With memory for a pool of RAM of 72 slots. */
static int create_ram(struct gpc_memory m, gpc **c)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg), .ram_blocks = 8, .max_peers = 8, .ram_memory = &m
	};

	m.size = sizeof(m);
	return gpc_create("full", &cfg, NULL, 0, c);
}

static void nothing_is_left(const char *when)
{
	strcpy(scratch, "/dev/shm");
	need(scratch_files("", false) == 0, "%s: a file is left", when);
	need(used() == 0, "%s: %d bytes are left", when, (int)used());
}

/* Refused, with these numbers: what is missing. */
static uint64_t refused(const char *when)
{
	unsigned long long missing, mib, need, there;
	char dir[32], name[32];
	gpc *c = NULL;

	must_be(create(NULL, &c), -ENOSPC);
	need(sscanf(gpc_last_error(),
		    "%31s lacks %llu bytes (%llu MiB): %31s needs %llu MiB "
		    "and %llu MiB are free",
		    dir, &missing, &mib, name, &need, &there) == 6 &&
		     !strcmp(dir, "/dev/shm") && !strcmp(name, "full"),
	     "%s: %s", when, gpc_last_error());
	need(!c && missing && need, "%s: %s", when, gpc_last_error());
	nothing_is_left(when);
	return missing;
}

/* As much more as is said to be missing is enough, and a page less is not. */
static int test_numbers(int me)
{
	uint64_t missing = refused("a MiB");
	gpc *c;

	resize(MIB + missing - 4096);
	must_be(refused("a page less"), 4096);
	resize(MIB + missing);
	must_be(create(NULL, &c), 0);
	must_be(used(), MIB + missing);
	crew_check(c);
	gpc_close(c);
	must_be(gpc_unlink("full", NULL), 0);
	nothing_is_left("removed");
	return me;
}

/* Others were faster: it is full when the files grow, at each of them. */
static int test_surprise(int me)
{
	uint64_t size, all = MIB + refused("a MiB");
	int fell = 0;
	gpc *c;

	for (size = 4096; size < all; size += MAX(all / 40, 4096u) & ~4095ull) {
		resize(size);
		lies = 100;
		need(refused("full meanwhile") <= all, "more is missing than is needed: %s",
		     gpc_last_error());
		lies = 0;
		fell++;
	}
	need(fell > 20, "%d times only", fell);
	resize(all);
	must_be(create(NULL, &c), 0);
	gpc_close(c);
	return me;
}

static int test_inodes(int me)
{
	gpc *c = NULL;
	int n;

	for (n = 2; n < 1 + FILES; n++) { /* one is the folder's */
		need(!umount("/dev/shm") && mount_size(64 * MIB, 0, n), "mount: %s",
		     strerror(errno));
		must_be(create(NULL, &c), -ENOSPC);
		need(strstr(gpc_last_error(), "/dev/shm/gpc.full."), "%s", gpc_last_error());
		nothing_is_left("no inode");
	}
	return me;
}

/* The bytes of the cache's other files. */
static uint64_t without_memory(void)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .ram_blocks = 8, .max_peers = 8 };
	uint64_t bytes;
	gpc *c;

	resize(200 * MIB);
	must_be(gpc_create("full", &cfg, NULL, 0, &c), 0);
	bytes = used();
	gpc_close(c);
	must_be(gpc_unlink("full", NULL), 0);
	return bytes;
}

/* The memory of a pool is refused, with these numbers for that folder. */
static void lacks(struct gpc_memory m, const char *dir, uint64_t *need_bytes, uint64_t *missing)
{
	unsigned long long need_all, there, lack;
	char in[32] = "";
	gpc *c;

	must_be(create_ram(m, &c), -ENOSPC);
	need(sscanf(gpc_last_error(),
		    "full: the memory of a pool needs %llu bytes (%*u MiB), and %llu bytes (%*u MiB) "
		    "are available in %31[^:]: %llu bytes are missing",
		    &need_all, &there, in, &lack) == 4 &&
		     !strcmp(in, dir) && lack && need_all - there == lack,
	     "%s", gpc_last_error());
	nothing_is_left("no memory");
	*need_bytes = need_all;
	*missing = lack;
}

/* It is full when the memory's pages are made: all of the need, and all that the file got. */
static int test_memory(int me)
{
	struct gpc_memory m = { .block_bytes = MIB };
	uint64_t size, rest = without_memory(), all, missing;
	gpc *c;

	for (size = rest + 4 * MIB; size < rest + 72 * MIB; size += 31 * MIB + 4096) {
		resize(size);
		lies = 2;
		lacks(m, "/dev/shm", &all, &missing);
		need(all > 72 * MIB && missing == rest + all - size, "%s", gpc_last_error());
	}
	resize(rest + all - 4096);
	lacks(m, "/dev/shm", &all, &missing);
	resize(rest + all);
	must_be(create_ram(m, &c), 0);
	must_be(used(), rest + all);
	gpc_close(c);
	return me;
}

/* Images in huge pages have a folder of their own, with its own room. */
static int test_huge(int me)
{
	char dir[] = "/tmp/gpc-t-full.XXXXXX";
	struct gpc_memory m = { .block_bytes = MIB, .huge_dir = dir };
	struct rlimit old, small;
	uint64_t rest = without_memory(), all, missing;
	unsigned long pages;
	FILE *size;
	gpc *c;

	need(mkdtemp(dir) != NULL, "mkdtemp: %s", strerror(errno));
	if (mount("hugetlbfs", dir, "hugetlbfs", 0, "pagesize=2M,size=2M")) {
		rmdir(dir);
		return SKIPPED;
	}
	lacks(m, dir, &all, &missing);
	must_be(all, 72 * MIB);
	m.sums = 256;
	resize(rest + MIB / 8);
	lies = 1; /* else the cache as a whole is refused */
	lacks(m, "/dev/shm", &all, &missing);
	must_be(missing, all - MIB / 8);
	m.sums = 0;
	resize(200 * MIB);
	lies = 3; /* the pages go before they are mapped */
	lacks(m, dir, &all, &missing);
	must_be(all, 72 * MIB);
	size = fopen("/proc/self/statm", "re");
	need(size && fscanf(size, "%lu", &pages) == 1 && !getrlimit(RLIMIT_AS, &old), "no size");
	fclose(size);
	small = old;
	small.rlim_cur = pages * 4096 + 64 * MIB;
	lies = 100;
	setrlimit(RLIMIT_AS, &small);
	must_be(create_ram(m, &c), -ENOMEM);
	setrlimit(RLIMIT_AS, &old);
	need(strstr(gpc_last_error(), "mapping 75497472 bytes"), "%s", gpc_last_error());
	nothing_is_left("no address space");
	need(!umount(dir) && !rmdir(dir), "%s: %s", dir, strerror(errno));
	return me;
}

static int test_limit(int me)
{
	struct rlimit r = { MIB, MIB };
	gpc *c = NULL;

	resize(200 * MIB);
	setrlimit(RLIMIT_FSIZE, &r);
	must_be(create(NULL, &c), -EFBIG);
	need(strstr(gpc_last_error(), "files of this process may have 1048576: raise") &&
		     strstr(gpc_last_error(), "ulimit -f"),
	     "%s", gpc_last_error());
	nothing_is_left("a limit on files");
	return me;
}

static int test_memory_limit(int me)
{
	struct rlimit r = { 64 * MIB, 64 * MIB };
	gpc *c = NULL;

	resize(200 * MIB);
	setrlimit(RLIMIT_FSIZE, &r);
	must_be(create_ram((struct gpc_memory){ .block_bytes = MIB }, &c), -EFBIG);
	need(strstr(gpc_last_error(), "ulimit -f"), "%s", gpc_last_error());
	nothing_is_left("a limit on files of memory");
	return me;
}

/* No room for a mirror, and full while it is used: the cache does not care. */
static int test_filled(int me)
{
	gpc_block b[BLOCKS];
	gpc_key k = crew_key(1);
	char page[4096] = "";
	gpc *c;
	int fd;

	resize(64 * MIB);
	must_be(create("host", &c), 0);
	fd = open("/dev/shm/rest", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, page, sizeof(page)) > 0)
		;
	must_be(errno, ENOSPC);
	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, -1), BLOCKS);
	must_be(gpc_publish(c, NULL, &k, b, 1, NULL, 0, -1), 1);
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, 5000), 0);
	must_be(gpc_lookup(c, 0, &k, 1, b, 0), 1);
	must_be(gpc_release(c, b, BLOCKS), 0);
	crew_check(c);
	gpc_close(c);
	close(fd);
	return me;
}

static bool enter(void)
{
	return !namespaces_leave(CLONE_NEWNS) && !namespaces_own_mounts() &&
	       mount_size(MIB, 0, 100);
}

static const struct {
	const char *what;
	int (*run)(int me);
} part[] = {
	{ "what is missing is enough", test_numbers },
	{ "full while the files grow", test_surprise },
	{ "no inodes", test_inodes },
	{ "full while the memory of a pool is made", test_memory },
	{ "no room in one of two folders", test_huge },
	{ "a limit on the size of files", test_limit },
	{ "a limit on the size of files of memory", test_memory_limit },
	{ "full while it is used", test_filled },
};

static int member(int i)
{
	int got = enter() ? part[i].run(i + 1) : SKIPPED;

	return got == i + 1 ? 0 : MAX(got, 1);
}

static int body(void)
{
	uint32_t i;
	int status;

	crew_begin();
	for (i = 0; i < ARRAY_SIZE(part); i++) {
		status = crew_status(crew_fork(member, (int)i));
		if (status == SKIPPED)
			skip(1, "no mount namespace with such a file system here");
		else if (!is_int(status, 0, "%s", part[i].what))
			diag("%s", crew->why);
		memset(crew, 0, sizeof(*crew));
	}
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
