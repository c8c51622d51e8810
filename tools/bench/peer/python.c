/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler in Python, run by the python3 of PATH: dict.py is part of this program.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern const char bench_dict[];

/* In the child. */
static void run(int out, const char *const *argv, pid_t parent)
{
	int null = open("/dev/null", O_RDONLY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || null < 0)
		_exit(127);
	dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	execvp(argv[0], (char *const *)argv);
	_exit(127);
}

/* The program's output on both streams, up to the room; returns its exit status, or -1. */
static int output_of(const char *const *argv, char *text, size_t room)
{
	pid_t parent = getpid(), pid;
	size_t used = 0;
	ssize_t got;
	int fd[2], status;

	if (pipe2(fd, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid)
		run(fd[1], argv, parent);
	close(fd[1]);
	while (pid > 0 && used < room - 1) {
		got = read(fd[0], text + used, room - 1 - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	text[used] = '\0';
	close(fd[0]);
	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int take_way(const json_t *object, const char *field, const char *what,
		    struct bench_python_way *ret)
{
	const json_t *figures = json_object_get(object, field);

	ret->what = what;
	ret->us = json_number_value(json_array_get(figures, 0));
	ret->low_us = json_number_value(json_array_get(figures, 1));
	ret->high_us = json_number_value(json_array_get(figures, 2));
	return ret->us > 0 && ret->low_us > 0 && ret->high_us > 0 ? 0 : -1;
}

static int take(const char *text, struct bench_python *ret)
{
	/* there may be warnings before it */
	const char *begin = strchr(text, '{');
	json_t *object = begin ? json_loads(begin, 0, NULL) : NULL;
	const char *python = json_string_value(json_object_get(object, "python"));
	struct bench_python p = { .python = "" };
	int r = -1;

	if (python && !take_way(object, "pickle", "SHA-256 of a pickled tuple", &p.usual) &&
	    !take_way(object, "packed", "SHA-256 of packed tokens", &p.packed) &&
	    !take_way(object, "tuple", "hash() of a tuple", &p.tuple)) {
		snprintf(p.python, sizeof(p.python), "%s", python);
		*ret = p;
		r = 0;
	}
	json_decref(object);
	return r;
}

int bench_python_path(uint32_t blocks, uint32_t cached, uint32_t prompts, struct bench_python *ret,
		      const char **why)
{
	char text[4096], number[3][12];
	const char *argv[] = { "python3", "-I",      "-c",      bench_dict,
			       number[0], number[1], number[2], NULL };

	if (!bench_in_path(argv[0])) {
		bench_why(why, "%s is not in PATH", argv[0]);
		return -1;
	}
	snprintf(number[0], sizeof(number[0]), "%u", blocks);
	snprintf(number[1], sizeof(number[1]), "%u", cached);
	snprintf(number[2], sizeof(number[2]), "%u", prompts);
	if (!output_of(argv, text, sizeof(text)) && !take(text, ret))
		return 0;
	text[strcspn(text, "\n")] = '\0';
	bench_why(why, "python3: %s", *text ? text : "it does not run");
	return -1;
}
