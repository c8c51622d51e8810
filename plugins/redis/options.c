/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - what open is told: servers, who we are there, TLS.
 * Tests: t/cluster/tls.t t/tiers/redis.t t/tiers/remote-replies.t */
#include "plugins/redis/redis.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int take_text(const char *word, const char *value, char *to, size_t size, char *why,
		     size_t room)
{
	if (!*value || strlen(value) >= size) {
		snprintf(why, room, "%s has %zu bytes, and may have 1 to %zu", word, strlen(value),
			 size - 1);
		return -EINVAL;
	}
	memcpy(to, value, strlen(value) + 1);
	return 0;
}

static int take_number(const char *word, const char *value, int most, int *to, char *why,
		       size_t room)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(value, &end, 10);
	if (!isdigit((unsigned char)*value) || *end || errno || n > most) {
		snprintf(why, room, "%s=%s: it must be a number from 0 to %d", word, value, most);
		return -EINVAL;
	}
	*to = (int)n;
	return 0;
}

/* A password on a command line is one that all users of the machine can read. */
static int take_password(const char *path, struct options *o, char *why, size_t room)
{
	struct stat st;
	const char *end;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0) {
		int err = errno;

		snprintf(why, room, "password-file=%s: %s", path, strerror(err));
		if (fd >= 0)
			close(fd);
		return -err;
	}
	if (!S_ISREG(st.st_mode) || st.st_mode & 077 ||
	    (st.st_uid != geteuid() && st.st_uid != 0)) {
		close(fd);
		snprintf(
			why, room,
			"password-file=%s has mode %04o: it must be a regular file of this user or of root that no other user may read; chmod 600 it",
			path, (unsigned)st.st_mode & 07777);
		return -EACCES;
	}
	n = read(fd, o->password, sizeof(o->password));
	close(fd);
	end = n > 0 ? memchr(o->password, '\n', (size_t)n) : NULL;
	n = end ? end - o->password : n;
	if (n > 0 && o->password[n - 1] == '\r')
		n--;
	if (n <= 0 || n >= (ssize_t)sizeof(o->password)) {
		snprintf(
			why, room,
			"password-file=%s has no password in its first line: it must have 1 to %zu bytes",
			path, sizeof(o->password) - 1);
		return -EINVAL;
	}
	memset(o->password + n, 0, sizeof(o->password) - (size_t)n);
	return 0;
}

static int take(struct options *o, const char *word, const char *value, char *why, size_t room)
{
	if (strcmp(word, "server") == 0)
		return take_text(word, value, o->server, sizeof(o->server), why, room);
	if (strcmp(word, "user") == 0)
		return take_text(word, value, o->user, sizeof(o->user), why, room);
	if (strcmp(word, "password-file") == 0)
		return take_password(value, o, why, room);
	if (strcmp(word, "db") == 0)
		return take_number(word, value, 65535, &o->db, why, room);
	if (strcmp(word, "expire") == 0)
		return take_number(word, value, INT_MAX, &o->expire, why, room);
	if (strcmp(word, "tls-ca") == 0)
		return take_text(word, value, o->tls_ca, sizeof(o->tls_ca), why, room);
	if (strcmp(word, "tls-cert") == 0)
		return take_text(word, value, o->tls_cert, sizeof(o->tls_cert), why, room);
	if (strcmp(word, "tls-key") == 0)
		return take_text(word, value, o->tls_key, sizeof(o->tls_key), why, room);
	return take_text(word, value, o->tls_name, sizeof(o->tls_name), why, room);
}

/* The combinations that are legal. */
static int check(const struct options *o, char *why, size_t room)
{
	const char *tls = o->tls_cert[0]   ? "tls-cert"
			  : o->tls_key[0]  ? "tls-key"
			  : o->tls_name[0] ? "tls-name"
					   : NULL;

#ifndef HAVE_HIREDIS_SSL
	if (o->tls_ca[0] || tls) {
		snprintf(
			why, room,
			"%s: there is no TLS here: the hiredis that this plugin was built with has none, it came with hiredis 1.0; a stunnel before the server does it, too",
			o->tls_ca[0] ? "tls-ca" : tls);
		return -EOPNOTSUPP;
	}
#endif
	if (tls && !o->tls_ca[0]) {
		snprintf(
			why, room,
			"%s without tls-ca: TLS needs the certificate of the authority that has signed the server's",
			tls);
		return -EINVAL;
	}
	if (!o->tls_cert[0] != !o->tls_key[0]) {
		snprintf(why, room, "tls-cert and tls-key go together");
		return -EINVAL;
	}
	if (o->user[0] && !o->password[0]) {
		snprintf(why, room, "user without password-file");
		return -EINVAL;
	}
	return 0;
}

int options_read(const struct gpc_remote_setup *setup, struct options *ret, char *why, size_t room)
{
	uint32_t i;
	int r;

	snprintf(ret->server, sizeof(ret->server), "127.0.0.1:6379");
	for (i = 0; i < setup->noptions; i++) {
		r = take(ret, setup->options[i].word, setup->options[i].value, why, room);
		if (r < 0)
			return r;
	}
	return check(ret, why, room);
}
