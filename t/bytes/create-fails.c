/* SPDX-License-Identifier: Apache-2.0 */
/* A cache that was made and that its maker cannot have after all is taken back: what gpc_create
 * refuses leaves nothing behind, and never touches a cache that was there before.
 * Tests: lib/index/door/attach.c lib/index/segment/create.c lib/index/segment/space.c */
#include "t/lib/cache.h"

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

static bool refuse;

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	return refuse ? EAGAIN : __real_pthread_create(t, attr, run, arg);
}

static int files(void)
{
	DIR *dir = opendir(cache_dir);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static int body(void)
{
	struct gpc_config cfg = cache_config(8, 8);
	gpc *c = NULL, *d = NULL;
	int before;

	cfg.devices = "host";
	refuse = true;
	refused(gpc_create("new", &cfg, NULL, GPC_SERVE, &c), EAGAIN, "no thread that serves");
	ok(strstr(gpc_last_error(), "thread") != NULL, "says: %s", gpc_last_error());
	ok(!c, "no handle");
	is_int(files(), 0, "and no file: the cache is taken back");
	refuse = false;
	must(gpc_create("old", &cfg, NULL, 0, &c));
	before = files();
	refuse = true;
	refused(gpc_create("old", &cfg, NULL, GPC_SERVE | GPC_IF_ABSENT, &d), EAGAIN,
		"the same with a cache that was there");
	is_int(files(), before, "which stays");
	refuse = false;
	is_int(gpc_create("old", &cfg, NULL, GPC_SERVE | GPC_IF_ABSENT, &d), 0, "and is good");
	must(gpc_close(d));
	must(gpc_close(c));
	must(gpc_unlink("old", cache_dir));
	is_int(files(), 0, "it can be removed");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
