/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of gpcd: to stderr or syslog, and to the service manager.
 * Tests: t/daemon/says.t t/daemon/files.t t/tools/set.t */
#include "config.h"

#include "tools/daemon/daemon.h"
#include "tools/common/shown.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool to_syslog, to_journal;
static int most = LOG_DEBUG; /* stored by the main thread; other threads only read it */

/* The journal reads the level from <N> in front of a line, and knows the name of the process. */
static void put(int level, const char *line)
{
	char clean[2048];

	if (to_syslog) {
		syslog(level, "%s", line);
	} else if (to_journal) {
		shown_text(clean, sizeof(clean), line);
		fprintf(stderr, "<%d>%s\n", level, clean);
	} else {
		cli_error("%s", line);
	}
}

void say(int level, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	if (level > __atomic_load_n(&most, __ATOMIC_RELAXED))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	put(level, line);
}

void say_asked(const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	put(LOG_NOTICE, line);
}

/* Is standard error still the stream that the journal gave this process? */
static bool is_journal(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return text && sscanf(text, "%llu:%llu", &dev, &ino) == 2 && !fstat(STDERR_FILENO, &st) &&
	       st.st_dev == dev && st.st_ino == ino;
}

void say_to_syslog(void)
{
	openlog("gpcd", LOG_PID, LOG_DAEMON);
	to_syslog = true;
}

int say_level_named(const char *word)
{
	static const char *const names[] = { "emerg",   "alert",  "crit", "err",
					     "warning", "notice", "info", "debug" };

	if (word[0] >= '0' && word[0] <= '7' && !word[1])
		return word[0] - '0';
	for (int i = 0; i <= LOG_DEBUG; i++)
		if (strcmp(word, names[i]) == 0)
			return i;
	return -1;
}

/* As gpc(7) says, an unknown word stands for all levels. */
static int level_from(const char *word)
{
	int level = say_level_named(word);

	return level < 0 ? LOG_DEBUG : level;
}

/* Sets the level that counts: the one that gpc-inspect has set, or else that of the options. */
static void count(struct daemon *d)
{
	bool set = d->set_level >= 0;

	/* other threads read it */
	__atomic_store_n(&most, set ? d->set_level : d->made_most, __ATOMIC_RELAXED);
	__atomic_store_n(&d->level, set ? d->set_level : d->made_level, __ATOMIC_RELAXED);
}

void say_level(struct daemon *d)
{
	/* GPC_LOG, which is in the environment at the first call only */
	static int from_library = -1;
	const char *word = getenv("GPC_LOG");

	if (word && *word)
		from_library = level_from(word);
	unsetenv("GPC_LOG");
	to_journal = is_journal();
	d->made_most = d->log_level >= 0 ? d->log_level : d->quiet ? LOG_WARNING : LOG_INFO;
	d->made_level = from_library > d->made_most ? from_library : d->made_most;
	count(d);
}

void say_level_of(struct daemon *d, gpc *c)
{
	uint64_t now = cli_now_ns();
	int64_t set;

	if (now < d->next_level || gpc_setting_get(c, GPC_SET_LOG_LEVEL, -1, &set) < 0)
		return;
	d->next_level = now + UINT64_C(1000000000);
	if (set == d->set_level)
		return;
	d->set_level = (int)set;
	count(d);
}

void say_library(void *arg, int level, const char *text)
{
	const struct daemon *d = arg;

	char line[2048];

	if (level > __atomic_load_n(&d->level, __ATOMIC_RELAXED))
		return;
	snprintf(line, sizeof(line), "%s: %s", d->name, text);
	put(level, line);
}

const char *say_file(int err, bool makes)
{
	switch (err) {
	case ENOENT:
		return makes ? "it cannot be made: its folder does not exist; make the folder, or name "
			       "another file"
			     : "there is no such file";
	case ENOTDIR:
		return "what stands before its last / is no folder";
	case EISDIR:
		return "it is a folder: name a file";
	case ELOOP:
		return "it is a symbolic link: name the file itself";
	case ENXIO: /* a socket, a FIFO without a reader, or a device that is absent */
	case ENODEV:
		return "it is no regular file";
	case EACCES:
		return "it cannot be opened: Permission denied";
	default:
		return strerror(err);
	}
}

void say_notify(const char *fmt, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char text[512];
	size_t len;
	va_list ap;
	int fd;

	if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(to.sun_path))
		return;
	len = strlen(path);
	memcpy(to.sun_path, path, len + 1);
	if (path[0] == '@')
		to.sun_path[0] = 0; /* an abstract address has a length and no final 0 */
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
