# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-loads.t t/python/vllm-coming.t t/python/vllm-hints.t t/python/vllm-trace.t
#   t/python/vllm-failures.t t/python/vllm-worker.t
"""vLLM's OffloadingConnector, whose worker asserts that no load fails.  This one tells vLLM which blocks were not
loaded.  With kv_load_failure_policy=recompute vLLM then computes them again, and may store them again."""

from dataclasses import dataclass, field, fields
from itertools import islice
from operator import itemgetter

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.lora.request import LoRARequest as LoRARequest         # for private.check
from vllm.v1.kv_offload.base import make_offload_key

from ..engines.below import RAM, STORE
from . import model, private, trace
from .coming import Coming
from .config import Config
from .hints import actions_of

private.check()

_begin = itemgetter(0)


def layers_of(kv_caches, layers):
    """The order of the bytes of each layer's blocks: dtype, sizes, strides inside a block, and the kernels that ask for
    that order.  The number of blocks does not count, nor does a stride from one block to the next."""
    out = []
    for name, cache in sorted(kv_caches.items()):
        backend = getattr(layers.get(name), "attn_backend", None)
        for t in cache if isinstance(cache, (list, tuple)) else [cache]:
            inside = [s if s < t.stride(0) else "outside" for s in t.stride()[1:]]
            out.append([name, str(t.dtype), list(t.shape[1:]), inside, backend.get_name() if backend else None])
    return out


@dataclass
class WorkerMetadata(OffloadingWorkerMetadata):
    """vLLM's own class knows of no job that fails."""
    # job -> slots that its store has not filled, or its load has not brought
    unmoved: dict = field(default_factory=dict)

    @classmethod
    def of(cls, meta, unmoved):
        return cls(**{f.name: getattr(meta, f.name) for f in fields(meta) if f.name != "unmoved"}, unmoved=unmoved)

    def aggregate(self, other):
        merged = {job: list(slots) for job, slots in self.unmoved.items()}
        for job, slots in getattr(other, "unmoved", {}).items():
            merged.setdefault(job, []).extend(slots)
        return self.of(super().aggregate(other), merged)


def make_keys(state, configs):
    """Keys of the blocks that a request has hashes of, in each group.  It makes them at once; update_offload_keys of
    vLLM, which makes them one by one, then finds nothing left to do."""
    for config, group in zip(configs, state.group_states):
        per, had = config.hashes_per_chunk, len(group.offload_keys)
        hashes, tail = state.req.block_hashes, config.group_idx.to_bytes(4, "big")
        keys = [h + tail for h in islice(hashes, per * had + per - 1, None, per)]
        if not keys:
            continue
        if keys[0] != make_offload_key(hashes[per * had + per - 1], config.group_idx):
            return               # another form, which vLLM knows
        group.offload_keys += keys
        step = config.tokens_per_chunk
        state.req_context._offload_key_positions.update(zip(keys, range(step * (had + 1), step * (had + len(keys) + 1), step)))


class GPCConnector(OffloadingConnector):
    # vLLM asks the class while it puts its configuration together, or when it chooses the layout of the KV cache.  Both
    # are before the weights are loaded, so an error in a key shows at once.

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config):
        Config(extra_config)
        return super().requires_piecewise_for_cudagraph(extra_config)

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config):
        Config(vllm_config.kv_transfer_config.kv_connector_extra_config)
        return super().get_required_kvcache_layout(vllm_config)

    def __init__(self, vllm_config, role, kv_cache_config):
        told = model.TOLD.set(vllm_config)       # the spec, which super() makes, gets only an OffloadingConfig
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        finally:
            model.TOLD.reset(told)
        self.several = len(kv_cache_config.kv_cache_groups) > 1
        self.layers = getattr(getattr(vllm_config, "compilation_config", None), "static_forward_context", {})
        file = trace.opened() if self.connector_scheduler is not None else None
        self.trace = trace.Scheduler(file, self.connector_scheduler.manager.engine) if file else None
        self.loading = {}        # request -> the engine's blocks of each group, while its load is under way
        self.comes = self.connector_scheduler is not None and isinstance(self.connector_scheduler.manager, Coming)
        if self.connector_scheduler is not None:
            self._ask_once()
            if not self.comes:
                self._set_up(self.connector_scheduler.manager)

    def _set_up(self, manager):
        """The spec is not told the kinds of its groups."""
        groups = self.connector_scheduler.config.kv_group_configs
        manager.set_chained({g.group_idx: g.sliding_window_size_in_chunks is None for g in groups})
        manager.prompts.request_of = self._request
        manager.later = {}
        # one more than it says: a prompt may end inside a chunk
        manager.windows = {g.group_idx: g.sliding_window_size_in_chunks + 1 for g in groups
                           if g.sliding_window_size_in_chunks is not None}
        # vLLM needs one chunk of a state, and one of a window that is no longer than a chunk
        manager.once = {g.group_idx for g in groups if g.sliding_window_size_in_chunks == 1}

    def _look(self):
        """Has the cache come?  Nothing was found or stored before, so no job is under way."""
        scheduler = self.connector_scheduler
        manager = scheduler.manager.come()
        if manager is None:
            return
        self.comes, scheduler.manager = False, manager
        self._set_up(manager)
        for state in scheduler._req_status.values():
            manager.set_apart(state.req_context)         # nobody has noted since its beginning what its KV depends on

    def _ask_once(self):
        """vLLM asks for a prompt key by key.  Where it wants only the number of hits, one question takes their
        place."""
        scheduler, each = self.connector_scheduler, self.connector_scheduler._maximal_prefix_lookup
        if scheduler._events_tracker.self_describing_enabled:
            return

        def look_up(keys, req_context, *more, **named):
            n = scheduler.manager.count_hits(keys, req_context)
            return each(keys, req_context, *more, **named) if n is None else n
        scheduler._maximal_prefix_lookup = look_up

    def _request(self, number):
        state = self.connector_scheduler._req_status.get(number)
        return state and state.req

    def reset_cache(self):
        """vLLM leaves requests as they are unless it preempts them."""
        for state in self.connector_scheduler._req_status.values():
            if getattr(state.req, "num_computed_tokens", 0):
                self.connector_scheduler.manager.set_apart(state.req_context)
        return super().reset_cache()

    # ---- the worker's side: blocks that were not loaded ----

    def register_kv_caches(self, kv_caches):
        super().register_kv_caches(kv_caches)
        self.connector_worker.worker.reported = True     # before the first load
        self.connector_worker.worker.set_layers(layers_of(kv_caches, self.layers))

    def get_handshake_metadata(self):
        """vLLM asks its workers when the scheduler, and so the cache, is there, and before the first request; 0.33 also when
        an engine wakes."""
        if self.connector_worker is not None and self.connector_worker.worker is not None:
            self.connector_worker.worker.attach_at_start()
        return super().get_handshake_metadata()

    def bind_connector_metadata(self, connector_metadata):
        """vLLM calls it first in each step, and start_load_kv behind the launches, unless a step waits for its loads."""
        self.connector_worker.worker.step(True)
        super().bind_connector_metadata(connector_metadata)

    def unregister_kv_caches(self):
        """vLLM 0.33, before the memory of its KV caches goes.  It comes back at the same addresses."""
        if self.connector_worker is not None and self.connector_worker.worker is not None:
            self.connector_worker.worker.drain()

    def build_connector_worker_meta(self):
        meta = super().build_connector_worker_meta()
        if meta is None:
            return None
        return WorkerMetadata.of(meta, self.connector_worker.worker.take_unmoved())

    def get_transfer_results(self, finished_req_ids):
        self.connector_worker.worker.step(False)
        jobs = dict(self.connector_worker._load_jobs)
        results = super().get_transfer_results(finished_req_ids)
        requests = set(map(jobs.get, self.connector_worker.worker.take_failed_loads()))
        # A block's number is that of one group, so with several groups vLLM takes requests, and ends at the sight of
        # numbers.  A load of 0.33 that its request does not wait for has none to tell, and must not go unnoticed.
        if requests and self.several and None not in requests:
            results.failed_recving.update(requests)
            self.connector_worker.worker.take_load_errors()
        return results

    def get_block_ids_with_load_errors(self):
        worker = self.connector_worker and self.connector_worker.worker
        return worker.take_load_errors() if worker else set()

    # ---- the scheduler's side: vLLM takes all found blocks for stored, and asks for no store of them ----

    def on_new_request(self, request):
        if self.comes:
            self._look()
        if self.trace:
            self.trace.mark(request.request_id, "arrived")
        super().on_new_request(request)
        if self.comes and getattr(request, "lora_request", None):
            self.connector_scheduler.manager.see(request.request_id, request.lora_request)
        state = self.connector_scheduler._req_status.get(request.request_id)
        if state and actions_of(state.req_context):
            state.update_offload_keys()          # vLLM does it when it looks the request up first
            self.connector_scheduler.manager.take_hints(state.req_context, [g.offload_keys for g in state.group_states])

    def request_finished(self, request, block_ids):
        return self._tell_hints(request, super().request_finished(request, block_ids))

    def request_finished_all_groups(self, request, block_ids):
        return self._tell_hints(request, super().request_finished_all_groups(request, block_ids))

    def _tell_hints(self, request, answer):
        """The request's answer tells the outcome of its hints."""
        if self.trace:
            self.trace.forget(request.request_id)
        told = self.connector_scheduler.manager.hints.take(request.request_id)
        return (answer[0], {**(answer[1] or {}), "kv_hints": told}) if told else answer

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        since = trace.now() if self.trace else 0
        state = self.connector_scheduler._req_status.get(request.request_id)
        if state:
            self.connector_scheduler.manager.ask_again(state.req_context)
            make_keys(state, self.connector_scheduler.config.kv_group_configs)
        answer = super().get_num_new_matched_tokens(request, num_computed_tokens)
        state = self.connector_scheduler._req_status.get(request.request_id)
        if state and answer[0] is not None:
            self.connector_scheduler.manager.count_own(state.req_context, num_computed_tokens)
        if self.trace:
            self.trace.found(request.request_id, since, answer[0])
        return answer

    def build_connector_meta(self, scheduler_output):
        """A chunk that has no block yet is offered again in the next step.  vLLM can note that only for all chunks that
        it offers for a request, and warns each time."""
        if self.comes:
            self._look()
        meta = super().build_connector_meta(scheduler_output)
        for number, keys in self.connector_scheduler.manager.take_later().items():
            state = self.connector_scheduler._req_status.get(number)
            for group in state.group_states if state else ():
                at = next((i for i, k in enumerate(group.offload_keys[:group.next_stored_chunk_idx]) if k in keys), None)
                if at is not None:
                    group.next_stored_chunk_idx = at
        if self.trace:
            self.trace.built(meta, scheduler_output)
        return meta

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        state = self.connector_scheduler._req_status.get(request.request_id)
        if state:
            self.connector_scheduler.manager.count_asked(state.req_context)
            if not num_external_tokens:          # else it has blocks for what it loads, and vLLM tells the others later
                self.connector_scheduler.manager.claim_wanted(state.req_context)
        if num_external_tokens:
            self.loading[request.request_id] = blocks.get_block_ids()
            if self.trace:
                self.trace.allocated(request.request_id, num_external_tokens)

    def get_external_cache_hit_sources(self, request, num_external_tokens):
        """Counts hits.  vLLM asks for each key, and sweeps.  Where all came from RAM, the tokens that its loads cover
        count for RAM, and others for no tier, as vLLM counts."""
        manager, state = self.connector_scheduler.manager, self.connector_scheduler._req_status[request.request_id]
        if not manager.is_all_of_ram(state.req_context):
            return super().get_external_cache_hit_sources(request, num_external_tokens)
        at, ranges, covered = state.num_locally_computed_tokens, state.load_key_ranges, 0
        end = at + num_external_tokens
        if ranges and not self.several:          # keys of one group follow each other
            ranges = [(ranges[0][0], ranges[-1][1], None)]
        for low, high, _ in sorted(ranges, key=_begin):
            if high > at:
                covered += max(0, min(high, end) - max(low, at))
                at = high
        told = {manager.sources[RAM]: covered, manager.sources[STORE]: num_external_tokens - covered}
        return {source: n for source, n in told.items() if n}

    def _tell_unmoved(self, meta):
        """Called before vLLM ends these jobs, since for vLLM none has failed."""
        scheduler = self.connector_scheduler
        for number, slots in getattr(meta, "unmoved", {}).items():
            job = scheduler._jobs.get(number)    # there is none: a reset has forgotten it
            request = job and scheduler._req_status.get(job.req_id)
            if request:
                scheduler.manager.set_unmoved(slots, job.is_store, request.req_context)

    def update_connector_output(self, connector_output):
        self._tell_unmoved(getattr(connector_output, "kv_connector_worker_meta", None))
        for request, groups in self.loading.items():
            if request in connector_output.failed_recving:       # vLLM looks for all of it again
                self._store_again(request, groups, None)
            elif connector_output.invalid_block_ids:
                self._store_again(request, groups, connector_output.invalid_block_ids)
        super().update_connector_output(connector_output)
        states = self.connector_scheduler._req_status
        for request in [r for r in self.loading if r not in states or not states[r].transfer_jobs]:
            del self.loading[request]
        if self.trace:
            self.trace.complete(connector_output)

    def _store_again(self, request, groups, bad):
        """From the first bad block of a request on, all is computed.  bad: None stands for all of its blocks."""
        config, state = self.connector_scheduler.config, self.connector_scheduler._req_status.get(request)
        for group, stored in zip(config.kv_group_configs, state.group_states if state else ()):
            at = next((i for i, b in enumerate(groups[group.group_idx]) if bad is None or b in bad), None)
            if at is not None:
                stored.next_stored_chunk_idx = min(stored.next_stored_chunk_idx, at // config.blocks_per_chunk)
