/* SPDX-License-Identifier: Apache-2.0 */
/* Is a mirror in step with its table?  gpc_mirror_sync, gpc_mirror_get, and gpc_check,
 * which compares the two.
 * Tests: lib/bytes/mirror/sync.c lib/look/check_table.c */
#include "config.h"

#include "t/lib/host.h"
#include "t/lib/lag.h"

static void *flush_soon(void *arg)
{
	struct made *m = arg;
	struct timespec pause = { .tv_nsec = 30000000 };

	nanosleep(&pause, NULL);
	store_release(&made_mirror(m, 0)->flushed, made_state(m)->changes);
	return NULL;
}

static void test_sync(void)
{
	struct made m;
	struct shm_mirror d;
	void *mirror;
	pthread_t t;
	int fd;

	made_new(&m, "host-sync", MADE_BLOCKS);
	fill(&m);
	fd = segment_open_lock(&m.c.seg);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), 0, "without mirrors all is in step");
	is_int(mirror_lag(&m.c), 0, "and nothing dirty");
	mirror = make_mirror(&m, 12, &d);
	publish_mirror(&m, 0, &d);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), 0, "a mirror in step");
	made_publish(&m, 30, 250, 0, 1);
	is_int(mirror_lag(&m.c), 1, "a change makes it dirty");
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), -ENOTCONN, "without a writer it stays so");
	lock_try(fd, LOCK_WRITER);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), -EAGAIN, "not yet");
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 20), -ETIMEDOUT, "not in time");
	pthread_create(&t, NULL, flush_soon, &m);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 10000), 0, "until it is flushed");
	pthread_join(t, NULL);
	made_publish(&m, 29, 251, 0, 1);
	store_release(&made_mirror(&m, 0)->state, MIRROR_RETIRED);
	is_int(gpc_mirror_sync(&m.c, GPC_TICKET_ALL, 0), 0, "retired mirrors are not waited for");
	close(fd);
	host->writer.destroy(mirror);
	made_free(&m);
}

static char heard[256];

static void hear(void *arg, const char *line)
{
	(void)arg;
	snprintf(heard, sizeof(heard), "%s", line);
}

static void test_check(void)
{
	struct made m;
	struct shm_mirror d;
	void *mirror;
	uint32_t word = 9;
	struct probe_entry *e;
	int fd;

	made_new(&m, "host-check", MADE_BLOCKS);
	fill(&m);
	e = made_put(&m, 0, made_key(400), 30);
	made_publish(&m, 30, 400, 0, 1);
	memset(e, 0, sizeof(*e));
	mirror = make_mirror(&m, 13, &d);
	publish_mirror(&m, 0, &d);
	is_int(gpc_check(&m.c, hear, NULL), 0, "a mirror equal to its table");
	fd = file_of(&m, &d, O_RDWR);
	if (pwrite(fd, &word, 4, 4096 + 16 * 5 + 12) != 4)
		bail("cannot write");
	is_int(gpc_check(&m.c, hear, NULL), 1, "one entry differs");
	ok(strstr(heard, "mirror 0 bucket 1 entry 1 (block 0x00000008)"), "and is named");
	made_mirror(&m, 0)->flushed--;
	is_int(gpc_check(&m.c, hear, NULL), 0, "a mirror that lags is not compared");
	made_mirror(&m, 0)->flushed += 2;
	is_int(gpc_check(&m.c, hear, NULL), 1, "one that is ahead is wrong");
	ok(strstr(heard, "mirror 0: flushed up to"), "and told");
	made_mirror(&m, 0)->flushed--;
	close(fd);
	host->writer.sweep(&m.c.seg, &d);
	is_int(gpc_check(&m.c, hear, NULL), 0, "a mirror may go with its writer");
	fd = segment_open_lock(&m.c.seg);
	made_pools_told(&m);
	lock_try(fd, LOCK_WRITER);
	is_int(gpc_check(&m.c, hear, NULL), 1, "but not before it");
	close(fd);
	host->writer.destroy(mirror);
	made_free(&m);
}

static int body(void)
{
	test_sync();
	test_check();
	return done_testing();
}

int main(void)
{
	scratch_make("t027");
	return tap_guard(50, body, scratch_remove);
}
