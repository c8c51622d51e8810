/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h - images in a store on other machines, by a plugin.
 *
 * One process has a store open: the one that keeps the tiers.  This room knows plugins, keys,
 * images and failures; it knows no handle, no pool and no index.
 *
 *   plugin.c   finds a plugin, checks its owner, loads it
 *   options.c  splits NAME:word=value,...
 *   remote.c   a store: open, closed, stopped; its state and its counters
 *   batch.c    exists, get, put, remove of blocks
 *   call.c     the plugin called with them
 *   lane.c     threads in which a plugin runs, with a bounded wait for it
 *   reach.c    how far a chain of keys goes in the store
 *   image.c    the header of an image
 *
 * The states of a store, which calls ask first (batch.c):
 *
 * 	UP        calls go to the plugin
 * 	DOWN      calls answer -EHOSTDOWN at once; remote_tick makes it UP again.  So a dead store costs
 * 	          the calls under way their deadline once, and later calls nothing
 * 	OFF       it has answered wrong bytes for more than REMOTE_WRONG of REMOTE_WRONG_OF images:
 * 	          calls answer -EHOSTDOWN for ever, and remote_state names the last such key
 *
 * A plugin that has not returned grace_ms after its deadline is LOST in that lane.  Until it
 * returns, and for a pause after that, all calls answer -EHOSTDOWN, and the store is shown as DOWN.
 *
 * A plugin with a tick of its own decides itself which parts of the store are down.  Then the store
 * is UP for calls, and the plugin answers -EHOSTDOWN. */
#ifndef GPC_REMOTE_REMOTE_H
#define GPC_REMOTE_REMOTE_H

#include "index/base/base.h"
#include "index/base/sums.h"
#include "gpc.h"
#include "gpc_remote.h"

enum {
	REMOTE_UP = 0,
	REMOTE_DOWN = 1,
	REMOTE_OFF = 2,
	REMOTE_WRONG = 3,
	REMOTE_WRONG_OF = 1024,
	REMOTE_TAG = 32, /* bytes of a version tag */
};

struct remote_options {
	const char *spec; /* NAME or /PATH/gpc_remote_NAME.so, and ":options" */
	const char *
		/* version of the cached content; caches with other tags see none of it; NULL:
		 * "0" */
		tag;
	uint8_t fingerprint[32]; /* of the images' layout */
	uint64_t image_bytes;
	uint32_t lanes;       /* lanes for calls; tick has one more */
	uint32_t deadline_ms; /* of one call; 0 = REMOTE_DEADLINE_MS */
	/* the time after the deadline until a plugin is LOST; 0 = REMOTE_GRACE_MS */
	uint32_t grace_ms;
	uint64_t node, life; /* as in gpc_remote.h; 0 = a node of its own */
	/* The time when a put was given up, or begun, that no fence can end; 0: never.  It
	 * outlives this process.  NULL = a word of its own.  Only one thread puts at a time. */
	uint64_t *unsure_ns;
	void (*log)(void *arg, int level, const char *text);
	void *log_arg;
};
#define REMOTE_DEADLINE_MS 2000u
#define REMOTE_GRACE_MS    1000u
#define REMOTE_UNSURE_NS   (3600000 * NS_PER_MS) /* no network and no server keeps a put for longer */

struct remote_block {        /* a block of a get or put */
	gpc_key key, parent; /* get: parent, depth, tag and sum are results */
	uint32_t depth, tag;
	struct image_sum sum;     /* get: the seed is wanted */
	struct image_parts parts; /* parts of the image; n 0: it is one part */
	/* 0, or as in gpc_remote.h.  get: -EBADMSG: wrong bytes; -EINPROGRESS: the plugin has not
	 * returned, and the image belongs to it until remote_is_lost says otherwise */
	int32_t result;
	const struct iovec *image; /* the image's place; the pieces together have image_bytes */
	uint32_t npieces;
};

struct remote_state {                /* counters never fall */
	uint32_t state;              /* REMOTE_UP ... */
	char plugin[64], where[256]; /* name of the plugin, and the store's place */
	char why[256];               /* DOWN, OFF: the reason */
	/* images that were asked for; that came whole; that the store did not have */
	uint64_t gets, hits, misses;
	uint64_t asked, there; /* keys of exists; keys of these that are there */
	uint64_t puts, stored, removed;
	uint64_t bytes_in, bytes_out; /* of images */
	/* failed items, by cause */
	uint64_t down, late, wrong, full, refused, other;
	uint64_t ns; /* time of all calls */
};

struct remote;

/* Check NAME:word=value,... as far as that is possible without a cache: its form, the plugin, and
 * words that the plugin does not take.  The plugin judges the values when it opens. */
int remote_check(const char *spec);
/* 0, or an error with its sentence (err_set): there is no such plugin, other users could have
 * written it, an option is wrong, or the plugin's open failed.  A store that does not answer is no
 * error. */
int remote_open(const struct remote_options *o, struct remote **ret);
/* Calls under way end soon, with -ECANCELED, and later ones at once.  Any thread. */
void remote_stop(struct remote *r);
/* No call may be under way.  NULL is fine.  False: the plugin has not returned from a call, or
 * does not return from its close.  Then it keeps all that it has for the life of the process. */
bool remote_close(struct remote *r);
/* Has the plugin not returned from a call in this lane?  lane = lanes: from its tick. */
bool remote_is_lost(struct remote *r, uint32_t lane);

/* Called in one thread, about ten times a second, as long as the store is open. */
void remote_tick(struct remote *r);
/* Memory where images will lie, or will lie no more; no call is under way.  Memory that a plugin
 * cannot register is logged, and used all the same. */
void remote_memory(struct remote *r, void *base, uint64_t bytes, bool there);

/* Each returns the number of items with result 0; lane < lanes; deadline_ns 0: the options'
 * deadline from now on. */
uint32_t remote_get(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
		    uint64_t deadline_ns);
uint32_t remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
		    uint64_t deadline_ns);
uint32_t remote_exists(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
		       int32_t *results, uint64_t deadline_ns);
/* ... after the fences of puts that were given up.  -EOPNOTSUPP counts as removed, too: there is
 * no fence, and a put of the last REMOTE_UNSURE_NS may bring the key back. */
uint32_t remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
		       int32_t *results, uint64_t deadline_ns);
/* The number of keys of one chain, counted from the first, that are in the store: a hint.  It
 * takes two batches at most. */
uint32_t remote_reach(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
		      uint64_t deadline_ns);

void remote_state(struct remote *r, struct remote_state *ret);
/* The plugin's own counters. */
uint32_t remote_counters(struct remote *r, struct gpc_remote_counter *ret, uint32_t n);

#endif
