/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are loaded as plugins: those of root or of this user that nobody else can write, and that are plugins
 * of this version. */
#include "t/lib/remote.h"

static char plugin[512];

static void refused(const char *spec, int err, const char *sentence)
{
	struct remote_options o = { .spec = spec, .image_bytes = 4096, .lanes = 1, .log = remote_note };
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
	refused("nothing", -ENOENT, "gpc_remote_nothing.so does not exist; correct the name, or install");
	refused("/nowhere/x.so", -ENOENT, "/nowhere/x.so: No such file");
}

static void options(void)
{
	char spec[1024];
	struct remote_options o = { .spec = spec, .image_bytes = 4096, .lanes = 1 };
	struct remote *r = NULL;

	snprintf(spec, sizeof(spec), "%s:dir=%s,colour=red", plugin, remote_dir);
	refused(spec, -EINVAL, "folder has no option colour; it takes dir, slow");
	snprintf(spec, sizeof(spec), "%s:dir=/nowhere/at/all", plugin);
	refused(spec, -ENOENT, "remote store folder: dir=/nowhere/at/all is no folder");
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

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	files();
	names();
	options();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(60, body, remote_dir_remove);
}
