/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - copies from RAM to RAM, by a few threads of the handle.
 *
 * A transfer's pairs lie in the memory of its channel.  Each thread takes pairs of a few MiB at a
 * time, plans them and copies them.  The thread that copies the last pairs of a transfer marks it
 * done.  A thread is started when there is more work than threads, and stays.
 * Tests: t/bytes/threads-die.t t/bytes/copies-end.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <stdlib.h>

#include "index/base/parallel.h"
#include "bytes/device/host_bytes.h"

#define SHARE_BYTES ((uint64_t)4 << 20) /* bytes that a thread takes at a time */

static int copy_ops(void *arg UNUSED, const struct copy_op *ops, uint32_t nops)
{
	uint32_t i;

	for (i = 0; i < nops; i++)
		host_copy_op(&ops[i]);
	return 0;
}

static uint32_t share_of(const struct pair *p)
{
	return (uint32_t)MAX(SHARE_BYTES / p->to->memory.block_bytes, 1);
}

/* With the lock held: take some of the oldest job's pairs. */
static struct job *take(struct transfers *t, uint32_t *ret_at, uint32_t *ret_n)
{
	struct job *j = t->first;

	*ret_at = j->taken;
	*ret_n = MIN(share_of(j->pair), j->n - j->taken);
	j->taken += *ret_n;
	if (j->taken == j->n) {
		t->first = j->next;
		if (!t->first)
			t->end = &t->first;
	}
	return j;
}

/* With the lock held.  The channel may belong to another transfer right after the store. */
static void finish(struct job *j, uint32_t n)
{
	j->left -= n;
	/* (h) the bytes of all threads, each of which has had the lock since, are stored before
	 * done; pairs with the acquire of is_done in transfer.c.  If we die before it, the
	 * transfer never ends. */
	if (!j->left)
		store_release(j->done, j->value);
}

static uint64_t copy_step(struct worker *w)
{
	struct transfers *t = w->arg;
	struct plan_host none = { 0 };
	struct job *j;
	uint32_t at, n;

	if (!t->first)
		return NEVER;
	t->busy++;
	j = take(t, &at, &n);
	worker_unlock(w);
	/* it cannot fail, since neither it nor copy_ops allocates memory */
	plan_run(j->pair->plan, &j->pair->limits, &none, j->pairs + at, n, copy_ops, NULL);
	worker_lock(w);
	t->busy--;
	finish(j, n);
	return 0;
}

static const struct worker_kind copy_kind = { .name = "gpc-copy",
					      .what = "that copies",
					      .step = copy_step };

int host_start(gpc *c)
{
	int n = worker_start(&c->transfers->copier, 1);

	return MIN(n, 0);
}

int host_room(gpc *c, uint32_t channel, uint32_t n, struct copy_pair **ret_pairs)
{
	struct job *j = &c->transfers->job[channel];

	if (n > j->size) {
		free(j->pairs);
		j->pairs = malloc((size_t)n * sizeof(*j->pairs));
		j->size = j->pairs ? n : 0;
		if (!j->pairs)
			return err_set(ENOMEM, "no memory for a list of %u blocks", n);
	}
	*ret_pairs = j->pairs;
	return 0;
}

void host_submit(gpc *c, uint32_t channel, const struct pair *pair, uint32_t n)
{
	struct transfers *t = c->transfers;
	struct job *j = &t->job[channel];
	uint32_t want = (n - 1) / share_of(pair) + 1;

	j->pair = pair;
	j->n = j->left = n;
	j->taken = 0;
	j->next = NULL;
	j->done = transfer_word(c, channel, &j->value);
	worker_lock(&t->copier);
	*t->end = j;
	t->end = &j->next;
	want += t->busy;
	worker_post_all(&t->copier);
	worker_unlock(&t->copier);
	/* if threads are missing, the others do the work */
	worker_start(&t->copier, MIN(want, t->most));
}

void host_open(struct transfers *t)
{
	worker_open(&t->copier, &copy_kind, t);
	t->end = &t->first;
	t->most = MIN(HOST_THREADS, parallel_size());
}

void host_stop(struct transfers *t)
{
	uint32_t i;

	worker_close(&t->copier);
	for (i = 0; i < SHM_TRANSFERS; i++)
		free(t->job[i].pairs);
}
