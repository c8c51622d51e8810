/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - finds a plugin, checks that nobody else could have written it, and loads it.
 *
 * Its code runs in the process that has all bytes of the cache.  So the file and its folder must
 * belong to root or to this process's user, and nobody else may write there.  Then nobody else can
 * change the file between the check and dlopen(3) either.
 * Tests: t/tiers/remote-plugins.t t/python/wheel.t */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/base/err.h"
#include "tiers/remote/store.h"

#ifndef PLUGIN_DIR
#define PLUGIN_DIR "/usr/lib/gpc"
#endif

static bool is_name(const char *s)
{
	return s[0] && !s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-")];
}

/* A plugin is looked for in the folder gpc beside the library, which may be anywhere, or in that of
 * configure's prefix. */
static int find_installed(const char *name, char *path, size_t room)
{
	Dl_info self;
	const char *end;
	int n;

	if (dladdr((void *)(uintptr_t)plugin_load, &self) &&
	    (end = strrchr(self.dli_fname, '/')) != NULL) {
		n = snprintf(path, room, "%.*s/gpc/gpc_remote_%s.so", (int)(end - self.dli_fname),
			     self.dli_fname, name);
		if ((size_t)n < room && !access(path, F_OK))
			return n;
	}
	return snprintf(path, room, "%s/gpc_remote_%s.so", PLUGIN_DIR, name);
}

static int find(const char *name, char *path, size_t room)
{
	int n;

	if (name[0] == '/')
		n = snprintf(path, room, "%s", name);
	else if (is_name(name))
		n = find_installed(name, path, room);
	else
		return err_set(
			EINVAL,
			"'%s' names no plugin: it is a name of [a-z0-9_-], or the whole path of a file",
			name);
	if ((size_t)n >= room)
		return err_set(EINVAL, "the path of the plugin has %d bytes, and may have %zu", n,
			       room - 1);
	return 0;
}

static int check_writers(const char *path, const struct stat *st)
{
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return err_set(
			EACCES,
			"%s belongs to user %u: a plugin and its folder belong to root or to user %u",
			path, (unsigned)st->st_uid, (unsigned)geteuid());
	if (st->st_mode & 022)
		return err_set(EACCES, "%s has mode %04o: others may write there; chmod go-w %s",
			       path, (unsigned)st->st_mode & 07777, path);
	return 0;
}

static int check_file(const char *name, const char *path)
{
	char dir[512];
	struct stat st;
	int r;

	if (stat(path, &st) < 0 && errno == ENOENT && name[0] != '/')
		return err_set(
			ENOENT,
			"there is no plugin %s, neither in the folder gpc beside the library nor in %s; correct the name, or "
			"install the plugin there",
			name, PLUGIN_DIR);
	if (lstat(path, &st) < 0 && errno == ENOENT)
		return err_set(
			ENOENT,
			"there is no plugin %s: correct the path, or give the name of one that is installed, for "
			"instance redis",
			path);
	if (lstat(path, &st) < 0)
		return err_set(errno, "plugin %s: %s; correct the path", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(EINVAL, "%s is no regular file", path);
	r = check_writers(path, &st);
	if (r < 0)
		return r;
	snprintf(dir, sizeof(dir), "%s", path);
	*(strrchr(dir, '/') + (strrchr(dir, '/') == dir)) = 0;
	if (stat(dir, &st) < 0)
		return err_sys(0, "%s", dir);
	return check_writers(dir, &st);
}

/* Functions after the end of the plugin's table do not exist. */
static int take_table(struct plugin *p)
{
	const struct gpc_remote_plugin *t = p->table;
	const size_t least = offsetof(struct gpc_remote_plugin, tick);

	if (t->abi != GPC_REMOTE_ABI)
		return err_set(EPROTO,
			       "%s was made for version %u of gpc_remote.h, and this is version %u",
			       p->path, t->abi, GPC_REMOTE_ABI);
	if (t->size < least)
		return err_set(EPROTO, "the table of %s has %u bytes, and at least %zu are needed",
			       p->path, t->size, least);
	memcpy(&p->own, t, MIN(t->size, sizeof(p->own)));
	p->own.size = sizeof(p->own);
	if (!p->own.name || !p->own.open || !p->own.close || !p->own.exists || !p->own.get ||
	    !p->own.put || !p->own.remove)
		return err_set(
			EPROTO,
			"the table of %s lacks a name, or one of open, close, exists, get, put and "
			"remove",
			p->path);
	return 0;
}

int plugin_load(const char *name, struct plugin *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	r = find(name, ret->path, sizeof(ret->path));
	if (!r)
		r = check_file(name, ret->path);
	if (r < 0)
		return r;
	ret->object = dlopen(ret->path, RTLD_NOW | RTLD_LOCAL);
	if (!ret->object)
		return err_set(ENOEXEC, "the plugin cannot be loaded: %s", dlerror());
	ret->table = dlsym(ret->object, "gpc_remote_plugin");
	r = ret->table ? take_table(ret)
		       : err_set(ENOEXEC, "%s is no plugin: it has no symbol gpc_remote_plugin",
				 ret->path);
	if (r < 0)
		plugin_unload(ret);
	return r;
}

void plugin_unload(struct plugin *p)
{
	if (p->object)
		dlclose(p->object);
	p->object = NULL;
}
