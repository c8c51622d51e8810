/* SPDX-License-Identifier: Apache-2.0 */
/* What gpcd says: messages to stderr or syslog, and to the service manager. */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool to_syslog;

void say(int level, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (to_syslog)
		syslog(level, "%s", line);
	else
		cli_error("%s", line);
}

void say_to_syslog(void)
{
	openlog("gpcd", LOG_PID, LOG_DAEMON);
	to_syslog = true;
}

/* As gpc(7) has it: an unknown word means all. */
static int level_from(const char *word)
{
	static const char *const names[] = { "emerg", "alert", "crit", "err", "warning", "notice",
					     "info", "debug" };

	if (word[0] >= '0' && word[0] <= '7' && !word[1])
		return word[0] - '0';
	for (int i = 0; i <= LOG_DEBUG; i++)
		if (strcmp(word, names[i]) == 0)
			return i;
	return LOG_DEBUG;
}

void say_level(struct daemon *d)
{
	const char *word = getenv("GPC_LOG");

	d->level = d->quiet ? LOG_WARNING : LOG_INFO;
	if (word && *word && level_from(word) > d->level)
		d->level = level_from(word);
	unsetenv("GPC_LOG");
}

void say_library(void *arg, int level, const char *text)
{
	const struct daemon *d = arg;

	if (level <= d->level)
		say(level, "%s: %s", d->name, text);
}

void say_notify(const char *fmt, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char text[512];
	size_t len;
	va_list ap;
	int fd;

	if (!path || (path[0] != '/' && path[0] != '@') ||
	    strlen(path) >= sizeof(to.sun_path))
		return;
	len = strlen(path);
	memcpy(to.sun_path, path, len + 1);
	if (path[0] == '@')
		to.sun_path[0] = 0;  /* abstract: the length counts, no final 0 */
	else
		len++;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0 &&
	    errno != ECONNREFUSED)
		say(LOG_WARNING, "cannot notify %s: %s", path, strerror(errno));
	close(fd);
}
