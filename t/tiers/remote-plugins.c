/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are loaded as plugins: those of root or of this user that nobody else can write, and
 * that are plugins of this version.
 * Tests: lib/tiers/remote/plugin.c */
#include "t/lib/remote.h"

static char plugin[512], redis[512];

static void refused(const char *spec, int err, const char *sentence)
{
	struct remote_options o = {
		.spec = spec, .image_bytes = 4096, .lanes = 1, .log = remote_note
	};
	struct remote *r = NULL;

	is_int(remote_open(&o, &r), err, "%s is refused", spec);
	if (!ok(strstr(gpc_last_error(), sentence) != NULL, "which says: %s", sentence))
		diag("it says: %s", gpc_last_error());
	ok(!r, "and there is no store");
}

static void files(void)
{
	char spec[1024], other[600];
	struct remote *r;

	snprintf(spec, sizeof(spec), "%s:dir=%s", plugin, remote_dir);
	r = remote_start(spec, NULL, 4096, 0);
	ok(r != NULL, "a plugin by its path");
	remote_close(r);
	chmod(plugin, 0664);
	refused(spec, -EACCES, "has mode 0664: others may write there; chmod go-w");
	chmod(plugin, 0646);
	refused(spec, -EACCES, "has mode 0646");
	chmod(plugin, 0644);
	chmod(remote_dir, 0777);
	refused(spec, -EACCES, "has mode 0777");
	chmod(remote_dir, 0755);
	if (geteuid() == 0) {
		if (chown(plugin, 65534, 0))
			bail("chown");
		refused(spec, 0 - EACCES, "belongs to user 65534");
		if (chown(plugin, 0, 0) || chown(remote_dir, 65534, 0))
			bail("chown");
		refused(spec, 0 - EACCES, "belongs to user 65534");
		if (chown(remote_dir, 0, 0))
			bail("chown");
	} else {
		skip(6, "only root gives files away");
	}
	snprintf(other, sizeof(other), "%s/link.so", remote_dir);
	if (symlink(plugin, other))
		bail("symlink");
	refused(other, -EINVAL, "is no regular file");
	snprintf(other, sizeof(other), "%s/text.so", remote_dir);
	fclose(fopen(other, "w"));
	chmod(other, 0644);
	refused(other, -ENOEXEC, "the plugin cannot be loaded");
}

static void names(void)
{
	refused("nothing-of-that-name", -ENOENT, "there is no plugin nothing-of-that-name");
	refused("a/b", -EINVAL, "'a/b' names no plugin");
	refused("../x", -EINVAL, "names no plugin");
	refused("Redis", -EINVAL, "names no plugin");
	refused("nothing", -ENOENT, "neither in the folder gpc beside the library nor in");
	refused("/nowhere/x.so", -ENOENT, "there is no plugin /nowhere/x.so: correct the path, or");
	refused("/etc/passwd/x.so", -ENOTDIR,
		"plugin /etc/passwd/x.so: Not a directory; correct the path");
}

/* Another folder than that of configure's prefix, where no test may write. */
static void beside_the_library(void)
{
	char self[400], folder[512], path[600], spec[400], command[1700];
	struct remote *r;

	self[MAX(0, readlink("/proc/self/exe", self, sizeof(self) - 1))] = 0;
	snprintf(folder, sizeof(folder), "%.*s/gpc", (int)(strrchr(self, '/') - self), self);
	snprintf(path, sizeof(path), "%s/gpc_remote_beside-%d.so", folder, (int)getpid());
	snprintf(command, sizeof(command), "mkdir -p '%s' && cp '%s' '%s'", folder, plugin, path);
	snprintf(spec, sizeof(spec), "beside-%d:dir=%s", (int)getpid(), remote_dir);
	if (system(command) || chmod(folder, 0755) || chmod(path, 0755))
		bail("%s", command);
	r = remote_start(spec, NULL, 4096, 0);
	ok(r != NULL, "a name is looked for in the folder gpc beside the library, too");
	remote_close(r);
	unlink(path);
	rmdir(folder);
}

static void options(void)
{
	char spec[1024];
	struct remote_options o = { .spec = spec, .image_bytes = 4096, .lanes = 1 };
	struct remote *r = NULL;

	snprintf(spec, sizeof(spec), "%s:dir=%s,colour=red", plugin, remote_dir);
	refused(spec, -EINVAL, "folder has no option colour; it takes dir, slow");
	snprintf(spec, sizeof(spec), "%s:dir=/nowhere/at/all", plugin);
	refused(spec, -ENOENT,
		"remote store folder: dir=/nowhere/at/all is no folder that can be opened: No such file or directory; make it");
	snprintf(spec, sizeof(spec), "%s:dir=/etc/passwd", plugin);
	refused(spec, -ENOTDIR,
		"dir=/etc/passwd is no folder that can be opened: Not a directory; give a folder that");
	snprintf(spec, sizeof(spec), "%s:dir=/%0300d", plugin, 0);
	refused(spec, -EINVAL, "dir has 301 bytes, and may have 255");
	snprintf(spec, sizeof(spec), "%s:dir=%s,slow=x", plugin, remote_dir);
	refused(spec, -EINVAL, "slow=x: it must be a number of milliseconds");
	snprintf(spec, sizeof(spec), "%s:dir=%s,slow=-5", plugin, remote_dir);
	refused(spec, -EINVAL, "slow=-5: it must be");
	snprintf(spec, sizeof(spec), "%s:dir=%s,dir=%s", plugin, remote_dir, remote_dir);
	refused(spec, -EINVAL, "stands there twice");
	snprintf(spec, sizeof(spec), "%s:dir=", plugin);
	refused(spec, -EINVAL, "dir is missing");
	snprintf(spec, sizeof(spec), "%s:,dir=x", plugin);
	refused(spec, -EINVAL, "option 1 of");
	snprintf(spec, sizeof(spec), "%s:=x", plugin);
	refused(spec, -EINVAL, "has no name");
	refused(plugin, -EINVAL, "remote store folder: dir is missing: say folder:dir=FOLDER");
	snprintf(spec, sizeof(spec), "%s:dir=%s", plugin, remote_dir);
	o.tag = "a b";
	is_int(remote_open(&o, &r), -EINVAL, "a tag with a blank: %s", gpc_last_error());
	o.tag = "";
	is_int(remote_open(&o, &r), -EINVAL, "an empty tag");
	o.tag = "123456789012345678901234567890123";
	is_int(remote_open(&o, &r), -EINVAL, "a tag of 33 bytes");
	o.tag = NULL;
	o.lanes = 0;
	is_int(remote_open(&o, &r), -EINVAL, "no lanes: %s", gpc_last_error());
	o.lanes = GPC_REMOTE_LANES;
	is_int(remote_open(&o, &r), -EINVAL, "too many lanes");
	o.lanes = 1;
	o.image_bytes = 0;
	is_int(remote_open(&o, &r), -EINVAL, "images without bytes");
}

static void redis_refuses(const char *what, const char *sentence)
{
	char spec[2048];

	snprintf(spec, sizeof(spec), "%s:%s", redis, what);
	refused(spec, -EINVAL, sentence);
}

static void options_of_redis(void)
{
	char long_path[300], word[1400], path[300];

	snprintf(long_path, sizeof(long_path), "server=unix:/%0107d", 0);
	redis_refuses(long_path, "the path of a socket has 108 bytes, and may have 107");
	redis_refuses("server=", "server has 0 bytes");
	redis_refuses("server", "server has 0 bytes");
	redis_refuses("server=+x", "server= is none of HOST");
	redis_refuses("server=a++b", "server= is none of HOST");
	redis_refuses("server=a:", "server=a: is none of HOST");
	redis_refuses("server=a:0", "server=a:0 is none of HOST");
	redis_refuses("server=a:65536", "server=a:65536 is none of HOST");
	redis_refuses("server=[::1", "server=[::1 is none of HOST");
	redis_refuses("server=[]:1", "server=[]:1 is none of HOST");
	redis_refuses("server=unix:sock", "server=unix:sock is none of HOST");
	redis_refuses("server=a\\,b", "server=a,b is none of HOST");
	redis_refuses("server=a b", "server=a b is none of HOST");
	redis_refuses("db= 5", "db= 5: it must be a number from 0 to 65535");
	redis_refuses("db=+5", "db=+5: it must be");
	redis_refuses("db=-1", "db=-1: it must be");
	redis_refuses("expire=1s", "expire=1s: it must be a number");
	redis_refuses("expire=99999999999999999999", "it must be a number");
	snprintf(path, sizeof(path), "%s/fifo", remote_dir);
	if (mkfifo(path, 0600))
		bail("mkfifo");
	snprintf(word, sizeof(word), "%s:password-file=%s", redis, path);
	refused(word, -EACCES, "it must be a regular file");
	snprintf(path, sizeof(path), "%s/empty", remote_dir);
	fclose(fopen(path, "w"));
	chmod(path, 0600);
	snprintf(word, sizeof(word), "password-file=%s", path);
	redis_refuses(word, "has no password in its first line");
}

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	files();
	names();
	beside_the_library();
	options();
	if (remote_plugin("redis", redis, sizeof(redis)))
		options_of_redis();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(60, body, remote_dir_remove);
}
