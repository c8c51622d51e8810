/* SPDX-License-Identifier: Apache-2.0 */
/* memfile.h - files of memory of a cache "a" that the test has made. */
#ifndef GPC_T_MEMFILE_H
#define GPC_T_MEMFILE_H

#include "made.h"
#include "bytes/memfile/parts.h"

#define SLOTS 8u
#define PIECE 8192u

static struct made m;
static struct segment *const s = &m.c.seg;

TAP_FN struct memory draft(uint32_t kind)
{
	struct memory k = { .kind = kind,
			    .slots = SLOTS,
			    .nruns = 2,
			    .nparts = 1,
			    .block_bytes = 3 * PIECE,
			    .images_bytes = SLOTS * 3 * PIECE };

	k.run[0] = (struct shm_run){ 0, 2, PIECE, 0, 2 * PIECE, PIECE };
	k.run[1] = (struct shm_run){ 0, 1, PIECE, SLOTS * 2 * PIECE, PIECE, 0 };
	memset(k.fingerprint, 7, sizeof(k.fingerprint));
	if (kind == GPC_VRAM) {
		k.images_bytes = 0;
		k.lent = true;
		k.nparts = 2;
		k.run[1].part = 1;
		k.run[1].offset = 0;
		memset(k.uuid, 5, sizeof(k.uuid));
		strcpy(k.device, "host");
	}
	return k;
}

TAP_FN const char *file_of(uint64_t number)
{
	char suffix[MEMORY_SUFFIX];

	memory_suffix(number, suffix);
	return scratch_file("a", suffix);
}

TAP_FN bool is_there(uint64_t number)
{
	return !access(file_of(number), F_OK);
}

TAP_FN int memory_files(void)
{
	return scratch_files("gpc.a.p", false);
}

/* One that is whole; its descriptor holds both locks. */
TAP_FN struct memory make(uint32_t kind)
{
	struct memory k = draft(kind);
	int err = memory_make(s, &k, NULL);

	if (err)
		bail("no memory: %d, %s", err, gpc_last_error());
	return k;
}

TAP_FN int opens(uint64_t number)
{
	struct memory k;
	int err = memory_open(s, number, false, &k);

	if (!err)
		memory_close(&k);
	return err;
}

#endif
