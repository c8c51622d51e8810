/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to SIGUSR1: one line about the state of the cache.
 * Tests: t/daemon/says.t */
#include "config.h"

#include "tools/daemon/daemon.h"

#include <inttypes.h>
#include <time.h>

/* Seconds since that time; CLOCK_REALTIME may have been set back. */
static uint64_t age_s(uint64_t then_ns)
{
	struct timespec now;
	uint64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	return then_ns && ns > then_ns ? (ns - then_ns) / 1000000000 : 0;
}

void state_tell(const struct daemon *d, gpc *c, const char *role)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };
	uint64_t hits;

	if (!process_asked)
		return;
	process_asked = 0;
	if (gpc_info_get(c, &info) < 0 || gpc_stats_get(c, -1, &st) < 0) {
		say_asked("%s: %s: %s", d->name, role, gpc_last_error());
		return;
	}
	hits = st.hit_vram + st.hit_ram;
	say_asked("%s: %s; writer %d for %" PRIu64
		  " s, generation %u; peers %u, dead %u; live %" PRIu64 ", free %" PRIu64
		  ", dying %" PRIu64 ", reserved %" PRIu64 ", references %" PRIu64
		  "; lookups %" PRIu64 ", hits %" PRIu64 "; evicted %" PRIu64 "; commands %" PRIu64
		  ", pending %" PRIu64,
		  d->name, role, info.writer_pid, age_s(info.writer_since_ns),
		  info.writer_generation, info.peers_alive, info.peers_dead, st.live,
		  st.free_blocks, st.dying, st.reserved, st.refs, st.lookups, hits, st.evicted,
		  st.commands, st.pending);
}
