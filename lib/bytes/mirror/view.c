/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - the mirror that a process looks up in, and the end of its use.
 *
 * A mirror may be replaced at any time: a new writer publishes its own, and a failed mirror is
 * retired.  gpc_dev_enter first opens a section in the control segment, and only then loads the
 * descriptor (rule T6).  So a writer frees nothing that this section could find through the mirror
 * of that descriptor.  If its generation differs from the import's, the new mirror is imported.
 * The old import is released when nobody here can use it any more.  Two different users have to be
 * waited for:
 *
 *   a thread that has loaded `current` and not yet counted itself.  That takes a few
 *     instructions, guarded by liburcu, and call_rcu waits for its grace period (settled)
 *   work in flight.  It belongs to a stream, and no thread is in a read-side section for it.
 *     It may take seconds, so each import counts the sections that began with it
 *
 * A launch uses the current import, which may be newer than the one that its section began with.
 * So imports are released oldest first: a user that is counted in one holds back all later
 * imports.  The flavour of liburcu is the one that needs no registration of threads, since a
 * library meets threads that it does not know.
 * Tests: t/bytes/device-sections-host.t t/bytes/ask-device.t t/bytes/device-namespaces.t
 *   t/bytes/device.t t/bytes/device-mirrors.t */
#include "config.h"

#include "bytes/mirror/view.h"

#include "index/segment/descriptor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void import_add32(uint32_t *p, uint32_t v)
{
	uint32_t old;

	do {
		old = load_relaxed(p);
	} while (!order_cas32(p, old, old + v));
}

/* liburcu publishes and follows this pointer.  ThreadSanitizer sees neither its stores, which are
 * made in the library, nor the order that a dependent load has.  Only for it, a release and an
 * acquire say the same. */
#ifdef __SANITIZE_THREAD__
#define current_get(d)     load_acquire(&(d)->current)
#define current_set(d, im) store_release(&(d)->current, (im))
#else
#define current_get(d)     urcu_bp_dereference((d)->current)
#define current_set(d, im) urcu_bp_set_pointer(&(d)->current, (im))
#endif

static void dev_put(gpc_dev *d)
{
	uint32_t old;

	do {
		old = load_relaxed(&d->holds);
	} while (!order_cas32(&d->holds, old, old - 1));
	if (old > 1)
		return;
	d->ops->close(d->there);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

/* Under d->lock: release the retired imports that are over, oldest first. */
static void release_retired(gpc_dev *d)
{
	struct import *im;

	while ((im = d->retired) && load_acquire(&im->settled) && !load_acquire(&im->sections)) {
		store_relaxed(&d->retired, im->next);
		d->ops->release(im->handle);
		free(im);
	}
}

/* Under d->lock. */
static void retire(gpc_dev *d, struct import *im)
{
	im->next = NULL;
	if (d->retired)
		d->newest->next = im;
	else
		store_relaxed(&d->retired, im);
	d->newest = im;
}

/* liburcu's grace period is over: all threads that had loaded this import have counted
 * themselves.  The handle may be closed by now. */
static void import_settled(struct rcu_head *head)
{
	struct import *im = (struct import *)head;
	gpc_dev *d = im->dev;

	pthread_mutex_lock(&d->lock);
	store_release(&im->settled, 1);
	release_retired(d);
	pthread_mutex_unlock(&d->lock);
	dev_put(d);
}
_Static_assert(offsetof(struct import, rcu) == 0, "import_settled casts");

void import_forget(gpc_dev *d, uint32_t i)
{
	struct import *im = d->use[i].import;

	if (!im)
		return;
	store_relaxed(&d->use[i].import, NULL);
	import_add32(&im->sections, (uint32_t)-1);
}

/* Sections that are over may still be counted in use[]: take them out. */
void import_tidy(gpc_dev *d)
{
	const gpc *c = d->c;
	uint32_t i;

	if (!load_relaxed(&d->retired) || pthread_mutex_trylock(&d->lock))
		return;
	for (i = 0; i < GPC_SECTIONS; i++)
		if (load_relaxed(&d->use[i].import) &&
		    epoch_enter(&c->seg, c->peer, SHM_SECTION(i))) {
			import_forget(d, i);
			epoch_leave(&c->seg, c->peer, SHM_SECTION(i));
		}
	release_retired(d);
	pthread_mutex_unlock(&d->lock);
}

bool import_find(const gpc *c, const uint8_t uuid[16], struct shm_mirror *ret)
{
	struct shm_mirror m;
	bool found = false;
	uint32_t i;

	for (i = 0; i < SHM_MIRRORS; i++)
		if (descriptor_read(&c->seg, i, &m) && m.state == MIRROR_READY &&
		    !memcmp(m.uuid, uuid, sizeof(m.uuid)) &&
		    (!found || m.generation > ret->generation)) {
			*ret = m;
			found = true;
		}
	return found;
}

int import_none(const char *device)
{
	return err_set(ESTALE,
		       "the cache has no live mirror on device %s now; the host calls "
		       "answer meanwhile",
		       device);
}

static int import_new(gpc_dev *d, const struct shm_mirror *m, struct import **ret)
{
	struct import *im = calloc(1, sizeof(*im));
	int err;

	if (!im)
		return err_set(ENOMEM, "no memory to import a mirror");
	err = d->ops->import(&d->c->seg, m, &im->handle, &im->view);
	if (!err) {
		err = d->ops->adopt(d->there, im->handle);
		if (err)
			d->ops->release(im->handle);
	}
	if (err) {
		free(im);
		return err;
	}
	im->dev = d;
	im->generation = m->generation;
	*ret = im;
	return 0;
}

/* Called under d->lock; nobody finds the import from now on. */
static void retire_later(gpc_dev *d, struct import *im)
{
	retire(d, im);
	import_add32(&d->holds, 1);
	urcu_bp_call_rcu(&im->rcu, import_settled);
}

/* Import the mirror that is live now, and count the calling section in. */
static int replace(gpc_dev *d, struct import **ret)
{
	struct import *old, *im = NULL;
	struct shm_mirror m;
	int err = 0;

	pthread_mutex_lock(&d->lock);
	old = d->current;
	if (!import_find(d->c, d->uuid, &m)) {
		err = import_none(d->device);
	} else if (old && old->generation == m.generation) {
		im = old; /* another thread has been faster */
		import_add32(&im->sections, 1);
	} else {
		err = import_new(d, &m, &im);
		if (err == -ESTALE && old) { /* the old import may prevent it */
			current_set(d, NULL);
			retire_later(d, old);
		}
	}
	if (!err && im != old) {
		im->sections = 1;
		current_set(d, im);
		if (old)
			retire_later(d, old);
	}
	pthread_mutex_unlock(&d->lock);
	if (!err)
		*ret = im;
	return err;
}

int import_adopt(gpc_dev *d, struct import **ret)
{
	struct import *im;
	struct shm_mirror m;

	if (!import_find(d->c, d->uuid, &m))
		return import_none(d->device);
	urcu_bp_read_lock();
	im = current_get(d);
	if (im && im->generation == m.generation)
		import_add32(&im->sections, 1);
	else
		im = NULL;
	urcu_bp_read_unlock();
	if (!im)
		return replace(d, ret);
	*ret = im;
	return 0;
}

bool import_view(gpc_dev *d, struct dev_view *ret)
{
	struct import *im;

	urcu_bp_read_lock();
	im = current_get(d);
	if (im)
		*ret = im->view;
	urcu_bp_read_unlock();
	return im != NULL;
}

void import_end(gpc_dev *d)
{
	struct import *im;
	uint32_t i;

	pthread_mutex_lock(&d->lock);
	for (i = 0; i < GPC_SECTIONS; i++)
		import_forget(d, i);
	im = d->current;
	current_set(d, NULL);
	if (im) {
		im->settled = 1;
		retire(d, im);
	}
	release_retired(d);
	pthread_mutex_unlock(&d->lock);
	/* import_settled() may still be due for an older import.  Until then the driver has the
	 * peer's sections registered.  The segment may be unmapped when this returns, and another
	 * may be mapped in its place. */
	if (load_acquire(&d->holds) > 1)
		urcu_bp_barrier();
	dev_put(d);
}
