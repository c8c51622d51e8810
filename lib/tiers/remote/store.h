/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - declarations that the sources of a store share.
 * Tests: t/tiers/remote-folder.t */
#ifndef GPC_REMOTE_STORE_H
#define GPC_REMOTE_STORE_H

#include <pthread.h>

#include "tiers/remote/remote.h"

#define OPTIONS_MOST 32u

struct plugin {
	const struct gpc_remote_plugin *table;
	struct gpc_remote_plugin own; /* the functions that this library knows; the rest is NULL */
	void *object;                 /* of dlopen */
	char path[512];
};

struct options {
	char name[512]; /* NAME, or a path */
	char *text;     /* the words point into it */
	struct gpc_remote_option option[OPTIONS_MOST];
	uint32_t n;
};

struct remote {
	struct plugin plugin;
	void *store;
	struct remote_options o;
	char prefix[GPC_REMOTE_KEY]; /* prefix of each key */
	uint32_t prefix_bytes;
	int cancel_fd; /* it becomes readable when remote_stop is called */

	/* Set by any thread, relaxed: a late value costs a call, or a tick. */
	uint32_t state, stopped;
	uint64_t refused;      /* bits of calls that the store refuses to us and that the log has */
	uint32_t right, wrong; /* right images after the last wrong one; number of wrong images */
	uint64_t lost;         /* bits by lane: the LOST lanes, as the last tick has seen them */
	uint64_t lost_until;   /* nothing is asked before that time, because a lane was LOST */
	uint32_t fenced;       /* puts that are given up from now on can be fenced */
	uint64_t unsure_ns;    /* used if o.unsure_ns is NULL */

	pthread_mutex_t lock; /* taken below that lock */
	char why[256];
	/* Puts that no fence can end: so many are under way, and their word gets this value behind the
	 * last one of them. */
	uint32_t unfenced;
	uint64_t unsure_then_ns;
	/* the time when a lane was lost last, and the pause after it */
	uint64_t lost_ns, lost_pause_ns;
	char lost_why[64];
	/* DOWN: the pause before the last try, and the time of the next */
	uint64_t pause_ns, next_ns;
	bool logged;      /* the log has that it is down, and not yet that it answers again */
	uint64_t full_ns; /* the time when the log had that it is full; 0: never */
	/* remote_tick: the time of the next question whether puts can be fenced ... */
	uint64_t fence_ns;
	bool told_unfenced; /* ... and the log has it that they cannot */
	uint64_t up_ns;     /* UP since that time ... */
	uint32_t answered;  /* ... and a call was answered.  Any thread, relaxed */
	struct remote_state counts;

	struct batch *batch; /* one for each lane */
};

/* options.c: 0, or an error with its sentence. */
int options_parse(const char *spec, struct options *ret);
int options_check(const struct options *o, const struct gpc_remote_plugin *p);
void options_free(struct options *o);

/* plugin.c: by NAME from the library's folder of plugins, or by path. */
int plugin_load(const char *name, struct plugin *ret);
void plugin_unload(struct plugin *p);

/* remote.c: findings of calls. */
void store_say(struct remote *r, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);
void store_down(struct remote *r, const char *why);
/* A plugin has not returned from that call in time. */
void store_lost(struct remote *r, uint32_t lane, const char *call);
void store_wrong(struct remote *r, const char *key, const char *why);

#endif
