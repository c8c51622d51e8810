/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_remote.h - for authors of plugins: how gpc reaches a store of images on other machines.
 *
 * A plugin is a shared object that defines one symbol,
 *
 * 	const struct gpc_remote_plugin gpc_remote_plugin = {
 * 		.size = sizeof(struct gpc_remote_plugin), .abi = GPC_REMOTE_ABI, .name = "mine", ...
 * 	};
 *
 * One process loads it: the one that keeps the tiers of a cache, gpcd as a rule.  gpc_remote(7) has the
 * whole contract, and a plugin that is short enough to read.
 *
 *   value  the bytes that a store keeps under a key: a header of GPC_REMOTE_HEADER bytes, in which gpc
 *          names the key and keeps checksums, and behind it the image of a block.  The image lies in
 *          the memory of the cache, in one piece as a rule: it is sent from there and received there.
 *          A store need not look at header and image.  It may keep the two apart, as long as they
 *          come back together.
 *   key    GPC_REMOTE_KEY bytes at most, of [A-Za-z0-9._:-], with a 0 behind them.  Two nodes that share
 *          a key file, a layout and a version tag use the same keys for the same contents, so a second
 *          put of a key writes the same bytes.
 *   lane   one of `lanes` numbers from 0.  Calls of different lanes run at the same time, calls of one
 *          lane do not.  The state of a lane, a connection for instance, needs no lock.
 *
 * gpc verifies each answer of a store before it uses the answer.  A store may lose anything at any
 * time: that is a miss.
 * Tests: t/pages/remote-page.t t/tiers/lane-lost.t t/repo/headers.t t/repo/abi.t */
#ifndef GPC_REMOTE_H
#define GPC_REMOTE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPC_REMOTE_ABI    1   /* another number means another table, and the plugin is refused */
#define GPC_REMOTE_KEY    200 /* bytes of a key, without the final 0 */
#define GPC_REMOTE_BATCH  256 /* items of one call */
#define GPC_REMOTE_HEADER 128 /* bytes of a header */
#define GPC_REMOTE_LANES  64

struct gpc_remote_item {
	const char *key;
	uint32_t key_bytes; /* without the final 0 */
	uint32_t npieces;   /* of the image: 1 to 65536; 0 in exists and remove */
	void *header;       /* put: read only; get: room for the header */
	/* the pieces of the image, in their order, none of them empty; get: room for them */
	const struct iovec *image;
	uint64_t image_bytes; /* all pieces together */
	int32_t result;       /* out: 0, or a negative errno of the list below */
	uint32_t reserved;
};

/* Results of an item:
 *
 * 	0             exists: it is there.  get: header and image are filled.  put: it is stored.  remove: it is gone
 * 	-ENOENT       exists, get: the store has no such key.  remove: answers 0
 * 	-EBADMSG      get: the value has another length than header and image together
 * 	-ENOSPC       put: the store is full
 * 	-EFBIG        put: the store takes no value of that length
 * 	-EACCES       the store refuses this user, or this command to it
 * 	-EAGAIN       the store answers that it cannot do it now (it is loading, or moves the key)
 * 	-EHOSTDOWN    the store is known to be down, and nothing was tried
 * 	-ETIMEDOUT    the deadline has passed
 * 	-ECANCELED    the call was cancelled
 * 	-EOPNOTSUPP   fence: this store cannot know that
 * 	-EIO          anything else
 *
 * A get may have filled header and image of a failed item in part.  A put that ended in -EIO,
 * -ETIMEDOUT or -ECANCELED was given up: it may change the store later. */

struct gpc_remote_call { /* common to all calls; may grow at its end */
	uint32_t size;
	uint32_t lane;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC: the call waits no longer than this */
	/* becomes readable when the call is to end now; read nothing from it.  -1 = no
	 * descriptor */
	int cancel_fd;
	int reserved;
};

struct gpc_remote_option {        /* --remote NAME:word=value,word=value */
	const char *word, *value; /* value: "" if the option has none */
};

struct gpc_remote_word { /* an option that a plugin takes */
	const char *word;
	const char *help; /* a phrase for people */
};

struct gpc_remote_setup { /* argument of open; may grow at its end */
	uint32_t size;
	uint32_t lanes;       /* of exists, get, put, remove and tick */
	uint64_t value_bytes; /* no value is longer */
	/* each word is in the plugin's list, and comes at most once */
	const struct gpc_remote_option *options;
	uint32_t noptions;
	uint32_t reserved;
	/* A line for the log of the process; level as in syslog(3); any thread may call it until
	 * close has returned. */
	void (*log)(void *log_arg, int level, const char *text);
	void *log_arg;
	/* Processes keep the tiers of a cache one after the other.  All of them get the same
	 * `node`, which no other cache has, and each process gets a greater `life` than the one
	 * before it. */
	uint64_t node, life;
};

struct gpc_remote_counter {
	const char *name; /* [a-z_]+; constant memory of the plugin */
	uint64_t value;   /* never falls while the store is open */
};

struct gpc_remote_plugin { /* may grow at its end: size says which functions there are */
	uint32_t size;
	uint32_t abi;                        /* GPC_REMOTE_ABI */
	const char *name;                    /* NAME of the file gpc_remote_NAME.so */
	const char *about;                   /* a phrase for people */
	const struct gpc_remote_word *words; /* ends with a NULL word; NULL = no options */

	/* Returns 0 and a store in *store, which is not NULL.  The store need not be reached yet:
	 * for a store that is down open returns 0, and tick goes on.  Or open returns a negative
	 * errno, with a sentence of at most room - 1 bytes in why: which option is wrong, how, and
	 * the remedy. */
	int (*open)(const struct gpc_remote_setup *setup, void **store, char *why, size_t room);
	/* No call is under way; NULL is never closed.  gpc gives up a close that takes more than
	 * some seconds. */
	void (*close)(void *store);

	/* Each of these four calls fills the result of all n items, at most GPC_REMOTE_BATCH.  It
	 * returns within some milliseconds after the deadline, whatever the store does.  Order within
	 * a batch is free.
	 *
	 * Until the call returns, items, headers and images belong to the plugin.  A second after the
	 * deadline gpc goes on without the call: the store is down until it returns, and nobody else
	 * gets the images.  After the return the plugin writes to none of them.  A plugin that
	 * writes later spoils the bytes of other blocks: gpc cannot prevent that within one process.
	 * Readers that verify checksums (GPC_VERIFY_FIRST) find such bytes. */
	void (*exists)(void *store, const struct gpc_remote_call *call,
		       struct gpc_remote_item *items, uint32_t n);
	void (*get)(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		    uint32_t n);
	void (*put)(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		    uint32_t n);
	void (*remove)(void *store, const struct gpc_remote_call *call,
		       struct gpc_remote_item *items, uint32_t n);

	/* Called about ten times a second, in a lane of its own, from a thread on which nobody waits:
	 * connect again, look for changes.  0: the store is reached.  A negative errno: it is not
	 * reached, with a sentence in why.  NULL: gpc itself makes pauses after failed calls, longer
	 * each time, 30 s at most. */
	int (*tick)(void *store, const struct gpc_remote_call *call, char *why, size_t room);
	/* there = 1: images will lie in the memory at base; 0: no longer.  For plugins that
	 * register memory.  No call is under way.  Returns 0 or a negative errno; images may lie
	 * there even after an error.  NULL: the plugin does not need this. */
	int (*memory)(void *store, void *base, uint64_t bytes, int there);
	/* Up to n counters of the plugin's own; returns the number of all its counters.  Any
	 * thread.  NULL: no counters. */
	uint32_t (*counters)(void *store, struct gpc_remote_counter *ret, uint32_t n);
	/* Writes where the store is, without secrets, for people.  Any thread.  NULL: gpc shows
	 * only the name. */
	void (*where)(void *store, char *ret, size_t room);

	/* A call like exists, of n keys, in the lane of removals and in the lane of tick.  Result
	 * 0: no put of this key that has ended, and no put of an earlier life of this node, can
	 * change the store after a remove that is called from now on.  A value that such a put has
	 * stored by now can be seen.  -EOPNOTSUPP: this store cannot know that; gpc then removes
	 * dropped keys again and again, for an hour.  Other results: not yet, and gpc asks again.
	 * NULL: as if each result were -EOPNOTSUPP. */
	void (*fence)(void *store, const struct gpc_remote_call *call,
		      struct gpc_remote_item *items, uint32_t n);
};

#define GPC_REMOTE_EXPORT __attribute__((visibility("default")))

extern GPC_REMOTE_EXPORT const struct gpc_remote_plugin gpc_remote_plugin;

#ifdef __cplusplus
}
#endif
#endif
