/* SPDX-License-Identifier: Apache-2.0 */
/* fork.c - a forked child must not use its parent's handles.
 *
 * Two processes would write one seat.  So the child finds every handle marked; it has no
 * descriptor of a cache (fd.c), and the mappings are not inherited (MADV_DONTFORK).
 * Tests: t/index/epoch.t t/bytes/forked.t t/bytes/seats.t */
#include "config.h"

#include <errno.h>
#include "index/peer/handle.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gpc *handles;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int hook_error;

static void fork_prepare(void)
{
	pthread_mutex_lock(&lock);
}

static void parent(void)
{
	pthread_mutex_unlock(&lock);
}

/* Runs between fork and exec, so it allocates nothing and takes no other lock. */
static void child(void)
{
	gpc *c;

	for (c = handles; c; c = c->next) {
		c->forked = true;
		segment_abandon(&c->seg);
	}
	handles = NULL;
	pthread_mutex_unlock(&lock);
}

static void fork_hook(void)
{
	hook_error = pthread_atfork(fork_prepare, parent, child);
}

int fork_register(gpc *c)
{
	pthread_once(&once, fork_hook);
	if (hook_error)
		return err_set(hook_error, "cannot prepare for fork(2)");
	pthread_mutex_lock(&lock);
	c->next = handles;
	handles = c;
	pthread_mutex_unlock(&lock);
	return 0;
}

gpc *fork_hold(void)
{
	pthread_mutex_lock(&lock);
	return handles;
}

void fork_release(void)
{
	pthread_mutex_unlock(&lock);
}

void fork_forget(gpc *c)
{
	gpc **at;

	pthread_mutex_lock(&lock);
	for (at = &handles; *at; at = &(*at)->next) {
		if (*at == c) {
			*at = c->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}
