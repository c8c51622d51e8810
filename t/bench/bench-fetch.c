/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fetch - fetch, spill and claims on this machine's GPU, or on the host device.
 *
 *   bench-fetch [--json] [--quick] [--device cuda:N|host] [--dir DIR] [--only PART]
 *
 * Blocks of 64 pieces between a pool in VRAM that has a layer's pieces together and images in
 * shared memory.  Parts:
 *
 *   eight     eight processes fetch the same 1 GiB at once           bench-fetch-eight.c
 *   claims    an answer, beside a lookup; who waits is woken         bench-fetch-claims.c
 *   rates     128 blocks fetched and spilled, beside gpc_copy alone; with checksums, beside without
 *   latency   one block, beside the bare copy                        bench-fetch-rates.c
 *   lookups   those of another thread, beside fetches and beside bare copies        bench-fetch-lookups.c
 *
 * What is compared is measured in turns, in one run.  Columns: median, 10th and 90th of a hundred;
 * the limit and the ratio to it; the mark. */
#include "config.h"

#include "bench-fetch.h"

#include <getopt.h>

static struct {
	bool json;
	const char *only;
} opt = { .only = "" };

static bool wanted(const char *name)
{
	return !strncmp(name, opt.only, strlen(opt.only));
}

static void options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "json", 0, NULL, 'j' }, { "quick", 0, NULL, 'q' }, { "device", 1, NULL, 'd' },
		{ "dir", 1, NULL, 's' },  { "only", 1, NULL, 'o' },  { "help", 0, NULL, 'h' },
		{ NULL, 0, NULL, 0 }
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
			device = optarg;
			break;
		case 's':
			where = optarg;
			break;
		case 'o':
			opt.only = optarg;
			break;
		default:
			fprintf(c == 'h' ? stdout : stderr,
				"usage: bench-fetch [--json] [--quick] "
				"[--device cuda:N|host] [--dir DIR] [--only eight|claims|rates|latency|lookups]\n");
			exit(c == 'h' ? 0 : 2);
		}
}

static void with_tiers(uint64_t piece, uint32_t n)
{
	struct tiers t;
	uint32_t table = wanted("lookups") ? quick ? 1u << 14 : 1u << 18 : 0;

	if (!tiers_open(&t, piece, n, table)) {
		row_skip("see above", "pieces of %u KiB", (unsigned)(piece >> 10));
		return;
	}
	if (wanted("rates"))
		bench_rates(&t);
	if (wanted("latency"))
		bench_latency(&t);
	if (wanted("lookups"))
		bench_lookups(&t);
	tiers_close(&t);
}

int main(int argc, char **argv)
{
	options(argc, argv);
	begin_rows("bench-fetch", device, opt.json);
	if (wanted("eight"))
		bench_eight();
	if (wanted("claims"))
		bench_claims();
	if (wanted("rates") || wanted("latency") || wanted("lookups")) {
		with_tiers(4096, quick ? 32 : MOST);
		with_tiers(32768, quick ? 4 : MOST);
	}
	return end_rows();
}
