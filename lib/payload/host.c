/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - copies from RAM to RAM, by a few threads of the handle.
 *
 * A transfer's pairs lie in the memory of its slot.  Each thread takes as many at a time as make a
 * few MiB, plans and copies them; who copies the last ones of a transfer says that it is done.
 * Threads are started when there is more to do than there are, and stay.
 * Tests: t/348-threads-die.t t/345-copies-end.t */
#include "config.h"

#include "payload/transfers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/parallel.h"
#include "device/host_bytes.h"

#define SHARE_BYTES ((uint64_t)4 << 20) /* that a thread takes at a time */
#define STACK       ((size_t)256 << 10)

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

/* With the lock held: some of the oldest job's pairs. */
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

/* With the lock held; the slot may be another transfer's right after the store. */
static void finish(struct job *j, uint32_t n)
{
	j->left -= n;
	/* (h) the bytes of all threads, each of which has had the lock since, before done; pairs
	 * with the acquire of is_done in transfer.c.  If we die before it, the transfer never
	 * ends. */
	if (!j->left)
		store_release(j->done, j->value);
}

static void *copy_run(void *arg)
{
	struct transfers *t = arg;
	struct plan_host none = { 0 };
	struct job *j;
	uint32_t at, n;

	pthread_mutex_lock(&t->work_lock);
	for (;;) {
		while (!t->first && !t->stop)
			pthread_cond_wait(&t->work, &t->work_lock);
		if (!t->first)
			break;
		t->busy++;
		j = take(t, &at, &n);
		pthread_mutex_unlock(&t->work_lock);
		/* cannot fail: it allocates nothing, and copy_ops does not */
		plan_run(j->pair->plan, &j->pair->limits, &none, j->pairs + at, n, copy_ops, NULL);
		pthread_mutex_lock(&t->work_lock);
		t->busy--;
		finish(j, n);
	}
	pthread_mutex_unlock(&t->work_lock);
	return NULL;
}

/* With the lock held. */
static int add_thread(struct transfers *t)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err = pthread_attr_init(&attr);

	if (!err) {
		pthread_attr_setstacksize(&attr, STACK);
		sigfillset(&all); /* the program's signals are not for it */
		pthread_sigmask(SIG_SETMASK, &all, &before);
		err = pthread_create(&t->thread[t->threads], &attr, copy_run, t);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		pthread_attr_destroy(&attr);
	}
	t->threads += !err;
	return err ? err_set(err, "cannot start a thread that copies") : 0;
}

int host_start(gpc *c)
{
	struct transfers *t = c->transfers;
	int err;

	pthread_mutex_lock(&t->work_lock);
	err = t->threads ? 0 : add_thread(t);
	pthread_mutex_unlock(&t->work_lock);
	return err;
}

int host_room(gpc *c, uint32_t slot, uint32_t n, struct copy_pair **ret_pairs)
{
	struct job *j = &c->transfers->job[slot];

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

void host_submit(gpc *c, uint32_t slot, const struct pair *pair, uint32_t n)
{
	struct transfers *t = c->transfers;
	struct job *j = &t->job[slot];
	uint32_t shares = (n - 1) / share_of(pair) + 1;

	j->pair = pair;
	j->n = j->left = n;
	j->taken = 0;
	j->next = NULL;
	j->done = transfer_word(c, slot, &j->value);
	pthread_mutex_lock(&t->work_lock);
	*t->end = j;
	t->end = &j->next;
	while (t->threads < t->most && t->threads < t->busy + shares && !add_thread(t))
		; /* those that the system does not give are done without */
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->work_lock);
}

void host_open(struct transfers *t)
{
	pthread_mutex_init(&t->work_lock, NULL);
	pthread_cond_init(&t->work, NULL);
	t->end = &t->first;
	t->most = MIN(HOST_THREADS, parallel_size());
}

void host_stop(struct transfers *t)
{
	uint32_t i;

	pthread_mutex_lock(&t->work_lock);
	t->stop = true;
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->work_lock);
	while (t->threads)
		pthread_join(t->thread[--t->threads], NULL);
	for (i = 0; i < SHM_TRANSFERS; i++)
		free(t->job[i].pairs);
}
