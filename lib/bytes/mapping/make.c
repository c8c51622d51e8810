/* SPDX-License-Identifier: Apache-2.0 */
/* make.c - memory is made first, then a command names it to the writer.  So a process that finds
 * the pool finds complete memory.
 *
 *   the maker ...                      the command      the file
 *   ---------------------------------  ---------------  -----------------------------------------
 *   dies before the command            none             is garbage, swept when its seat is reaped
 *   gets the number                    carried out      is the pool's: MEMORY_LOCK_MADE is dropped
 *   gets an error                      refused          is removed here
 *   gets another pool's number         GPC_POOL_ONCE    is removed here: nobody names it
 *   could not send it                  none             is removed here
 *   gives up (-ETIMEDOUT, -ENOTCONN,   under way        is still locked: nobody sweeps it, whoever
 *   -EAGAIN)                                            runs the command.  c->making keeps it, and a
 *                                                       later call that sees the answer goes on as
 *                                                       above
 *   ... and closes the handle          never run: the   is the pool's if one names it; else gpc_close
 *                                      seat is left     removes it
 *   ... and dies                       dropped with     is the same, swept when its seat is reaped
 *                                      its seat
 *   dies while its command is run      carried out      the writer sees its death after READY: the
 *                                                       pool goes again
 *                                                       (index/writer/pool_memory.c)
 *
 *   its writer dies ...                the next writer
 *   ---------------------------------  ----------------------------------------------------------
 *   before READY                       runs the command: nobody has swept the file, which is locked
 *   between READY and the live bit     ends that pool, which is FREE before the command runs again;
 *                                      the new pool names the same memory, whose file is still
 *                                      locked
 *   before the answer                  finds the pool by its maker's command
 *
 * From then on the maker of VRAM has it in its maps, with MEMORY_LOCK_USED, until the pool has
 * gone.
 * Tests: t/bytes/memory-waits.t t/bytes/once-threads.t t/bytes/pool-late.t t/bytes/pool-make.t
 *   t/bytes/adopted.t t/bytes/memory-dies.t */
#include "config.h"

#include "bytes/mapping/make.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes/mapping/map.h"
#include "index/request/request.h"
#include "index/segment/lockfile.h"
#include "index/segment/once.h"
#include "index/segment/peek.h"

#define LOOK_NS (5 * NS_PER_MS)    /* the time between looks for memory of dead processes */
#define SAY_NS  (1000 * NS_PER_MS) /* the time of waiting for it, before a line in the log */

/* ---- the bytes ---- */

/* Has this pool VRAM of this device, and an owner that is dead and not reaped yet? */
static bool is_dead_pool(const gpc *c, uint32_t pool, const uint8_t uuid[16])
{
	struct shm_pool p;

	return seg_peek_pool(&c->seg, pool, &p) && p.memory && p.kind == GPC_VRAM &&
	       !memcmp(p.uuid[0], uuid, 16) && p.owner >= 0 &&
	       p.owner < c->seg.header.geometry.max_peers && p.owner != (int32_t)c->peer &&
	       !segment_peer_alive(&c->seg, (uint32_t)p.owner);
}

/* The GPU keeps memory of a dead process allocated as long as importers have it mapped.  Returns
 * the number of such memory, or 0. */
static uint64_t find_in_use(gpc *c, const uint8_t uuid[16])
{
	uint32_t i;

	map_sweep(c); /* this process itself may have it mapped */
	for (i = 0; i < c->seg.header.geometry.max_pools; i++)
		if (is_dead_pool(c, i, uuid))
			return load_relaxed(&seg_pool(&c->seg, i)->memory);
	return memory_find_used(&c->seg, uuid);
}

static int still_used(gpc *c, const struct memory *m, uint64_t used, int error)
{
	char who[WHO_TEXT];

	memory_who(c, used, who);
	return err_set(error, "%s: %s memory of a former pool of %s mapped",
		       error == EAGAIN ? "timeout_ms is 0" : "time is up", who, m->device);
}

static void say_waiting(gpc *c, const struct memory *m, uint64_t used)
{
	char who[WHO_TEXT];

	memory_who(c, used, who);
	log_say(&c->log, LOG_WARNING,
		"waiting to make a pool: %s memory of a former pool of %s mapped", who, m->device);
}

static int wait_unused(gpc *c, const struct memory *m, uint64_t deadline)
{
	uint64_t used, say = clock_ns() + SAY_NS;
	int mine;

	while ((used = find_in_use(c, m->uuid)) != 0) {
		mine = map_find_stale(c, m->uuid);
		if (mine >= 0) /* this process would wait for itself */
			return err_set(ESTALE,
				       "this process has memory of the former pool %d of %s "
				       "mapped: call gpc_pool_unmap first",
				       mine, m->device);
		if (!deadline)
			return still_used(c, m, used, EAGAIN);
		if (wait_over(clock_ns(), deadline))
			return still_used(c, m, used, ETIMEDOUT);
		if (clock_ns() >= say) {
			say_waiting(c, m, used);
			say = NEVER;
		}
		if (handle_help(c, LOOK_NS) <= 0)
			clock_sleep(LOOK_NS);
	}
	return 0;
}

static int make_on_device(struct making *mk)
{
	struct shm_part part = { 0 };
	int err = mk->device->make(mk->memory.uuid, mk->part_bytes[0], &part, &mk->allocation,
				   &mk->base);

	return err < 0 ? err : memory_store_part(&mk->memory, 0, &part);
}

/* Undo the making.  No pool names the file, and we have it locked. */
static void discard(gpc *c, struct making *mk)
{
	if (mk->allocation)
		mk->device->unmap(mk->allocation);
	if (mk->memory.fd >= 0) {
		memory_remove(&c->seg, mk->memory.number);
		memory_close(&mk->memory);
	}
	free(mk);
}

static int look_for_writer(gpc *c, void *arg)
{
	(void)arg;
	return ring_has_writer(c);
}

/* The timeout bounds waits for other processes, but not the making itself.  Before it, the call
 * waits for a writer as gpc.h says, and looks for room.  So nothing is made, and no command sent,
 * for an answer that is known.  A writer that goes meanwhile, and the writer's own answer, count
 * all the same. */
static int make_bytes(gpc *c, struct making *mk, uint64_t *deadline)
{
	struct memory *m = &mk->memory;
	bool allocates = m->kind == GPC_VRAM && !m->lent;
	int err = ring_watch(c, look_for_writer, NULL, *deadline ? *deadline : clock_ns());
	uint64_t begin;

	if (err >= 0)
		err = allocates ? wait_unused(c, m, *deadline) : 0;
	if (err == 0) /* a former pool may have given its records back meanwhile */
		err = pool_check_room(c, &mk->request);
	begin = clock_ns();
	if (err == 0) {
		err = memory_make(&c->seg, m, &mk->pages);
		if (err < 0)
			m->fd = -1; /* there is no file */
	}
	if (err == 0 && allocates && !m->images_bytes)
		err = make_on_device(mk);
	mk->request.memory = m->number;
	if (*deadline && *deadline != NEVER)
		*deadline += clock_ns() - begin;
	return err;
}

/* ---- the pool exists ---- */

static int adopt(gpc *c, uint32_t pool, struct making *mk)
{
	struct map_part *part = calloc(mk->memory.nparts, sizeof(*part));
	int err;

	if (!part)
		return err_set(ENOMEM, "no memory to keep %u parts", mk->memory.nparts);
	if (mk->allocation)
		part[0] = (struct map_part){ .base = mk->base,
					     .bytes = mk->part_bytes[0],
					     .memory = mk->allocation };
	err = map_adopt(c, pool, &mk->memory, mk->memory.nparts, part);
	free(part);
	return err;
}

/* RAM is its file; VRAM lives as long as its maker has it.  If VRAM cannot be kept, its pool is
 * removed again, and a sweep takes its file when we have closed it. */
static int finish(gpc *c, uint32_t pool, struct making *mk)
{
	int err;

	/* a pool names it; once it is in the maps, another thread may close its descriptor */
	memory_made(&mk->memory);
	err = mk->memory.kind == GPC_VRAM ? adopt(c, pool, mk) : 0;
	if (err < 0) {
		gpc_pool_clear(c, (int)pool, 0, GPC_REMOVE, 0);
		if (mk->allocation)
			mk->device->unmap(mk->allocation);
		memory_close(&mk->memory);
		free(mk);
		return err;
	}
	if (mk->memory.kind == GPC_RAM)
		memory_close(&mk->memory);
	free(mk);
	return 0;
}

/* ---- answers that come late ---- */

static int answer_of(gpc *c)
{
	int answer;

	ring_turn(c);
	pthread_mutex_lock(&c->ring_lock);
	answer = c->making_answer;
	pthread_mutex_unlock(&c->ring_lock);
	return answer;
}

static bool is_there(gpc *c, int pool, const struct making *mk)
{
	struct shm_pool p;

	return pool >= 0 && (uint32_t)pool < c->seg.header.geometry.max_pools &&
	       seg_peek_pool(&c->seg, (uint32_t)pool, &p) && p.memory == mk->memory.number;
}

/* GPC_POOL_ONCE found this pool.  Its file alone says what checksums it has, so the writer compares
 * none.  The number; or -EEXIST.  A pool that has gone again had none to compare. */
static int sums_fit(gpc *c, int pool, const struct making *mk)
{
	uint32_t asked = mk->memory.trailers ? mk->memory.nsums : 0, has;
	const char *field = "sums";
	struct shm_pool p;
	struct memory m;
	int err;

	if (!seg_peek_pool(&c->seg, (uint32_t)pool, &p))
		return pool;
	err = memory_open(&c->seg, p.memory, false, &m);
	if (err < 0)
		return err == -ESTALE ? pool : err;
	memory_close(&m);
	has = m.trailers ? m.nsums : 0;
	if (asked == has)
		return pool;
	if (!asked || !has) {
		field = "no_checksums";
		asked = !asked;
		has = !has;
	}
	return err_set(EEXIST, "%s is %u: pool %d is the one that is asked for, and its %s is %u",
		       field, asked, pool, field, has);
}

/* With pool_lock held: the answer has been taken if there is one. */
static void settle(gpc *c)
{
	struct making *mk = c->making;
	int answer = mk ? answer_of(c) : CMD_PENDING;

	if (answer == CMD_PENDING)
		return;
	store_relaxed(&c->making, NULL);
	pool_answered(c);
	if (is_there(c, answer, mk))
		finish(c, (uint32_t)answer, mk);
	else /* it was refused, or the pool has gone again */
		discard(c, mk);
}

void make_settle(gpc *c)
{
	if (!load_relaxed(&c->making) || pthread_mutex_trylock(&c->pool_lock))
		return;
	settle(c);
	pthread_mutex_unlock(&c->pool_lock);
}

/* The lock of our seat is dropped, and nobody else has the seat before a writer has reaped it.  So a
 * writer that carries out our command has stored READY by now, and we see the pool; or the writer finds
 * the lock free after READY, and ends the pool (index/writer/pool_memory.c), as after our death. */
void make_close(gpc *c)
{
	struct making *mk = c->making;

	if (!mk)
		return;
	c->making = NULL;
	if (!memory_is_of_pool(&c->seg, mk->memory.number)) {
		discard(c, mk);
		return;
	}
	if (mk->allocation)
		mk->device->unmap(mk->allocation);
	memory_close(&mk->memory);
	free(mk);
}

void make_abandon(gpc *c)
{
	free(c->making);
	c->making = NULL;
}

/* ---- the call ---- */

/* Returns the pool's number, and *mk is finished; or an error, and *mk is discarded or kept. */
static int add(gpc *c, struct making *mk, uint64_t deadline)
{
	bool pending = false;
	int n = pool_enter(c, deadline), err;

	if (n == 0) {
		settle(c); /* only one is under way at a time */
		n = pool_send(c, &mk->request, deadline, &pending);
		if (pending)
			store_relaxed(&c->making, mk);
		pool_leave(c);
	}
	if (n >= 0 && (mk->request.flags & GPC_POOL_ONCE) && !is_there(c, n, mk)) {
		n = sums_fit(c, n, mk);
		discard(c, mk); /* another process was first, or the pool has gone again */
	} else if (n >= 0) {
		err = finish(c, (uint32_t)n, mk);
		n = err < 0 ? err : n;
	} else if (!pending) {
		discard(c, mk);
	}
	return n;
}

/* ---- GPC_POOL_ONCE ----
 *
 * A thread that makes such a pool has c->once_lock and LOCK_ONCE, so that two of them do not need
 * memory for two pools.  once_lock decides among the threads of a handle, which share one
 * descriptor and so its locks.  LOCK_ONCE decides among handles.  Both only save work: the writer
 * decides in the end, and a process that dies drops its lock.
 *
 *   once_lock  LOCK_ONCE  the thread
 *   ---------  ---------  -------------------------------------------------------------------------
 *   other's    -          takes neither, since LOCK_ONCE may be the other thread's
 *   ours       other's    gives once_lock back, so that a thread may find its pool meanwhile
 *   ours       ours       makes the pool; or finds it and gives both back, LOCK_ONCE first */

/* The earlier commands of this handle are answered first, since one may have added that pool. */
static int once_turn(gpc *c, uint64_t deadline)
{
	int err = pool_enter(c, deadline);

	if (err == 0) {
		settle(c);
		pool_leave(c);
	}
	return err;
}

/* 0; -EAGAIN; or -errno if there are no locks, and then only once_lock is ours. */
static int once_lock(gpc *c)
{
	int err;

	if (pthread_mutex_trylock(&c->once_lock))
		return -EAGAIN;
	err = lock_try(c->seg.lock_fd, LOCK_ONCE);
	if (err == -EAGAIN)
		pthread_mutex_unlock(&c->once_lock);
	return err;
}

/* A lock of the file that another handle has stays. */
static void once_unlock(gpc *c)
{
	lock_drop(c->seg.lock_fd, LOCK_ONCE);
	pthread_mutex_unlock(&c->once_lock);
}

/* The pool's number.  -ENOENT: there is none, and the caller ends with once_unlock().  Or another
 * error, as once_find() says. */
static int once_enter(gpc *c, const struct shm_pool *rq, uint64_t deadline)
{
	int locked, n = once_turn(c, deadline);

	while (n == 0) {
		locked = once_lock(c);
		n = once_find(&c->seg, rq);
		if (n != -ENOENT && locked != -EAGAIN)
			once_unlock(c);
		if (n != -ENOENT || locked != -EAGAIN)
			return n;
		if (wait_over(clock_ns(), deadline))
			return err_set(deadline ? ETIMEDOUT : EAGAIN,
				       "%s: another process makes a pool with GPC_POOL_ONCE, or "
				       "another thread of this handle does",
				       deadline ? "time is up" : "timeout_ms is 0");
		if (handle_help(c, LOOK_NS) <= 0)
			clock_sleep(LOOK_NS);
		n = 0;
	}
	return n;
}

static int make_once(gpc *c, struct making *mk, uint64_t deadline)
{
	int n = once_enter(c, &mk->request, deadline);

	if (n != -ENOENT) {
		n = n < 0 ? n : sums_fit(c, n, mk);
		discard(c, mk);
		return n;
	}
	n = make_bytes(c, mk, &deadline);
	if (n < 0)
		discard(c, mk);
	else
		n = add(c, mk, deadline);
	once_unlock(c);
	return n;
}

int make_pool(gpc *c, const struct gpc_pool *p, const struct gpc_memory *m, uint64_t deadline)
{
	struct making *mk = calloc(1, sizeof(*mk));
	int err;

	if (!mk)
		return err_set(ENOMEM, "no memory for the description of a pool");
	err = make_want(c, p, m, mk);
	if (err == 0)
		err = pool_check_demote(c, &mk->request);
	if (err == 0 && (mk->request.flags & GPC_POOL_ONCE))
		return make_once(c, mk, deadline);
	if (err == 0)
		err = make_bytes(c, mk, &deadline);
	if (err == 0)
		return add(c, mk, deadline);
	discard(c, mk);
	return err;
}
