/* SPDX-License-Identifier: Apache-2.0 */
/* The table of metrics, and a look at a cache.
 *
 * Names follow Prometheus: base units, and _total for counters.  Queries and hits of the prefix
 * cache count tokens, and have the names of vLLM's metrics.
 * Tests: t/daemon/metrics.t t/daemon/bounds.t */
#include "config.h"

#include "tools/common/metrics.h"

#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#define AT(type, field) offsetof(type, field), sizeof(((type *)0)->field)
#define M(field)        AT(struct metrics, field)
#define NS              1000000000u

const struct metrics_row metrics_rows[] = {
	{ "build_info", "gauge", "The version of gpc that tells; always 1.", OF_TOOL, NULL, 0, 4,
	  1 },
	{ "up", "gauge", "1 if the cache can be opened, 0 otherwise.", OF_CACHE, NULL, M(up), 1 },
	{ "daemon_serving", "gauge",
	  "Of the gpcd that tells: 1 if it is the writer, 0 if it stands by.", OF_DAEMON, NULL,
	  M(role), 1 },
	{ "daemon_opening", "gauge",
	  "Of the gpcd that tells: 1 until it has opened the cache, which it makes or waits for.",
	  OF_DAEMON, NULL, M(own.opening), 1 },
	{ "daemon_memory_bytes", "gauge",
	  "Of the gpcd that tells: its memory in RAM, private and shared.", OF_DAEMON,
	  "kind=\"private\"", M(own.private_bytes), 1 },
	{ NULL, NULL, NULL, OF_DAEMON, "kind=\"shared\"", M(own.shared_bytes), 1 },
	{ NULL, NULL, NULL, OF_DAEMON, "kind=\"file\"", M(own.file_bytes), 1 },
	{ "daemon_descriptors", "gauge", "Of the gpcd that tells: descriptors that it has open.",
	  OF_DAEMON, NULL, M(own.descriptors), 1 },
	{ "daemon_descriptors_limit", "gauge",
	  "Of the gpcd that tells: descriptors that it may have open.", OF_DAEMON, NULL,
	  M(own.descriptors_limit), 1 },
	{ "daemon_threads", "gauge", "Of the gpcd that tells: its threads.", OF_DAEMON, NULL,
	  M(own.threads), 1 },
	{ "daemon_options_bytes", "gauge",
	  "Of the gpcd that tells: values of files of --config that it keeps.", OF_DAEMON, NULL,
	  M(own.options_bytes), 1 },
	{ "scrape_connections", "gauge", "Of the gpcd that tells: connections of its --metrics.",
	  OF_DAEMON, NULL, M(own.scrapers), 1 },
	{ "scrape_closed_total", "counter",
	  "Connections of --metrics that were closed as they were slow.", OF_DAEMON, NULL,
	  M(own.scrapers_closed), 1 },
	{ "scrape_page_bytes", "gauge",
	  "Of the gpcd that tells: length of its page before this one.", OF_DAEMON, NULL,
	  M(own.page_bytes), 1 },
	{ "events_connections", "gauge", "Of the gpcd that tells: clients of its --events.",
	  OF_DAEMON, NULL, M(events.connections), 1 },
	{ "events_waiting_bytes", "gauge",
	  "Of the gpcd that tells: most that can wait for clients of its --events now.", OF_DAEMON,
	  NULL, M(events.waiting_bytes), 1 },
	{ "events_known_bytes", "gauge",
	  "Of the gpcd that tells: its list of blocks that clients of --events know.", OF_DAEMON,
	  NULL, M(events.known_bytes), 1 },
	{ "events_batches_total", "counter", "Batches that the gpcd that tells has published.",
	  OF_DAEMON, NULL, M(events.published), 1 },
	{ "events_left_out_total", "counter",
	  "Batches that were left out for a slow subscriber or for all.", OF_DAEMON, NULL,
	  M(events.left_out), 1 },
	{ "events_disconnected_total", "counter",
	  "Clients of --events that were disconnected as they took nothing.", OF_DAEMON, NULL,
	  M(events.disconnected), 1 },
	{ "writer_up", "gauge", "1 if a process is the writer, 0 otherwise.", OF_CACHE, NULL,
	  M(has_writer), 1 },
	{ "writer_generation", "gauge", "Number of the present or last writer.", OF_CACHE, NULL,
	  M(info.writer_generation), 1 },
	{ "writer_start_time_seconds", "gauge",
	  "When the writer got its seat, since the epoch; 0 without one.", OF_CACHE, NULL,
	  M(writer_start_ns), NS },
	{ "created_timestamp_seconds", "gauge", "When the cache was made, since the epoch.",
	  OF_CACHE, NULL, M(info.created_ns), NS },
	{ "block_tokens", "gauge", "Tokens of a block.", OF_CACHE, NULL, M(info.block_tokens), 1 },
	{ "max_blocks", "gauge", "Room for the blocks of all pools.", OF_CACHE, NULL,
	  M(info.max_blocks), 1 },
	{ "index_bytes", "gauge", "Shared memory of the index, without that of pools.", OF_CACHE,
	  NULL, M(info.bytes), 1 },
	{ "folder_bytes", "gauge", "Size of the file system of the cache's files.", OF_CACHE, NULL,
	  M(folder_bytes), 1 },
	{ "folder_free_bytes", "gauge", "Bytes of it that are free.", OF_CACHE, NULL,
	  M(folder_free_bytes), 1 },

	{ "prefix_cache_queries_total", "counter", "Tokens that were looked up.", OF_CACHE, NULL,
	  M(tokens_queried), 1 },
	{ "prefix_cache_hits_total", "counter", "Tokens that were found, by tier.", OF_CACHE,
	  "tier=\"vram\"", M(tokens_hit[0]), 1 },
	{ NULL, NULL, NULL, OF_CACHE, "tier=\"ram\"", M(tokens_hit[1]), 1 },
	{ "lookup_blocks_total", "counter", "Blocks that were looked up, by result.", OF_CACHE,
	  "result=\"vram\"", M(all.hit_vram), 1 },
	{ NULL, NULL, NULL, OF_CACHE, "result=\"ram\"", M(all.hit_ram), 1 },
	{ NULL, NULL, NULL, OF_CACHE, "result=\"miss\"", M(all.miss), 1 },
	{ "told_hits_blocks_total", "counter",
	  "Blocks that engines had themselves, or that a tier below RAM has brought for them.",
	  OF_CACHE, "source=\"own\"", M(all.hit_own), 1 },
	{ NULL, NULL, NULL, OF_CACHE, "source=\"disk\"", M(all.hit_disk), 1 },
	{ NULL, NULL, NULL, OF_CACHE, "source=\"store\"", M(all.hit_store), 1 },
	{ "published_blocks_total", "counter", "Keys that became live.", OF_CACHE, NULL,
	  M(all.published), 1 },
	{ "duplicate_blocks_total", "counter",
	  "Blocks that were published while their key was live.", OF_CACHE, NULL, M(all.duplicate),
	  1 },
	{ "evicted_blocks_total", "counter", "Keys that were lost since others needed their room.",
	  OF_CACHE, NULL, M(all.evicted), 1 },
	{ "dropped_blocks_total", "counter",
	  "Keys that were lost by drops, clears, bad bytes and ends of pools.", OF_CACHE, NULL,
	  M(all.dropped), 1 },
	{ "moved_blocks_total", "counter", "Moves between tiers that were committed.", OF_CACHE,
	  "to=\"ram\"", M(all.demoted), 1 },
	{ NULL, NULL, NULL, OF_CACHE, "to=\"vram\"", M(all.promoted), 1 },
	{ "bad_blocks_total", "counter", "Blocks in RAM whose bytes had changed.", OF_CACHE, NULL,
	  M(all.bad), 1 },
	{ "commands_total", "counter", "Commands that writers have carried out.", OF_CACHE, NULL,
	  M(all.commands), 1 },
	{ "stale_references_total", "counter", "References that failed as the block had changed.",
	  OF_CACHE, NULL, M(all.stale_refs), 1 },
	{ "ring_full_total", "counter", "Commands that found their ring full.", OF_CACHE, NULL,
	  M(all.ring_full), 1 },
	{ "relocated_entries_total", "counter", "Moves inside the table.", OF_CACHE, NULL,
	  M(all.relocated), 1 },
	{ "no_bucket_total", "counter", "Publishes refused as the table was full.", OF_CACHE, NULL,
	  M(all.no_bucket), 1 },
	{ "copied_blocks_total", "counter", "Blocks that transfers have brought, by pair of tiers.",
	  OF_COPY, NULL, AT(struct gpc_histogram, blocks), 1 },
	{ "copied_bytes_total", "counter", "Bytes that transfers have brought, by pair of tiers.",
	  OF_COPY, NULL, AT(struct gpc_histogram, bytes), 1 },

	{ "live_blocks", "gauge", "Blocks that have a key.", OF_CACHE, NULL, M(all.live), 1 },
	{ "free_blocks", "gauge", "Blocks that nobody has.", OF_CACHE, NULL, M(all.free_blocks),
	  1 },
	{ "dying_blocks", "gauge", "Blocks that were evicted and wait for readers.", OF_CACHE, NULL,
	  M(all.dying), 1 },
	{ "reserved_blocks", "gauge",
	  "Blocks that are reserved; empty slots of tiers are, by their steward.", OF_CACHE, NULL,
	  M(all.reserved), 1 },
	{ "references", "gauge", "References that are held.", OF_CACHE, NULL, M(all.refs), 1 },
	{ "pending_commands", "gauge", "Commands that are not acknowledged.", OF_CACHE, NULL,
	  M(all.pending), 1 },
	{ "transfers", "gauge", "Transfers that are under way.", OF_CACHE, NULL, M(all.transfers),
	  1 },
	{ "claims", "gauge", "Claims that are open.", OF_CACHE, NULL, M(all.claims), 1 },
	{ "aliases", "gauge", "Aliases that are kept.", OF_CACHE, NULL, M(all.aliases), 1 },
	{ "open_sections", "gauge", "Sections that are open.", OF_CACHE, NULL, M(all.sections), 1 },
	{ "oldest_section_seconds", "gauge", "Age of the oldest section that is open.", OF_CACHE,
	  NULL, M(all.oldest_section_ns), NS },
	{ "peers", "gauge", "Seats, by whether their process is alive.", OF_CACHE,
	  "state=\"alive\"", M(info.peers_alive), 1 },
	{ NULL, NULL, NULL, OF_CACHE, "state=\"dead\"", M(info.peers_dead), 1 },

	{ "eviction_age_seconds", "histogram", "Keys that were evicted: since they were live.",
	  OF_HISTOGRAM, NULL, 0, GPC_AGE_EVICTED, 1 },
	{ "eviction_idle_seconds", "histogram", "Keys that were evicted: since their last use.",
	  OF_HISTOGRAM, NULL, 0, GPC_IDLE_EVICTED, 1 },
	{ "reuse_gap_seconds", "histogram",
	  "Between uses of blocks whose turn to go it would have been.", OF_HISTOGRAM, NULL, 0,
	  GPC_REUSE_GAP, 1 },
	{ "round_trip_seconds", "histogram", "Commands that a call has waited for.", OF_HISTOGRAM,
	  NULL, 0, GPC_ROUND_TRIP, 1 },
	{ "takeover_seconds", "histogram", "New writers, until they served.", OF_HISTOGRAM, NULL, 0,
	  GPC_TAKEOVER, 1 },
	{ "copy_seconds", "histogram", "Transfers, by pair of tiers.", OF_HISTOGRAM, NULL, 0,
	  GPC_COPY_VRAM_VRAM, 1 },
	{ NULL, NULL, NULL, OF_HISTOGRAM, NULL, 0, GPC_COPY_VRAM_RAM, 1 },
	{ NULL, NULL, NULL, OF_HISTOGRAM, NULL, 0, GPC_COPY_RAM_VRAM, 1 },
	{ NULL, NULL, NULL, OF_HISTOGRAM, NULL, 0, GPC_COPY_RAM_RAM, 1 },

#define P(field) AT(struct metrics_pool, field)
	{ "pool_blocks", "gauge", "Capacity of a pool.", OF_POOL, NULL, P(p.blocks), 1 },
	{ "pool_live_blocks", "gauge", "Blocks of a pool that have a key.", OF_POOL, NULL,
	  P(p.live), 1 },
	{ "pool_reserved_blocks", "gauge", "Blocks of a pool that are reserved.", OF_POOL, NULL,
	  P(p.reserved), 1 },
	{ "pool_dying_blocks", "gauge", "Blocks of a pool that wait for readers.", OF_POOL, NULL,
	  P(p.dying), 1 },
	{ "pool_available_blocks", "gauge", "Blocks of a pool that are free or could be evicted.",
	  OF_POOL, NULL, P(available), 1 },
	{ "pool_memory_bytes", "gauge", "Memory of a pool; 0 if gpc knows of none.", OF_POOL, NULL,
	  P(bytes), 1 },
	{ "pool_generation", "gauge", "Changes when the memory behind a pool has changed.", OF_POOL,
	  NULL, P(p.generation), 1 },
#define S(field) AT(struct metrics_space, field)
	{ "space_blocks", "gauge", "Capacity of the pools of a space, by tier.", OF_SPACE, NULL,
	  S(blocks), 1 },
	{ "space_live_blocks", "gauge", "Blocks of a space that have a key, by tier.", OF_SPACE,
	  NULL, S(live), 1 },
#define T(field) AT(struct metrics_tier, field)
	{ "tier_kept", "gauge", "1 if a process keeps the tier.", OF_TIER, NULL, T(kept), 1 },
	{ "tier_ready", "gauge",
	  "1 if the blocks that the tier had when it was opened are published.", OF_TIER, NULL,
	  T(t.ready), 1 },
	{ "tier_state", "gauge",
	  "0 if the tier is down, 1 if it is up, 2 if it is switched off for wrong bytes, 3 if its "
	  "steward is stopped or hangs.",
	  OF_TIER, NULL, T(t.state), 1 },
	{ "tier_asks_total", "counter", "Questions of peers for blocks below RAM.", OF_TIER, NULL,
	  T(t.asks), 1 },
	{ "tier_brought_blocks_total", "counter", "Blocks that came from a tier to RAM.", OF_TIER,
	  NULL, T(t.brought), 1 },
	{ "tier_brought_bytes_total", "counter", "Bytes of these.", OF_TIER, NULL,
	  T(t.brought_bytes), 1 },
	{ "tier_written_blocks_total", "counter", "Blocks that were written to a tier.", OF_TIER,
	  NULL, T(t.written), 1 },
	{ "tier_written_bytes_total", "counter", "Bytes of these.", OF_TIER, NULL,
	  T(t.written_bytes), 1 },
	{ "tier_missed_blocks_total", "counter", "Blocks that were not brought, by reason.",
	  OF_TIER, "reason=\"absent\"", T(t.absent), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"bad\"", T(t.bad), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"error\"", T(t.errors), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"late\"", T(t.late), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"overtaken\"", T(t.overtaken), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"no_ram\"", T(t.no_ram), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"refused\"", T(t.refused), 1 },
	{ "tier_unwritten_blocks_total", "counter", "Blocks that were not written, by reason.",
	  OF_TIER, "reason=\"failed\"", T(t.failed), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"unwanted\"", T(t.unwanted), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"overrun\"", T(t.overrun), 1 },
	{ "tier_removed_blocks_total", "counter", "Blocks that a tier has given up, by reason.",
	  OF_TIER, "reason=\"evicted\"", T(t.evicted), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"aged\"", T(t.aged), 1 },
	{ NULL, NULL, NULL, OF_TIER, "reason=\"forgotten\"", T(t.forgotten), 1 },
	{ "tier_restored_blocks_total", "counter",
	  "Blocks of an earlier steward that were published again.", OF_TIER, NULL, T(t.restored),
	  1 },
	{ "tier_full_blocks_total", "counter", "Blocks that a store had no room for.", OF_TIER,
	  NULL, T(t.full), 1 },
	{ "tier_down_items_total", "counter",
	  "Blocks and keys that a store was not asked for, being down or off.", OF_TIER, NULL,
	  T(t.down), 1 },
	{ "tier_asked_keys_total", "counter", "Keys that a store was asked about.", OF_TIER, NULL,
	  T(t.asked), 1 },
	{ "tier_there_keys_total", "counter", "Keys of these that it has.", OF_TIER, NULL,
	  T(t.there), 1 },
	{ "tier_emptied_total", "counter",
	  "Times that all of a tier went, since more blocks had been dropped than the cache keeps in mind.",
	  OF_TIER, NULL, T(t.emptied), 1 },
	{ "tier_store_total", "counter", "Counters of the plugin of a store.", OF_COUNTER, NULL,
	  AT(struct metrics_counter, c.value), 1 },
#define R(field) AT(struct gpc_mirror, field)
	{ "mirror_bytes", "gauge", "Memory of a mirror.", OF_MIRROR, NULL, R(bytes), 1 },
	{ "mirror_changes", "gauge", "Changes of the table so far.", OF_MIRROR, NULL, R(changes),
	  1 },
	{ "mirror_flushed_changes", "gauge", "Changes that a mirror shows.", OF_MIRROR, NULL,
	  R(flushed), 1 },
	{ "mirror_retired", "gauge", "1 if the mirror has failed.", OF_MIRROR, NULL, R(retired),
	  1 },
#define Q(field) AT(struct metrics_peer, field)
	{ "peer_alive", "gauge", "1 if the process holds its seat, 0 if it is dead or has left.",
	  OF_PEER, NULL, Q(st.alive), 1 },
	{ "peer_lookup_blocks_total", "counter", "Blocks that a peer has looked up, by result.",
	  OF_PEER, "result=\"vram\"", Q(st.hit_vram), 1 },
	{ NULL, NULL, NULL, OF_PEER, "result=\"ram\"", Q(st.hit_ram), 1 },
	{ NULL, NULL, NULL, OF_PEER, "result=\"miss\"", Q(st.miss), 1 },
	{ "peer_published_blocks_total", "counter", "Keys that a peer has published.", OF_PEER,
	  NULL, Q(st.published), 1 },
	{ "peer_evicted_blocks_total", "counter", "Keys that were evicted for a peer.", OF_PEER,
	  NULL, Q(st.evicted), 1 },
	{ "peer_commands_total", "counter", "Commands of a peer that were carried out.", OF_PEER,
	  NULL, Q(st.commands), 1 },
	{ "peer_pending_commands", "gauge", "Commands of a peer that are not acknowledged.",
	  OF_PEER, NULL, Q(st.pending), 1 },
	{ "peer_references", "gauge", "References that a peer holds.", OF_PEER, NULL, Q(st.refs),
	  1 },
	{ "peer_references_held_seconds", "gauge",
	  "For how long a peer has had references at each look, ten a second: none is older.",
	  OF_PEER, NULL, Q(st.refs_ns), NS },
	{ "peer_reserved_blocks", "gauge", "Blocks that a peer has reserved.", OF_PEER, NULL,
	  Q(st.reserved), 1 },
	{ "peer_oldest_section_seconds", "gauge", "Age of the oldest open section of a peer.",
	  OF_PEER, NULL, Q(st.oldest_section_ns), NS },
};
const unsigned metrics_nrows = sizeof(metrics_rows) / sizeof(metrics_rows[0]);

/* ---- a look ---- */

static void add_space(struct metrics *m, const struct gpc_pool *p)
{
	uint32_t tier = p->kind - GPC_VRAM, i;

	if (tier >= METRICS_TIERS)
		return;

	for (i = 0; i < m->nspaces; i++)
		if (m->space[i].space == p->space && m->space[i].tier == tier)
			break;
	if (i == METRICS_TIERS * GPC_MAX_SPACES)
		return;
	if (i == m->nspaces)
		m->space[m->nspaces++] = (struct metrics_space){ .space = p->space, .tier = tier };
	m->space[i].blocks += p->blocks;
	m->space[i].live += p->live;
}

static void look_pools(struct metrics *m, gpc *c)
{
	for (int i = 0; i < (int)m->info.max_pools && m->npools < GPC_MAX_POOLS; i++) {
		struct metrics_pool *out = &m->pool[m->npools];
		int available;

		out->p = (struct gpc_pool){ .size = sizeof(out->p) };
		if (gpc_pool_get(c, i, &out->p) < 0 || (available = gpc_pool_available(c, i)) < 0)
			continue;
		out->available = (uint32_t)available;
		out->bytes = (uint64_t)(out->p.blocks + out->p.transit) * out->p.block_bytes;
		m->npools++;
		add_space(m, &out->p);
	}
}

static void look_tiers(struct metrics *m, gpc *c)
{
	for (; m->ntiers < METRICS_LOWER; m->ntiers++) {
		struct metrics_tier *t = &m->tier[m->ntiers];

		t->t = (struct gpc_tier){ .size = sizeof(t->t) };
		if (gpc_tier_get(c, m->ntiers, &t->t) < 0)
			return;
		t->kept = t->t.steward >= 0;
		for (uint32_t i = 0; i < t->t.ncounters; i++)
			m->counter[m->ncounters++] =
				(struct metrics_counter){ t->t.kind, t->t.counter[i] };
	}
}

static void look_peers(struct metrics *m, gpc *c)
{
	for (int i = 0; i < (int)m->info.max_peers && m->npeers < GPC_MAX_PEERS; i++) {
		struct metrics_peer *p = &m->peer[m->npeers];

		p->st = (struct gpc_stats){ .size = sizeof(p->st) };
		p->seat = i;
		m->npeers += gpc_stats_get(c, i, &p->st) >= 0;
	}
}

/* gpc_info has the monotonic clock, and a scraper compares with its own: since the epoch.  The two
 * clocks are never read at the same moment.  So the time that was reported for a writer stays
 * until the time of day is set; otherwise each scrape would see a new start. */
static uint64_t since_epoch(uint64_t monotonic_ns)
{
	static uint64_t of, told;
	struct timespec now;
	uint64_t ns;

	if (!monotonic_ns)
		return 0;
	clock_gettime(CLOCK_REALTIME, &now);
	ns = (uint64_t)now.tv_sec * NS + (uint64_t)now.tv_nsec - (cli_now_ns() - monotonic_ns);
	if (of != monotonic_ns || llabs((long long)(ns - told)) > NS / 2) {
		of = monotonic_ns;
		told = ns;
	}
	return told;
}

/* Memory of a new pool comes from this folder, and so do the pages of files that grow. */
static void look_folder(struct metrics *m, const char *dir)
{
	struct statvfs fs;

	if (statvfs(dir ? dir : "/dev/shm", &fs))
		return;
	m->folder_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
	m->folder_free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* dir: the folder of its files; NULL: the library's default. */
void metrics_look(struct metrics *m, const char *name, const char *dir, gpc *c,
		  enum metrics_role role)
{
	memset(m, 0, sizeof(*m));
	m->name = name;
	m->role = role;
	m->info.size = sizeof(m->info);
	m->all.size = sizeof(m->all);
	if (!c || gpc_info_get(c, &m->info) < 0 || gpc_stats_get(c, -1, &m->all) < 0)
		return;
	m->up = 1;
	m->has_writer = m->info.writer_pid != 0;
	look_folder(m, dir);
	m->writer_start_ns = since_epoch(m->info.writer_since_ns);
	m->tokens_queried = m->all.lookups * m->info.block_tokens;
	m->tokens_hit[0] = m->all.hit_vram * m->info.block_tokens;
	m->tokens_hit[1] = m->all.hit_ram * m->info.block_tokens;
	for (int i = GPC_AGE_EVICTED; i <= GPC_COPY_RAM_RAM; i++) {
		m->histogram[i].size = sizeof(m->histogram[i]);
		gpc_histogram_get(c, i, -1, &m->histogram[i]);
	}
	look_pools(m, c);
	look_tiers(m, c);
	look_peers(m, c);
	for (m->nmirrors = 0; m->nmirrors < METRICS_MIRRORS; m->nmirrors++) {
		m->mirror[m->nmirrors].size = sizeof(m->mirror[0]);
		if (gpc_mirror_get(c, (int)m->nmirrors, &m->mirror[m->nmirrors]) < 0)
			break;
	}
}
