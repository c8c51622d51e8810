/* SPDX-License-Identifier: Apache-2.0 */
/* offload.c - host-in, host-out: decides whether a device is worth it, and asks it.
 *
 * One round trip to a GPU costs as much as some hundred lookups here.  The caller's own section
 * protects the blocks that the device may still show: its answer is there before the section ends.
 * Tests: t/bytes/ask-device.t */
#include "config.h"

#include "bytes/mirror/dev.h"

#include "bytes/mirror/view.h"

#include <errno.h>
#include <stdlib.h>

#define WORTH_LOOKUPS 2048 /* keys */
#define WORTH_MATCH   4096 /* keys of all sequences together */

static bool is_worth_it(const struct device_query *q)
{
	return q->n >= (q->start ? WORTH_MATCH : WORTH_LOOKUPS);
}

/* Does the mirror show everything that was acknowledged? */
static bool is_fresh(const gpc_dev *d)
{
	uint64_t changes = load_acquire(&seg_state(&d->c->seg)->changes);
	struct shm_mirror m;

	return import_find(d->c, d->uuid, &m) && m.flushed >= changes;
}

static int ask_one(gpc_dev *d, const struct device_query *q, struct device_result *ret)
{
	struct dev_view view;
	struct import *im;
	int err = import_adopt(d, &im);

	if (err)
		return err;
	view = im->view;
	err = d->ops->ask(d->there, &view, q, ret);
	import_add32(&im->sections, (uint32_t)-1);
	return err;
}

int offload_query(gpc *c, const struct device_query *q, bool must, struct device_result *ret)
{
	int err;

	if (!must &&
	    (!load_relaxed(&c->devs) || !is_worth_it(q) || pthread_mutex_trylock(&c->dev_lock)))
		return -EAGAIN;
	if (must)
		pthread_mutex_lock(&c->dev_lock);
	if (!c->devs)
		err = must ? err_set(ENODEV, "no device is open: gpc_dev_open comes first")
			   : -EAGAIN;
	else if (!must && !is_fresh(c->devs))
		err = -EAGAIN;
	else
		err = ask_one(c->devs, q, ret);
	if (!err)
		return 0;
	pthread_mutex_unlock(&c->dev_lock);
	return must ? err : -EAGAIN;
}

void offload_end(gpc *c, struct device_result *answer)
{
	free(answer->memory);
	pthread_mutex_unlock(&c->dev_lock);
}
