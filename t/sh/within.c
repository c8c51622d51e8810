/* SPDX-License-Identifier: Apache-2.0 */
/* within - run a test, at most so many seconds, and leave nothing of it behind.
 *
 *	within SECONDS[,GRACE] COMMAND...
 *	within --sweep
 *
 * The seconds are those of patience.h.  When they are over, the command and all that it started
 * get SIGALRM, and after GRACE seconds more, or ten, SIGKILL.  GRACE begins with a signal, too, that
 * asks this program to end, and is passed on.  However the command ends, all that it started
 * ends before this returns, in sessions of their own, too: orphans become our children.  Then
 * files go that bear the number of a process that was a child here: whoever makes something in
 * /dev/shm, in TMPDIR or in the folder where tests run has -PID in its name, after "gpc-" or
 * "gpc.".
 *
 * GPC_T_TIMES=FILE adds a line for the command: the seconds that passed, and those of a processor.
 *
 * --sweep removes what a test has left whose own "within" was killed: folders gpc-*-PID* and
 * gpc-*-PID.* in those three places, of this user, whose process is gone.  Caches are files, and
 * stay: their names are anybody's. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "t/lib/patience.h"

static unsigned grace = 10; /* seconds between SIGALRM and SIGKILL */

static struct patience_process all[PATIENCE_MOST];
static pid_t *gone; /* that were children here */
static size_t gone_n, gone_size;
static int left; /* names that the command has left behind */

/* ---- what is left behind ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path) && errno != ENOENT ? -1 : 0;
}

/* The last number behind a dash that a dash, a dot or nothing follows; 0: there is none.  One before it
 * may be that of a test, as in gpc-837-14611.N2oH0d. */
static int number_in(const char *name)
{
	const char *at;
	char *end;
	long n;
	int last = 0;

	for (at = strchr(name, '-'); at; at = strchr(at + 1, '-')) {
		n = at[1] >= '1' && at[1] <= '9' ? strtol(at + 1, &end, 10) : 0;
		if (n > 1 && n <= 1 << 22 && (!*end || *end == '-' || *end == '.'))
			last = (int)n;
	}
	return last;
}

static bool was_ours(int pid)
{
	size_t i;

	for (i = 0; i < gone_n; i++)
		if (gone[i] == pid)
			return true;
	return false;
}

static bool is_dead(int pid)
{
	return kill(pid, 0) && errno == ESRCH;
}

static void sweep(const char *folder, bool all_dead)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	char path[4096];
	struct stat st;
	int pid;

	while (dir && (e = readdir(dir))) {
		if (strncmp(e->d_name, "gpc", 3) || !strchr("-.", e->d_name[3]) ||
		    !(pid = number_in(e->d_name)) ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    st.st_uid != geteuid())
			continue;
		if (!is_dead(pid) || /* its number may be another one's by now */
		    (all_dead ? !S_ISDIR(st.st_mode) || e->d_name[3] != '-' : !was_ours(pid)))
			continue;
		left++;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
		if (all_dead)
			printf("# %s was left behind\n", path);
	}
	if (dir)
		closedir(dir);
}

static void sweep_all(bool all_dead)
{
	const char *tmp = getenv("TMPDIR");

	sweep("/dev/shm", all_dead);
	sweep(tmp && *tmp ? tmp : "/tmp", all_dead);
	sweep(".", all_dead);
}

/* ---- the command ---- */

static volatile sig_atomic_t asked; /* by this signal to end */

static void ask(int sig)
{
	asked = sig;
}

static void note_gone(pid_t pid)
{
	if (gone_n == gone_size) {
		gone_size = 2 * gone_size + 64;
		gone = realloc(gone, gone_size * sizeof(*gone));
		if (!gone)
			abort();
	}
	gone[gone_n++] = pid;
}

/* To all that the command has started; how many there are. */
static int signal_all(pid_t child, int sig)
{
	int i, n = patience_list(all), found = 0;

	patience_choose(all, n, child);
	for (i = 0; i < n; i++)
		if (all[i].meant && all[i].pid != getpid() && all[i].state != 'Z') {
			found++;
			kill(all[i].pid, sig);
		}
	return found;
}

/* Wait for children that have ended; true: the command is among them. */
static bool reap(pid_t child, int *status)
{
	bool ended = false;
	pid_t pid;
	int s;

	while ((pid = waitpid(-1, &s, WNOHANG)) > 0) {
		note_gone(pid);
		if (pid == child) {
			*status = s;
			ended = true;
		}
	}
	return ended;
}

static void kill_all(pid_t child)
{
	struct timespec moment = { 0, 1000000 };
	int s;

	while (signal_all(-1, SIGKILL) || waitpid(-1, &s, WNOHANG) != -1) {
		reap(child, &s);
		nanosleep(&moment, NULL);
	}
}

static int watch(pid_t child, unsigned seconds, const sigset_t *waits)
{
	struct timespec look = { 0, (long)PATIENCE_LOOK };
	struct patience patience;
	int status = 0, told = 0;

	patience_begin(&patience, child, seconds);
	while (!reap(child, &status)) {
		sigtimedwait(waits, NULL, &look);
		if (asked && !told) {
			told = asked;
			kill(child, told);
			patience_begin(&patience, child, grace);
		}
		if (patience_lasts(&patience))
			continue;
		signal_all(child, told ? SIGKILL : SIGALRM);
		told = told ? told : SIGALRM;
		patience_begin(&patience, child, grace);
	}
	if (told == SIGALRM)
		printf("Bail out! out of time: %u seconds\n", seconds);
	kill_all(child);
	return told && told != SIGALRM ? 128 + told
	       : WIFEXITED(status)     ? WEXITSTATUS(status)
				       : 128 + WTERMSIG(status);
}

/* What has ended counts, in whatever session. */
static void note_times(uint64_t began_ns, const char *name)
{
	const char *path = getenv("GPC_T_TIMES");
	FILE *f = path ? fopen(path, "ae") : NULL;
	struct rusage ru;

	if (!f)
		return;
	getrusage(RUSAGE_CHILDREN, &ru);
	fprintf(f, "%8.2f %8.2f %s\n", (double)(patience_now() - began_ns) / 1e9,
		(double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
			(double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6,
		name);
	fclose(f);
}

static int run(unsigned seconds, char **command)
{
	uint64_t began_ns = patience_now();
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction act = { .sa_handler = ask };
	pid_t parent = getpid(), child;
	sigset_t waits, before;
	size_t i;
	int status;

	sigemptyset(&waits);
	sigaddset(&waits, SIGCHLD);
	sigprocmask(SIG_BLOCK, &waits, &before);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) || (child = fork()) < 0) {
		perror("within");
		return 99;
	}
	if (!child) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(99);
		execvp(command[0], command);
		fprintf(stderr, "within: %s: %s\n", command[0], strerror(errno));
		_exit(127);
	}
	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		sigaction(ends[i], &act, NULL);
	status = watch(child, seconds, &waits);
	note_times(began_ns, command[0]);
	sweep_all(false);
	if (left)
		fprintf(stderr, "# %d files or folders of it were left behind\n", left);
	return status;
}

int main(int argc, char **argv)
{
	char *end;
	unsigned long seconds;

	if (argc == 2 && !strcmp(argv[1], "--sweep")) {
		sweep_all(true);
		return 0;
	}
	seconds = argc > 2 ? strtoul(argv[1], &end, 10) : 0;
	if (seconds && *end == ',')
		grace = (unsigned)strtoul(end + 1, &end, 10);
	if (!seconds || *end || seconds > 1 << 30) {
		fprintf(stderr,
			"usage: within SECONDS[,GRACE] COMMAND...\n       within --sweep\n");
		return 99;
	}
	return run((unsigned)seconds, argv + 2);
}
