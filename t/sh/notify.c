/* SPDX-License-Identifier: Apache-2.0 */
/* notify SOCKET - what a service manager hears: the datagrams that come to the socket, a
 * path or with "@" first an abstract name, to standard output.  The first line says that
 * it listens.  Ends when it is killed. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char text[1024];
	size_t len;
	ssize_t n;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (argc != 2 || (len = strlen(argv[1])) >= sizeof(at.sun_path))
		return 2;
	memcpy(at.sun_path, argv[1], len);
	if (at.sun_path[0] == '@')
		at.sun_path[0] = 0;
	len += offsetof(struct sockaddr_un, sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, (socklen_t)len)) {
		perror(argv[1]);
		return 1;
	}
	alarm(120);
	puts("listening");
	do
		fflush(stdout);
	while ((n = recv(fd, text, sizeof(text), 0)) >= 0 && printf("%.*s\n", (int)n, text) >= 0);
	return 1;
}
