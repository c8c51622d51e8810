/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opens and checks the file of a pool's memory, and maps its tables.
 *
 * Its maker stores in it through a mapping; other processes read it by pread into private memory,
 * so that they use the checked bytes.  A peer may forge any byte of it later on: the images are
 * mapped at the place and with the length that were checked.
 * Tests: t/bytes/trailers.t t/bytes/copy-stores.t t/bytes/memory-file.t t/bytes/sums-forged.t
 *   t/bytes/pool-make.t */
#include "config.h"

#include "bytes/memfile/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "index/base/err.h"
#include "index/base/fd.h"
#include "index/base/order.h"
#include "index/segment/lockfile.h"

#define SHARE_TRIES 1000 /* tries of a millisecond each, while another process removes the file */

/* ---- names and places ---- */

void memory_suffix(uint64_t number, char ret[MEMORY_SUFFIX])
{
	snprintf(ret, MEMORY_SUFFIX, "p%016llx", (unsigned long long)number);
}

uint64_t memory_suffix_number(const char *suffix)
{
	if (suffix[0] != 'p' || strspn(suffix + 1, "0123456789abcdef") != 16 || suffix[17])
		return 0;
	return strtoull(suffix + 1, NULL, 16);
}

uint64_t memory_entry_place(uint32_t nruns, uint32_t i)
{
	return SHM_PAGE + ROUND_UP(nruns * sizeof(struct shm_run), 64) +
	       (uint64_t)i * sizeof(struct shm_part);
}

uint64_t memory_trailers_bytes(uint32_t slots, uint32_t nsums)
{
	return (uint64_t)slots * nsums * sizeof(struct shm_trailer) +
	       ROUND_UP(nsums * sizeof(uint32_t), 64);
}

uint64_t memory_tables(const struct memory *m)
{
	return m->trailers ? m->trailers + memory_trailers_bytes(m->slots, m->nsums)
			   : memory_entry_place(m->nruns, m->nparts);
}

_Static_assert(SHM_PAGE + SHM_RUNS * sizeof(struct shm_run) + 64 +
			       SHM_PARTS * sizeof(struct shm_part) <=
		       SHM_IMAGES,
	       "images begin behind all tables");

/* ---- the content of a file ---- */

uint64_t memory_sum(const struct shm_memory *h, const struct shm_run *run)
{
	struct {
		uint8_t header[offsetof(struct shm_memory, checksum)];
		struct shm_run run[SHM_RUNS];
	} all;

	memcpy(all.header, h, sizeof(all.header));
	memcpy(all.run, run, h->nruns * sizeof(*run));
	return key_checksum(&all, sizeof(all.header) + h->nruns * sizeof(*run));
}

int memory_read_header(int fd, struct shm_memory *h, struct shm_run run[SHM_RUNS])
{
	segment_read(fd, 0, h, sizeof(*h));
	if (h->magic != SHM_MAGIC_MEMORY || h->version != SHM_VERSION || h->endian != SHM_ENDIAN ||
	    h->nruns < 1 || h->nruns > SHM_RUNS || h->nparts < 1 || h->nparts > SHM_PARTS)
		return -EBADMSG;
	segment_read(fd, SHM_PAGE, run, h->nruns * sizeof(*run));
	return h->checksum == memory_sum(h, run) ? 0 : -EBADMSG;
}

void memory_read_entry(int fd, uint32_t nruns, uint32_t i, struct shm_part *ret)
{
	segment_read(fd, memory_entry_place(nruns, i), ret, sizeof(*ret));
}

static int forged(const struct segment *s, uint64_t number, const char *why)
{
	return memory_forged(s, number, 0, why);
}

static int check_fields(const struct segment *s, const struct shm_memory *h, uint64_t number)
{
	bool ram = h->kind == GPC_RAM;

	if (memcmp(h->cache, s->header.id, sizeof(h->cache)) || h->number != number)
		return err_set(ESTALE, "gpc.%s.p%016llx is of another cache or pool", s->name,
			       (unsigned long long)number);
	if ((!ram && h->kind != GPC_VRAM) || h->numa > GPC_NUMA_BIND || h->lent > 1 ||
	    (ram && (h->nparts != 1 || h->lent || !h->images_bytes)) ||
	    (h->lent && h->images_bytes) || !memchr(h->device, 0, sizeof(h->device)))
		return forged(s, number, "the header contradicts itself");
	if (h->images_bytes > MEMORY_BYTES || h->images > MEMORY_BYTES ||
	    h->images_bytes % SHM_PAGE || h->images % SHM_IMAGES || (h->images && !h->images_bytes))
		return forged(s, number, "impossible images");
	if (h->files < 1 || h->files > SHM_FILES ||
	    (h->files > 1 && (!ram || !h->images || !memory_files_fit(h->images_bytes, h->files))))
		return forged(s, number, "impossible files");
	if (h->nsums < 1 || h->nsums > SHM_SUMS || h->block_bytes % h->nsums)
		return forged(s, number, "impossible checksums");
	if (h->trailers &&
	    (!ram || h->trailers % SHM_PAGE ||
	     h->trailers < memory_entry_place(h->nruns, h->nparts) || h->trailers > MEMORY_BYTES ||
	     (h->images && h->images < h->trailers + memory_trailers_bytes(h->slots, h->nsums))))
		return forged(s, number, "impossible checksums");
	return 0;
}

/* The number of bytes that the layout needs of each part. */
static int check_layout(const struct segment *s, const struct memory *m, uint64_t need[SHM_PARTS])
{
	uint64_t image = 0;

	if (memory_check_runs(m->run, m->nruns, m->nparts, m->slots, need, &image) < 0)
		return forged(s, m->number, "an impossible layout");
	if (image != m->block_bytes)
		return forged(s, m->number, "the layout is of blocks of another size");
	if (m->images_bytes && (m->nparts != 1 || need[0] > m->images_bytes))
		return forged(s, m->number, "the layout needs more than there is");
	return 0;
}

static void take_over(const struct shm_memory *h, struct memory *m)
{
	m->number = h->number;
	m->kind = h->kind;
	m->slots = h->slots;
	m->nruns = h->nruns;
	m->nparts = h->nparts;
	m->block_bytes = h->block_bytes;
	m->images = h->images;
	m->images_bytes = h->images_bytes;
	m->files = h->files;
	m->nodes = h->nodes;
	m->trailers = h->trailers;
	m->nsums = h->nsums;
	m->numa = h->numa;
	m->lent = h->lent;
	memcpy(m->fingerprint, h->fingerprint, sizeof(m->fingerprint));
	memcpy(m->uuid, h->uuid, sizeof(m->uuid));
	memcpy(m->device, h->device, sizeof(m->device));
	m->maker_pid = h->maker_pid;
}

/* (A) its maker stores `ready` last; a file without it has no pool */
static int read_file(const struct segment *s, uint64_t number, struct memory *m)
{
	uint64_t need[SHM_PARTS];
	struct shm_memory h;
	int err;

	if (memory_read_header(m->fd, &h, m->run) < 0)
		return forged(s, number, "damaged, or no memory of a pool");
	if (h.ready != SHM_READY)
		return forged(s, number, "it was never completed");
	if ((err = check_fields(s, &h, number)) < 0)
		return err;
	take_over(&h, m);
	err = check_layout(s, m, need);
	if (err == 0 && m->images)
		err = memory_check_extent(s, m, 0, m->fd);
	return err;
}

/* ---- opening ---- */

/* A process that removes a file has both locks meanwhile.  So if a file still has its name once we
 * share a lock, it stays until we are done. */
static int share(const struct segment *s, const char *suffix, const struct memory *m,
		 uint64_t number)
{
	int tries, err = -EAGAIN;

	for (tries = 0; err == -EAGAIN && tries < SHARE_TRIES; tries++) {
		if (tries)
			clock_sleep(NS_PER_MS);
		err = lock_share(m->fd, MEMORY_LOCK_USED);
	}
	if (err < 0)
		return err_set(-err, "gpc.%s.%s: no lock: %s", s->name, suffix, strerror(-err));
	return segment_is_named(s, suffix, m->fd) ? 0 : memory_gone(s, number, 0);
}

int memory_open(const struct segment *s, uint64_t number, bool use, struct memory *ret)
{
	char suffix[MEMORY_SUFFIX];
	int err;

	memory_suffix(number, suffix);
	ret->fd = segment_open_file(s, suffix, s->snapshot ? O_RDONLY : O_RDWR);
	if (ret->fd < 0) {
		err = ret->fd == -ENOENT ? memory_gone(s, number, 0) : ret->fd;
		ret->fd = -1;
		return err;
	}
	err = s->snapshot ? 0 : segment_check_owner(s, ret->fd, suffix);
	if (err == 0 && use)
		err = share(s, suffix, ret, number);
	if (err == 0)
		err = read_file(s, number, ret);
	if (err < 0)
		memory_close(ret);
	return err;
}

void memory_close(struct memory *m)
{
	if (m->fd >= 0)
		fd_close(m->fd);
	m->fd = -1;
}

/* ---- parts ---- */

int memory_read_part(const struct memory *m, uint32_t i, struct shm_part *ret)
{
	uint64_t need[SHM_PARTS], image;
	struct shm_part part;
	int err;

	if ((err = err_range("part", i, 0, m->nparts - 1)) < 0)
		return err;
	memory_read_entry(m->fd, m->nruns, i, &part);
	if (!part.state)
		return err_set(EAGAIN, "part %u of the pool's memory is not lent yet", i);
	/* (p) the state was there, so the whole part is there by now */
	order_fence();
	memory_read_entry(m->fd, m->nruns, i, &part);
	if ((err = memory_check_runs(m->run, m->nruns, m->nparts, m->slots, need, &image)) < 0)
		return err;
	if (part.state != SHM_READY || part.handle_bytes > sizeof(part.handle) ||
	    part.bytes > MEMORY_BYTES || part.offset > MEMORY_BYTES || part.bytes < need[i])
		return err_set(EBADMSG, "part %u of memory %016llx is damaged", i,
			       (unsigned long long)m->number);
	*ret = part;
	return 0;
}

int memory_map_tables(const struct segment *s, int fd, uint64_t at, uint64_t bytes,
		      uint8_t **ret_base, uint64_t *ret_bytes, uint8_t **ret)
{
	uint64_t unit = segment_unit(fd), from = at / unit * unit;
	int err;

	*ret_bytes = ROUND_UP(at + bytes, unit) - from;
	err = segment_map_ranges(s, &(struct segment_range){ fd, from, *ret_bytes }, 1,
				 PROT_READ | PROT_WRITE, ret_base);
	if (err == 0)
		*ret = *ret_base + (at - from);
	return err;
}

static int store_part(const struct segment *s, const struct memory *m, uint32_t i,
		      const struct shm_part *part)
{
	uint64_t bytes;
	uint8_t *base, *at;
	struct shm_part *to;
	int err = memory_map_tables(s, m->fd, memory_entry_place(m->nruns, i), sizeof(*to), &base,
				    &bytes, &at);

	if (err < 0)
		return err;
	to = (struct shm_part *)at;
	if (load_relaxed(&to->state)) {
		munmap(base, bytes);
		return err_set(EEXIST, "part %u of the pool's memory is lent already", i);
	}
	to->handle_bytes = part->handle_bytes;
	to->bytes = part->bytes;
	to->offset = part->offset;
	memcpy(to->handle, part->handle, sizeof(to->handle));
	/* (p) the whole part is stored before its state.  Pairs with memory_read_part().  If we
	 * die before it, the part is not lent, and the pool goes with its owner. */
	store_release(&to->state, SHM_READY);
	munmap(base, bytes);
	return 0;
}

int memory_store_part(const struct memory *m, uint32_t i, const struct shm_part *part)
{
	static const struct segment nameless = { .name = "the pool's memory" };
	int err = err_range("part", i, 0, m->nparts - 1);

	if (err == 0)
		err = err_range("handle_bytes", part->handle_bytes, 0, sizeof(part->handle));
	return err < 0 ? err : store_part(&nameless, m, i, part);
}

/* ---- trailers ---- */

/* The trailers are in the file itself, wherever the images are.  None of their pages may be
 * missing. */
int memory_map_trailers(const struct segment *s, const struct memory *m,
			struct memory_trailers *ret)
{
	uint64_t end = memory_tables(m);
	struct stat st;
	uint8_t *at;
	off_t hole;
	int err;

	if (!m->trailers)
		return err_set(ENOENT, "memory %016llx of %s keeps no checksums",
			       (unsigned long long)m->number, s->name);
	if (fstat(m->fd, &st) || (uint64_t)st.st_size < end)
		return forged(s, m->number, "the file is too short for its checksums");
	hole = lseek(m->fd, (off_t)m->trailers, SEEK_HOLE);
	if (hole >= 0 && (uint64_t)hole < end)
		return forged(s, m->number, "the file has holes");
	err = memory_map_tables(s, m->fd, m->trailers, end - m->trailers, &ret->base, &ret->bytes,
				&at);
	if (err)
		return err;
	ret->at = (struct shm_trailer *)at;
	ret->seed = (uint32_t *)(ret->at + (uint64_t)m->slots * m->nsums);
	return 0;
}

void memory_unmap_trailers(struct memory_trailers *t)
{
	if (t->base)
		munmap(t->base, t->bytes);
	*t = (struct memory_trailers){ 0 };
}

/* ---- what it is ---- */

int memory_describe(const struct segment *s, uint64_t number, struct shm_pool *ret)
{
	struct memory m;
	uint32_t i;
	int err = memory_open(s, number, false, &m), fd;

	if (err < 0)
		return err;
	for (i = 1; err == 0 && i < m.files; i++) {
		fd = memory_open_range(s, &m, i);
		err = MIN(fd, 0);
		if (fd >= 0)
			fd_close(fd);
	}
	memory_close(&m);
	if (err < 0)
		return err;
	*ret = (struct shm_pool){
		.kind = m.kind,
		.range = m.slots,
		.block_bytes = m.block_bytes,
	};
	memcpy(ret->fingerprint, m.fingerprint, sizeof(ret->fingerprint));
	memcpy(ret->uuid[0], m.uuid, sizeof(ret->uuid[0]));
	return 0;
}
