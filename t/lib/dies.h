/* SPDX-License-Identifier: Apache-2.0 */
/* dies.h - a writer in a process of its own that is killed before its n-th store of one command,
 * or of its takeover.  The command stands in the ring of the test's own handle, which takes the
 * seat afterwards and is the next writer as well. */
#ifndef GPC_T_DIES_H
#define GPC_T_DIES_H

#include "cache.h"

#include "index/peer/handle.h"
#include "stops.h"

static gpc *c; /* whose command it is; the next writer as well */
/* If not NULL, run here when the writer has taken over, and before the command is in the ring. */
static void (*dies_between)(void);
static uint32_t *dies_gate; /* 1: it has taken over, 2: go on */

TAP_FN struct shm_seat *dies_seat(gpc *d)
{
	return seg_seat(&d->seg, c->peer);
}

static uint32_t dies_slots = 1; /* of the last one that was submitted */

/* A group has as many slots as its count says; 0: one. */
TAP_FN void submit(gpc *d, struct shm_command cmd)
{
	uint64_t head = dies_seat(d)->head;
	uint32_t i;

	dies_slots = cmd.count = MAX(cmd.count, 1);
	cmd.result = CMD_PENDING;
	for (i = 0; i < dies_slots; i++)
		*seg_command(&d->seg, c->peer, head + i) = cmd;
	store_release(&dies_seat(d)->head, head + dies_slots);
}

/* The last one that was submitted: its head, which is answered last. */
TAP_FN const struct shm_command *command(gpc *d)
{
	return seg_command(&d->seg, c->peer, dies_seat(d)->head - dies_slots);
}

TAP_FN bool waits(gpc *d)
{
	return load_acquire(&command(d)->result) == CMD_PENDING;
}

TAP_FN void dies_taking(struct shm_command cmd, uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(0, 0);

	(void)cmd;
	stops.count = &count;
	stops.last = last;
	stops.on_map = true;
	gpc_writer_take(d, 0, 0);
}

TAP_FN void dies_gate_make(void)
{
	if (!dies_gate)
		dies_gate =
			mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (dies_gate == MAP_FAILED)
		bail("no shared page");
	store_release(dies_gate, 0);
}

TAP_FN void dies_wait(uint32_t state)
{
	struct timespec pause = { .tv_nsec = 20000 };

	while (load_acquire(dies_gate) < state)
		nanosleep(&pause, NULL);
}

TAP_FN bool dies(void (*writer)(struct shm_command cmd, uint64_t last), struct shm_command cmd,
		 uint64_t last)
{
	int status = 0;
	pid_t pid;

	dies_gate_make();
	dies_slots = MAX(cmd.count, 1);
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid) {
		writer(cmd, last);
		_exit(0);
	}
	if (dies_between && writer != dies_taking) {
		dies_wait(1);
		dies_between();
		store_release(dies_gate, 2);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

TAP_FN void dies_serving(struct shm_command cmd, uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(0, 0);
	int i;

	must(gpc_writer_take(d, 0, 0));
	/* the end of its own takeover is no part of it; with an open section that does not come */
	for (i = 0; i < 3 && load_acquire(&seg_state(&d->seg)->recovering); i++)
		must(gpc_writer_serve(d, 1));
	if (dies_between) {
		store_release(dies_gate, 1);
		dies_wait(2);
	}
	stops.count = &count;
	stops.last = last;
	submit(d, cmd);
	stops_begin();
	while (waits(d))
		gpc_writer_serve(d, 1);
}

/* Nobody has the seat.  False: it came to the answer. */
TAP_FN bool writer_dies(struct shm_command cmd, uint64_t last)
{
	return dies(dies_serving, cmd, last);
}

/* The same in its takeover.  False: it came through. */
TAP_FN bool successor_dies(uint64_t last)
{
	return dies(dies_taking, (struct shm_command){ .op = CMD_NOP }, last);
}

#endif
