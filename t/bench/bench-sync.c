/* SPDX-License-Identifier: Apache-2.0 */
/* bench-sync - how long the writer's flush of a mirror takes, through the device's driver:
 * from the first look at a changed entry until flushed() says that the mirror shows it.
 * First on an idle GPU, then beside a process that runs kernels on it back to back.
 *
 *   bench-sync [--quick] [--device cuda:N]
 *
 * Beside each row is a limit, measured in turns with it: on an idle GPU a kernel in a graph
 * that does nothing but store a word in host memory, which is waited for; for uploads and
 * beside the neighbour one copy of as many bytes as the chunks that the changes lie in, and
 * the status's, have together.  After
 * each row the mirror is read back and compared with the table, every entry. */
#include "config.h"

#include "busy.h"
#include "bytes/device/device.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK     32768u /* as the driver copies */
#define IN_CHUNK  (CHUNK / sizeof(struct probe_entry))
#define MAX_TIMES 20000

static const char *device = "cuda:0";
static bool quick;

#define CK(call) check((int)(call), #call, __LINE__)

static void check(int e, const char *call, int line)
{
	if (e == 0)
		return;
	fprintf(stderr, "bench-sync: line %d: %s: %s\n", line, call,
		e > 0 ? cudaGetErrorString((cudaError_t)e) : gpc_last_error());
	exit(2);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the neighbour ---- */

enum { QUIET, SHORT, LONG, NEIGHBOURS };

static const char *const beside[] = { "idle", "beside kernels of 0.2 ms",
				      "beside kernels of 10 ms" };
static const uint32_t spin_us[] = { 0, 200, 10000 };

static struct {
	volatile int what;
	volatile uint64_t ran;
} * neighbour;

/* Some kernels are always waiting, so that the GPU is never free. */
static void be_busy(void)
{
	cudaEvent_t end[4];
	uint64_t i = 0;
	int k;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (neighbour->what == QUIET)
		usleep(1000);
	CK(cudaSetDevice(atoi(device + 5)));
	for (k = 0; k < 4; k++)
		CK(cudaEventCreateWithFlags(&end[k], cudaEventDisableTiming));
	for (;; i++) {
		while (neighbour->what == QUIET)
			usleep(1000);
		if (i >= 4)
			CK(cudaEventSynchronize(end[i % 4]));
		CK(busy_spin(spin_us[neighbour->what]));
		CK(cudaEventRecord(end[i % 4], 0));
		neighbour->ran++;
	}
}

/* Before this process has called CUDA: a context does not survive a fork. */
static pid_t fork_neighbour(void)
{
	pid_t pid;

	neighbour = mmap(NULL, sizeof(*neighbour), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid = neighbour == MAP_FAILED ? -1 : fork();
	if (pid == 0)
		be_busy();
	if (pid < 0) {
		perror("bench-sync: no neighbour");
		exit(2);
	}
	return pid;
}

static void neighbour_runs(int what)
{
	uint64_t before = neighbour->ran;

	neighbour->what = what;
	while (what != QUIET && neighbour->ran < before + 20)
		usleep(1000);
	usleep(300000); /* the driver forgets what it thought of the last one */
}

/* ---- a table and its mirror ---- */

struct place {
	struct segment segment; /* as much of it as the driver reads */
	struct shm_mirror desc;
	struct probe_entry *table, *back;
	struct launch_change *list;
	uint32_t *slot;
	uint64_t entries, bytes, round;
	struct mirror_status status;
	void *mirror, *from, *to;
	cudaStream_t stream;
	cudaGraphExec_t least;
	uint32_t *word;
	cudaEvent_t end;
};

static void *pages(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED) {
		perror("bench-sync");
		exit(2);
	}
	return p;
}

static void make_limit(struct place *p)
{
	cudaGraph_t graph;

	CK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
	CK(cudaEventCreateWithFlags(&p->end, cudaEventDisableTiming));
	CK(cudaHostAlloc((void **)&p->word, sizeof(*p->word), cudaHostAllocMapped));
	CK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeRelaxed));
	CK(busy_say(p->word, p->stream));
	CK(cudaStreamEndCapture(p->stream, &graph));
	CK(cudaGraphInstantiateWithFlags(&p->least, graph, 0));
	CK(cudaGraphDestroy(graph));
	CK(cudaHostAlloc(&p->from, p->bytes + CHUNK, cudaHostAllocMapped));
	CK(cudaMalloc(&p->to, p->bytes + CHUNK));
	memset(p->from, 0x5a, p->bytes + CHUNK);
}

static void make_place(struct place *p, int lg)
{
	uint64_t i;

	memset(p, 0, sizeof(*p));
	p->entries = 1ull << lg;
	p->bytes = p->entries * sizeof(struct probe_entry);
	p->table = pages(p->bytes);
	p->back = pages(p->bytes);
	p->list = malloc(1024 * sizeof(*p->list));
	p->slot = malloc(1024 * sizeof(*p->slot));
	for (i = 0; i < p->entries; i++)
		p->table[i].w[0] = (uint32_t)i * 2654435761u;
	p->segment.header.geometry.buckets = (uint32_t)(p->entries / SHM_BUCKET);
	p->segment.index = (uint8_t *)p->table;
	p->status.spaces = 1;
	CK(device_cuda.writer.create(&p->segment, device, 1, &p->desc, &p->mirror));
	make_limit(p);
}

static void free_place(struct place *p)
{
	device_cuda.writer.destroy(p->mirror);
	CK(cudaGraphExecDestroy(p->least));
	CK(cudaEventDestroy(p->end));
	CK(cudaStreamDestroy(p->stream));
	CK(cudaFreeHost(p->word));
	CK(cudaFreeHost(p->from));
	CK(cudaFree(p->to));
	munmap(p->table, p->bytes);
	munmap(p->back, p->bytes);
	free(p->list);
	free(p->slot);
}

static void compare(struct place *p, const char *what)
{
	uint64_t sequence;

	CK(device_cuda.writer.read(&p->segment, &p->desc, p->back, p->entries, &sequence));
	if (sequence == p->status.sequence && !memcmp(p->table, p->back, p->bytes))
		return;
	fprintf(stderr, "bench-sync: %s: the mirror is not the table\n", what);
	exit(1);
}

/* ---- what is timed ---- */

/* n entries change: anywhere, or in that many chunks side by side, elsewhere each round. */
static void change(struct place *p, uint32_t n, uint32_t chunks)
{
	uint64_t range = chunks ? (uint64_t)chunks * IN_CHUNK : p->entries;
	uint64_t base = p->round++ * 40503 * range % p->entries;
	uint32_t i;

	for (i = 0; i < n; i++) {
		/* odd, and range is a power of two: no slot twice */
		uint64_t at = base + (i * 2654435761ull + p->round) % range;

		p->slot[i] = (uint32_t)(at % p->entries);
		p->table[p->slot[i]].w[1] = (uint32_t)p->round;
		p->table[p->slot[i]].w[3] = i + 1;
	}
}

static double flush_us(struct place *p, uint32_t n)
{
	double from = now_us();
	uint32_t i;
	int err;

	for (i = 0; i < n; i++) {
		p->list[i].slot = p->slot[i];
		p->list[i].entry = p->table[p->slot[i]];
	}
	p->status.sequence++;
	CK(device_cuda.writer.flush(p->mirror, p->list, n, &p->status));
	while ((err = device_cuda.writer.flushed(p->mirror)) == -EAGAIN)
		;
	CK(err);
	return now_us() - from;
}

static double kernel_us(struct place *p)
{
	volatile uint32_t *word = p->word;
	double from = now_us();

	*word = 0;
	CK(cudaGraphLaunch(p->least, p->stream));
	while (!*word)
		;
	return now_us() - from;
}

static double copy_us(struct place *p, uint64_t bytes)
{
	double from = now_us();
	cudaError_t e;

	CK(cudaMemcpyAsync(p->to, p->from, bytes, cudaMemcpyHostToDevice, p->stream));
	CK(cudaEventRecord(p->end, p->stream));
	while ((e = cudaEventQuery(p->end)) == cudaErrorNotReady)
		;
	CK(e);
	return now_us() - from;
}

static double upload_us(struct place *p)
{
	double from = now_us();

	p->status.sequence++;
	CK(device_cuda.writer.upload(p->mirror, p->table, p->entries, &p->status));
	return now_us() - from;
}

/* The chunks that hold the changes, as the driver counts them. */
static uint64_t chunk_bytes(const struct place *p, uint32_t n)
{
	uint8_t *seen = calloc(p->bytes / CHUNK, 1);
	uint64_t bytes = CHUNK;
	uint32_t i;

	for (i = 0; seen && i < n; i++) {
		uint8_t *s = &seen[p->slot[i] / IN_CHUNK];

		bytes += *s ? 0 : CHUNK;
		*s = 1;
	}
	free(seen);
	return bytes;
}

/* ---- rows ---- */

struct times {
	uint32_t n;
	double us[MAX_TIMES];
};

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void add_time(struct times *t, double us)
{
	if (t->n < MAX_TIMES)
		t->us[t->n++] = us;
}

static double of_hundred(struct times *t, uint32_t hundredth)
{
	qsort(t->us, t->n, sizeof(*t->us), by_time);
	return t->n ? t->us[MIN(t->n - 1, (uint64_t)t->n * hundredth / 100)] : 0;
}

static void print_row(const char *name, struct times *t, struct times *limit, double mark)
{
	double median = of_hundred(t, 50), of = limit ? of_hundred(limit, 50) : 0;

	printf("%-58s %9.1f %9.1f %9.1f %9.1f", name, median, of_hundred(t, 10), of_hundred(t, 90),
	       of_hundred(t, 100));
	if (limit)
		printf(" %9.1f %6.2f", of, median / of);
	if (limit && mark)
		printf("  <= %.2f %s", mark, median / of <= mark ? "met" : "missed");
	printf("\n");
	fflush(stdout);
}

struct row {
	uint32_t n, chunks;
	double idle_mark, busy_mark; /* of flush / limit; 0: none */
};

static const struct row row[] = {
	{ 16, 0, 2, 0 },       { 1024, 0, 3.6, 0 },     { 16, 1, 2, 3.3 },
	{ 1024, 1, 3.6, 3.3 }, { 1024, 16, 3.6, 1.65 },
};

/* So many times, or for so long where a flush may take milliseconds. */
static void bench_row(struct place *p, int lg, const struct row *r, int neighbours)
{
	static struct times flush, limit;
	double end = now_us() + (quick ? 0.3e6 : 2e6);
	uint32_t most = quick ? 100 : 2000;
	char name[128], where[32] = "";

	flush.n = limit.n = 0;
	while (now_us() < end && flush.n < (neighbours ? MAX_TIMES : most)) {
		double us;

		change(p, r->n, r->chunks);
		us = neighbours ? copy_us(p, chunk_bytes(p, r->n)) : kernel_us(p);
		add_time(&limit, us);
		us = flush_us(p, r->n);
		add_time(&flush, us);
	}
	if (r->chunks)
		snprintf(where, sizeof(where), " in %u chunk%s", r->chunks,
			 r->chunks == 1 ? "" : "s");
	snprintf(name, sizeof(name), "sync of %u%s, 2^%d slots, %s", r->n, where, lg,
		 beside[neighbours]);
	print_row(name, &flush, &limit, neighbours ? r->busy_mark : r->idle_mark);
	compare(p, name);
}

static void bench_upload(struct place *p, int lg)
{
	static struct times upload, limit;
	char name[128];
	int i;

	upload.n = limit.n = 0;
	for (i = 0; i < 9; i++) {
		add_time(&limit, copy_us(p, p->bytes));
		add_time(&upload, upload_us(p));
	}
	snprintf(name, sizeof(name), "upload of 2^%d slots", lg);
	print_row(name, &upload, &limit, 0);
	compare(p, name);
}

/* What a kernel waits for, there. */
static void bench_kernel(struct place *p, int neighbours)
{
	static struct times t;
	double end = now_us() + 1e6;
	char name[128];

	t.n = 0;
	while (now_us() < end && t.n < 2000)
		add_time(&t, kernel_us(p));
	snprintf(name, sizeof(name), "the least kernel, %s", beside[neighbours]);
	print_row(name, &t, NULL, 0);
}

static void bench_beside(int neighbours)
{
	static const int sizes[] = { 20, 24 };
	struct place p;
	uint32_t i, k;

	for (i = 0; i < 2; i++) {
		make_place(&p, sizes[i]);
		if (neighbours == QUIET)
			bench_upload(&p, sizes[i]);
		else
			upload_us(&p);
		neighbour_runs(neighbours);
		if (i == 0)
			bench_kernel(&p, neighbours);
		for (k = 0; k < sizeof(row) / sizeof(*row); k++)
			bench_row(&p, sizes[i], &row[k], neighbours);
		neighbour_runs(QUIET);
		free_place(&p);
	}
}

int main(int argc, char **argv)
{
	pid_t pid;
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--quick"))
			quick = true;
		else if (!strcmp(argv[i], "--device") && i + 1 < argc &&
			 !strncmp(argv[i + 1], "cuda:", 5))
			device = argv[++i];
		else {
			bool help = !strcmp(argv[i], "--help");

			fprintf(help ? stdout : stderr,
				"usage: bench-sync [--quick] [--device cuda:N]\n");
			return help ? 0 : 2;
		}
	pid = fork_neighbour();
	CK(cudaSetDevice(atoi(device + 5)));
	printf("%-58s %9s %9s %9s %9s %9s %6s  %s\n", "microseconds", "median", "10 %", "90 %",
	       "most", "limit", "ratio", "mark");
	for (i = 0; i < NEIGHBOURS; i++)
		bench_beside(i);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}
