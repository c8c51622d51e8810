/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy-pin.c - four processes register 3 GiB of shared memory each with their GPU, in chunks:
 * by turns, as a cache's lock makes them, and all at once.  Beside them a neighbour times copies of
 * 4 KiB: the driver holds locks while it registers, and everybody waits for these. */
#include "config.h"

#include "bench-copy.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define PROCESSES 4
#define CHUNKS    3
#define GIB       ((size_t)1 << 30)

static struct page {                     /* shared by all */
	pthread_mutex_t turn;
	uint32_t ready, go, done, stop, ended;
	double pin_ms[PROCESSES];
	double alone_us, worst_us[2];    /* of the neighbour; by turns, at once */
} *page;

static void raise_word(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
}

static void wait_word(uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value)
		sleep_us(100);
}

static void pinner(int me, int device)
{
	uint8_t *p;
	int phase, i;

	CK(cudaSetDevice(device));
	CK(cudaFree(NULL));
	p = shared_ram(CHUNKS * GIB);
	raise_word(&page->ready);
	for (phase = 1; phase <= 2; phase++) {
		double from;

		wait_word(&page->go, (uint32_t)phase);
		from = now_us();
		for (i = 0; i < CHUNKS; i++) {
			if (phase == 1)
				pthread_mutex_lock(&page->turn);
			CK(device_bytes_cuda.pin(p + i * GIB, GIB));
			if (phase == 1)
				pthread_mutex_unlock(&page->turn);
		}
		page->pin_ms[me] = (now_us() - from) / 1e3;
		raise_word(&page->done);
		wait_word(&page->ended, (uint32_t)phase);
		for (i = 0; i < CHUNKS; i++)
			device_bytes_cuda.unpin(p + i * GIB);
		raise_word(&page->ready);
	}
	exit(0);
}

static void neighbour(int device)
{
	uint8_t *host, *dev;
	cudaStream_t stream;
	double us, worst;
	int phase, i;

	CK(cudaSetDevice(device));
	CK(cudaHostAlloc((void **)&host, 4096, 0));
	CK(cudaMalloc((void **)&dev, 4096));
	CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (phase = 0; phase <= 2; phase++) {
		if (phase == 1)
			raise_word(&page->ready);
		if (phase)
			wait_word(&page->go, (uint32_t)phase);
		for (worst = 0, i = 0; phase ? __atomic_load_n(&page->stop, __ATOMIC_SEQ_CST) <
					       (uint32_t)phase : i < 20000; i++) {
			us = now_us();
			CK(cudaMemcpyAsync(dev, host, 4096, cudaMemcpyHostToDevice, stream));
			CK(cudaStreamSynchronize(stream));
			us = now_us() - us;
			if (us > worst && i > 1000)
				worst = us;
		}
		if (phase)
			page->worst_us[phase - 1] = worst;
		else
			page->alone_us = worst;
		if (phase)
			raise_word(&page->ready);
	}
	exit(0);
}

static pid_t start(void (*member)(int, int), int me, int device)
{
	pid_t pid = fork();

	if (pid < 0) {
		perror("bench-copy: fork");
		exit(2);
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		member(me, device);
	}
	return pid;
}

static void neighbour_of(int me, int device)
{
	(void)me;
	neighbour(device);
}

/* A member that ended early has said why. */
static void wait_all(uint32_t *word, uint32_t value)
{
	int status;

	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value) {
		if (waitpid(-1, &status, WNOHANG) > 0)
			exit(2);
		sleep_us(200);
	}
}

int bench_pins(int device)
{
	static const char *const what[] = { "by turns", "all at once" };
	pthread_mutexattr_t shared;
	struct times t;
	char name[120];
	int i, phase, status, bad = 0;

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 2;
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&page->turn, &shared);
	begin_rows("four processes pin 3 GiB each");
	start(neighbour_of, 0, device);
	wait_all(&page->ready, 1);
	for (i = 0; i < PROCESSES; i++)
		start(pinner, i, device);
	wait_all(&page->ready, 1 + PROCESSES);
	for (phase = 1; phase <= 2; phase++) {
		__atomic_store_n(&page->go, (uint32_t)phase, __ATOMIC_SEQ_CST);
		wait_all(&page->done, (uint32_t)phase * PROCESSES);
		__atomic_store_n(&page->stop, (uint32_t)phase, __ATOMIC_SEQ_CST);
		/* the neighbour has seen that before they unregister */
		wait_all(&page->ready, 1 + PROCESSES + (uint32_t)(phase - 1) * (PROCESSES + 1) + 1);
		for (t.n = 0, i = 0; i < PROCESSES; i++)
			add_us(&t, page->pin_ms[i] * 1e3);
		snprintf(name, sizeof(name), "%s: 3 GiB of a process are registered", what[phase - 1]);
		row_us(&t, 0, name);
		t.n = 0;
		add_us(&t, page->worst_us[phase - 1]);
		snprintf(name, sizeof(name), "%s: the longest wait of a neighbour's small copy",
			 what[phase - 1]);
		row_us(&t, phase == 1 ? 50000 : 0, name);
		if (phase == 2)
			break;
		__atomic_store_n(&page->ended, (uint32_t)phase, __ATOMIC_SEQ_CST);
		wait_all(&page->ready, 1 + PROCESSES + (uint32_t)phase * (PROCESSES + 1));
	}
	__atomic_store_n(&page->ended, 2, __ATOMIC_SEQ_CST);
	while (wait(&status) > 0)
		bad |= status;
	t.n = 0;
	add_us(&t, page->alone_us);
	row_us(&t, 0, "alone: the longest wait of 20000 small copies");
	return bad ? 2 : end_rows();
}
