/* SPDX-License-Identifier: Apache-2.0 */
/* A store, by the plugin of folders: images come back whole or not at all, a store that is late or
 * away costs one deadline, and one that answers wrong bytes is switched off.
 * Tests: plugins/folder.c lib/tiers/remote/batch.c lib/tiers/remote/remote.c lib/tiers/remote/call.c
 *   lib/tiers/remote/reach.c lib/tiers/remote/store.h */
#include <dirent.h>
#include <fcntl.h>

#include "t/lib/remote.h"

#define N 300u

static char plugin[512], dir[256], spec[1024];
static struct images m, few;

static struct remote_state state(struct remote *r)
{
	struct remote_state s;

	remote_state(r, &s);
	return s;
}

static void there_and_back(struct remote *r)
{
	int32_t results[N];
	gpc_key keys[N];
	uint32_t i, right = 0;

	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "%u images are stored, in two batches", N);
	images_want(&m, 0);
	is_int(remote_get(r, 1, m.b, N, 0), N, "all of them come back");
	is_int(images_wrong(&m), 0, "with their bytes");
	for (i = 0; i < N; i++)
		right += m.b[i].depth == i && m.b[i].tag == 5 && m.b[i].parent.w[1] == i + 78;
	is_int(right, N, "their parents, depths and tags");
	images_want(&m, 100);
	is_int(remote_get(r, 1, m.b, N, 0), N - 100, "of others those that are there");
	is_int(images_with(&m, -ENOENT), 100, "the rest are misses");
	for (i = 0; i < N; i++)
		keys[i] = remote_key(2 * i);
	is_int(remote_exists(r, 2, keys, N, results, 0), N / 2, "half of the keys exist");
	ok(!results[N / 2 - 1] && results[N / 2] == -ENOENT, "the first half");
	for (i = 0; i < N; i++)
		keys[i] = remote_key(i);
	is_int(remote_remove(r, 3, keys + 10, 5, NULL, 0), 5, "five are removed");
	is_int(remote_remove(r, 3, keys + 10, 5, results, 0), 5,
	       "which is so when they are gone already");
	is_int(remote_exists(r, 3, keys, N, NULL, 0), N - 5, "five are gone");
	is_int(remote_reach(r, 0, keys, N, 0), 10, "the chain ends before them");
	is_int(remote_reach(r, 0, keys + 15, N - 15, 0), N - 15, "the rest of it is whole");
	is_int(remote_reach(r, 0, keys + 12, 4, 0), 0, "one that begins there has no length");
	is_int(state(r).hits, N + N - 100, "hits are counted");
	is_int(state(r).misses, 100, "and misses");
	is_int(state(r).bytes_out, (long long)N * m.bytes, "and bytes");
}

/* Long chains, wherever they end. */
static void reaches(struct remote *r)
{
	enum { LONG = 2000 }; /* more than seven times what a batch has */
	gpc_key *keys = calloc(LONG, sizeof(*keys));
	static const uint32_t ends[] = { 0, 1, 6, 7, 8, 255, 256, 257, 1000, 1998, 1999, 2000 };
	uint32_t i, k, n, had = 0;

	for (i = 0; i < LONG; i++)
		keys[i] = remote_key(100000 + i);
	for (k = 0; k < sizeof(ends) / sizeof(ends[0]); k++) {
		for (; had < ends[k]; had += n) {
			n = MIN(ends[k] - had, N);
			images_put(&m, 100000 + had);
			remote_put(r, 0, m.b, n, 0);
		}
		is_int(remote_reach(r, 0, keys, LONG, 0), ends[k], "a chain of %u of %u", ends[k],
		       LONG);
	}
	free(keys);
}

static void other_tags(void)
{
	struct remote *r = remote_start(spec, "v2", m.bytes, 0);

	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), 0, "another version tag sees nothing");
	remote_close(r);
	r = remote_start(spec, NULL, m.bytes / 2, 0);
	images_make(&few, 4, m.bytes / 2);
	images_want(&few, 0);
	is_int(remote_get(r, 0, few.b, 4, 0), 0, "nor does another size of images");
	remote_close(r);
	free(few.at);
}

/* ---- bytes that are wrong ---- */

static void spoil(uint32_t n, off_t at, off_t cut)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[600], byte;
	int fd;

	while (n && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		fd = open(path, O_RDWR);
		if (cut && ftruncate(fd, cut < 0 ? 0 : cut))
			bail("ftruncate");
		if (!cut) {
			if (pread(fd, &byte, 1, at) != 1)
				bail("pread");
			byte ^= 1;
			if (pwrite(fd, &byte, 1, at) != 1)
				bail("pwrite");
		}
		close(fd);
		n--;
	}
	closedir(d);
}

static void wrong_bytes(const char *what, off_t at, off_t cut)
{
	struct remote *r = remote_start(spec, "w", m.bytes, 0);

	remote_log[0] = 0;
	images_put(&few, 0);
	is_int(remote_put(r, 0, few.b, 4, 0), 4, "stored anew");
	spoil(2, at, cut);
	images_want(&few, 0);
	is_int(remote_get(r, 0, few.b, 4, 0), 2, "%s: two come whole", what);
	is_int(images_with(&few, -EBADMSG), 2, "two are wrong, and misses");
	is_int(images_wrong(&few), 0, "no wrong byte counts");
	ok(remote_tells("wrong bytes under gpc1:w:"), "the key is named");
	is_int(state(r).wrong, 2, "they are counted");
	images_want(&few, 0);
	is_int(remote_get(r, 0, few.b, 4, 0), 2, "and are gone from the store");
	is_int(images_with(&few, -ENOENT), 2, "so that they are plain misses now");
	images_put(&few, 0);
	remote_put(r, 0, few.b, 4, 0);
	spoil(1, at, cut);
	images_want(&few, 0);
	remote_get(r, 0, few.b, 4, 0);
	is_int(state(r).state, REMOTE_OFF, "a third one switches the store off");
	ok(remote_tells("is switched off: it has answered wrong bytes 3 times"), "which is said");
	ok(strstr(state(r).why, "gpc1:w:") != NULL, "and kept: %s", state(r).why);
	images_put(&few, 0);
	is_int(remote_put(r, 0, few.b, 4, 0), 0, "nothing is stored");
	is_int(images_with(&few, -EHOSTDOWN), 4, "as nothing is tried");
	remote_tick(r);
	is_int(state(r).state, REMOTE_OFF, "a tick changes nothing");
	remote_close(r);
}

/* Found out when there is hardly any time left: a busy machine may leave none, and tries again. */
static void wrong_and_late(void)
{
	int32_t found = 0, then = 0, i;
	char slow[1100];
	struct remote *r;

	snprintf(dir, sizeof(dir), "%s/late", remote_dir);
	mkdir(dir, 0755);
	snprintf(slow, sizeof(slow), "%s:dir=%s,slow=100", plugin, dir);
	for (i = 0; i < 10 && (found != -EBADMSG || then != -ENOENT); i++) {
		r = remote_start(slow, "late", m.bytes, 10000);
		images_put(&few, 0);
		remote_put(r, 0, few.b, 1, 0);
		spoil(1, 3000, 0);
		images_want(&few, 0);
		remote_get(r, 0, few.b, 1, clock_ns() + 190 * NS_PER_MS);
		found = few.b[0].result;
		images_want(&few, 0);
		remote_get(r, 0, few.b, 1, 0);
		then = few.b[0].result;
		remote_close(r);
	}
	is_int(found, -EBADMSG, "a wrong value, found at the end of the deadline");
	is_int(then, -ENOENT, "is removed all the same");
}

/* Wrong bytes now and then, among many right ones, are no reason. */
static void rarely_wrong(void)
{
	struct remote *r = remote_start(spec, "r", m.bytes, 0);
	uint32_t i, k;

	for (i = 0; i < 5; i++) {
		images_put(&few, 0);
		remote_put(r, 0, few.b, 4, 0);
		spoil(1, 200, 0);
		images_want(&few, 0);
		remote_get(r, 0, few.b, 4, 0);
		remote_put(r, 0, few.b, 0, 0);
		images_put(&few, 0);
		remote_put(r, 0, few.b, 4, 0);
		for (k = 0; k < 260; k++) {
			images_want(&few, 0);
			remote_get(r, 0, few.b, 4, 0);
		}
	}
	is_int(state(r).wrong, 5, "five wrong images, each among a thousand right ones");
	is_int(state(r).state, REMOTE_UP, "do not switch the store off");
	remote_close(r);
}

/* ---- time ---- */

static void *stop_soon(void *r)
{
	usleep(100000);
	remote_stop(r);
	return NULL;
}

static void late_and_away(void)
{
	char slow[1100];
	struct remote *r;
	uint64_t began;
	pthread_t thread;

	snprintf(slow, sizeof(slow), "%s,slow=60", spec);
	r = remote_start(slow, "s", m.bytes, 500);
	images_put(&m, 0);
	began = clock_ns();
	ok(remote_put(r, 0, m.b, N, 0) < N / 4,
	   "a slow store stores what it can within the deadline");
	ok(is_soon(began, 5000), "and the call ends soon after it");
	ok(images_with(&m, -ETIMEDOUT) > N / 2, "the rest is late");
	is_int(state(r).state, REMOTE_UP, "it is slow, and not down");
	remote_close(r);

	snprintf(slow, sizeof(slow), "%s,slow=60000", spec);
	r = remote_start(slow, "s", m.bytes, 150);
	images_put(&few, 0);
	remote_put(r, 0, few.b, 4, 0);
	is_int(state(r).state, REMOTE_DOWN, "one that does nothing within a deadline is down");
	began = clock_ns();
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, began + 60000 * NS_PER_MS), 0, "nothing is stored");
	ok(is_soon(began, 30000) && images_with(&m, -EHOSTDOWN) == N,
	   "none of them waits for the store: it costs one deadline");
	remote_close(r);

	r = remote_start(slow, "s", m.bytes, 60000);
	pthread_create(&thread, NULL, stop_soon, r);
	began = clock_ns();
	images_put(&few, 0);
	remote_put(r, 0, few.b, 4, 0);
	ok(is_soon(began, 5000), "a call under way ends when the store is stopped");
	is_int(images_with(&few, -ECANCELED), 4, "as cancelled");
	pthread_join(thread, NULL);
	images_put(&few, 0);
	remote_put(r, 0, few.b, 4, 0);
	is_int(images_with(&few, -ECANCELED), 4, "and so does a later one");
	remote_close(r);
}

/* The folder cannot be read for a while; root reads all. */
static void down_and_up(void)
{
	struct remote *r;

	if (geteuid() == 0) {
		skip(4, "root may read all folders");
		return;
	}
	r = remote_start(spec, "d", m.bytes, 0);
	images_put(&few, 0);
	remote_put(r, 0, few.b, 4, 0);
	chmod(dir, 0);
	images_want(&few, 0);
	is_int(remote_get(r, 0, few.b, 4, 0), 0, "a folder that cannot be entered");
	is_int(state(r).state, REMOTE_DOWN, "is down");
	chmod(dir, 0755);
	ok(remote_until(r, REMOTE_UP), "it is found when it is there again");
	images_want(&few, 0);
	is_int(remote_get(r, 0, few.b, 4, 0), 4, "with all that it had");
	remote_close(r);
}

/* Processes of other machines have our number, and their files are in the same folder. */
static void same_number(void)
{
	char path[400];
	struct remote *r = remote_start(spec, NULL, few.bytes, 0);

	snprintf(path, sizeof(path), "%s/.part-%d-0", dir, (int)getpid());
	if (mkdir(path, 0755))
		bail("mkdir");
	images_put(&few, 0);
	is_int(remote_put(r, 0, few.b, few.n, 0), few.n,
	       "what a process of the same number writes is in nobody's way");
	rmdir(path);
	remote_close(r);
}

static int body(void)
{
	struct remote *r;

	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	snprintf(dir, sizeof(dir), "%s/store", remote_dir);
	mkdir(dir, 0755);
	snprintf(spec, sizeof(spec), "%s:dir=%s", plugin, dir);
	images_make(&m, N, 5000);
	r = remote_start(spec, NULL, m.bytes, 0);
	there_and_back(r);
	images_make(&few, 4, m.bytes);
	reaches(r);
	remote_close(r);
	free(few.at);
	other_tags();
	images_make(&few, 4, m.bytes);
	late_and_away();
	same_number();
	down_and_up();
	snprintf(dir, sizeof(dir), "%s/spoilt", remote_dir);
	mkdir(dir, 0755);
	snprintf(spec, sizeof(spec), "%s:dir=%s", plugin, dir);
	wrong_bytes("a bit of an image", 3000, 0);
	wrong_bytes("a bit of a header", 20, 0);
	wrong_bytes("an image that is cut off", 0, 4000);
	wrong_bytes("a header that is cut off", 0, 100);
	wrong_bytes("an empty value", 0, -1);
	rarely_wrong();
	wrong_and_late();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
