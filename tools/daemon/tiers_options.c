/* SPDX-License-Identifier: Apache-2.0 */
/* The tiers below RAM, before there is a cache: their options, and those that are refused before
 * RAM is made.  tiers.c opens and keeps them.
 * Tests: t/daemon/remote.t t/daemon/disk.t t/daemon/fits.t t/daemon/files.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	WRITER_MS = 10000,
	TRANSIT = 64, /* slots of the RAM pool that are added to --ram-blocks */
	PAGE = 4096,
	HEADER = 128,
	FRONT = 131072,        /* bytes of the file before its first group */
	MOST_BLOCKS = 1 << 24, /* of a pool */
};

/* ---- options ---- */

enum {
	DISK,
	BYTES,
	EXCLUSIVE,
	RESIZE,
	BUFFERED,
	AHEAD,
	MIN_USES,
	MAX_AGE,
	WRITE_RATE,
	KEY_FILE,
	BLOCKS,
	REMOTE,
	TAG,
	REMOTE_BLOCKS,
	REMOTE_USES,
	DEADLINE,
	STRICT
};

/* In gpc_tiers_options 0 stands for the default, so no option has 0 as another value. */
static bool set_u32(const char *option, const char *arg, uint64_t least, uint64_t most,
		    uint32_t *ret)
{
	uint64_t n;

	if (!cli_count(option, arg, least, most, &n))
		return false;
	*ret = (uint32_t)n;
	return true;
}

/* If another option is repeated, the last one counts.  --disk and --remote may not be repeated: each
 * would be one more tier, and a cache has at most one of each kind. */
static bool set_once(const char *option, const char *what, const char *arg, const char **at)
{
	if (*at) {
		cli_usage("--%s: a cache has one %s, and '%s' and '%s' are two: give one", option,
			  what, *at, arg);
		return false;
	}
	*at = arg;
	return true;
}

bool tiers_option(struct daemon *d, int number, const char *arg)
{
	struct gpc_tiers_options *o = &d->tiers;

	switch (number) {
	case DISK:
		return set_once("disk", "tier on disk", arg, &o->disk) &&
		       options_path(d->disk, "disk", arg);
	case BYTES:
		return cli_count("disk-bytes", arg, 1, UINT64_C(1) << 60, &d->disk_bytes);
	case EXCLUSIVE:
		o->flags |= GPC_TIERS_EXCLUSIVE;
		return true;
	case RESIZE:
		o->flags |= GPC_TIERS_RESIZE;
		return true;
	case BUFFERED:
		o->flags |= GPC_TIERS_BUFFERED;
		return true;
	case STRICT:
		o->flags |= GPC_TIERS_STRICT;
		return true;
	case AHEAD:
		return set_u32("disk-ahead", arg, 1, 4096, &o->ahead);
	case MIN_USES:
		return set_u32("disk-min-uses", arg, 1, 255, &o->min_uses);
	case MAX_AGE:
		return set_u32("disk-max-age", arg, 0, UINT32_MAX, &o->max_age_s);
	case WRITE_RATE:
		return cli_count("disk-write-rate", arg, 0, UINT64_C(1) << 50, &o->write_rate);
	case BLOCKS:
		return set_u32("disk-blocks", arg, 1, MOST_BLOCKS, &o->disk_blocks);
	case KEY_FILE:
		return options_path(d->key_file, "key-file", arg);
	case REMOTE:
		return set_once("remote", "store", arg, &o->remote);
	case TAG:
		o->remote_tag = arg;
		return true;
	case REMOTE_BLOCKS:
		return set_u32("remote-blocks", arg, 1, MOST_BLOCKS, &o->remote_blocks);
	case REMOTE_USES:
		return set_u32("remote-min-uses", arg, 1, 255, &o->remote_uses);
	default:
		return set_u32("remote-deadline", arg, 1, 600000, &o->remote_ms);
	}
}

bool tiers_option_is_path(int number)
{
	return number == DISK || number == KEY_FILE;
}

/* Is it an option of the cache, and not of its tiers? */
bool tiers_option_is_key(int number)
{
	return number == KEY_FILE;
}

bool tiers_wanted(const struct daemon *d)
{
	return d->disk[0] || d->tiers.remote;
}

/* Bytes of the file that one block takes. */
static uint64_t bytes_of_each(const struct daemon *d)
{
	return (d->memory.block_bytes + PAGE - 1) / PAGE * PAGE + HEADER;
}

/* At most so many blocks have room in --disk-bytes: the library makes a few less, since notes take
 * some room.  0: without --block-bytes only the library knows. */
static uint64_t blocks_of(const struct daemon *d)
{
	uint64_t blocks;

	if (!d->memory.block_bytes || d->disk_bytes <= FRONT)
		return 0;
	blocks = (d->disk_bytes - FRONT) / bytes_of_each(d);
	return blocks ? blocks : 1;
}

int tiers_check(struct daemon *d)
{
	struct gpc_tiers_options *o = &d->tiers;
	const char *other = d->disk_bytes                    ? "bytes"
			    : o->disk_blocks                 ? "blocks"
			    : o->flags & GPC_TIERS_EXCLUSIVE ? "exclusive"
			    : o->flags & GPC_TIERS_RESIZE    ? "resize"
			    : o->flags & GPC_TIERS_BUFFERED  ? "buffered"
			    : o->flags                       ? "strict"
			    : o->ahead && !o->remote         ? "ahead"
			    : o->min_uses                    ? "min-uses"
			    : o->max_age_s                   ? "max-age"
			    : o->write_rate                  ? "write-rate"
							     : NULL;
	const char *store_option = o->remote_tag      ? "tag"
				   : o->remote_blocks ? "blocks"
				   : o->remote_uses   ? "min-uses"
				   : o->remote_ms     ? "deadline"
						      : NULL;

	if (d->keep && (d->disk[0] || other || d->key_file[0] || o->remote || store_option))
		return cli_usage(
			"--keep and --%s exclude each other: the writer keeps the tiers below RAM",
			d->key_file[0]              ? "key-file"
			: o->remote || store_option ? "remote"
						    : "disk");
	if (d->disk_bytes && o->disk_blocks)
		return cli_usage("--disk-bytes and --disk-blocks exclude each other: give one");
	if (store_option && !o->remote)
		return cli_usage("--remote-%s: --remote is missing: which store?", store_option);
	if (other && !d->disk[0])
		return cli_usage("--disk-%s: --disk is missing: which file?", other);
	if (d->disk_bytes && d->disk_bytes <= FRONT)
		return cli_usage(
			"--disk-bytes: %llu is too few: it must be %u or more, for one block and what the "
			"file says of itself",
			(unsigned long long)d->disk_bytes, FRONT + 1);
	if (blocks_of(d) > MOST_BLOCKS)
		return cli_usage(
			"--disk-bytes: %llu are %llu blocks of %llu bytes, and a file has at most %u: ask for at most %llu",
			(unsigned long long)d->disk_bytes, (unsigned long long)blocks_of(d),
			(unsigned long long)d->memory.block_bytes, MOST_BLOCKS,
			(unsigned long long)(FRONT + MOST_BLOCKS * bytes_of_each(d)));
	if (tiers_wanted(d) && d->cfg.max_peers == 1)
		return cli_usage(
			"--max-peers: 1 is too few: with --disk or --remote gpcd takes two seats, and each worker one");
	return -1;
}

/* ---- before there is a cache ---- */

/* The number of blocks that the library assumes where no option gives it. */
static uint64_t remote_blocks(const struct daemon *d)
{
	uint64_t blocks = 4 * (uint64_t)d->cfg.ram_blocks;

	if (!d->tiers.remote || d->tiers.remote_blocks)
		return d->tiers.remote_blocks;
	return blocks < 65536 ? 65536 : blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}

static int look_at_file(struct daemon *d, struct gpc_tiers_file *ret)
{
	int r = gpc_tiers_file_get(d->disk, ret);

	/* a damaged file tells nothing, and the library sets it aside */
	if (r == -ENOENT || (r == -EBADMSG && !(d->tiers.flags & GPC_TIERS_STRICT)))
		return 0;
	if (r < 0) {
		say(LOG_ERR, "%s: --disk: %s", d->name, cli_gpc_text(r));
		return EXIT_RUNTIME;
	}
	if (ret->has_secret && (!d->cfg.secret || d->key == KEY_ABSENT)) {
		memcpy(d->secret, ret->secret, sizeof(d->secret));
		d->cfg.secret = d->secret;
	}
	return 0;
}

/* ---- options that are refused before RAM is made, since that may take long ----
 *
 * The library refuses all of them, and more, when it opens the tier; the sentences here are the
 * library's.  The check here lets a process that makes the cache, or waits for it, fail early.  A
 * process that waits need not know the size of the file, or the memory and the secret of the cache:
 * the process that makes the cache may know them.  If a cache exists, another gpcd may have made
 * the file by now, or may be making it.  So the findings count only if there is still no cache
 * after the check. */

static bool is_absent(const struct daemon *d)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .label = "gpcd",
					  .dir = d->dir[0] ? d->dir : NULL };
	gpc *c = NULL;
	int r = gpc_attach(d->name, &opt, GPC_READONLY, &c);

	gpc_close(c);
	return r == -ENOENT;
}

/* Called if there is no file, an unfinished one, or a damaged one. */
static const char *say_what_there_is(const struct daemon *d)
{
	struct gpc_tiers_file f = { .size = sizeof(f) };
	struct stat st;

	if (lstat(d->disk, &st))
		return "there is no file";
	return gpc_tiers_file_get(d->disk, &f) == -ENOENT
		       ? "there is nothing in the file"
		       : "a new one is needed for the damaged file";
}

static bool find_new(const struct daemon *d, char *why, size_t room)
{
	char folder[PATH_MAX];

	if (d->create && !d->tiers.disk_blocks && !d->disk_bytes)
		return snprintf(
			why, room,
			"--disk-bytes and --disk-blocks are 0, and %s %s: one of them must say how large it "
			"is to be",
			say_what_there_is(d), d->disk);
	snprintf(folder, sizeof(folder), "%s", d->disk);
	*(strrchr(folder, '/') + 1) = 0;
	if (!faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS))
		return false;
	if (errno == ENOENT)
		return snprintf(
			why, room,
			"%s cannot be made: its folder does not exist; make the folder, or name another "
			"file",
			d->disk);
	return snprintf(why, room, "%s cannot be opened: %s", d->disk, strerror(errno));
}

static bool find_other(const struct daemon *d, const struct gpc_tiers_file *f, char *why,
		       size_t room)
{
	uint64_t blocks = d->tiers.disk_blocks;

	if (d->memory.block_bytes && d->memory.block_bytes != f->block_bytes)
		return snprintf(
			why, room,
			"%s has blocks of %llu bytes, these have %llu: name another file, or remove this one",
			d->disk, (unsigned long long)f->block_bytes,
			(unsigned long long)d->memory.block_bytes);
	if (f->has_secret && memcmp(d->secret, f->secret, sizeof(d->secret)) != 0)
		return snprintf(
			why, room,
			"the keys in %s were hashed with another secret than that of --key-file %s, and it has that "
			"secret: remove %s, or name a key file that is not there, which is made with it",
			d->disk, d->key_file, d->disk);
	if (!f->has_secret && d->create && !d->key_file[0])
		return snprintf(
			why, room,
			"the keys in %s were hashed with another secret: give the key file that it was made "
			"with, or remove %s",
			d->disk, d->disk);
	if (blocks && blocks != f->blocks && !(d->tiers.flags & GPC_TIERS_RESIZE))
		return snprintf(
			why, room,
			"%s has %llu slots, asked for are %llu: ask for it to be resized, or for as many as it "
			"has (--disk-resize)",
			d->disk, (unsigned long long)f->blocks, (unsigned long long)blocks);
	return false;
}

/* Names all missing options at once, so that a user who adds one does not hear of the next
 * afterwards. */
static bool find_no_ram(const struct daemon *d, const struct gpc_tiers_file *f, char *why,
			size_t room)
{
	bool sized = !d->disk[0] || f->blocks || d->tiers.disk_blocks || d->disk_bytes;

	if (d->cfg.ram_blocks && d->memory.block_bytes)
		return false;
	return snprintf(why, room, "%s missing: a tier keeps blocks of a pool of RAM with memory%s",
			d->cfg.ram_blocks       ? "--block-bytes is"
			: d->memory.block_bytes ? "--ram-blocks is"
						: "--ram-blocks and --block-bytes are",
			sized ? ""
			      : "; and so are --disk-bytes and --disk-blocks, one of which must "
				"say how large the file is to be");
}

/* The library checks the store's options before it looks for the cache.  So with good options the
 * call fails with "there is no cache", or opens a tier of a cache that was just made; that tier is
 * closed again. */
static bool find_bad_store(const struct daemon *d, char *why, size_t room)
{
	struct gpc_tiers_options o = { .size = sizeof(o),
				       .remote = d->tiers.remote,
				       .dir = d->dir[0] ? d->dir : NULL };
	gpc_tiers *t = NULL;
	int r = gpc_tiers_open(d->name, &o, &t);

	gpc_tiers_close(t);
	if (r >= 0 || strncmp(cli_gpc_text(r), "there is no cache", 17) == 0)
		return false;
	return snprintf(why, room, "%s", cli_gpc_text(r));
}

/* The file is compared with the key file and the options. */
static bool find_bad_file(const struct daemon *d, char *why, size_t room)
{
	struct gpc_tiers_options o = { .size = sizeof(o),
				       .flags = d->tiers.flags | GPC_TIERS_CHECK,
				       .disk = d->tiers.disk,
				       .disk_blocks = d->tiers.disk_blocks,
				       .disk_bytes = d->tiers.disk_bytes,
				       .secret = d->tiers.secret,
				       .dir = d->dir[0] ? d->dir : NULL };
	gpc_tiers *t = NULL;
	char words[1024];
	int r = gpc_tiers_open(d->name, &o, &t);

	if (r >= 0 || strncmp(cli_gpc_text(r), "there is no cache", 17) == 0)
		return false;
	serve_option_words(cli_gpc_text(r), words, sizeof(words));
	return snprintf(why, room, "%s%s", words,
			strstr(words, "resized") ? " (--disk-resize)" : "");
}

/* f: the entries of the file's head; if its blocks is 0, there is no file. */
static int refuse_early(const struct daemon *d, const struct gpc_tiers_file *f)
{
	const char *option = d->disk[0] ? "disk" : "remote";
	char why[PATH_MAX + 256];
	bool found;

	if (!is_absent(d))
		return 0;
	found = d->create && find_no_ram(d, f, why, sizeof(why));
	if (!found && d->disk[0])
		found = f->blocks ? find_other(d, f, why, sizeof(why))
				  : find_new(d, why, sizeof(why));
	if (!found && f->blocks)
		found = find_bad_file(d, why, sizeof(why));
	if (!found && d->tiers.remote) {
		option = "remote";
		found = find_bad_store(d, why, sizeof(why));
	}
	/* look once more: another gpcd may have made the file by now, or may be making it */
	if (!found || !is_absent(d))
		return 0;
	say(LOG_ERR, "%s: --%s: %s", d->name, option, why);
	return EXIT_RUNTIME;
}

int tiers_prepare(struct daemon *d)
{
	struct gpc_tiers_file file = { .size = sizeof(file) };
	uint64_t blocks = blocks_of(d);
	int status = d->key_file[0] ? key_look(d) : 0;

	if (status || !tiers_wanted(d))
		return status ? status : key_plan(d, &file, is_absent);
	if (d->tiers.remote && !d->key_file[0] && d->create && !d->quiet)
		say(LOG_WARNING,
		    "%s: --remote without --key-file: the secret of this cache goes with it, so neither the next cache of "
		    "this machine nor another machine finds what it stores; give each of them --key-file, with a copy of "
		    "one file",
		    d->name);
	status = d->disk[0] ? look_at_file(d, &file) : 0;
	if (status)
		return status;
	d->tiers.size = sizeof(d->tiers);
	d->tiers.disk = d->disk[0] ? d->disk : NULL;
	d->tiers.dir = d->dir[0] ? d->dir : NULL;
	d->tiers.timeout_ms = WRITER_MS;
	d->tiers.log = say_library;
	d->tiers.log_arg = d;
	/* the library alone makes blocks of bytes, as for every other process with these options */
	d->tiers.disk_bytes = d->disk_bytes;
	if (!blocks)
		blocks = d->tiers.disk_blocks ? d->tiers.disk_blocks : file.blocks;
	blocks += remote_blocks(d);
	if (d->create && !d->cfg.max_blocks && blocks) {
		d->max_blocks_computed = true;
		d->cfg.max_blocks =
			(uint32_t)(d->cfg.vram_blocks + d->cfg.ram_blocks + TRANSIT + blocks);
	}
	status = refuse_early(d, &file);
	return status ? status : key_plan(d, &file, is_absent);
}
