/* SPDX-License-Identifier: Apache-2.0 */
/* A gpcd that was built without libzmq or msgpack-c: its command line has refused --events.
 * Tests: t/daemon/options.t */
#include "config.h"

#include "tools/daemon/daemon.h"

int events_start(struct daemon *d, gpc *c, struct events **ret)
{
	*ret = NULL;
	return EXIT_USAGE;
}

void events_tell(struct metrics_events *ret)
{
}

void events_stop(struct events *e)
{
}
