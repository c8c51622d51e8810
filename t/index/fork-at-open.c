/* SPDX-License-Identifier: Apache-2.0 */
/* A thread forks at the very instant at which another one has opened, mapped or locked a file
 * of a cache: each instant of each call in turn.  The child, which never execs, has none of
 * these files, and no lock when its parent is gone.
 *
 * open(), mmap() and fcntl() are replaced by functions that let the other thread fork before they
 * return: until it has done so, or waits for a lock that this thread has, which is the answer to
 * the question.
 * Tests: lib/index/base/fd.c lib/index/segment/lockfile.c */
#include "t/lib/crew.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>

#include "index/segment/lockfile.h"

#define SEATS     3
#define MOST      100 /* instants of a call */
#define NONE_LEFT 3   /* exit status: the call had no such instant */

enum { N_CHILD };
enum { GATE_GO, GATE_PREPARES, GATE_FORKED, GATE_CHILD };

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);

static struct {
	bool armed, hit;
	int at;
	uint32_t count;
	pid_t forker;
} gate;

/* ---- the thread that forks ---- */

static void prepares(void)
{
	crew_open(GATE_PREPARES);
}

static void *forker(void *arg)
{
	pid_t pid;

	crew_wait(GATE_GO, 1);
	pid = fork();
	if (!pid) {
		crew_open(GATE_CHILD);
		for (;;)
			pause();
	}
	need(pid > 0, "fork");
	crew->count[N_CHILD] = (uint64_t)pid;
	crew_open(GATE_FORKED);
	return arg;
}

static void *forker_begin(void *arg)
{
	store_relaxed(&gate.forker, (pid_t)syscall(SYS_gettid));
	return forker(arg);
}

/* On its way into fork(2) it waits for nothing but a lock. */
static bool forker_waits(void)
{
	char path[64], text[256] = "", *state;
	int fd;

	if (!crew_is_open(GATE_PREPARES, 1))
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)gate.forker);
	fd = __real_open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return false;
	close(fd);
	state = strrchr(text, ')');
	return state && state[2] == 'S';
}

/* ---- instants ---- */

static bool is_of_cache(int fd)
{
	char path[64], file[256] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, file, sizeof(file) - 1) > 0 &&
	       !strncmp(file, scratch, strlen(scratch));
}

static void instant(int fd)
{
	int saved = errno;

	if (load_acquire(&gate.armed) && fd >= 0 && is_of_cache(fd) &&
	    (int)count_next(&gate.count) == gate.at) {
		gate.hit = true;
		crew_open(GATE_GO);
		crew_until(crew_is_open(GATE_FORKED, 1) || forker_waits(), sched_yield());
	}
	errno = saved;
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;
	int fd;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	fd = __real_open(path, flags, mode);
	instant(fd);
	return fd;
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
	void *p = __real_mmap(at, n, prot, flags, fd, from);

	instant(fd);
	return p;
}

int __wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;
	int r;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	r = __real_fcntl(fd, cmd, arg);
	if (cmd == F_OFD_SETLK)
		instant(fd);
	return r;
}

/* ---- calls ---- */

static char name[64];
static gpc *c;

static struct gpc_attach_options here(void)
{
	return (struct gpc_attach_options){ .size = sizeof(struct gpc_attach_options),
					    .dir = scratch };
}

static int create(const char *called, uint32_t flags)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg), .dir = scratch, .vram_blocks = 16, .max_peers = SEATS
	};

	return gpc_create(called, &cfg, NULL, flags, &c);
}

static int attach(uint32_t flags)
{
	struct gpc_attach_options opt = here();

	return gpc_attach(name, &opt, flags, &c);
}

static int call_attach(void)
{
	return attach(0);
}
static int call_serve(void)
{
	return attach(GPC_SERVE);
}
static int call_look(void)
{
	return attach(GPC_READONLY);
}
static int call_create(void)
{
	return create(name, 0);
}
static int call_again(void)
{
	return create(name, GPC_IF_ABSENT);
}
static int call_take(void)
{
	return gpc_writer_take(c, 0, 0);
}
static int call_unlink(void)
{
	return gpc_unlink(name, scratch);
}

static const struct call {
	const char *what;
	int (*call)(void);
	bool exists, attached; /* the cache, and the handle, are there before */
} calls[] = {
	{ "attaches", call_attach, true, false },
	{ "attaches and serves", call_serve, true, false },
	{ "attaches to look", call_look, true, false },
	{ "creates a cache", call_create, false, false },
	{ "creates what is there", call_again, true, false },
	{ "takes the writer's seat", call_take, true, true },
	{ "removes a cache", call_unlink, true, false },
};

static const struct call *now;

/* What handlers the library has are there after its first call; those of the test run before. */
static int subject(int at)
{
	pthread_t thread;

	must_be(create(now->exists ? name : "other", 0), 0);
	if (!now->attached)
		gpc_close(c);
	if (!now->exists)
		gpc_unlink("other", scratch);
	pthread_atfork(prepares, NULL, NULL);
	need(!pthread_create(&thread, NULL, forker_begin, NULL), "no thread");
	crew_until(load_relaxed(&gate.forker), sched_yield());
	gate.at = at;
	store_release(&gate.armed, true);
	must_be(now->call(), 0);
	store_release(&gate.armed, false);
	if (!gate.hit)
		_exit(NONE_LEFT);
	pthread_join(thread, NULL);
	_exit(0); /* as if it was killed: nothing is given back */
}

/* ---- the child ---- */

static int files_of(pid_t pid)
{
	char path[512], line[512];
	struct dirent *e;
	int n = 0;
	FILE *maps;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		bail("the child is gone");
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", (int)pid, e->d_name);
		memset(line, 0, sizeof(line));
		n += readlink(path, line, sizeof(line) - 1) > 0 && strstr(line, scratch) != NULL;
	}
	closedir(dir);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps))
		n += strstr(line, scratch) != NULL;
	if (maps)
		fclose(maps);
	return n;
}

static int locks_left(void)
{
	int fd = open(scratch_file(name, "lock"), O_RDWR | O_CLOEXEC), i, n = 0;

	if (fd < 0)
		return 0; /* removed */
	n += lock_test(fd, LOCK_WRITER) + lock_test(fd, LOCK_CREATE);
	for (i = 0; i < SEATS; i++)
		n += lock_test(fd, LOCK_PEER(i));
	close(fd);
	return n;
}

/* False: the call is over by then. */
static bool instant_is_good(int at, bool *good)
{
	int status, files, locks;
	pid_t child;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	snprintf(name, sizeof(name), "fork-%d-%d", (int)(now - calls), at);
	status = crew_status(crew_fork(subject, at));
	if (status == NONE_LEFT)
		return false;
	if (status)
		bail("%s, instant %d: status %d, %s", now->what, at, status, crew->why);
	crew_wait(GATE_CHILD, 1);
	child = (pid_t)crew->count[N_CHILD];
	files = files_of(child);
	locks = locks_left();
	kill(child, SIGKILL);
	if (files || locks)
		diag("%s, instant %d: the child has %d files and mappings, %d locks", now->what, at,
		     files, locks);
	*good &= !files && !locks;
	return true;
}

static int body(void)
{
	bool good;
	size_t i;
	int n;

	crew_begin();
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		now = &calls[i];
		good = true;
		for (n = 0; n < MOST && instant_is_good(n, &good); n++)
			;
		ok(good && n > 1, "a child forked at any of %d instants while another thread %s", n,
		   now->what);
	}
	return done_testing();
}

int main(void)
{
	scratch_make("t332");
	return tap_guard(60, body, scratch_remove);
}
