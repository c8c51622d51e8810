/* SPDX-License-Identifier: Apache-2.0 */
/* cost COMMAND... - run it without output, then print what it took: bytes that it read (rchar of
 * /proc/PID/io), the most memory that it had in KiB, and milliseconds.  Exit status 77 where the
 * kernel does not count bytes. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Of a process that has ended and is not waited for yet. */
static int bytes_read(pid_t pid, uint64_t *ret)
{
	char path[64], text[512] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return -1;
	close(fd);
	return sscanf(text, "rchar: %" SCNu64, ret) == 1 ? 0 : -1;
}

int main(int argc, char **argv)
{
	double begin = now_ms(), ms;
	struct rusage use;
	uint64_t bytes;
	siginfo_t how;
	int status;
	pid_t pid;

	if (argc < 2)
		return 2;
	pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 1);
		execvp(argv[1], argv + 1);
		_exit(127);
	}
	if (pid < 0 || waitid(P_PID, (id_t)pid, &how, WEXITED | WNOWAIT))
		return 1;
	ms = now_ms() - begin;
	if (bytes_read(pid, &bytes))
		return 77;
	if (wait4(pid, &status, 0, &use) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
		return 1;
	printf("%" PRIu64 " %ld %.1f\n", bytes, use.ru_maxrss, ms);
	return 0;
}
