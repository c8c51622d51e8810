/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h - declarations that the sources of a handle's maps share: map.c, map_call.c, maps.c,
 * pin.c, thread.c. */
#ifndef GPC_MEMORY_MAPS_H
#define GPC_MEMORY_MAPS_H

#include "index/base/err.h"
#include "index/base/worker.h"
#include "bytes/mapping/map.h"

struct maps {
	pthread_mutex_t lock; /* protects the list, and the users of each map */
	struct map *first;
	void (*forget)(gpc *c, struct map *m);
	bool (*feed)(gpc *c);
	pthread_mutex_t sums_lock; /* protects lists of pieces: sums.c */

	/* pin.c: chunks are registered one after the other; the other fields are under `lock` */
	pthread_mutex_t pin_next, pin_lock; /* taken by pin_enter() */
	pthread_cond_t pin_ended;
	struct worker pinner; /* its lock protects ... */
	bool pin_asked;
	/* a process has kept the turn too long, so we register without a turn; under pin_lock */
	bool pin_alone;
	char pin_why[256]; /* sentence of the last error */
	uint32_t pin_told; /* things that the driver refuses and the log has; atomic */

	/* thread.c */
	struct worker watcher; /* its lock protects ... */
	bool poked;
};

/* ---- map.c ---- */

/* Has the pool, READY or also DRAINING, memory of that number now? */
bool map_pool_has(const gpc *c, uint32_t pool, uint64_t number, bool draining_too);
/* With the lock held: the map of the pool's present memory, with one more user.  It is made if
 * there is none. */
int map_get_locked(gpc *c, uint32_t pool, bool caller, struct map **ret);

/* Unmap maps that nobody finds any more. */
void map_free_list(gpc *c, struct map *m);

/* ---- pin.c ---- */

void pin_enter(struct maps *s);
void pin_leave(struct maps *s);
int pin_prepare(struct map *m); /* for images: -ENOMEM */
void pin_drop(struct map *m);   /* called before it is unmapped */
extern const struct worker_kind pin_kind;

/* ---- thread.c ---- */

extern const struct worker_kind maps_kind;
int thread_start(gpc *c);

#endif
