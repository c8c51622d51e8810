/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of pools on a GPU, in several processes: made, lent and mapped, also after its maker's
 * death; copies between two GPUs.
 * Tests: lib/bytes/device/cuda_bytes.c lib/bytes/device/cuda_memory.c */
#include "t/gpu/bytes.h"

enum { GATE_MADE, GATE_MAPPED, GATE_DEAD, GATE_READY };

static struct page {
	struct shm_part part;
} * page;                /* shared by all */
static uint64_t nowhere; /* that no GPU knows */

/* ---- made, lent, mapped ---- */

static void put(uint8_t *to, int value, size_t n)
{
	must_cuda(cudaMemset(to, value, n));
	must_cuda(cudaDeviceSynchronize());
}

static void find(const uint8_t *at, int value, size_t n, const char *what)
{
	uint8_t *p = malloc(n);
	size_t i;

	must_cuda(cudaMemcpy(p, at, n, cudaMemcpyDefault));
	for (i = 0; i < n; i++)
		need(p[i] == value, "%s: byte %zu is 0x%02x, must be 0x%02x", what, i, p[i], value);
	free(p);
}

static int maker(int me)
{
	void *memory, *base, *again, *mine;
	struct shm_part none;

	must_be(B->make(uuid(), 5 * MIB + 3, &page->part, &memory, &base), 0);
	must_be(page->part.bytes, 5 * MIB + 3);
	must_be(B->make(uuid(), (uint64_t)1 << 50, &none, &again, &mine), -ENOSPC);
	need(strstr(gpc_last_error(), "missing"), "the sentence is: %s", gpc_last_error());
	put(base, 0x11, 5 * MIB + 3);
	must_be(B->map(uuid(), &page->part, &again, &mine), 0); /* its own */
	need(mine == base, "its own allocation is mapped elsewhere");
	B->unmap(again);
	crew_open(GATE_MADE);
	crew_wait(GATE_MAPPED, 1);
	find(base, 0x22, 5 * MIB + 3, "what the other process wrote");
	crew_open(GATE_DEAD);
	for (;;)
		pause();
	return 0;
}

static int importer(int me)
{
	void *memory, *base, *twice, *same;
	struct shm_part forged;

	crew_wait(GATE_MADE, 1);
	must_be(B->map(uuid(), &page->part, &memory, &base), 0);
	must_be(B->map(uuid(), &page->part, &twice, &same), 0);
	need(same == base, "mapped twice, at two addresses");
	B->unmap(twice);
	forged = page->part;
	forged.offset = 64 * MIB;
	must_be(B->map(uuid(), &forged, &twice, &same), -EBADMSG);
	forged.handle_bytes = 65;
	must_be(B->map(uuid(), &forged, &twice, &same), -EBADMSG);
	find(base, 0x11, page->part.bytes, "what its maker wrote");
	put(base, 0x22, page->part.bytes);
	crew_open(GATE_MAPPED);
	crew_wait(GATE_READY, 1); /* the maker is dead */
	find(base, 0x22, page->part.bytes, "after the maker's death");
	put(base, 0x33, page->part.bytes);
	find(base, 0x33, page->part.bytes, "written after the maker's death");
	B->unmap(memory);
	must_cuda(cudaDeviceSynchronize());
	return 0;
}

static int newcomer(int me)
{
	void *memory, *base;

	must_be(B->map(uuid(), &page->part, &memory, &base), -ESTALE);
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaGetLastError());
	return 0;
}

/* Allocations of an engine: the middle of a large one, a small one, and those nobody can open. */
static int lender(int me)
{
	uint8_t *big, *small;
	void *host = pinned(4096), *pool, *memory, *base;
	struct shm_part part;

	uuid();
	must_cuda(cudaMalloc((void **)&big, 64 * MIB));
	must_cuda(cudaMalloc((void **)&small, 100000));
	must_be(B->lend(uuid(), host, 4096, &part), -EINVAL);
	must_be(B->lend(uuid(), &nowhere, 8, &part), -EINVAL);
	must_be(B->lend(uuid(), big + MIB, 64 * MIB, &part), -EINVAL); /* beyond its end */
	must_cuda(cudaMallocAsync(&pool, 4 * MIB, NULL));
	must_cuda(cudaDeviceSynchronize());
	must_be(B->lend(uuid(), pool, 4096, &part), -EINVAL);
	need(strstr(gpc_last_error(), "expandable_segments:False"), "the sentence is: %s",
	     gpc_last_error());
	must_be(B->lend(uuid(), small + 12, 5000, &page->part), 0);
	put(small, 0x44, 12);
	put(small + 12, 0x55, 5000);
	must_be(B->map(uuid(), &page->part, &memory, &base), 0);
	need(base == small + 12, "lent memory is mapped elsewhere in its own process");
	B->unmap(memory);
	crew_open(GATE_MADE);
	crew_wait(GATE_MAPPED, 2);
	must_be(B->lend(uuid(), big + 33 * MIB + 256, 3 * MIB, &page->part), 0);
	must_be(page->part.offset, 33 * MIB + 256);
	put(big + 33 * MIB, 0x66, 256);
	put(big + 33 * MIB + 256, 0x55, 3 * MIB);
	crew_open(GATE_MADE);
	crew_wait(GATE_MAPPED, 3);
	must_cuda(cudaFree(big));
	must_be(B->map(uuid(), &page->part, &memory, &base), -ESTALE);
	return 0;
}

static int borrower(int me)
{
	void *memory, *base;
	uint32_t i;

	uuid();
	for (i = 2; i <= 3; i++) {
		crew_wait(GATE_MADE, i);
		must_be(B->map(uuid(), &page->part, &memory, &base), 0);
		find(base, 0x55, page->part.bytes, "what was lent");
		B->unmap(memory);
		crew_open(GATE_MAPPED);
	}
	return 0;
}

static void processes(void)
{
	pid_t m = crew_fork(maker, 0), i = crew_fork(importer, 1);

	crew_wait(GATE_DEAD, 1);
	crew_kill(m);
	crew_join(crew_fork(newcomer, 2), "who maps the memory of a dead process: -ESTALE,");
	crew_open(GATE_READY);
	crew_join(i, "who had it mapped before that death");
	m = crew_fork(lender, 3);
	i = crew_fork(borrower, 4);
	crew_join(m, "who lends");
	crew_join(i, "who maps what is lent");
}

/* ---- two GPUs ---- */

static int peers(int me)
{
	struct cudaDeviceProp p;
	uint8_t other[16], *from, *to, *host = pinned(MIB);
	struct copy_limits l;
	struct copy_op op = { NULL, NULL, 4096, 64, 8192, 12288, 1, 0, 0 };
	uint32_t done, i, j;
	int n = 0, now = -1, mine = atoi(device_name() + 5), far;

	uuid();
	must_cuda(cudaGetDeviceCount(&n));
	if (n < 2)
		return 77;
	far = (mine + 1) % n;
	must_cuda(cudaGetDeviceProperties(&p, far));
	memcpy(other, p.uuid.bytes, 16);
	must_be(B->limits(other, uuid(), &l), 0);
	need(!l.pairs, "pairs between two GPUs");
	for (i = 0; i < MIB; i++)
		host[i] = (uint8_t)(i * 7 + i / 4096);
	must_cuda(cudaSetDevice(far));
	must_cuda(cudaMalloc((void **)&to, MIB));
	must_cuda(cudaMemset(to, 0, MIB));
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaSetDevice(mine));
	must_cuda(cudaMalloc((void **)&from, MIB));
	must_cuda(cudaMemcpy(from, host, MIB, cudaMemcpyDefault));
	must_cuda(cudaDeviceSynchronize());
	op.to = to;
	op.from = from;
	must_be(B->copy(uuid(), &op, 1, NULL, &done), 0);
	must_cuda(cudaGetDevice(&now));
	must_be(now, mine);
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaMemcpy(from, to, MIB, cudaMemcpyDefault));
	must_cuda(cudaMemset(to, 0, MIB));
	must_cuda(cudaMemcpy(host + 0, from, MIB, cudaMemcpyDefault));
	for (i = 0; i < 64; i++)
		for (j = 0; j < 4096; j++) {
			uint32_t at = i * 12288 + j;

			need(host[i * 8192 + j] == (uint8_t)(at * 7 + at / 4096),
			     "row %u, byte %u from the other GPU", i, j);
		}
	return 0;
}

static int two_gpus(int me)
{
	exit(peers(me));
}

/* ---- all ---- */

static int body(void)
{
	int status;

	device_need_gpu();
	crew_begin();
	page = shared_memory(4096);
	status = crew_status(crew_fork(two_gpus, 0));
	if (status == 77)
		skip(1, "there is one GPU");
	else
		is_int(status, 0, "copies between two GPUs: %s", crew->why);
	processes();
	return done_testing();
}

int main(void)
{
	scratch_make("t640");
	return tap_guard(240, body, scratch_remove);
}
