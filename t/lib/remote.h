/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h - a remote store of the test's own: its plugin, keys, images. */
#ifndef GPC_T_REMOTE_H
#define GPC_T_REMOTE_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "index/base/base.h"
#include "index/base/crc.h"
#include "gpc.h"
#include "tiers/remote/remote.h"
#include "tap.h"

#define REMOTE_BYTES 4096u

static char remote_dir[128]; /* a folder of the test's own, from which programs may be loaded */
static pthread_mutex_t remote_lock = PTHREAD_MUTEX_INITIALIZER;
static char remote_log[65536]; /* what stores have said */

TAP_FN void remote_dir_make(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(remote_dir, sizeof(remote_dir), "%s/gpc-t-%d-XXXXXX",
		 tmp && strlen(tmp) < 90 ? tmp : "/tmp", (int)getpid());
	if (!mkdtemp(remote_dir) || chmod(remote_dir, 0755))
		bail("no folder in %s", tmp ? tmp : "/tmp");
}

TAP_FN void remote_dir_remove(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -rf '%s'", remote_dir);
	if (system(command))
		diag("%s stays", remote_dir);
}

TAP_FN void remote_note(void *arg, int level, const char *text)
{
	size_t used;

	(void)arg;
	pthread_mutex_lock(&remote_lock);
	used = strlen(remote_log);
	snprintf(remote_log + used, sizeof(remote_log) - used, "<%d> %s\n", level, text);
	pthread_mutex_unlock(&remote_lock);
}

/* How often they have said that, and may say it meanwhile. */
TAP_FN int remote_says(const char *what)
{
	const char *at;
	int n = 0;

	pthread_mutex_lock(&remote_lock);
	for (at = remote_log; (at = strstr(at, what)) != NULL; at++)
		n++;
	pthread_mutex_unlock(&remote_lock);
	return n;
}

/* It is said by a thread of the store mostly, behind what a test can see of it: false after 30 s. */
TAP_FN bool remote_tells(const char *what)
{
	int i;

	for (i = 0; i < 30000 && !remote_says(what); i++)
		usleep(1000);
	return i < 30000;
}

TAP_FN void remote_says_no_more(void)
{
	pthread_mutex_lock(&remote_lock);
	remote_log[0] = 0;
	pthread_mutex_unlock(&remote_lock);
}

/* A copy of the built plugin that nobody else can write: builds may be group-writable.  false: it
 * is not built. */
TAP_FN bool remote_plugin_of(const char *folder, const char *name, char *path, size_t room)
{
	const char *top = getenv("top_builddir");
	char from[4096], command[8192];

	snprintf(from, sizeof(from), "%s/%s/.libs/gpc_remote_%s.so", top ? top : ".", folder, name);
	if (access(from, R_OK))
		return false;
	snprintf(path, room, "%s/gpc_remote_%s.so", remote_dir, name);
	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 644 '%s'", from, path, path);
	return system(command) == 0;
}

TAP_FN bool remote_plugin(const char *name, char *path, size_t room)
{
	return remote_plugin_of("plugins", name, path, room);
}

TAP_FN struct remote *remote_start(const char *spec, const char *tag, uint32_t image_bytes,
				   uint32_t ms)
{
	struct remote_options o = { .spec = spec,
				    .tag = tag,
				    .image_bytes = image_bytes,
				    .lanes = 4,
				    .deadline_ms = ms,
				    .log = remote_note };
	struct remote *r = NULL;
	int err = remote_open(&o, &r);

	if (err < 0)
		diag("%s: %s", spec, gpc_last_error());
	return r;
}

/* ---- blocks: the bytes follow from the key ---- */

struct images {
	uint32_t n, bytes;
	uint8_t *at;
	struct iovec iov[1024];
	struct remote_block b[1024];
};

TAP_FN gpc_key remote_key(uint64_t i)
{
	return (gpc_key){ { i * 0x9e3779b97f4a7c15u + 1, i + 1 } };
}

TAP_FN void images_make(struct images *m, uint32_t n, uint32_t bytes)
{
	m->n = n;
	m->bytes = bytes;
	m->at = malloc((size_t)n * bytes);
}

TAP_FN uint8_t image_byte(const gpc_key *k, uint64_t i)
{
	return (uint8_t)((k->w[0] >> 8 * (i & 7)) + i / 8);
}

TAP_FN void images_put(struct images *m, uint64_t first)
{
	uint32_t i, k;

	for (i = 0; i < m->n; i++) {
		uint8_t *at = m->at + (size_t)i * m->bytes;
		gpc_key key = remote_key(first + i);

		for (k = 0; k < m->bytes; k++)
			at[k] = image_byte(&key, k);
		m->iov[i] = (struct iovec){ at, m->bytes };
		m->b[i] = (struct remote_block){ .key = key,
						 .parent = remote_key(first + i + 77),
						 .depth = i,
						 .tag = 5,
						 .sum.crc = crc32c(0, at, m->bytes),
						 .image = &m->iov[i],
						 .npieces = 1,
						 .result = -1 };
	}
}

TAP_FN void images_want(struct images *m, uint64_t first)
{
	uint32_t i;

	memset(m->at, 0xee, (size_t)m->n * m->bytes);
	for (i = 0; i < m->n; i++) {
		m->iov[i] = (struct iovec){ m->at + (size_t)i * m->bytes, m->bytes };
		m->b[i] = (struct remote_block){ .key = remote_key(first + i),
						 .image = &m->iov[i],
						 .npieces = 1,
						 .result = -1 };
	}
}

/* Blocks whose result is 0 and whose bytes are not those of their key. */
TAP_FN uint32_t images_wrong(const struct images *m)
{
	uint32_t i, k, wrong = 0;

	for (i = 0; i < m->n; i++)
		for (k = 0; !m->b[i].result && k < m->bytes; k++)
			if (m->at[(size_t)i * m->bytes + k] != image_byte(&m->b[i].key, k)) {
				wrong++;
				break;
			}
	return wrong;
}

TAP_FN uint32_t images_with(const struct images *m, int result)
{
	uint32_t i, n = 0;

	for (i = 0; i < m->n; i++)
		n += m->b[i].result == result;
	return n;
}

TAP_FN uint32_t remote_status(struct remote *r)
{
	struct remote_state s;

	remote_state(r, &s);
	return s.state;
}

/* Ticks until the store is in that state, 10 s at most. */
TAP_FN bool remote_until(struct remote *r, uint32_t state)
{
	uint64_t end = clock_ns() + 90000 * NS_PER_MS;

	while (remote_status(r) != state && clock_ns() < end) {
		remote_tick(r);
		usleep(10000);
	}
	return remote_status(r) == state;
}

/* Ticks until that has been said so often, 60 s at most. */
TAP_FN bool remote_until_said(struct remote *r, const char *what, int times)
{
	uint64_t end = clock_ns() + 60000 * NS_PER_MS;

	while (remote_says(what) < times && clock_ns() < end) {
		remote_tick(r);
		usleep(5000);
	}
	return remote_says(what) >= times;
}

#endif
