/* SPDX-License-Identifier: Apache-2.0 */
/* redis.h - redis-servers of the test's own.  Debian's redis-tools has the server's program under
 * another name, and starts no service as the server's package does: ./bootstrap check brings that
 * one. */
#ifndef GPC_T_REDIS_H
#define GPC_T_REDIS_H

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>

#include "remote.h"

struct server {
	pid_t pid;
	char path[256]; /* of its socket */
	int port;       /* or 0 */
};

/* The program, or NULL. */
TAP_FN const char *redis_program(void)
{
	static const char *const at[] = { "/usr/bin/redis-server", "/usr/bin/valkey-server",
					  "/usr/local/bin/redis-server", "/usr/bin/redis-check-rdb",
					  "/usr/bin/valkey-check-rdb" };
	const char *own = getenv("GPC_T_REDIS");
	size_t i;

	if (own)
		return own;
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		if (!access(at[i], X_OK))
			return at[i];
	return NULL;
}

/* more: further options, ended by NULL; `name` tells its files. */
TAP_FN void server_start(struct server *s, const char *name, int port, ...)
{
	const char *argv[64];
	char ports[16], log[300];
	va_list ap;
	int n = 0, i, fd;

	snprintf(s->path, sizeof(s->path), "%s/%s.sock", remote_dir, name);
	snprintf(log, sizeof(log), "%s/%s.log", remote_dir, name);
	snprintf(ports, sizeof(ports), "%d", port);
	s->port = port;
	argv[n++] = "redis-server"; /* by this name it is the server */
	for (i = 0; i < 12; i++) {
		const char *fixed[] = { "--port",       ports,   "--bind", "127.0.0.1",
					"--unixsocket", s->path, "--save", "",
					"--appendonly", "no",    "--dir",  remote_dir };
		argv[n++] = fixed[i];
	}
	va_start(ap, port);
	while (n < 60 && (argv[n] = va_arg(ap, const char *)))
		n++;
	va_end(ap);
	argv[n] = NULL;
	unlink(s->path);
	s->pid = fork();
	if (!s->pid) {
		fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
		dup2(fd, 1);
		dup2(fd, 2);
		execv(redis_program(), (char **)argv);
		_exit(127);
	}
	for (i = 0; i < 1000; i++) {
		redisContext *c = redisConnectUnix(s->path);
		bool up = c && !c->err;

		if (c)
			redisFree(c);
		if (up)
			return;
		usleep(10000);
	}
	bail("redis-server does not start: see %s", log);
}

TAP_FN void server_kill(struct server *s)
{
	if (s->pid > 0) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
	}
	s->pid = 0;
}

/* A command of the test's own; the integer of its reply, -1: an error. */
TAP_FN long long server_ask(const struct server *s, const char *password, const char *fmt, ...)
{
	redisContext *c = redisConnectUnix(s->path);
	redisReply *r;
	va_list ap;
	long long n;

	if (!c || c->err)
		bail("the server is not there");
	if (password)
		freeReplyObject(redisCommand(c, "AUTH %s", password));
	va_start(ap, fmt);
	r = redisvCommand(c, fmt, ap);
	va_end(ap);
	n = !r || r->type == REDIS_REPLY_ERROR ? -1
	    : r->type == REDIS_REPLY_INTEGER   ? r->integer
					       : 0;
	if (r && r->type == REDIS_REPLY_ERROR)
		diag("%s", r->str);
	freeReplyObject(r);
	redisFree(c);
	return n;
}

#endif
