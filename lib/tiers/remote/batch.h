/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - batches of items, one in each lane, and how the plugin is called with them. */
#ifndef GPC_REMOTE_BATCH_H
#define GPC_REMOTE_BATCH_H

#include "tiers/remote/image.h"
#include "tiers/remote/lane.h"
#include "tiers/remote/store.h"

typedef void (*plugin_call)(void *store, const struct gpc_remote_call *call,
			    struct gpc_remote_item *items, uint32_t n);

struct batch { /* of one lane; while that is LOST all but `result` is the plugin's */
	struct lane lane;
	struct gpc_remote_item item[GPC_REMOTE_BATCH];
	struct image_header header[GPC_REMOTE_BATCH];
	char key[GPC_REMOTE_BATCH][GPC_REMOTE_KEY + 1];
	struct iovec *piece; /* of all images */
	uint32_t npieces;    /* the number that there is room for */
	int32_t result[GPC_REMOTE_BATCH];

	/* the function to call, in the lane's thread */
	struct remote *r;
	plugin_call call;
	struct gpc_remote_call with;
	uint32_t n;
	char why[256]; /* of tick */
	int tick;      /* its answer */
};

/* ---- call.c ---- */

int batch_open(struct remote *r);
void batch_close(struct remote *r);
void batch_stop(struct remote *r);
/* The plugin's close; false: it has not returned. */
bool batch_end(struct remote *r);
/* The first n items, by the plugin, if it may be asked: `result` is filled and counted.
 * deadline_ns 0: that of the options from now on. */
void batch_ask(struct remote *r, plugin_call call, uint32_t lane, uint32_t n, uint64_t deadline_ns);
/* The same whatever is known of it, and nothing is counted.  false: the lane is LOST, or nothing
 * was called. */
bool batch_call_plugin(struct remote *r, plugin_call call, uint32_t lane, uint32_t n,
		       uint64_t deadline_ns);
/* false: the lane is LOST, nothing of it may be touched, and each result says so. */
bool batch_is_mine(struct remote *r, uint32_t lane, uint32_t n);
void batch_answer(struct batch *b, uint32_t n, int result);
int32_t batch_result(int32_t result);
bool batch_failed(int result);
/* The plugin's tick, in its lane: 0 = the store answers, or a negative errno. */
int batch_tick(struct remote *r, char *why, size_t room);

/* ---- batch.c ---- */

/* For plugins without one: the same by exists. */
int batch_probe(struct remote *r);
/* Can puts that are given up from now on be fenced?  In the lane of tick. */
void batch_probe_fence(struct remote *r);

#endif
