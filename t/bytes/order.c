/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and transfers: gpc_order by stages, gpc_release_after, streams that capture; a lost
 * device; close and fork with transfers under way.
 * Tests: lib/bytes/payload/order.c lib/bytes/payload/bring_copy.c lib/bytes/device/host_event.c */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#include "t/lib/fetch.h"

#include "index/base/order.h"

enum { RAM = 0, VRAM = 1 };

static gpc *tiers(uint32_t vram, uint32_t ram)
{
	gpc *c = bytes_cache();

	is_int(bytes_ram(c, ram, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, vram, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

/* A job that looks at a byte, as a kernel would. */
struct look {
	struct stream_job job;
	const uint8_t *at;
	uint32_t *seen;
};

static void look_run(struct stream_job *job)
{
	struct look *l = (struct look *)job;

	store_release(l->seen, 0x100u | *l->at);
}

static void look_on(void *stream, const uint8_t *at, uint32_t *seen)
{
	struct look *l = malloc(sizeof(*l));

	*l = (struct look){ .job.run = look_run, .at = at, .seen = seen };
	must(stream_submit_to(stream, &l->job));
}

static void wait_seen(uint32_t *seen)
{
	int i;

	for (i = 0; i < 5000 && !load_acquire(seen); i++)
		usleep(1000);
}

static void test_stages(void)
{
	gpc *c = tiers(16, 16);
	struct gpc_fetch_options o = { .size = sizeof(o), .stages = 4 };
	void *copies = host_stream_open(), *reader = host_stream_open();
	uint32_t seen[4] = { 0 }, i;
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	gpc_key k[5];
	int right = 0;

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	device_host_delay_us = 5000;
	is_int(gpc_fetch(c, VRAM, k + 1, 4, b, &o, 0, copies, 1000, &t), 4,
	       "four blocks in four stages");
	device_host_delay_us = 0;
	for (i = 0; i < 4; i++) {
		is_int(gpc_order(c, t, i, reader), 0, "another stream waits for stage %u", i);
		look_on(reader, bytes_place(c, b[3], BYTES_IMAGE / 4 * (i + 1) - 1), &seen[i]);
	}
	ok(!load_acquire(&seen[0]), "nothing waits in the call");
	refused(gpc_order(c, t, 4, reader), EINVAL, "there is no fifth");
	wait_seen(&seen[0]);
	ok(seen[0] && gpc_transfer_wait(c, t, 0) == -EAGAIN,
	   "the first stage is there before the last");
	wait_seen(&seen[3]);
	for (i = 0; i < 4; i++)
		right += seen[i] == (0x100u | bytes_at(4, BYTES_IMAGE / 4 * (i + 1) - 1));
	is_int(right, 4, "each saw the bytes that it waited for");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "the transfer ends");
	is_int(fetch_right(c, b, 4, 1), 4, "every byte");
	is_int(gpc_order(c, t, 0, reader), 0, "one that is done: at once");
	is_int(gpc_order(c, 0, 0, reader), 0, "none: too");
	refused(gpc_order(c, GPC_TRANSFER_ALL, 0, reader), EINVAL, "not all");
	refused(gpc_order(c, t + 640, 0, reader), EINVAL, "not one that there is not");
	o.stages = 5;
	must(gpc_release(c, b, 4));
	bytes_chain(c, RAM, 11, 4, r, false);
	chain_keys(c, 11, 4, k);
	refused(gpc_fetch(c, VRAM, k + 1, 4, b, &o, 0, copies, 1000, &t), EINVAL,
		"five are no equal parts of the image");
	o.stages = 4;
	device_host_captures = copies;
	refused(gpc_fetch(c, VRAM, k + 1, 4, b, &o, 0, copies, 1000, &t), EINVAL,
		"a stream that captures");
	refused(gpc_spill(c, VRAM, RAM, NULL, 4, NULL, 0, copies, 1000, &t), EINVAL,
		"nor spills it");
	device_host_captures = NULL;
	host_stream_close(copies);
	host_stream_close(reader);
	fetch_end(c, "stages");
}

/* A copy in the second of two stages is refused: none is whole. */
static void test_stage_fails(void)
{
	gpc *c = tiers(16, 16);
	struct gpc_fetch_options o = { .size = sizeof(o), .stages = 2 };
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	gpc_key k[5];
	int i;

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	device_host_copy_fail_at = 3;
	i = gpc_fetch(c, VRAM, k + 1, 4, b, &o, 0, NULL, 1000, &t);
	is_int((int)device_host_copy_fail_at, 0, "an operation was refused");
	is_int(i, -EIO, "so nothing comes");
	for (i = 0; i < 2000 && c->transfers->used; i++) {
		gpc_writer_serve(c, 1);
		transfer_sweep(c);
	}
	is_int((int)stats_of(c, -1).reserved, 0, "nothing is left of it");
	is_int(fetch_live(c, 1, 4, RAM), 4, "and all is where it was");
	fetch_end(c, "stage fails");
}

static void test_release_after(void)
{
	gpc *c = tiers(8, 8);
	void *stream = host_stream_open();
	gpc_block b[3], r;
	uint32_t seen = 0;
	int i;

	bytes_chain(c, VRAM, 1, 3, b, true);
	must(gpc_reserve(c, VRAM, 1, &r, NULL, 0, 60000));
	device_host_delay_us = 30000;
	is_int(gpc_release_after(c, b, 3, stream), 0,
	       "three references, when the stream gets there");
	device_host_delay_us = 0;
	is_int((int)stats_of(c, -1).refs, 3, "are held until then");
	look_on(stream, bytes_place(c, b[0], 0), &seen);
	wait_seen(&seen);
	for (i = 0; i < 5000 && stats_of(c, -1).refs; i++)
		usleep(1000);
	is_int((int)stats_of(c, -1).refs, 0, "and released by the thread, though nobody calls");
	refused(gpc_release_after(c, b, 1, stream), EPERM, "a block that is not held");
	refused(gpc_release_after(c, &r, 1, stream), EPERM, "nor a reservation");
	refused(gpc_release_after(c, NULL, 1, stream), EINVAL, "no blocks");
	refused(gpc_release_after(c, (gpc_block[1]){ GPC_BLOCK(99, 0) }, 1, stream), EINVAL,
		"no block");
	refused(gpc_release_after(NULL, b, 1, stream), EINVAL, "no handle");
	is_int(gpc_release_after(c, b, 0, stream), 0, "none at all");
	is_int(gpc_release_after(c, (gpc_block[1]){ -1 }, 1, stream), 0, "-1 is skipped");
	must(gpc_release(c, &r, 1));
	host_stream_close(stream);
	fetch_end(c, "release after");
}

/* One reference is released once, by the program or by a stream. */
static void test_lent(void)
{
	gpc *c = tiers(8, 8);
	void *stream = host_stream_open();
	gpc_block b[2], twice[3];
	gpc_key k[3];
	int i;

	bytes_chain(c, VRAM, 1, 2, b, true);
	chain_keys(c, 1, 2, k);
	twice[0] = twice[2] = b[0];
	twice[1] = b[1];
	refused(gpc_release_after(c, twice, 3, stream), EPERM, "one reference, twice in a list");
	ok(strstr(gpc_last_error(), "blocks[2]") != NULL, "the second is named: %s",
	   gpc_last_error());
	is_int((int)stats_of(c, -1).refs, 2, "and nothing of the list is released");
	device_host_delay_us = 50000;
	is_int(gpc_release_after(c, b, 1, stream), 0, "once");
	refused(gpc_release_after(c, b, 1, stream), EPERM, "not again");
	refused(gpc_release(c, b, 1), EPERM, "nor by the program");
	ok(strstr(gpc_last_error(), "streams are to release") != NULL, "which is told why: %s",
	   gpc_last_error());
	is_int(gpc_release(c, b + 1, 1), 0, "another block is");
	is_int(gpc_ref(c, k + 1, b, 1), 1, "a second reference");
	is_int(gpc_release(c, b, 1), 0, "is the program's");
	refused(gpc_release(c, b, 1), EPERM, "the first one still the stream's");
	is_int(gpc_ref(c, k + 1, b, 1), 1, "a third");
	is_int(gpc_release_after(c, b, 1, stream), 0, "goes to the stream as well");
	device_host_delay_us = 0;
	for (i = 0; i < 5000 && stats_of(c, -1).refs; i++)
		usleep(1000);
	is_int((int)stats_of(c, -1).refs, 0, "all are released");
	is_int((int)c->nlent, 0, "and none is lent");
	host_stream_close(stream);
	fetch_end(c, "lent");
}

/* The thread that would see the stream get there cannot be started: the caller still holds all. */
static bool no_threads;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(t, attr, run, arg);
}

static void test_no_thread(void)
{
	gpc *c = tiers(8, 8), *d = cache_attach(0, 0);
	void *stream = host_stream_open();
	gpc_block b[3];
	gpc_key k[4];
	int i;

	bytes_chain(c, VRAM, 1, 3, b, false);
	chain_keys(c, 1, 3, k);
	if (must(gpc_acquire(d, 0, k + 1, 3, b, 0)) != 3)
		bail("no chain");
	device_host_delay_us = 30000;
	no_threads = true;
	ok(gpc_release_after(d, b, 3, stream) < 0, "without a thread nothing is released: %s",
	   gpc_last_error());
	no_threads = false;
	device_host_delay_us = 0;
	is_int((int)d->transfers->used, 0, "no slot has the list, which the call has freed");
	is_int((int)stats_of(c, -1).refs, 3, "all three are held");
	is_int(gpc_release_after(d, b, 3, stream), 0, "with one they are released");
	for (i = 0; i < 5000 && stats_of(c, -1).refs; i++)
		usleep(1000);
	is_int((int)stats_of(c, -1).refs, 0, "once");
	must(gpc_close(d));
	host_stream_close(stream);
	fetch_end(c, "no thread");
}

/* ---- the end of a handle ---- */

static void test_close(void)
{
	gpc *c = tiers(8, 8), *d = cache_attach(0, 0);
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	gpc_key k[5];
	int i;

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	serve_begin(c);
	device_host_delay_us = 20000;
	is_int(gpc_fetch(d, VRAM, k + 1, 4, b, NULL, 0, NULL, 1000, &t), 4, "four on their way");
	device_host_delay_us = 0;
	must(gpc_release_after(d, b, 4, NULL));
	must(gpc_close(d));
	serve_end();
	for (i = 0; i < 2000 && fetch_live(c, 1, 4, VRAM) < 4; i++)
		gpc_writer_serve(c, 1);
	is_int(fetch_live(c, 1, 4, VRAM), 4,
	       "a closed handle's transfer is committed all the same");
	fetch_end(c, "closed");
}

static void test_fork(void)
{
	gpc *c = tiers(8, 8);
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	int status = -1, bad = 0;
	gpc_key k[5];
	pid_t pid;

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	device_host_delay_us = 5000;
	is_int(gpc_fetch(c, VRAM, k + 1, 4, b, NULL, 0, NULL, 1000, &t), 4, "four on their way");
	device_host_delay_us = 0;
	pid = fork();
	if (!pid) {
		bad += gpc_fetch(c, VRAM, k + 1, 4, b, NULL, 0, NULL, 0, &t) != -ECHILD;
		bad += gpc_spill(c, VRAM, RAM, b, 4, NULL, 0, NULL, 0, &t) != -ECHILD;
		bad += gpc_order(c, t, 0, NULL) != -ECHILD;
		bad += gpc_release_after(c, b, 4, NULL) != -ECHILD;
		bad += gpc_transfer_mark(c, 0, t, NULL) != -ECHILD;
		bad += gpc_transfer_results(c, t, NULL, 0) != -ECHILD;
		bad += gpc_spill_ahead(c, VRAM, NULL, 0, &t) != -ECHILD;
		gpc_close(c);
		_exit(bad);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "in a child the calls refuse, and it closes");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "the parent's transfer goes on");
	is_int(fetch_right(c, b, 4, 1), 4, "every byte");
	must(gpc_release(c, b, 4));
	fetch_end(c, "forked");
}

/* No writer: the copies end, and nobody commits. */
static void test_no_writer(void)
{
	gpc *c = tiers(8, 8), *d = cache_attach(0, 0);
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	gpc_key k[5];
	int i;

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	serve_begin(c);
	device_host_delay_us = 20000;
	is_int(gpc_fetch(d, VRAM, k + 1, 4, b, NULL, 0, NULL, 1000, &t), 4, "four on their way");
	device_host_delay_us = 0;
	serve_end();
	must(gpc_writer_drop(c));
	for (i = 0; i < 30000 && gpc_transfer_wait(d, t, 0) == -EAGAIN; i++)
		usleep(1000);
	is_int(gpc_transfer_wait(d, t, 0), -ENOTCONN,
	       "no writer commits them, as who asks again and again is told");
	refused(gpc_transfer_wait(d, t, 5000), ENOTCONN, "and who waits");
	is_int(fetch_right(d, b, 4, 1), 4, "though the bytes are there");
	must(gpc_writer_take(c, 0, 60000));
	serve_begin(c);
	is_int(gpc_transfer_wait(d, t, 5000), 0, "the next writer does");
	must(gpc_release(d, b, 4));
	must(gpc_close(d));
	serve_end();
	fetch_end(c, "no writer");
}

static int body(void)
{
	test_stages();
	test_stage_fails();
	test_release_after();
	test_lent();
	test_no_thread();
	test_close();
	test_fork();
	test_no_writer();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
