/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - a server of another make, as a child, behind a unix socket.
 *
 * It is ours alone.  It dies with us.  Once it is connected no name is left by which another
 * program could reach it, and there is nothing to remove. */
#ifndef GPC_TOOLS_BENCH_SERVER_H
#define GPC_TOOLS_BENCH_SERVER_H

#include <stddef.h>
#include <sys/types.h>

struct server {
	pid_t pid;
	int fd;
	size_t at, end; /* bytes that were read and not taken yet */
	char buffer[1 << 16];
};

/* argv ends with NULL; "@socket" and "@dir" in it stand for the paths that it gets.  0, or -1 and
 * a sentence in *why. */
int server_start(struct server *s, const char *const *argv, const char **why);
void server_stop(struct server *s);

/* Send all of it.  0; -1: the server has gone, or is stuck. */
int server_send(struct server *s, const void *bytes, size_t n);
/* The next line without its end, or NULL; good until the next one is taken. */
char *server_line(struct server *s);
/* The next n bytes, at most 4096, or NULL. */
char *server_bytes(struct server *s, size_t n);

#endif
