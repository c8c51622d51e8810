/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F: whatever stands in the files of a cache, attach, check and walk give an error or
 * nonsense, never a signal; whoever takes the writer's seat of such a cache gets -EBADMSG, or
 * repairs what there is and serves.
 * Tests: lib/index/segment/validate.c lib/index/takeover/ lib/look/check.c */
#include "edit.h"

#include "gpc_look.h"
#include "look/inspect.h"

enum {
	N_REFUSED,
	N_LOOKED,
	N_ATTACHED,
	N_FOUND,
	N_LINES,
	N_TAKEN,
	N_SEAT_REFUSED,
	N_PUBLISHED,
	N_CLEAN
};
static const char *const fuzz_counts[FUZZ_COUNTS + 1] = {
	"refused",         "looked at",  "attached to",         "keys found",
	"violations",      "taken over", "refused to a writer", "published afterwards",
	"clean afterwards"
};

static gpc *current; /* the handle that calls */

static void too_long(void)
{
	const struct shm_seat *s = current ? seg_seat(&current->seg, current->peer) : NULL;

	if (!s)
		fuzz_fail("attaching took a minute");
	fuzz_fail("calls have waited for a minute: seat %u, head %llu, tail %llu, recovering %u",
		  current->peer, (unsigned long long)s->head, (unsigned long long)s->tail,
		  seg_state(&current->seg)->recovering);
}

static void fuzz_begin(void)
{
	virtual_too_long = too_long;
	image_make(edit_maker);
}

/* An error has a sentence of its own. */
#define said(call) (((char *)gpc_last_error())[0] = 0, has_said((call), #call))

static int has_said(int got, const char *call)
{
	fuzz_must(got >= 0 || *gpc_last_error(), "%s: %d, without a word", call, got);
	return got;
}

static void take_line(void *arg, const char *line)
{
	fuzz_must(strlen(line) < 300, "a long line");
	fuzz_count(N_LINES);
	(void)arg;
}

/* Takeover has repaired, or removed, what was forged. */
static void take_violation(void *arg, const char *line)
{
	if (!strstr(line, "outside of every pool")) /* nobody's: see t/bytes/hostile-files.t */
		fuzz_fail("after a takeover: %s", line);
	(void)arg;
}

static void look_up(gpc *c)
{
	gpc_key k[24];
	gpc_block b[24];
	uint32_t i, len, start[2] = { 0, 23 };

	for (i = 0; i < 24; i++)
		k[i] = image_key(i);
	for (i = 0; i < 24; i++)
		if (gpc_lookup(c, 0, &k[i], 1, b, GPC_QUIET) > 0)
			fuzz_count(N_FOUND);
	gpc_lookup(c, 0, k, 24, b, 0);
	gpc_lookup(c, 0xffffffff, k + 1, 23, b, 0);
	gpc_match(c, 0, k + 1, start, 1, &len, b, 0);
}

static void look_around(gpc *c, bool check)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_mirror mirror = { .size = sizeof(mirror) };
	struct gpc_pool pool = { .size = sizeof(pool) };
	struct gpc_entry entry[8];
	struct gpc_event change[8];
	uint64_t cursor = 0;
	int i;

	said(gpc_info_get(c, &info));
	for (i = -1; i <= EDIT_PEERS; i++)
		said(gpc_stats_get(c, i, &st));
	for (i = 0; i <= EDIT_POOLS; i++) {
		said(gpc_pool_get(c, i, &pool));
		said(gpc_pool_available(c, i));
		said(gpc_mirror_get(c, i, &mirror));
	}
	for (i = 0; said(gpc_walk(c, &cursor, entry, 8)) > 0; i++)
		fuzz_must(i < 100, "a walk without end");
	for (cursor = 0, i = 0; i < 300; i++)
		if (said(gpc_event_read(c, &cursor, change, 8)) <= 0)
			break;
	fuzz_must(i < 300, "a feed without end");
	if (check)
		said(gpc_check(c, take_line, NULL));
}

static void look(bool check)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = image_dir };
	gpc *c;

	if (said(gpc_attach(IMAGE_NAME, &opt, GPC_READONLY, &c)) < 0) {
		fuzz_count(N_REFUSED);
		return;
	}
	fuzz_count(N_LOOKED);
	look_up(c);
	look_around(c, check);
	gpc_close(c);
}

/* Without a writer: what needs one times out. */
static void be_a_peer(gpc *c, bool device)
{
	gpc_block b[8], any[4] = { (gpc_block)0x7fffffff, 0x00ffffff, -2, GPC_BLOCK(3, 5) };
	gpc_key k[8];
	gpc_dev *d;
	int i, n, section;

	for (i = 0; i < 8; i++)
		k[i] = image_key((uint64_t)i + 1);
	n = gpc_acquire(c, 0, k, 7, b, 0);
	if (n > 0)
		gpc_release(c, b, (uint32_t)n);
	gpc_ref(c, k, any, 4);
	gpc_release(c, any, 4);
	section = gpc_section_enter(c);
	if (section >= 0)
		gpc_section_leave(c, section);
	gpc_grace_done(c, gpc_grace_start(c));
	if (!device || gpc_dev_open(c, "host", &d) < 0)
		return;
	section = gpc_dev_enter(d);
	if (section >= 0) {
		gpc_dev_lookup(d, 0, k, 8, b, NULL);
		gpc_dev_wait(d, NULL, 1000);
		gpc_dev_leave(d, section, NULL);
	}
	gpc_dev_close(d);
}

/* Each pool, as far as it goes; whatever is refused is refused in time. */
static void use_pool(gpc *c, int pool)
{
	gpc_key k[4];
	gpc_block b[8];
	struct gpc_move m[8];
	int i, n;

	for (i = 0; i < 4; i++)
		k[i] = image_key(i ? (uint64_t)(1000 + 10 * pool + i) : 0);
	n = said(gpc_reserve(c, pool, 3, b, NULL, GPC_PARTIAL, 20));
	if (n > 0) {
		if (said(gpc_publish(c, k, k + 1, b, (uint32_t)n,
				     GPC_OPTIONS(gpc_publish_options, .tag = 1), 0, -1)) > 0)
			fuzz_count(N_PUBLISHED);
		gpc_release(c, b, (uint32_t)n);
	}
	n = said(gpc_demote(c, pool, -1, NULL, 2, m, 0, 20));
	if (n > 0)
		gpc_commit(c, m, (uint32_t)n, NULL, pool & 1 ? GPC_CANCEL : 0, -1);
	n = said(gpc_evict(c, pool, 2, b, 0, 20));
}

static void use_all(gpc *c)
{
	gpc_block b[8], any[3] = { 1, GPC_BLOCK(1, 0), GPC_BLOCK(2, 0) };
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_VRAM, .blocks = 2, .space = 2, .demote_to = -1
	};
	gpc_key k[8];
	int i, n;

	for (i = 0; i < EDIT_POOLS; i++)
		use_pool(c, i);
	for (i = 0; i < 8; i++)
		k[i] = image_key((uint64_t)i + 1);
	n = gpc_acquire(c, 0, k, 8, b, 0);
	said(gpc_drop(c, any, 3, NULL, 0, -1));
	if (n > 0)
		gpc_release(c, b, (uint32_t)n);
	said(gpc_pool_make(c, &p, NULL, -1));
	said(gpc_pool_clear(c, 1, 0, GPC_REMOVE, 20));
	said(gpc_pool_clear(c, -1, 7, 0, 20));
	said(gpc_mirror_sync(c, GPC_TICKET_ALL, 50));
}

static void serve(gpc *c, bool check)
{
	int err = said(gpc_writer_take(c, 0, 0));

	if (err < 0) {
		fuzz_count(N_SEAT_REFUSED);
		return;
	}
	fuzz_count(N_TAKEN);
	gpc_writer_serve(c, 10);
	use_all(c);
	gpc_writer_serve(c, 2000);
	look_up(c);
	look_around(c, false);
	if (check && said(gpc_check(c, edit_repairable ? take_violation : NULL, NULL)) == 0)
		fuzz_count(N_CLEAN);
	gpc_writer_drop(c);
}

static void attach(uint32_t flags)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = image_dir,
					  .stock = flags & EDIT_HOST ? 2 : 0 };
	gpc *c;

	if (said(gpc_attach(IMAGE_NAME, &opt, 0, &c)) < 0)
		return;
	fuzz_count(N_ATTACHED);
	current = c;
	look_up(c);
	be_a_peer(c, flags & EDIT_HOST);
	look_around(c, false);
	if (!(flags & EDIT_NO_WRITER))
		serve(c, flags & EDIT_CHECK);
	gpc_close(c);
	current = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint32_t flags = edit_all(&in);

	virtual_before_read = edit_while_read;
	if (!(flags & EDIT_NO_LOOK))
		look(!(flags & EDIT_CHECK));
	/* who has mapped a file may get SIGBUS when it shrinks: F says so */
	edit_shrink.reads = 0;
	if (!(flags & EDIT_NO_PEER))
		attach(flags);
	return 0;
}

#ifndef FUZZ_LIBFUZZER
FUZZ_MAIN("segment", 4000)
#endif
