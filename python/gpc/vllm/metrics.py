# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-figures.t t/python/vllm-manager.t
"""Metrics for vLLM's Prometheus page."""

import time

from ..engines.cache import image_bytes
from .cache import POOL

COUNTERS = {
    "lookups": "Chunks looked up in the gpc cache.",
    "hits": "Chunks found there, wherever.",
    "hits_ram": "Chunks found in RAM of this machine.",
    "hits_disk": "Chunks found on disk, and brought to RAM for the request.",
    "hits_store": "Chunks found in a store that machines share, and brought to RAM for the request.",
    "hits_own": "Chunks that the engine had in its own prefix cache: not looked up.",
    "late": "Requests whose wait for tiers below RAM passed gpc_below_ms.",
    "waited": "Requests that waited for a chunk that another engine computes.",
    "gave_up": "Requests whose wait passed gpc_pending_ms.",
    "stored": "Chunks published.",
    "duplicate": "Chunks that another engine had published before.",
    "refused": "Publishes that were refused.",
    "failed": "Chunks whose store moved nothing, or a part: given back.",
    "no_room": "Chunks not stored: they had no slot when their requests ended, or follow one that had to go.",
    "seldom": "Chunks not stored, since they were not offered store_threshold times.",
    "hints_accepted": "Hints about the KV cache that are carried out.",
    "hints_clipped": "Hints that are carried out in part.",
    "hints_rejected": "Hints that cannot be carried out: no tier, or a target that nobody knows.",
    "hints_not_carried_out": "Hints to retain or pin.",
    "hints_unknown": "Hints of other kinds.",
    "skipped": "Chunks not stored, since another engine has them or computes them.",
}
GAUGES = {
    "storing": "Chunks that workers of this engine are writing.",
    "ahead": "Chunks that requests of this engine have claimed and not stored yet.",
    "live": "Chunks in the cache, of all engines.",
    "writer": "1: the cache has a writer; 0: it has none, and nothing is stored.",
    "available": "Slots that a store could have now, free or by eviction.",
}
INFO = ("gpc_name", "gpc_slots", "gpc_chunk_bytes", "gpc_claim_chunks", "gpc_checksum")
_PREFIX = "vllm:kv_offload_gpc_"
LOOK = 0.5                       # seconds from one look at the cache to the next, while nothing else changes


def definitions(api):
    """For build_metric_definitions."""
    out = {_PREFIX + n: api.OffloadingCounterMetadata(documentation=d) for n, d in COUNTERS.items()}
    out.update((_PREFIX + n, api.OffloadingGaugeMetadata(documentation=d)) for n, d in GAUGES.items())
    return out


class Figures:
    """vLLM asks in each step, and takes each answer through two processes.  So a step in which nothing of this engine has
    changed has none, but each LOOK seconds, for the figures that other engines change."""

    def __init__(self, api, counts, cache, clock=time.monotonic):
        self.api, self.counts, self.c, self.clock = api, counts, cache, clock
        self.told, self.next_look = None, 0

    def take(self, storing, ahead, writer):
        """Counts since the last call, which begin anew; None: as before."""
        own, now = (storing, ahead, writer), self.clock()
        if own == self.told and now < self.next_look and not any(self.counts.values()):
            return None
        self.told, self.next_look = own, now + LOOK
        stats = self.api.OffloadingConnectorStats()
        for name in COUNTERS:
            if self.counts[name]:
                stats.increase_counter(_PREFIX + name, self.counts[name])
                self.counts[name] = 0
        _set_gauges(stats, storing=storing, ahead=ahead, live=self.c.stats().live, writer=writer,
                    available=self.c.pool_available(POOL))
        return stats


def stats_of_none(api):
    """Those of an engine that has no cache yet."""
    stats = api.OffloadingConnectorStats()
    _set_gauges(stats, **dict.fromkeys(GAUGES, 0))
    return stats


def _set_gauges(stats, **values):
    for name, value in values.items():
        stats.set_gauge(_PREFIX + name, value)


def info_of(cache, name, conf):
    """Labels of vllm:kv_offload_config_info, of vLLM 0.33."""
    return dict(zip(INFO, (name, cache.pool_get(POOL).blocks, image_bytes(cache), conf.claim_chunks,
                           conf.checksum)))
