/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and descriptors of this process, for metrics, and the bound of each part.  gpcd(8) has
 * the same table.
 *
 * Shared memory (the index and the RAM of pools) belongs to the cache: index_bytes,
 * pool_memory_bytes.  The rest is private: daemon_memory_bytes{kind="private"}.  The number of
 * descriptors is daemon_descriptors, and its limit is daemon_descriptors_limit.
 *
 *   part                has at most                                   further metrics: gpc_
 *   ------------------  --------------------------------------------  ---------------------------
 *   writer's tables     60 bytes for each block of --max-blocks
 *   connections of      64 that are answered, 64 on their way out: a  scrape_connections,
 *     --metrics         descriptor, 17 KiB and a page each            scrape_closed_total
 *   the page            what 127 pools and 250 seats have: 500 KiB    scrape_page_bytes
 *   clients of          a quarter of --events-memory at 64 KiB each,  events_connections,
 *     --events          16 at least; all descriptors but 64           events_disconnected_total
 *   batches that wait   --events-memory                               events_waiting_bytes,
 *     for them                                                        events_left_out_total
 *   blocks that they    288 bytes for each block of --max-blocks      events_known_bytes
 *     know
 *   values of --config  2 MiB, each value once; the file has 1 MiB    daemon_options_bytes
 *   a tier              132 bytes for each of its blocks, 64 for      pool_blocks, max_blocks
 *                       each block of --max-blocks, 8 MiB
 *   a disk              8 threads, room for an image each; a          daemon_threads
 *                       descriptor, and one for each pool of RAM
 *   a store             18 threads; three lists of 1M keys that were  daemon_threads
 *                       removed there, 32 bytes each
 *   Redis               18 connections to each of 128 nodes, 1.5 MiB
 *                       for each of 18 that read answers
 *   slow calls, hot     nothing: they are in the index                slow, hot of gpc-inspect
 *     prefixes
 *
 * t/daemon/bounds.t drives most parts to their bounds.  Other tests do so for clients and batches
 * (t/daemon/events-memory.t, t/daemon/events-strangers.t), for keys that were removed in a store
 * (t/tiers/gone.t) and for answers of Redis (t/tiers/redis-ill.t).
 * Tests: t/daemon/bounds.t */
#include "config.h"

#include "tools/common/metrics.h"
#include "tools/daemon/daemon.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Takes the KiB of a line such as "RssAnon: 1234 kB", as bytes. */
static bool take(const char *line, const char *name, uint64_t *ret)
{
	unsigned long long kib;
	size_t n = strlen(name);

	if (strncmp(line, name, n) || sscanf(line + n, ": %llu", &kib) != 1)
		return false;
	*ret += kib * 1024;
	return true;
}

static void look_status(struct metrics_process *m)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long threads;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (take(line, "RssAnon", &m->private_bytes) ||
		    take(line, "RssShmem", &m->shared_bytes) ||
		    take(line, "RssFile", &m->file_bytes))
			continue;
		if (sscanf(line, "Threads: %llu", &threads) == 1)
			m->threads = threads;
	}
	if (f)
		fclose(f);
}

/* Does not count the descriptor that it looks with. */
static uint64_t count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;
	uint64_t n = 0;

	while (dir && (e = readdir(dir)))
		n += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n ? n - 1 : 0;
}

void own_tell(struct metrics_process *ret)
{
	struct rlimit most;

	*ret = (struct metrics_process){ .options_bytes = config_bytes() };
	look_status(ret);
	ret->descriptors = count_descriptors();
	if (!getrlimit(RLIMIT_NOFILE, &most))
		ret->descriptors_limit = most.rlim_cur;
}
