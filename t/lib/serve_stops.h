/* SPDX-License-Identifier: Apache-2.0 */
/* serve_stops.h - a writer that serves for a while, and is killed at its n-th store. */
#ifndef GPC_T_SERVE_STOPS_H
#define GPC_T_SERVE_STOPS_H

#include <sys/wait.h>

#include "cache.h"
#include "stops.h"

/* In a process of its own; false: it came to the end of what there is to do. */
TAP_FN bool writer_dies(uint64_t last)
{
	static uint64_t count;
	int status = 0, i;
	pid_t pid = fork();

	if (pid < 0)
		bail("no process");
	if (!pid) {
		gpc *w = cache_attach(0, 0);

		must(gpc_writer_take(w, 0, 0));
		stops.count = &count;
		stops.last = last;
		stops_begin();
		for (i = 0; i < 10; i++)
			gpc_writer_serve(w, 1);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

#endif
