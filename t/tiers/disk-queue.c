/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a disk: reads before writes, a thread that never writes, bounds, deadlines, the rate,
 * one sync for many, the end.
 * Tests: lib/tiers/disk/queue.c lib/tiers/disk/state.h */
#include <pthread.h>

#include "tiers/disk/state.h"
#include "tiers/disk/state.h"
#include "t/lib/disks.h"

#define OPS 300u

static uint8_t image[DISK_TEST_IMAGE] __attribute__((aligned(4096)));
static const struct iovec iov = { image, DISK_TEST_IMAGE };

/* ---- gates: transfers and syncs stop there while it is closed ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static struct {
	bool closed;
	uint32_t at;
} gate;
static uint32_t order[OPS], ended; /* order: slots, + 1000 for a write */

int __real_io_read_image(struct disk *d, struct disk_op *o, uint32_t crc);
int __real_io_write_image(struct disk *d, struct disk_op *o);
int __wrap_io_read_image(struct disk *d, struct disk_op *o, uint32_t crc);
int __wrap_io_write_image(struct disk *d, struct disk_op *o);

static void pass_gate(void)
{
	pthread_mutex_lock(&lock);
	gate.at++;
	pthread_cond_broadcast(&cond);
	while (gate.closed)
		pthread_cond_wait(&cond, &lock);
	gate.at--;
	pthread_mutex_unlock(&lock);
}

static void set_gate(bool closed)
{
	pthread_mutex_lock(&lock);
	gate.closed = closed;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
}

static void wait_at_gate(uint32_t n)
{
	pthread_mutex_lock(&lock);
	while (gate.at < n)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

static void wait_ended(uint32_t n)
{
	pthread_mutex_lock(&lock);
	while (ended < n)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

int __wrap_io_read_image(struct disk *d, struct disk_op *o, uint32_t crc)
{
	pass_gate();
	return __real_io_read_image(d, o, crc);
}

int __wrap_io_write_image(struct disk *d, struct disk_op *o)
{
	pass_gate();
	return __real_io_write_image(d, o);
}

/* ---- operations ---- */

static struct disk_op op[OPS];
static uint8_t room[OPS][DISK_TEST_IMAGE] __attribute__((aligned(4096)));
static struct iovec into[OPS];
static struct disk *d;

static void note_end(struct disk_op *o)
{
	pthread_mutex_lock(&lock);
	order[ended++] = (uint32_t)o->what.slot + (o->kind == DISK_WRITE ? 1000 : 0);
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
}

struct seen {
	uint32_t reads_waiting, reads_running, writes_waiting, writes_running;
};

static void look(struct seen *ret)
{
	worker_lock(&d->worker);
	*ret = (struct seen){ d->reads.n, d->reads.running, d->writes.n, d->writes.running };
	worker_unlock(&d->worker);
}

static int submit(uint32_t i, enum disk_kind kind)
{
	into[i] = (struct iovec){ room[i], DISK_TEST_IMAGE };
	op[i] = (struct disk_op){ .kind = kind,
				  .what = { .slot = i, .key = disk_key(i) },
				  .niov = 1,
				  .iov = kind == DISK_READ ? &into[i] : &iov,
				  .done = note_end,
				  .result = 12345 };
	return disk_submit(d, &op[i]);
}

static void renew(uint32_t threads, uint32_t queue, uint64_t rate, uint64_t burst)
{
	struct disk_options opt = disk_opt(OPS);
	uint32_t i;

	opt.threads = threads;
	opt.queue = queue;
	opt.write_rate = rate;
	opt.write_burst = burst;
	disk_close(d);
	unlink(disk_path);
	d = disk_must(&opt);
	for (i = 0; i < 40; i++)
		if (disk_put(d, i, i, 0, 1))
			bail("no block %u", i);
	ended = 0;
}

static void reads_first(void)
{
	uint32_t i, bad = 0;

	renew(1, 0, 0, 0);
	set_gate(true);
	bad += submit(0, DISK_READ) != 0;
	wait_at_gate(1);
	for (i = 50; i < 53; i++)
		bad += submit(i, DISK_WRITE) != 0;
	for (i = 1; i < 31; i++)
		bad += submit(i, DISK_READ) != 0;
	is_int(bad, 0, "reads and writes are submitted");
	set_gate(false);
	wait_ended(34);
	for (i = 0; i < 16; i++)
		bad += order[i] != i;
	is_int(bad, 0, "16 reads go first, in their order");
	is_int(order[16], 1050, "then one write");
	for (i = 17; i < 32; i++)
		bad += order[i] != i - 1;
	ok(!bad && order[32] == 1051 && order[33] == 1052, "then the other reads, then writes");
	for (i = 0; i < 53; i++)
		bad += op[i].done && op[i].result != 0;
	is_int(bad, 0, "all went well");
}

static void one_never_writes(void)
{
	struct seen c;
	uint32_t i, bad = 0;

	renew(3, 0, 0, 0);
	set_gate(true);
	for (i = 50; i < 60; i++)
		bad += submit(i, DISK_WRITE) != 0;
	wait_at_gate(2);
	bad += submit(1, DISK_READ) != 0;
	wait_at_gate(3);
	look(&c);
	ok(!bad && c.writes_running == 2 && c.writes_waiting == 8 && c.reads_running == 1,
	   "with three threads two write, and a read has the third");
	set_gate(false);
	wait_ended(11);
}

/* Reads that a bad place of the disk holds up are not waited for by a write: who acknowledges
 * removals waits for it. */
static void reads_hang(void)
{
	struct seen c;
	uint32_t i, bad = 0;

	renew(3, 0, 0, 0);
	set_gate(true);
	for (i = 0; i < 20; i++)
		bad += submit(i, DISK_READ) != 0;
	wait_at_gate(3);
	bad += submit(50, DISK_WRITE) != 0;
	for (i = 0, c.writes_running = 0; i < 2000 && !c.writes_running; i++) {
		usleep(1000);
		look(&c);
	}
	ok(!bad && c.writes_running == 1 && c.reads_running == 3 && c.reads_waiting == 17,
	   "with three threads three read, and a write goes on beside them");
	set_gate(false);
	wait_ended(21);
}

static void bounds(void)
{
	struct seen c;
	uint32_t i, bad = 0;

	renew(1, 4, 0, 0);
	set_gate(true);
	bad += submit(0, DISK_READ) != 0;
	wait_at_gate(1);
	for (i = 1; i < 5; i++)
		bad += submit(i, DISK_READ) != 0 || submit(50 + i, DISK_WRITE) != 0;
	is_int(bad, 0, "four of each may wait");
	is_int(submit(5, DISK_READ), -EAGAIN, "a fifth read may not");
	is_int(submit(55, DISK_WRITE), -EAGAIN, "nor a fifth write");
	look(&c);
	ok(c.reads_waiting == 4 && c.writes_waiting == 4, "four of each do");
	set_gate(false);
	wait_ended(9);
	is_int(submit(5, DISK_READ), 0, "then it may");
	wait_ended(10);
}

static void deadlines(void)
{
	renew(1, 0, 0, 0);
	set_gate(true);
	submit(0, DISK_READ);
	wait_at_gate(1);
	op[1] = (struct disk_op){ .kind = DISK_READ,
				  .what = { .slot = 1, .key = disk_key(1) },
				  .niov = 1,
				  .iov = &iov,
				  .done = note_end,
				  .deadline_ns = clock_ns() + 1000 };
	op[2] = (struct disk_op){ .kind = DISK_READ,
				  .what = { .slot = 2, .key = disk_key(2) },
				  .niov = 1,
				  .iov = &iov,
				  .done = note_end,
				  .deadline_ns = clock_ns() + 60000000000ull };
	is_int(disk_submit(d, &op[1]), 0, "one that has little time");
	is_int(disk_submit(d, &op[2]), 0, "one that has much");
	usleep(2000);
	set_gate(false);
	wait_ended(3);
	ok(op[1].result == -ETIME && op[2].result == 0, "the first is late");
}

static void *close_it(void *arg)
{
	disk_close(arg);
	return NULL;
}

static void ends(void)
{
	pthread_t thread;
	uint32_t i, bad = 0;

	renew(1, 0, 0, 0);
	set_gate(true);
	submit(0, DISK_READ);
	wait_at_gate(1);
	for (i = 2; i < 10; i++)
		bad += submit(i, i & 1 ? DISK_READ : DISK_WRITE) != 0;
	if (pthread_create(&thread, NULL, close_it, d))
		bail("no thread");
	while (submit(20, DISK_READ) != -ESHUTDOWN) /* some of these wait as well */
		usleep(1000);
	set_gate(false);
	pthread_join(thread, NULL);
	d = NULL;
	for (i = 2; i < 10; i++)
		bad += op[i].result != -ECANCELED;
	ok(!bad && !op[0].result, "what waits is cancelled, what is under way ends");
}

static uint64_t ms_since(uint64_t ns)
{
	return (clock_ns() - ns) / NS_PER_MS;
}

static void rates(void)
{
	struct seen c;
	uint32_t i, bad = 0;
	uint64_t start;

	renew(2, 0, 10 * DISK_TEST_IMAGE, 2 * DISK_TEST_IMAGE);
	usleep(300000);
	start = clock_ns();
	for (i = 50; i < 56; i++)
		bad += submit(i, DISK_WRITE) != 0;
	wait_ended(2);
	bad += submit(1, DISK_READ) != 0;
	wait_ended(4);
	ok(!bad && (order[2] == 1 || order[3] == 1 || ms_since(start) > 90), "a read goes by");
	wait_ended(7);
	ok(ms_since(start) >= 250, "six writes at ten a second, after a pause: %d ms",
	   (int)ms_since(start));
	submit(57, DISK_WRITE);
	submit(58, DISK_WRITE);
	wait_ended(9);
	ok(!op[57].result && !op[58].result,
	   "two more, when all threads sleep and it is nobody's turn yet");
	renew(2, 0, 1, 1);
	for (i = 60; i < 64; i++)
		bad += submit(i, DISK_WRITE) != 0;
	usleep(20000);
	look(&c);
	ok(!bad && c.writes_waiting >= 2, "at one byte a second they wait");
	renew(2, 0, UINT64_MAX, UINT64_MAX);
	submit(65, DISK_WRITE);
	wait_ended(1);
	renew(2, 0, 1, UINT64_MAX);
	submit(66, DISK_WRITE);
	wait_ended(1);
	ok(1, "large numbers do not stop them");
}

/* It says that the block is not there, and so does every later scan. */
static void write_under_clear(void)
{
	struct disk_options opt = disk_opt(OPS);

	renew(2, 0, 0, 0);
	set_gate(true);
	submit(50, DISK_WRITE);
	wait_at_gate(1);
	is_int(disk_clear(d), 0, "a clear does not wait for a write");
	set_gate(false);
	wait_ended(1);
	is_int(op[50].result, -ESTALE, "which has come too late");
	is_int(disk_has(d, 50, 50), -ENOENT, "its block is not there");
	disk_close(d);
	d = disk_must(&opt);
	is_int(disk_has(d, 50, 50), -ENOENT, "nor when the file is opened again");
}

/* ---- everything at once, each on slots of its own ---- */

static uint32_t wrong, trouble;

static void *worker(void *arg)
{
	uint64_t first = (uint64_t)(uintptr_t)arg * 20, i, x = first + 1, slot, s2;
	int err;

	for (i = 0; i < 600; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		slot = first + (x >> 40) % 20;
		s2 = slot;
		switch ((x >> 33) % 8) {
		case 0:
			err = disk_remove(d, &s2, 1);
			break;
		case 1:
			err = disk_free(d, slot);
			break;
		case 2:
			err = i % 64 ? 0 : disk_clear(d);
			break;
		case 3:
		case 4:
			err = disk_put(d, slot, slot, 0, (uint32_t)i);
			err = err == -ESTALE ? 0 : err;
			break;
		default:
			err = disk_has(d, slot, slot);
			__atomic_fetch_add(&wrong, err == 1, __ATOMIC_RELAXED);
			err = err == -ENOENT ? 0 : err;
		}
		__atomic_fetch_add(&trouble, err != 0, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void at_once(void)
{
	pthread_t thread[4];
	uintptr_t i;

	renew(2, 0, 0, 0);
	for (i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, worker, (void *)i))
			bail("no thread");
	for (i = 0; i < 100; i++) {
		if (submit((uint32_t)(100 + i), DISK_WRITE))
			bail("not submitted");
		wait_ended((uint32_t)i + 1);
	}
	for (i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	ok(!wrong && !trouble, "threads beside each other: %u wrong, %u errors", wrong, trouble);
}

static int body(void)
{
	reads_first();
	one_never_writes();
	reads_hang();
	bounds();
	deadlines();
	ends();
	rates();
	write_under_clear();
	at_once();
	disk_close(d);
	return done_testing();
}

int main(void)
{
	disk_make_folder();
	return tap_guard(60, body, disk_remove_folder);
}
