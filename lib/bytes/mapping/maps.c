/* SPDX-License-Identifier: Apache-2.0 */
/* maps.c - the list of a handle's maps: it begins and ends with the handle.
 * Tests: t/bytes/map-refused.t */
#include "config.h"

#include "bytes/mapping/maps.h"

#include <errno.h>
#include <stdlib.h>

struct map_seen map_look(gpc *c, uint32_t pool, uint64_t number)
{
	struct map_seen seen = { 0 };
	const struct map *m;
	uint64_t at, i;

	pthread_mutex_lock(&c->maps->lock);
	for (m = c->maps->first; m; m = m->next)
		if (m->pool == pool && m->memory.number == number && !m->unwanted)
			break;
	for (i = 0; m && i < MAX(m->memory.nparts, 1u); i++)
		seen.parts += m->part[i].base != NULL;
	for (i = at = 0; m && m->pins && at < m->memory.images_bytes; i++, at += map_pin_chunk)
		if (load_relaxed(&m->pins[i]) == CHUNK_PINNED)
			seen.pinned += MIN(map_pin_chunk, m->memory.images_bytes - at);
	pthread_mutex_unlock(&c->maps->lock);
	return seen;
}

/* ---- with the handle ---- */

int map_open(gpc *c)
{
	struct maps *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(ENOMEM, "no memory for a handle");
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->sums_lock, NULL);
	pthread_mutex_init(&s->pin_next, NULL);
	pthread_mutex_init(&s->pin_lock, NULL);
	worker_open(&s->watcher, &maps_kind, c);
	worker_open(&s->pinner, &pin_kind, c);
	pthread_cond_init(&s->pin_ended, NULL);
	fork_hold(); /* another handle may look: map_find_stale() */
	c->maps = s;
	fork_release();
	return 0;
}

void map_watch(gpc *c, void (*forget)(gpc *c, struct map *m), bool (*feed)(gpc *c))
{
	c->maps->forget = forget;
	c->maps->feed = feed;
}

void map_stop(gpc *c)
{
	if (!c->maps)
		return;
	worker_stop(&c->maps->watcher);
	worker_stop(&c->maps->pinner);
}

static void close_workers(struct maps *s)
{
	worker_close(&s->watcher);
	worker_close(&s->pinner);
}

/* Maps with transfers on a lost device are leaked on purpose: the device may still read or write
 * them. */
void map_close_all(gpc *c)
{
	struct maps *s = c->maps;
	struct map *m, *next;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock); /* another handle may look: map_find_stale() */
	m = s->first;
	s->first = NULL;
	pthread_mutex_unlock(&s->lock);
	for (; m; m = next) {
		next = m->next;
		if (!m->transfers) {
			m->next = NULL;
			map_free_list(c, m);
		}
	}
	fork_hold();
	c->maps = NULL;
	fork_release();
	close_workers(s);
	free(s);
}

/* Mappings and descriptors are not inherited, and the devices belong to the parent. */
void map_abandon(gpc *c)
{
	struct map *m, *next;

	for (m = c->maps ? c->maps->first : NULL; m; m = next) {
		next = m->next;
		free(m->pins);
		free(m);
	}
	if (c->maps)
		close_workers(c->maps);
	free(c->maps);
	c->maps = NULL;
}
