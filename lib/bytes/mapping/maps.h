/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h - what the sources of a handle's maps share: map.c, map_call.c, maps.c, pin.c,
 * thread.c. */
#ifndef GPC_MEMORY_MAPS_H
#define GPC_MEMORY_MAPS_H

#include "index/base/err.h"
#include "index/base/worker.h"
#include "bytes/mapping/map.h"

struct maps {
	pthread_mutex_t lock; /* of the list and the users of each map */
	struct map *first;
	void (*forget)(gpc *c, struct map *m);
	bool (*feed)(gpc *c);
	pthread_mutex_t sums_lock; /* of the ways through images: sums.c */

	/* pin.c: chunks are registered one after the other; the rest is under `lock` */
	pthread_mutex_t pin_next, pin_lock; /* by pin_enter() */
	pthread_cond_t pin_ended;
	struct worker pinner; /* its lock is of ... */
	bool pin_asked;
	bool pin_alone;    /* whose turn it was has not given it back; pin_lock */
	char pin_why[256]; /* sentence of the last error */
	uint32_t pin_told; /* that the driver refuses: atomic */

	/* thread.c */
	struct worker watcher; /* its lock is of ... */
	bool poked;
};

/* ---- map.c ---- */

/* Has the pool, READY or also DRAINING, memory of that number now? */
bool map_pool_has(const gpc *c, uint32_t pool, uint64_t number, bool draining_too);
/* With the lock held: the map of the pool's present memory, with one user more; made if there is
 * none. */
int map_get_locked(gpc *c, uint32_t pool, bool caller, struct map **ret);

/* Unmap maps that nobody finds any more. */
void map_free_list(gpc *c, struct map *m);

/* ---- pin.c ---- */

void pin_enter(struct maps *s);
void pin_leave(struct maps *s);
int pin_prepare(struct map *m); /* of images: -ENOMEM */
void pin_drop(struct map *m);   /* before it is unmapped */
extern const struct worker_kind pin_kind;

/* ---- thread.c ---- */

extern const struct worker_kind maps_kind;
int thread_start(gpc *c);

#endif
