/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy - copies of blocks on this machine's GPUs.
 *
 *   bench-copy [--json] [--quick] [--device N] [--dir DIR] [--only PART] [--pin]
 *
 * 128 blocks of 64 pieces at random slots, between a pool in VRAM that has a layer's pieces
 * together and images in shared memory.  Parts:
 *
 *   pieces    by the device's table (bytes/device/bytes.h).  Three ways in turns: whole blocks that are
 *             contiguous on both sides, which is the limit; gpc's copies, one pitched operation
 *             a block, as the planner emits them; and cudaMemcpyBatchAsync with a piece each.
 *             Then all again beside a kernel that fills the GPU
 *   within    copies within the GPU, and between two
 *   caller    CPU time of gpc_copy                           bench-copy-pools.c
 *   lookups   lookups beside gpc_copy                        bench-copy-lookups.c
 *   step      what a decode-like step feels                  bench-copy-step.c
 *
 * What was copied is compared before anything is timed.  Columns: median, 10th and 90th of a
 * hundred; the limit, which is measured in the same rounds, and the ratio to it; the mark.
 *
 *   --pin   four processes register 3 GiB each, beside a neighbour that times small copies
 *           (bench-copy-pin.c); nothing else */
#include "config.h"

#include "bench-copy.h"

#include <getopt.h>

void check(int e, const char *call, const char *file, int line)
{
	if (e)
		fail("%s:%d: %s: %s", file, line, call,
		     e > 0 ? cudaGetErrorString((cudaError_t)e) : gpc_last_error());
}

void shuffle(uint32_t *at, uint32_t n, uint64_t seed)
{
	uint32_t i, j, t;

	for (i = 0; i + 1 < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		j = i + (uint32_t)(seed >> 33) % (n - i);
		t = at[i];
		at[i] = at[j];
		at[j] = t;
	}
}

static struct {
	int device;
	bool json, pin;
	const char *dir, *only;
} opt = { .only = "" };

static bool wanted(const char *name)
{
	return !strncmp(name, opt.only, strlen(opt.only));
}

static void bench_by_gpc(int device)
{
	struct pools p;

	if (!wanted("caller") && !wanted("lookups") && !wanted("step"))
		return;
	if (!pools_open(&p, device, opt.dir, quick ? 1u << 16 : 1u << 20)) {
		row_skip("see above", "CPU time of the caller; lookups beside copies; a step");
		return;
	}
	if (wanted("caller"))
		bench_caller(&p);
	if (wanted("lookups"))
		bench_lookups(&p, device);
	if (wanted("step"))
		bench_step(&p);
	pools_close(&p);
}

static void options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "json", 0, NULL, 'j' }, { "quick", 0, NULL, 'q' }, { "device", 1, NULL, 'd' },
		{ "pin", 0, NULL, 'p' },  { "dir", 1, NULL, 's' },   { "only", 1, NULL, 'o' },
		{ "help", 0, NULL, 'h' }, { NULL, 0, NULL, 0 }
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (c) {
		case 'j':
			opt.json = true;
			break;
		case 'q':
			quick = true;
			break;
		case 'd':
			opt.device = atoi(strncmp(optarg, "cuda:", 5) ? optarg : optarg + 5);
			break;
		case 'p':
			opt.pin = true;
			break;
		case 's':
			opt.dir = optarg;
			break;
		case 'o':
			opt.only = optarg;
			break;
		default:
			fprintf(c == 'h' ? stdout : stderr,
				"usage: bench-copy [--json] [--quick] "
				"[--device N] [--dir DIR] [--only pieces|within|caller|lookups|step] "
				"[--pin]\n");
			exit(c == 'h' ? 0 : 2);
		}
}

int main(int argc, char **argv)
{
	struct cudaDeviceProp p;

	options(argc, argv);
	if (opt.pin)
		return bench_pins(opt.device, opt.dir, opt.json);
	CK(cudaSetDevice(opt.device));
	CK(cudaGetDeviceProperties(&p, opt.device));
	begin_rows("bench-copy", p.name, opt.json);
	if (wanted("pieces") || wanted("within"))
		bench_by_table(opt.device, wanted("pieces"), wanted("within"));
	bench_by_gpc(opt.device);
	return end_rows();
}
