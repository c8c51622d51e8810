/* SPDX-License-Identifier: Apache-2.0 */
/* The word that says done, on a GPU: whoever sees a value of it sees all bytes of the copies before
 * it, also when the process was killed in the middle, or a kernel of its own broke its context.
 * What is between the drop of a dying process's locks and its end is measured, and what
 * unregistering and unmapping do under queued copies.
 * Tests: lib/bytes/device/cuda_copy.c lib/bytes/device/cuda_thread.c */
#include <sys/file.h>

#include "t/gpu/bytes.h"

#define AREA  (64 * MIB)
#define AHEAD 32u          /* copies that are queued */
#define LARGE (8192 * MIB) /* registered while it dies */

enum { GATE_MADE, GATE_READY, GATE_LOOK, GATE_LOOKED, GATE_END };
enum { N_TORN, N_BEHIND, N_BROKEN };

static struct page {
	struct shm_part part;
	uint64_t done[512];
} * page;
static uint32_t *area;
static uint8_t *large;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void kill_at_random(pid_t pid, uint64_t *seed)
{
	volatile uint32_t spin;

	for (spin = crew_random(seed, 5000000); spin; spin--)
		;
	crew_kill(pid);
}

/* One after the other: the area filled with 1, 2, 3, ..., and each number said done. */
struct queue {
	uint32_t *vram, *slots;
	cudaStream_t stream;
	struct copy_op op;
	uint32_t next;
};

static void queue_open(struct queue *q, bool pitched)
{
	memset(q, 0, sizeof(*q));
	q->stream = new_stream();
	q->slots = pinned(4);
	q->slots[0] = 0;
	must_cuda(cudaMalloc((void **)&q->vram, AREA));
	q->op = (struct copy_op){ NULL, NULL, AREA, 1, 0, 0, 1, 0, 0 };
	if (pitched)
		q->op = (struct copy_op){ NULL, NULL, 16384, AREA / 16384, 16384, 16384, 1, 0, 0 };
	must_be(B->pin(page, sizeof(*page)), 0);
	q->next = 1;
}

/* To the host: the kernel that makes the bytes, the copy, the mark. */
static void queue_down(struct queue *q)
{
	uint32_t done;

	must_cuda(work_fill(q->vram, AREA / 4, q->slots, 1, q->next, 0, q->stream));
	q->op.to = (uint8_t *)area;
	q->op.from = (uint8_t *)q->vram;
	must_be(B->copy(uuid(), &q->op, 1, q->stream, &done), 0);
	must_be(B->mark(uuid(), &page->done[0], q->next++, q->stream), 0);
}

static int downward(int me)
{
	struct queue q;
	uint32_t i;

	uuid();
	must_be(B->pin(area, AREA), 0);
	queue_open(&q, me % 2);
	for (;;) {
		for (i = 0; i < AHEAD; i++)
			queue_down(&q);
		crew_open(GATE_READY);
		must_cuda(cudaStreamSynchronize(q.stream));
	}
	return 0;
}

/* Values of the words: not below what was said done. */
static uint64_t behind(uint64_t done)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < AREA / 4; i++)
		n += area[i] < done;
	return n;
}

static void after_kills(int rounds)
{
	uint64_t seed = 641, torn = 0, seen = 0, late = 0, done;
	uint32_t ready;
	int r;

	for (r = 0; r < rounds; r++) {
		pid_t pid;

		memset(area, 0, AREA);
		page->done[0] = 0;
		ready = load_acquire(&crew->gate[GATE_READY]);
		pid = crew_fork(downward, r);
		crew_wait(GATE_READY, ready + 1);
		kill_at_random(pid, &seed);
		done = load_acquire(&page->done[0]);
		seen += done != 0;
		torn += behind(done);
		usleep(50000);
		late += load_acquire(&page->done[0]) != done;
	}
	ok(seen > 0, "%llu of %d copiers were killed after a copy was said done",
	   (unsigned long long)seen, rounds);
	is_int(torn, 0, "no word is older than what was said done");
	is_int(late, 0, "and done does not change after the end of the process");
}

/* ---- into another process's VRAM ---- */

static int keeper(int me)
{
	void *memory, *base;
	uint32_t *host = pinned(AREA), r;

	must_be(B->make(uuid(), AREA, &page->part, &memory, &base), 0);
	crew_open(GATE_MADE);
	for (r = 1; crew_goes_on(GATE_END, 1);) {
		uint64_t done;
		size_t i;

		if (!crew_is_open(GATE_LOOK, r)) {
			crew_breath();
			continue;
		}
		done = load_acquire(&page->done[0]);
		must_cuda(cudaMemcpy(host, base, AREA, cudaMemcpyDefault));
		for (i = 0; i < AREA / 4; i++)
			crew->count[N_BEHIND] += host[i] < done;
		must_cuda(cudaMemset(base, 0, AREA));
		must_cuda(cudaDeviceSynchronize());
		crew_open(GATE_LOOKED);
		r++;
	}
	B->unmap(memory);
	return 0;
}

static int upward(int me)
{
	void *memory, *base;
	struct queue q;
	uint32_t done, i;
	size_t k;

	uuid();
	must_be(B->map(uuid(), &page->part, &memory, &base), 0);
	must_be(B->pin(area, AREA), 0);
	queue_open(&q, me % 2);
	q.op.to = base;
	q.op.from = (uint8_t *)area;
	for (;;) {
		must_cuda(cudaStreamSynchronize(q.stream));
		for (k = 0; k < AREA / 4; k++)
			area[k] = q.next;
		for (i = 0; i < AHEAD; i++)
			must_be(B->copy(uuid(), &q.op, 1, q.stream, &done), 0);
		must_be(B->mark(uuid(), &page->done[0], q.next++, q.stream), 0);
		crew_open(GATE_READY);
	}
	return 0;
}

static void into_vram(int rounds)
{
	uint32_t made = crew->gate[GATE_MADE], ready;
	pid_t k = crew_fork(keeper, 0);
	uint64_t seed = 642;
	int r;

	crew_wait(GATE_MADE, made + 1);
	for (r = 0; r < rounds; r++) {
		pid_t pid;

		page->done[0] = 0;
		ready = load_acquire(&crew->gate[GATE_READY]);
		pid = crew_fork(upward, r);
		crew_wait(GATE_READY, ready + 3);
		kill_at_random(pid, &seed);
		crew_open(GATE_LOOK);
		crew_wait(GATE_LOOKED, (uint32_t)r + 1);
	}
	crew_open(GATE_END);
	crew_join(k, "the keeper of the VRAM that they copied into");
	is_int(crew->count[N_BEHIND], 0, "no word of it is older than what was said done");
}

/* ---- a kernel breaks the context ---- */

static int broken(int me)
{
	struct queue q;
	cudaStream_t other;
	uint64_t done, until;
	uint32_t i;
	cudaError_t e;

	uuid();
	must_be(B->pin(area, AREA), 0);
	queue_open(&q, me % 2);
	other = new_stream();
	for (i = 0; i < AHEAD; i++)
		queue_down(&q);
	usleep((useconds_t)(1000 + 700 * me));
	must_cuda(work_fill((uint32_t *)16, 4, q.slots, 1, 1, 0, other));
	e = cudaStreamSynchronize(other);
	need(e != cudaSuccess, "the kernel that writes nowhere succeeded");
	until = now_ns() + 300000000;
	do {
		done = load_acquire(&page->done[0]);
		crew->count[N_TORN] += behind(done);
	} while (now_ns() < until);
	crew->count[N_BROKEN] += done < AHEAD;
	need(B->state(uuid()) != 0, "the device says that it works");
	_exit(0);
}

static void after_faults(int rounds)
{
	int r, bad = 0;

	for (r = 0; r < rounds; r++) {
		memset(area, 0, AREA);
		page->done[0] = 0;
		bad += crew_status(crew_fork(broken, r)) != 0;
	}
	is_int(bad, 0, "processes whose kernel broke the context saw that: %s", crew->why);
	diag("%llu of %d contexts broke with copies queued",
	     (unsigned long long)crew->count[N_BROKEN], rounds);
	is_int(crew->count[N_TORN], 0,
	       "no word is older than done when a kernel has broken the context");
}

/* ---- between the locks and the end ---- */

static const char *lock_path(void)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/lock", scratch);
	return path;
}

static int locker(int me)
{
	struct queue q;
	int fd = open(lock_path(), O_RDWR);
	uint32_t i;

	need(fd >= 0 && !flock(fd, LOCK_EX), "no lock");
	uuid();
	must_be(B->pin(large, LARGE), 0);
	must_be(B->pin(area, AREA), 0);
	queue_open(&q, false);
	for (;;) {
		for (i = 0; i < AHEAD; i++)
			queue_down(&q);
		crew_open(GATE_READY);
		must_cuda(cudaStreamSynchronize(q.stream));
	}
	return 0;
}

static void locks_and_end(int rounds)
{
	int fd = open(lock_path(), O_RDWR | O_CREAT, 0600), r;
	uint64_t longest = 0, changed = 0;

	for (r = 0; r < rounds; r++) {
		uint32_t ready = load_acquire(&crew->gate[GATE_READY]);
		uint64_t killed, dropped, done;
		siginfo_t info;
		pid_t pid;

		memset(area, 0, AREA);
		page->done[0] = 0;
		pid = crew_fork(locker, r);
		crew_wait(GATE_READY, ready + 2);
		kill(pid, SIGKILL);
		killed = now_ns();
		while (flock(fd, LOCK_EX | LOCK_NB))
			;
		dropped = now_ns();
		done = load_acquire(&page->done[0]);
		waitid(P_PID, (id_t)pid, &info, WEXITED);
		changed += load_acquire(&page->done[0]) != done;
		longest = now_ns() - dropped > longest ? now_ns() - dropped : longest;
		diag("killed, %.1f ms later its lock dropped, %.1f ms later it had exited; %s",
		     (double)(dropped - killed) / 1e6, (double)(now_ns() - dropped) / 1e6,
		     load_acquire(&page->done[0]) == done ? "no copy ended between"
							  : "copies ended between");
		flock(fd, LOCK_UN);
	}
	ok(1,
	   "between the drop of its locks and its end at most %.1f ms passed, with copies in %llu of %d",
	   (double)longest / 1e6, (unsigned long long)changed, rounds);
	unlink(lock_path());
}

/* ---- unregistered, unmapped ---- */

static int pulls(int me)
{
	struct queue q;
	uint64_t from, took;
	uint32_t i;
	cudaError_t e;

	uuid();
	must_be(B->pin(area, AREA), 0);
	queue_open(&q, false);
	for (i = 0; i < 4 * AHEAD; i++)
		queue_down(&q);
	from = now_ns();
	B->unpin(area);
	took = now_ns() - from;
	i = (uint32_t)load_acquire(&page->done[0]);
	e = cudaStreamSynchronize(q.stream);
	fprintf(stderr,
		"# unregistering under %u queued copies took %.1f ms, %u were done then; then: %s\n",
		4 * AHEAD, (double)took / 1e6, i, cudaGetErrorString(e));
	need(behind(page->done[0]) == 0, "words are older than done");
	return 0;
}

static int body(void)
{
	device_need_gpu();
	crew_begin();
	page = shared_memory(sizeof(*page));
	area = shared_memory(AREA);
	large = shared_memory(LARGE);
	after_kills(gpu_rounds(40));
	into_vram(gpu_rounds(40) / 2);
	after_faults(10);
	locks_and_end(4);
	memset(area, 0, AREA);
	page->done[0] = 0;
	crew_join(crew_fork(pulls, 0), "memory that is unregistered under queued copies");
	return done_testing();
}

int main(void)
{
	scratch_make("t642");
	return tap_guard(600, body, scratch_remove);
}
