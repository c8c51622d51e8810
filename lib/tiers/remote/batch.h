/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - batches of items, one for each lane, and calls of the plugin with them. */
#ifndef GPC_REMOTE_BATCH_H
#define GPC_REMOTE_BATCH_H

#include "tiers/remote/image.h"
#include "tiers/remote/lane.h"
#include "tiers/remote/store.h"

typedef void (*plugin_call)(void *store, const struct gpc_remote_call *call,
			    struct gpc_remote_item *items, uint32_t n);

/* The batch of one lane.  While the lane is LOST, all but `result` belongs to the plugin. */
struct batch {
	struct lane lane;
	struct gpc_remote_item item[GPC_REMOTE_BATCH];
	struct image_header header[GPC_REMOTE_BATCH];
	char key[GPC_REMOTE_BATCH][GPC_REMOTE_KEY + 1];
	struct iovec *piece; /* of all images */
	uint32_t npieces;    /* the number of pieces that there is room for */
	int32_t result[GPC_REMOTE_BATCH];

	/* the function that the lane's thread calls */
	struct remote *r;
	plugin_call call;
	struct gpc_remote_call with;
	uint32_t n;
	char why[256]; /* the sentence of tick */
	int tick;      /* the answer of tick */
};

/* ---- call.c ---- */

int batch_open(struct remote *r);
void batch_close(struct remote *r);
void batch_stop(struct remote *r);
/* Call the plugin's close.  False: it has not returned. */
bool batch_end(struct remote *r);
/* Call the plugin with the first n items, if it may be asked.  `result` is filled and counted.
 * deadline_ns 0: the options' deadline from now on. */
void batch_ask(struct remote *r, plugin_call call, uint32_t lane, uint32_t n, uint64_t deadline_ns);
/* The same whatever state the store has, and nothing is counted.  False: the lane is LOST, or
 * nothing was called. */
bool batch_call_plugin(struct remote *r, plugin_call call, uint32_t lane, uint32_t n,
		       uint64_t deadline_ns);
/* False: the lane is LOST, nothing of it may be touched, and each result says so. */
bool batch_is_mine(struct remote *r, uint32_t lane, uint32_t n);
void batch_answer(struct batch *b, uint32_t n, int result);
int32_t batch_result(int32_t result);
bool batch_failed(int result);
/* The plugin's tick, in its lane: 0 = the store answers, or a negative errno. */
int batch_tick(struct remote *r, char *why, size_t room);

/* ---- batch.c ---- */

/* For plugins without a tick: the same by exists. */
int batch_probe(struct remote *r);
/* Can puts that are given up from now on be fenced?  It is called in the lane of tick. */
void batch_probe_fence(struct remote *r);

#endif
