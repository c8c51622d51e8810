/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - the files of a cache with something of everything, whose maker is dead; kept in memory,
 * changed there, and put back.
 *
 *   GPC_T_SEED=n    other changes by chance */
#ifndef GPC_T_FILES_H
#define GPC_T_FILES_H

#include "crew.h"

#include "index/peer/handle.h"

#include <errno.h>
#include <fcntl.h>

#define BLOCKS 48
#define PEERS  2
#define LIMIT  20 /* seconds for one look: it must not go on for ever */

static const char *const suffix[3] = { "idx", "ctl", "lock" };
static struct {
	uint8_t *bytes;
	size_t size;
} file[3];
static struct layout at;
static uint64_t seed = 1, random_state;

TAP_FN uint32_t random_below(uint32_t n)
{
	return crew_random(&random_state, n);
}

/* Awkward numbers. */
TAP_FN uint64_t nasty(void)
{
	static const uint64_t value[] = { 0,          1,          2,          3,          7,
					  0x7f,       0xff,       0x8000,     0xffff,     1u << 24,
					  INT32_MAX,  1ull << 31, UINT32_MAX, 1ull << 32, INT64_MAX,
					  1ull << 63, UINT64_MAX };

	return random_below(3) ? value[random_below(ARRAY_SIZE(value))] : crew_mix(random_state);
}

/* ---- a cache with something of everything ---- */

TAP_FN void fill(gpc *c)
{
	gpc_key k[20];
	gpc_block b[20];
	struct gpc_move m[4];
	int i;

	for (i = 0; i < 20; i++) {
		k[i] = crew_key((uint64_t)i + 1);
		must_be(gpc_reserve(c, 0, 1, &b[i], NULL, 0, -1), 1);
	}
	k[0] = crew_no_key;
	must_be(gpc_publish(c, k, k + 1, b, 19, GPC_OPTIONS(gpc_publish_options, .tag = 7), 0, -1),
		19);
	must_be(gpc_release(c, b, 12), 0);
	must_be(gpc_evict(c, 0, 0, b, 0, -1), 0);
	need(gpc_demote(c, 0, 1, (gpc_block[1]){ b[18] }, 1, m, 0, -1) == 1, "demote: %s",
	     gpc_last_error());
	must_be(gpc_commit(c, m, 1, NULL, 0, -1), 1);
	must_be(gpc_reserve(c, 0, 3, b, NULL, 0, -1), 3);
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
}

/* It dies with all it has, so that seats, rings and sections have content, too. */
TAP_FN int maker(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS,
				  .ram_blocks = 16,
				  .max_pools = 4,
				  .max_peers = PEERS,
				  .devices = "host",
				  .tick_us = 1 };
	gpc *c = crew_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	fill(c);
	kill(getpid(), SIGKILL);
	return me;
}

TAP_FN void read_file(int i)
{
	int fd = open(scratch_file(CREW_NAME, suffix[i]), O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !(file[i].bytes = malloc((size_t)st.st_size)) ||
	    pread(fd, file[i].bytes, (size_t)st.st_size, 0) != st.st_size)
		bail("cannot read the cache that is to be mutated");
	file[i].size = (size_t)st.st_size;
	close(fd);
}

TAP_FN void keep_copy(void)
{
	struct shm_header h;
	int i;

	for (i = 0; i < 3; i++)
		read_file(i);
	memcpy(&h, file[0].bytes, sizeof(h));
	geometry_layout(&h.geometry, &at);
}

/* ---- changed ---- */

/* A header that looks whole: both have the new bytes, and true checksums. */
TAP_FN void seal(uint8_t *index, uint8_t *control)
{
	struct shm_header h;

	memcpy(&h, index, sizeof(h));
	h.checksum = key_checksum(&h, offsetof(struct shm_header, checksum));
	memcpy(index, &h, sizeof(h));
	h.magic = SHM_MAGIC_CONTROL;
	h.bytes = file[1].size;
	memset(h.secret, 0, sizeof(h.secret));
	h.checksum = key_checksum(&h, offsetof(struct shm_header, checksum));
	memcpy(control, &h, sizeof(h));
}

/* The files as they were, or with another index. */
TAP_FN void put_back(const uint8_t *index, const uint8_t *control)
{
	const uint8_t *bytes[3] = { index, control, file[2].bytes };
	int i, fd;

	for (i = 0; i < 3; i++) {
		fd = open(scratch_file(CREW_NAME, suffix[i]), O_RDWR | O_CREAT, 0600);
		need(fd >= 0 && !ftruncate(fd, (off_t)file[i].size) &&
			     !fallocate(fd, 0, 0, (off_t)file[i].size) &&
			     pwrite(fd, bytes[i], file[i].size, 0) == (ssize_t)file[i].size,
		     "cannot write the files");
		close(fd);
	}
}

/* ---- of a test ---- */

/* The cache is made, by a process that dies, and kept. */
TAP_FN void files_begin(void)
{
	const char *s = getenv("GPC_T_SEED");

	seed = s ? strtoull(s, NULL, 10) : seed;
	diag("GPC_T_SEED=%llu", (unsigned long long)seed);
	crew_begin();
	is_int(crew_status(crew_fork(maker, 0)), 256 + SIGKILL, "a cache, left as it is");
	keep_copy();
}

TAP_FN void files_end(void)
{
	int i;

	for (i = 0; i < 3; i++)
		free(file[i].bytes);
}

#endif
