/* SPDX-License-Identifier: Apache-2.0 */
/* patience.h - a limit of time for processes, which a busy machine does not make shorter.
 *
 * A limit is there for tests that hang.  The watchdog looks now and then, and takes from what is
 * left of the limit:
 *
 *	at a look                               since the look before it
 *	one of the processes wants to run       the time of processors that all of them had
 *	all sleep                               the time that passed, times processors / runnable
 *
 * and never more than what passed.  So a test that hangs on a quiet machine ends after as many
 * seconds as its limit says, whether it spins or sleeps, and one that only waits for a processor
 * loses nothing, whatever load, priority or quota keeps it from one.
 *
 * A look reads all of /proc, and a dozen watchdogs look beside each other, so one that has much left
 * looks more seldom. */
#ifndef GPC_T_PATIENCE_H
#define GPC_T_PATIENCE_H

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_FN   static inline __attribute__((unused))
#define PATIENCE_MOST 4096 /* processes that one look sees */
#define PATIENCE_LOOK 250000000ull

struct patience {
	pid_t root; /* a child of the watchdog; its group and its descendants are meant */
	uint64_t left_ns;
	uint64_t at_ns;  /* of the last look */
	uint64_t cpu_ns; /* that they have had by then */
};

struct patience_process {
	int pid, parent, group;
	char state;
	bool meant;
	uint64_t ticks;
};

PATIENCE_FN uint64_t patience_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* One file of /proc in a line; false if it is gone. */
PATIENCE_FN bool patience_read(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "re");
	bool good = f && fgets(line, size, f);

	if (f)
		fclose(f);
	return good;
}

/* Times of children that were waited for count, too: the sum falls only with an orphan's end. */
PATIENCE_FN bool patience_process(const char *name, struct patience_process *p)
{
	unsigned long long own, system, children, system_children;
	char path[300], line[600];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%s/stat", name);
	if (!patience_read(path, line, sizeof(line)) || !(at = strrchr(line, ')')) ||
	    sscanf(at + 1, " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu",
		   &p->state, &p->parent, &p->group, &own, &system, &children,
		   &system_children) != 7)
		return false;
	p->pid = atoi(name);
	p->ticks = own + system + children + system_children;
	p->meant = false;
	return true;
}

PATIENCE_FN int patience_list(struct patience_process *all)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int n = 0;

	while (dir && n < PATIENCE_MOST && (e = readdir(dir)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			n += patience_process(e->d_name, &all[n]);
	if (dir)
		closedir(dir);
	return n;
}

/* An orphan has the watchdog for a parent, if that is a subreaper. */
PATIENCE_FN void patience_choose(struct patience_process *all, int n, pid_t root)
{
	bool more = true;
	int i, j;

	for (i = 0; i < n; i++)
		all[i].meant = all[i].pid == root || all[i].group == root ||
			       all[i].parent == (int)getpid();
	while (more) {
		more = false;
		for (i = 0; i < n; i++)
			for (j = 0; j < n && !all[i].meant; j++)
				if (all[j].meant && all[j].pid == all[i].parent)
					all[i].meant = more = true;
	}
}

/* What passed, as far as one process more would have had a processor. */
PATIENCE_FN uint64_t patience_share(uint64_t passed)
{
	unsigned long long running = 0, here = 1;
	char line[100];
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set))
		here = (unsigned long long)CPU_COUNT(&set);
	if (!patience_read("/proc/loadavg", line, sizeof(line)) ||
	    sscanf(line, "%*s %*s %*s %llu/", &running) != 1 || running <= here + 1)
		return passed; /* one of them is this process */
	return passed * here / (running - 1);
}

PATIENCE_FN void patience_begin(struct patience *p, pid_t root, unsigned seconds)
{
	*p = (struct patience){ .root = root,
				.left_ns = seconds * 1000000000ull,
				.at_ns = patience_now() };
}

/* From one look to the next: a limit of seconds is watched more closely than one of minutes. */
PATIENCE_FN uint64_t patience_pause(const struct patience *p)
{
	uint64_t part = p->left_ns / 64;

	return part < PATIENCE_LOOK       ? PATIENCE_LOOK
	       : part > 8 * PATIENCE_LOOK ? 8 * PATIENCE_LOOK
					  : part;
}

/* At most once in patience_pause(): is there anything left? */
PATIENCE_FN bool patience_lasts(struct patience *p)
{
	uint64_t now = patience_now(), passed = now - p->at_ns, cpu = 0, had;
	struct patience_process *all;
	bool wants = false;
	int i, n;

	if (passed < patience_pause(p) || !(all = calloc(PATIENCE_MOST, sizeof(*all))))
		return true;
	n = patience_list(all);
	patience_choose(all, n, p->root);
	for (i = 0; i < n; i++)
		if (all[i].meant) {
			wants |= all[i].state == 'R';
			cpu += all[i].ticks;
		}
	free(all);
	cpu = cpu * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK));
	had = cpu > p->cpu_ns ? cpu - p->cpu_ns : 0;
	if (!wants)
		had = patience_share(passed);
	if (had > passed)
		had = passed;
	p->cpu_ns = cpu;
	p->at_ns = now;
	p->left_ns -= had < p->left_ns ? had : p->left_ns;
	return p->left_ns;
}

/* How many times as long something may take as on a machine that has nothing else to do. */
PATIENCE_FN double patience_stretch(void)
{
	double average, running, most, here = 1;
	int nice = getpriority(PRIO_PROCESS, 0);
	char line[100];
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set))
		here = CPU_COUNT(&set);
	if (!patience_read("/proc/loadavg", line, sizeof(line)) ||
	    sscanf(line, "%lf %*s %*s %lf/", &average, &running) != 2)
		return 1;
	most = average > running ? average : running;
	if (most <= here + 1)
		return 1;
	for (most = 1 + most / here; nice > 0; nice--)
		most *= 1.25; /* who is nice has so much less beside those who are not */
	return most;
}

/* Has so little passed since then, on a monotonic clock in nanoseconds?  More is allowed where the
 * machine has other work. */
PATIENCE_FN bool is_soon(uint64_t began_ns, uint64_t ms)
{
	uint64_t ns = patience_now() - began_ns;

	return ns < ms * 1000000 || (double)ns < (double)ms * 1e6 * patience_stretch();
}

#endif
