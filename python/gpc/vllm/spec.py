# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-coming.t t/python/vllm-manager.t
"""GPCOffloadingSpec: the object that vLLM makes in each of its processes.  vLLM is imported here."""

import functools
import logging
import os
from types import SimpleNamespace

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload import base
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from ..engines import words
from ..engines.cache import bytes_of, open_cache
from ..engines.namespace import Namespace
from . import metrics, model, name
from .adapters import Adapters
from .coming import EARLY, SMALL, Coming, Opening
from .config import Config, ConfigError, tell
from .image import Image
from .manager import Manager
from .worker import Worker

log = logging.getLogger("vllm.gpc")

API = SimpleNamespace(OffloadingConnectorStats=OffloadingConnectorStats, CacheHitSource=CacheHitSource,
                      tells_flushed=hasattr(base.OffloadingManager, "on_reset_flushed"),
                      **{n: getattr(base, n) for n in (
                          "LookupResult", "PrepareStoreOutput", "RequestOffloadingContext", "OffloadingEvent",
                          "Medium", "Locality", "TransferResult", "OffloadingCounterMetadata", "OffloadingGaugeMetadata")})


class GPCOffloadingManager(Manager, base.OffloadingManager):
    """gpc.vllm.Manager has all the calls."""


class GPCComing(Coming, base.OffloadingManager):
    """gpc.vllm.coming.Coming has the calls that do something."""


class GPCOffloadingWorker(Worker, base.OffloadingWorker):
    """gpc.vllm.Worker has all the calls."""


class GPCOffloadingSpec(base.OffloadingSpec):
    @classmethod
    def build_metric_definitions(cls, extra_config):
        return metrics.definitions(API)

    @classmethod
    def config_info_keys(cls, extra_config):
        return metrics.INFO

    def __init__(self, config):
        super().__init__(config)
        self.conf = Config(self.extra_config)
        told = model.TOLD.get()          # by GPCConnector, and not by OffloadingConnector
        self.by_connector = told is not None
        self.vllm_config = getattr(config, "vllm_config", None) or told          # a later vLLM may have it here
        why = model.cannot_load(self.vllm_config)
        if not why and not config.worker_kv_bytes_per_block:
            why = "vLLM says 0 bytes a block; such a KV cache cannot be offloaded"
        if why:
            tell(why)
            raise ConfigError(f"gpc.vllm: {why}")
        self.replicated_layout = config.replicated_layout        # rank 0 stores for all, all load its part
        parts = 1 if config.replicated_layout else config.parallel.world_size
        rank_bytes = config.worker_kv_bytes_per_block * self.blocks_per_chunk
        self.image = Image(parts, rank_bytes, self.conf.checksum)
        self._manager = self._worker = None

    def _chained(self):
        """The groups that are of full attention.  vLLM 0.33 tells them; for 0.32 GPCConnector does."""
        return {g.group_id: getattr(g, "sliding_window_size_in_chunks", 1) is None for g in self.config.groups}

    def get_manager(self):
        if not self._manager:
            try:
                self._manager = self._make_manager()
            except Exception as e:
                tell(e)
                raise
        return self._manager

    def _make_manager(self):
        conf, config = self.conf, self.config
        meant = self._words()
        layout = words.fingerprint(meant)
        called = name.cache_name(conf, layout)
        tokens = {g.group_id: g.tokens_per_block * self.blocks_per_chunk for g in config.groups}
        log.info("gpc: the cache is %s, of chunks of %d bytes and %s tokens", called, self.image.bytes,
                 " or ".join(map(str, sorted(set(tokens.values())))))
        opening = Opening(lambda making: open_cache(called, conf, layout, self.image.bytes, max(tokens.values()),
                                                    name.label(config.model.name, os.getpid()), log, meant, self.image.parts, making))
        try:
            return self._wait(opening, called, layout, tokens)
        except BaseException:            # of it, or of a signal
            opening.give_up()
            raise

    def _wait(self, opening, called, layout, tokens):
        conf, config = self.conf, self.config
        known = Namespace(conf.version_file, log, self._unshared()), Adapters(model.adapter_words(self.vllm_config))
        # vLLM's own connector keeps the manager that it begins with
        cache = opening.wait(EARLY if self.by_connector and conf.bytes > SMALL else None)
        follow = functools.partial(self._follow, called, layout, tokens, known)
        if cache is not None:
            return follow(cache)
        log.info("gpc: the memory of the cache %s is being made: the engine starts meanwhile, and computes without it", called)
        return GPCComing(opening, follow, API, metrics.stats_of_none(API), config.engine_id, conf, *known)

    def _follow(self, called, layout, tokens, known, cache):
        self._warn_of_bytes(cache, called)
        self._manager = GPCOffloadingManager(cache, called, self.conf, layout, self._chained(), tokens, API,
                                             *known, self.kv_events_config.enable_kv_cache_events, self.config.engine_id)
        return self._manager

    def _warn_of_bytes(self, cache, called):
        """vLLM's key has the bytes of each engine; ours has those of all together."""
        if self.conf.bytes_key == "cpu_bytes_to_use":
            log.warning("gpc: cpu_bytes_to_use: %d MiB, which in vLLM is RAM of each engine, and here is taken for the cache "
                        "that all engines share: %s has %d MiB, however many use it. gpc_bytes is the key that says so",
                        self.conf.bytes >> 20, called, bytes_of(cache) >> 20)

    def _words(self):
        """Words of the fingerprint."""
        config, told = self.config, self.vllm_config
        revision = model.revision_of(told.model_config) if told else ""
        return name.words_of(config, name.weights_of(config.model.name, self.conf.weights, revision),
                             self.image.rank_bytes, self.image.parts,
                             model.words_of(told, name.weights_of) if told else None)

    def _unshared(self):
        if self.vllm_config is None:
            return ("kv_connector: GPCConnector is not it, so nobody tells what the configuration of the model is beside "
                    "its files")
        return model.made_at_run_time(self.vllm_config)

    def get_worker(self, kv_caches):
        if not self._worker:
            rank = self.config.parallel.rank
            self._worker = GPCOffloadingWorker(kv_caches, self.blocks_per_chunk, self.image,
                                               0 if self.image.parts == 1 else rank, self.conf, API.TransferResult,
                                               mover=_mover(kv_caches), label=f"vllm worker {rank}",
                                               engine=self.config.engine_id)
        return self._worker


def _mover(kv_caches):
    if all(t.tensor.device.type == "cpu" for t in kv_caches.tensors):
        return None
    from .cuda import of_tensors
    return of_tensors(kv_caches)
