/* SPDX-License-Identifier: Apache-2.0 */
/* players.h - who takes part: a cache and its writer for each level, the workers, what they were
 * told, and the feed of changes. */
#ifndef GPC_T_PLAYERS_H
#define GPC_T_PLAYERS_H

#include "gpc_look.h"
#include "index/peer/handle.h"
#include "ledger.h"
#include "recorder.h"
#include "index/peer/hold.h"

#define WORKERS 3
#define PEERS   (LEVELS + WORKERS)

struct cache {
	gpc *c;         /* of the handle that is the writer */
	uint8_t *index; /* a mapping to restore it by */
	int others;     /* holds the bytes of all who live */
};

struct actor {
	gpc *c;
	uint32_t peer;
	bool dead;
	uint64_t acked; /* everything before it is in the ledger */
	int section[8];
	uint32_t nsections;
};

struct feed {
	uint64_t cursor;
	gpc_block at[KEYS];
};

static struct cache cache[LEVELS];
static struct actor worker[WORKERS];
static struct ledger ledger;   /* all that was acknowledged */
static struct ledger readable; /* what readers may still find, if it is more */
static bool still_readable;
static int lingering = -1; /* a dead worker whose process is there: its peer */
static struct feed feed;
static uint64_t ring_base[WORKERS]; /* where recording began */
static uint64_t person[PEERS];      /* start times, by seat */
static uint64_t judged[LEVELS];
static bool (*judge_nests)(void); /* shall this takeover be recorded? */

/* ---- who has what ---- */

static bool is_held(const struct segment *s, gpc_block b)
{
	uint32_t record = pool_record(s, b), i;

	for (i = 0; record != SHM_NO_RECORD && i < WORKERS; i++)
		if (!worker[i].dead && hold_refs(*seg_cell(s, record, worker[i].peer)))
			return true;
	return false;
}

static bool has_key(const struct segment *s, gpc_block b, int k, uint32_t state)
{
	uint32_t record = pool_record(s, b);
	const struct shm_record *r;

	if (record == SHM_NO_RECORD)
		return false;
	r = seg_record(s, record);
	return WORD_STATE(r->word) == state && r->key[0] == ledger_key[k].w[0] &&
	       r->key[1] == ledger_key[k].w[1];
}

/* ---- the feed ---- */

static void feed_change(struct feed *f, const struct gpc_event *ch)
{
	gpc_block *at;
	int k;

	if (ch->what == GPC_RETURNED) /* says nothing of the content */
		return;
	for (k = 0; ch->what == GPC_CLEARED && k < KEYS; k++)
		if (f->at[k] >= 0 && GPC_POOL(f->at[k]) == GPC_POOL(ch->block) &&
		    (!ch->tag || ch->tag == key_tag(k)))
			f->at[k] = GPC_NONE;
	if (ch->what == GPC_CLEARED)
		return;
	at = &f->at[k = key_number(ch->key.w)];
	if (ch->what == GPC_STORED)
		need(*at < 0, "feed: key %d stored twice, in 0x%x and 0x%x", k, (unsigned)*at,
		     (unsigned)ch->block);
	else if (ch->what == GPC_MOVED)
		need(*at == ch->was, "feed: key %d moved from 0x%x, but was in 0x%x", k,
		     (unsigned)ch->was, (unsigned)*at);
	else
		need(ch->what == GPC_REMOVED && (*at == ch->block || *at < 0),
		     "feed: key %d removed from 0x%x, but was in 0x%x", k, (unsigned)ch->block,
		     (unsigned)*at);
	*at = ch->what == GPC_REMOVED ? GPC_NONE : ch->block;
}

TAP_FN void feed_read(struct feed *f, gpc *c)
{
	struct gpc_event ch[64];
	int i, n;

	while ((n = gpc_event_read(c, &f->cursor, ch, 64)) > 0)
		for (i = 0; i < n; i++)
			feed_change(f, &ch[i]);
	need(n == 0, "changes: %s", gpc_last_error());
}

#endif
