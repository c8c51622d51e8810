/* SPDX-License-Identifier: Apache-2.0 */
/* A loss of power, at any call that changes the file.
 *
 * A model of a disk that keeps what was synced; of all that was written since, any sectors of 512
 * bytes, each as it was, as it is, or as it was in between.  The file is then opened again.  It
 * opens; no byte is wrong; what was acknowledged as removed is nowhere; what was synced and not
 * touched since is there.
 * Tests: lib/tiers/disk/super.c lib/tiers/disk/slot.c lib/tiers/disk/make.c */
#include "t/lib/disk_shim.h"
#include "t/lib/disks.h"

#define SLOTS  10u
#define KEYS   14u
#define BLOCKS 64u /* written in a round, at most */
#define SECTOR 512u
#define MOST   (1u << 20)

/* What the caller knows of each block that it wrote; the tag is its number. */
struct model {
	struct {
		bool gone, safe;
		uint32_t slot, key;
	} block[BLOCKS];
	uint32_t n, in_slot[SLOTS]; /* + 1; 0: none */
};

static struct model now, then;
static uint8_t durable[MOST], lost[MOST];
static bool dirty[MOST / SECTOR];
static uint64_t file_bytes, random_state = 1;
static uint32_t calls, loss_at;
static bool was_lost, clears; /* clears: most of what happens */

static uint32_t draw(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

/* What the kernel writes back by itself: each dirty sector with that chance. */
static void write_back(int fd, uint8_t *to, uint32_t of_ten, bool settle)
{
	uint32_t i;

	for (i = 0; i < file_bytes / SECTOR; i++)
		if (dirty[i] && draw(10) < of_ten) {
			if (pread(fd, to + i * SECTOR, SECTOR, i * SECTOR) != SECTOR)
				bail("no sector %u", i);
			dirty[i] = !settle;
		}
}

static void seen(enum shim_call call, int fd, uint64_t at, size_t n, bool before)
{
	int in = open(disk_path, O_RDONLY | O_CLOEXEC);
	uint64_t i;

	(void)fd;
	if (before && draw(4) == 0)
		write_back(in, durable, draw(10), true);
	if (call == SHIM_WRITE && !before)
		for (i = at / SECTOR; i < (at + n + SECTOR - 1) / SECTOR; i++)
			dirty[i] = true;
	if (call == SHIM_SYNC)
		write_back(in, durable, 10, true);
	if (++calls == loss_at) {
		memcpy(lost, durable, file_bytes);
		write_back(in, lost, draw(11), false);
		then = now;
		was_lost = true;
	}
	close(in);
}

/* ---- what the caller does ---- */

static void untouch(uint32_t slot)
{
	if (now.in_slot[slot])
		now.block[now.in_slot[slot] - 1].safe = false;
}

static void all_synced(void)
{
	uint32_t i;

	for (i = 0; i < now.n; i++)
		if (now.in_slot[now.block[i].slot] == i + 1)
			now.block[i].safe = true;
		else
			now.block[i].gone = true;
}

static void do_write(struct disk *d)
{
	uint32_t slot = draw(SLOTS), key = draw(KEYS);

	if (now.n == BLOCKS)
		return;
	untouch(slot);
	if (disk_put(d, slot, key, 0, now.n))
		bail("a write failed");
	now.block[now.n].slot = slot;
	now.block[now.n].key = key;
	now.in_slot[slot] = ++now.n;
}

static void do_remove(struct disk *d, uint32_t n, bool durably)
{
	uint64_t slot[SLOTS];
	uint32_t i;

	for (i = 0; i < n; i++)
		untouch((uint32_t)(slot[i] = draw(SLOTS)));
	if (durably ? disk_remove(d, slot, n) : disk_free(d, slot[0]))
		bail("a removal failed");
	for (i = 0; i < n; i++)
		now.in_slot[slot[i]] = 0;
	if (durably)
		all_synced();
}

static void do_clear(struct disk *d)
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		untouch(i);
	if (disk_clear(d))
		bail("a clear failed");
	memset(now.in_slot, 0, sizeof(now.in_slot));
	all_synced();
}

static void do_something(struct disk *d)
{
	switch (clears && draw(3) ? 3 : draw(12)) {
	case 0:
		do_remove(d, 1 + draw(3), true);
		break;
	case 1:
	case 2:
		do_remove(d, 1, false);
		break;
	case 3:
		do_clear(d);
		break;
	case 4:
		if (disk_sync(d))
			bail("a sync failed");
		all_synced();
		break;
	default:
		do_write(d);
	}
}

/* ---- and what it finds ---- */

static struct {
	uint32_t found, wrong, back, lacking, closed, damaged;
} sum;

static void look(void)
{
	struct disk_options opt = disk_opt(SLOTS);
	struct disk_slot s;
	struct disk *d = NULL;
	uint32_t i;
	int err;

	disk_poke(0, lost, file_bytes);
	if (disk_open(disk_path, &opt, &d)) {
		sum.closed++;
		diag("%s", gpc_last_error());
		return;
	}
	for (i = 0; i < SLOTS; i++) {
		err = disk_any(d, i, &s);
		sum.found += !err;
		sum.wrong += err == 1;
		sum.damaged += err == -EBADMSG;
		if (!err && s.tag < BLOCKS && then.block[s.tag].gone) {
			sum.back++;
			diag("block %u is back in slot %u", s.tag, i);
		}
		if (then.in_slot[i] && then.block[then.in_slot[i] - 1].safe &&
		    (err || s.tag != then.in_slot[i] - 1)) {
			sum.lacking++;
			diag("block %u is not in slot %u: %d", then.in_slot[i] - 1, i, err);
		}
	}
	disk_close(d);
}

static void play(uint64_t seed)
{
	struct disk_options opt = disk_opt(SLOTS);
	struct disk_info info;
	struct disk *d;
	uint32_t i;

	random_state = seed * 0x9e3779b97f4a7c15u + 1;
	opt.threads = 1;
	unlink(disk_path);
	shim_seen = NULL;
	d = disk_must(&opt);
	disk_info(d, &info);
	file_bytes = info.file_bytes;
	if (file_bytes > MOST)
		bail("the file is larger than the model");
	disk_see(0, durable, file_bytes);
	memset(&now, 0, sizeof(now));
	memset(dirty, 0, sizeof(dirty));
	calls = 0;
	loss_at = 1 + draw(120);
	clears = seed % 3 == 0;
	was_lost = false;
	shim_seen = seen;
	for (i = 0; i < 60 && !was_lost; i++)
		do_something(d);
	disk_close(d);
	shim_seen = NULL;
	if (was_lost)
		look();
}

static int body(void)
{
	const char *seed = getenv("GPC_TEST_SEED");
	uint64_t first = seed ? strtoull(seed, NULL, 0) : 1, i, n = seed ? 1 : 200;

	for (i = first; i < first + n; i++) {
		play(i);
		if (sum.wrong || sum.back || sum.lacking || sum.closed)
			break;
	}
	diag("up to seed %llu: %u blocks found, %u damaged", (unsigned long long)i, sum.found,
	     sum.damaged);
	is_int(sum.closed, 0, "the file opens");
	is_int(sum.wrong, 0, "no wrong byte is served");
	is_int(sum.back, 0, "nothing that was acknowledged as removed comes back");
	is_int(sum.lacking, 0, "what was synced is there");
	ok(seed || (sum.found > 120 && sum.damaged > 30), "and there were losses that hurt");
	return done_testing();
}

int main(void)
{
	disk_make_folder();
	shim_dry = true;
	return tap_guard(60, body, disk_remove_folder);
}
