/* SPDX-License-Identifier: Apache-2.0 */
/* pin.c - host memory is registered with GPUs, so that their copy engines read and write it.
 *
 * Registering takes 50 to 100 ms a GiB, and meanwhile the driver holds locks that every CUDA call
 * of the machine may want.  So it is done in chunks, by one process of the cache at a time
 * (LOCK_PIN), and the others have a turn after each chunk.  The process that waits for LOCK_PIN
 * has LOCK_PIN_NEXT, so the process that has just dropped LOCK_PIN comes after it.  The locks are
 * not needed for correctness: two processes may register at once, and a process that is stopped
 * with a lock delays nobody for long.
 *
 * The driver may refuse, as with confidential computing, or only little memory may be locked.
 * Then copies go on with unregistered memory:
 *
 *   chunk       a copy that touches it     gpc_pool_pin
 *   NEW         registers it; if the       registers it, or returns an error
 *               driver refuses: REFUSED
 *   NEW, and gpc_pool_pin is at the pool's memory
 *               copies unregistered        -
 *   PINNED      -                          -
 *   REFUSED     -                          registers it, or returns an error
 *
 * So a program that has asked for all of the memory begins to copy at once, and no copy waits for
 * the chunks that come before its own.  The thread that registers has pin_lock for one chunk.
 * Threads that need a chunk, or the trailers, which have to be registered, wait for that chunk.
 *
 * With unregistered memory the driver copies through memory of its own.  To RAM, the call that
 * copies returns when its bytes are there; from RAM, when they have been read.  A stream keeps its
 * order, so its later work, the done word included, still follows the bytes.
 * Tests: t/bytes/pin.t t/bytes/pin-meanwhile.t t/bytes/registering-cuda.t
 *   t/bytes/unregistered-cuda.t t/bytes/pin-refused.t t/bytes/map-turns.t */
#include "config.h"

#include "bytes/mapping/maps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "index/peer/refuse.h"
#include "index/segment/lockfile.h"

#define PATIENCE_NS (10000 * NS_PER_MS) /* the wait for the process that has the turn */

uint64_t map_pin_chunk = PIN_CHUNK;
const struct device_bytes *map_pin_device;

/* ---- turns in this process ---- */

/* A thread that has just left comes after those that wait.  With only a mutex, the thread that
 * registers chunk after chunk would get in again before them. */
void pin_enter(struct maps *s)
{
	pthread_mutex_lock(&s->pin_next);
	pthread_mutex_lock(&s->pin_lock);
	pthread_mutex_unlock(&s->pin_next);
}

void pin_leave(struct maps *s)
{
	pthread_mutex_unlock(&s->pin_lock);
}

/* ---- chunks ---- */

static uint64_t chunk_count(const struct map *m)
{
	return ROUND_UP(m->memory.images_bytes, map_pin_chunk) / map_pin_chunk;
}

static bool wait_lock(gpc *c, uint64_t byte, uint64_t until)
{
	struct backoff b = { NS_PER_MS / 4, 4 * NS_PER_MS };
	int err;

	while ((err = lock_try(c->seg.lock_fd, byte)) == -EAGAIN && clock_ns() < until &&
	       !worker_stops(&c->maps->pinner))
		backoff_sleep(&b);
	return !err;
}

/* False: we have no turn, and register all the same.  So do the next chunks, without a wait for
 * each, until there is a turn. */
static bool take_turn(gpc *c)
{
	uint64_t until = c->maps->pin_alone ? 0 : clock_ns() + PATIENCE_NS;
	bool next = wait_lock(c, LOCK_PIN_NEXT, until), ours = wait_lock(c, LOCK_PIN, until);

	if (next)
		lock_drop(c->seg.lock_fd, LOCK_PIN_NEXT);
	c->maps->pin_alone = !ours;
	return ours;
}

static int pin_chunk(gpc *c, struct map *m, uint64_t i)
{
	uint64_t at = i * map_pin_chunk;
	bool ours = take_turn(c);
	int err = m->pinner->pin(m->images + at, MIN(map_pin_chunk, m->memory.images_bytes - at));

	if (ours)
		lock_drop(c->seg.lock_fd, LOCK_PIN);
	if (!err)
		store_relaxed(&m->pins[i], CHUNK_PINNED);
	return err;
}

void pin_say_refused(gpc *c, const char *what)
{
	if (!order_swap32(&c->maps->pin_told, 1))
		log_say(&c->log, LOG_WARNING,
			"%s: %s: %s; copies go on without, through memory of the driver: they are slower, and "
			"a call that copies waits for them",
			c->seg.name, what, gpc_last_error());
}

static void refuse_chunk(gpc *c, struct map *m, uint64_t i)
{
	char what[48];

	store_relaxed(&m->pins[i], CHUNK_REFUSED);
	snprintf(what, sizeof(what), "pool %u", m->pool);
	pin_say_refused(c, what);
}

static bool is_settled(const struct map *m, uint64_t i, bool must)
{
	uint8_t chunk = load_relaxed(&m->pins[i]);

	return chunk == CHUNK_PINNED || (chunk == CHUNK_REFUSED && !must);
}

/* With pin_lock. */
static int settle_chunk(gpc *c, struct map *m, const struct device_bytes *device, uint64_t i,
			bool must)
{
	int err;

	if (worker_stops(&c->maps->pinner))
		return err_set(EINTR, "the handle is being closed");
	if (is_settled(m, i, must))
		return 0;
	m->pinner = device;
	err = pin_chunk(c, m, i);
	if (err && !must) {
		refuse_chunk(c, m, i);
		err = 0;
	}
	return err;
}

/* Copies look without a lock, since memory stays registered as long as they have the map. */
int map_pin(gpc *c, struct map *m, const struct device_bytes *device, uint64_t at, uint64_t bytes,
	    bool must)
{
	uint64_t i = at / map_pin_chunk, end;
	int err = 0;

	if (m->memory.kind != GPC_RAM || !m->images || !bytes || at >= m->memory.images_bytes)
		return 0;
	end = MIN((at + bytes - 1) / map_pin_chunk + 1, chunk_count(m));
	for (; !err && i < end; i++) {
		if (is_settled(m, i, must) || (!must && load_relaxed(&m->pin_wanted)))
			continue;
		pin_enter(c->maps);
		err = settle_chunk(c, m, device, i, must);
		pin_leave(c->maps);
	}
	return err;
}

/* Trailers must be registered, since a kernel reads and writes there. */
static int refuse_trailers(const struct map *m, int err)
{
	char why[200];

	snprintf(why, sizeof(why), "%s", gpc_last_error());
	return err_set(
		-err,
		"%s; the checksums of pool %u are made by the GPU, in memory that is registered: where "
		"none can be, make the pool without them (no_checksums)",
		why, m->pool);
}

int map_pin_trailers(gpc *c, struct map *m, const struct device_bytes *device)
{
	int err = 0;

	if (load_acquire(&m->trailers_by) == device)
		return 0;
	pin_enter(c->maps);
	if (!m->trailers_by)
		err = device->pin(m->trailers.base, m->trailers.bytes);
	if (err)
		err = refuse_trailers(m, err);
	else /* it is registered before others see that; pairs with the acquire */
		store_release(&m->trailers_by, device);
	pin_leave(c->maps);
	return err;
}

int pin_prepare(struct map *m)
{
	m->pins = calloc(chunk_count(m), 1);
	return m->pins ? 0 : err_set(ENOMEM, "no memory for the images of pool %u", m->pool);
}

void pin_drop(struct map *m)
{
	uint64_t i;

	for (i = 0; m->pins && i < chunk_count(m); i++)
		if (m->pins[i] == CHUNK_PINNED)
			m->pinner->unpin(m->images + i * map_pin_chunk);
	if (m->trailers_by)
		m->trailers_by->unpin(m->trailers.base);
}

/* ---- gpc_pool_pin ---- */

/* A GPU that has VRAM of the cache: it registers.  NULL: there is none, so nothing has to be
 * registered. */
static const struct device_bytes *find_pinner(const gpc *c)
{
	static const uint8_t host[16];
	const struct device_bytes *device;
	uint32_t i;

	if (map_pin_device)
		return map_pin_device;
	for (i = 0; i < c->seg.header.geometry.max_pools; i++) {
		const struct shm_pool *p = seg_pool(&c->seg, i);

		if (load_acquire(&p->state) == POOL_READY && p->kind == GPC_VRAM && p->memory &&
		    memcmp(p->uuid[0], host, sizeof(host)) &&
		    device_bytes_of(p->uuid[0], &device) == 0)
			return device;
	}
	return NULL;
}

static struct map *find_wanted(const struct maps *s)
{
	struct map *m = s->first;

	while (m && !m->pin_wanted)
		m = m->next;
	return m;
}

/* Register all memory that is wanted now.  Later requests are found, or `asked` says so. */
static void pin_all(gpc *c)
{
	const struct device_bytes *device;
	struct maps *s = c->maps;
	struct map *m;
	int err;

	pthread_mutex_lock(&s->lock);
	while ((m = find_wanted(s)) != NULL) {
		pthread_mutex_unlock(&s->lock);
		/* the last VRAM may have gone, and then no GPU needs the memory */
		device = find_pinner(c);
		err = device ? map_pin(c, m, device, 0, m->memory.images_bytes, true) : 0;
		pthread_mutex_lock(&s->lock);
		if (err)
			snprintf(s->pin_why, sizeof(s->pin_why), "%s", gpc_last_error());
		m->pin_error = err;
		store_relaxed(&m->pin_wanted, false);
		m->transfers--;
		pthread_cond_broadcast(&s->pin_ended);
	}
	pthread_mutex_unlock(&s->lock);
	map_sweep(c);
}

static uint64_t pin_step(struct worker *w)
{
	gpc *c = w->arg;
	struct maps *s = c->maps;

	if (!s->pin_asked)
		return NEVER;
	s->pin_asked = false;
	worker_unlock(w);
	pin_all(c);
	worker_lock(w);
	return 0;
}

const struct worker_kind pin_kind = { .name = "gpc-pin",
				      .what = "for the memory of pools",
				      .step = pin_step };

static void ask_pinner(struct maps *s)
{
	worker_lock(&s->pinner);
	s->pin_asked = true;
	worker_post(&s->pinner);
	worker_unlock(&s->pinner);
}

static bool is_pinned(const struct map *m)
{
	uint64_t i;

	for (i = 0; i < chunk_count(m) && load_relaxed(&m->pins[i]) == CHUNK_PINNED; i++)
		;
	return i == chunk_count(m);
}

static int wait_pinned(gpc *c, struct map *m, int timeout_ms)
{
	struct maps *s = c->maps;
	uint64_t until = deadline_from(timeout_ms);

	while (m->pin_wanted && timeout_ms && clock_wait(&s->pin_ended, &s->lock, until))
		;
	if (m->pin_wanted)
		return err_set(timeout_ms ? ETIMEDOUT : EAGAIN,
			       "pool is %u: its memory is being "
			       "registered, and that goes on",
			       m->pool);
	return m->pin_error ? err_set(-m->pin_error, "%s", s->pin_why) : 0;
}

/* The caller holds the map, and the thread gets a hold of its own.  The thread is running before
 * it is asked. */
static int pin_wait(gpc *c, struct map *m, int timeout_ms)
{
	struct maps *s = c->maps;
	int err = 0, n = worker_start(&s->pinner, 1);

	pthread_mutex_lock(&s->lock);
	if (!is_pinned(m)) {
		if (n >= 0 && !m->pin_wanted) {
			m->transfers++;
			store_relaxed(&m->pin_wanted, true);
			ask_pinner(s);
		}
		err = n < 0 ? n : wait_pinned(c, m, timeout_ms);
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

GPC_EXPORT int gpc_pool_pin(gpc *c, int pool, int timeout_ms)
{
	struct map *m;
	int err = handle_check(c, true);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0)
		err = map_get(c, (uint32_t)pool, &m);
	if (err < 0)
		return err;
	if (m->memory.kind != GPC_RAM)
		err = err_set(ENOENT, "pool is %d, of VRAM: only RAM is registered", pool);
	else if (find_pinner(c))
		err = pin_wait(c, m, timeout_ms);
	map_put(c, m);
	return err;
}
