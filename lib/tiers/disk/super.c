/* SPDX-License-Identifier: Apache-2.0 */
/* super.c - the two superblocks: the valid one, the epoch, the file's clock, and syncs.
 *
 * B is stored and synced before A is touched, so one is always whole.  Both have everything that
 * was acknowledged, so nothing of it is lost if one is damaged later.
 * Tests: t/tiers/disk-clock.t t/tiers/disk-power.t t/tiers/aside.t t/tiers/disk-kills.t
 *   t/tiers/disk-faults.t t/tiers/disk-files.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "index/base/crc.h"
#include "index/base/fd.h"

#define SAVE_NS (60ull * 1000000000) /* the time between two notes of the clock */

static uint64_t now_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t super_real_ns(void)
{
	return now_of(CLOCK_REALTIME);
}

/* ---- read ---- */

static uint32_t checksum(const struct disk_super *s)
{
	return crc32c(0, s, offsetof(struct disk_super, checksum));
}

static bool super_is_sane(const struct disk_super *s)
{
	return s->made <= DISK_MADE && s->slots && s->slots <= DISK_MOST_SLOTS && s->image_bytes &&
	       s->image_bytes <= DISK_MOST_IMAGE && s->note_bytes <= DISK_MOST_NOTE &&
	       s->slot_bytes == ROUND_UP(s->image_bytes, DISK_PAGE);
}

static enum super_look look(const struct disk_super *s)
{
	if (s->magic == __builtin_bswap64(DISK_MAGIC))
		return SUPER_ENDIAN;
	if (s->magic != DISK_MAGIC)
		return SUPER_NONE;
	if (s->version < DISK_OLDEST || s->version > DISK_VERSION)
		return SUPER_VERSION;
	return s->endian == DISK_ENDIAN && s->checksum == checksum(s) && super_is_sane(s)
		       ? SUPER_GOOD
		       : SUPER_BAD;
}

/* If the file ends within a superblock, only its magic is believed; the missing bytes are zeros. */
static enum super_look look_short(const struct disk_super *s)
{
	return s->magic == DISK_MAGIC ? SUPER_BAD : look(s);
}

/* Another version is believed only if both are bad, since it may be a flipped bit. */
static enum super_look worse(const enum super_look is[2])
{
	static const enum super_look order[] = { SUPER_UNREAD, SUPER_VERSION, SUPER_ENDIAN,
						 SUPER_BAD };
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(order); i++)
		if (is[0] == order[i] || is[1] == order[i])
			return order[i];
	return SUPER_NONE;
}

enum super_look super_read(int fd, struct disk_super *ret, bool *ret_mend, uint32_t *ret_version)
{
	static const uint64_t at[2] = { DISK_SUPER_A, DISK_SUPER_B };
	struct disk_super s[2];
	enum super_look is[2];
	uint32_t i, best;
	int err, unread = 0;

	memset(s, 0, sizeof(s));
	for (i = 0; i < 2; i++) {
		err = io_read(fd, &s[i], sizeof(s[i]), at[i]);
		unread = err && err != -ENODATA ? -err : unread;
		is[i] = err == -ENODATA ? look_short(&s[i]) : err ? SUPER_UNREAD : look(&s[i]);
	}
	if (is[0] != SUPER_GOOD && is[1] != SUPER_GOOD) {
		errno = unread;
		*ret_version = is[0] == SUPER_VERSION ? s[0].version : s[1].version;
		return worse(is);
	}
	best = is[0] != SUPER_GOOD || (is[1] == SUPER_GOOD && s[1].generation > s[0].generation);
	*ret = s[best];
	ret->version = DISK_VERSION; /* the next superblock that is written has this version */
	*ret_mend = is[!best] != SUPER_GOOD;
	return SUPER_GOOD;
}

/* ---- stored ---- */

int super_store(struct disk *d, uint64_t at)
{
	struct disk_super *s = &d->super;

	s->clock_ns = disk_now(d);
	s->boot_ns = now_of(CLOCK_BOOTTIME);
	s->real_ns = super_real_ns();
	s->checksum = checksum(s);
	store_relaxed(&d->clock_saved, s->clock_ns);
	return io_write(d->fd, s, sizeof(*s), at);
}

/* If a sync fails, the bytes that it could not write are gone, and the next sync does not report
 * them. */
static int sync_now(struct disk *d)
{
	int err;

	do
		err = fdatasync(d->fd) ? -errno : 0;
	while (err == -EINTR);
	if (err)
		store_relaxed(&d->broken, 1);
	return err;
}

int super_sync(struct disk *d)
{
	return load_relaxed(&d->broken) ? -EIO : sync_now(d);
}

int super_commit(struct disk *d)
{
	int err;

	d->super.generation++;
	err = super_store(d, DISK_SUPER_B);
	if (!err)
		err = sync_now(d);
	if (!err)
		err = super_store(d, DISK_SUPER_A);
	if (!err)
		err = sync_now(d);
	store_relaxed(&d->broken, err != 0);
	return err;
}

/* The new epoch is above every epoch that an earlier opening may have given.  A clear may have
 * raised the epoch, and headers with that epoch may be on the disk, although its superblock was
 * lost with the power. */
void super_next_epoch(struct disk *d)
{
	d->super.epoch = MAX(d->super.epoch + 1, d->super.opens << 32);
}

void super_break(struct disk *d)
{
	pthread_mutex_lock(&d->super_lock);
	store_relaxed(&d->broken, 1);
	pthread_mutex_unlock(&d->super_lock);
}

/* ---- the clock ---- */

uint64_t disk_now(const struct disk *d)
{
	return d->clock_base + (now_of(CLOCK_BOOTTIME) - d->boot_base);
}

/* An id of the machine's present boot; zeros if the system has none to read. */
static void read_boot(uint8_t ret[16])
{
	char text[64] = "";
	ssize_t n = -1;
	uint32_t i, k = 0;
	int fd = fd_peek("/proc/sys/kernel/random/boot_id", O_RDONLY);

	memset(ret, 0, 16);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	for (i = 0; n > 0 && i < (uint32_t)n && k < 32; i++) {
		int c = text[i], v = c >= '0' && c <= '9'   ? c - '0'
				     : c >= 'a' && c <= 'f' ? c - 'a' + 10
							    : -1;

		if (v >= 0) {
			ret[k / 2] = (uint8_t)(ret[k / 2] << 4 | v);
			k++;
		}
	}
}

void super_clock_start(struct disk *d)
{
	static const uint8_t unknown[16];
	struct disk_super *s = &d->super;
	uint64_t boot_ns = now_of(CLOCK_BOOTTIME), now, before;
	uint8_t boot[16];
	bool same;

	read_boot(boot);
	same = memcmp(boot, unknown, 16) && !memcmp(boot, s->boot, 16);
	now = same ? boot_ns : super_real_ns();
	before = same ? s->boot_ns : s->real_ns;
	d->clock_base = s->clock_ns + (now > before && before ? now - before : 0);
	d->boot_base = boot_ns;
	memcpy(s->boot, boot, 16);
}

/* Only B is stored, without a sync: A is whole and has the same epoch. */
void super_clock_save(struct disk *d)
{
	if (disk_now(d) - load_relaxed(&d->clock_saved) < SAVE_NS ||
	    pthread_mutex_trylock(&d->super_lock))
		return;
	d->super.generation++;
	super_store(d, DISK_SUPER_B);
	pthread_mutex_unlock(&d->super_lock);
}
