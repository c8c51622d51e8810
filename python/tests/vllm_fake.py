# SPDX-License-Identifier: Apache-2.0
"""The part of vLLM's interface that gpc.vllm is made for, with the same names and signatures: what is abstract
there is abstract here.  And an engine's side of it: requests, and KV caches without torch."""

import abc
import atexit
import contextlib
import ctypes
import dataclasses
import enum
import glob
import hashlib
import importlib.util
import os
import sys
import time
import types
from typing import Any, NamedTuple


def _sweep():
    """Files of managers that were killed, or forked, here: an engine would remove them at its next start."""
    for path in glob.glob("/dev/shm/gpc-vllm-*.where"):
        pid = path.rsplit("-", 1)[1].split(".")[0]
        if not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                os.unlink(path)


atexit.register(_sweep)


class LookupResult(enum.Enum):
    MISS, HIT, HIT_PENDING, RETRY = range(1, 5)


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class TierMatcher(NamedTuple):
    medium: Medium | None = None
    locality: Locality | None = None


@dataclasses.dataclass(frozen=True)
class TierFilter:
    """Of a request: which tiers may load."""
    matchers: tuple = ()

    def allows(self, medium, locality):
        return any(m.medium in (None, medium) and m.locality in (None, locality) for m in self.matchers)


class CacheHitSource(str, enum.Enum):
    HOST = "host"
    DISK = "disk"
    EXTERNAL_UNSPECIFIED = "external_unspecified"


def make_offload_key(block_hash, group_idx):
    return block_hash + group_idx.to_bytes(4, "big")


class RequestOffloadingContext:
    policy = "chunk_level"


class PrepareStoreOutput(NamedTuple):
    keys_to_store: list
    store_spec: Any
    evicted_keys: list


@dataclasses.dataclass
class OffloadingEvent:
    keys: list
    medium: Medium
    removed: bool
    metadata_only: bool = False          # of 0.33


class TransferResult(NamedTuple):
    job_id: int
    success: bool
    transfer_size: int = 0
    transfer_time: float = 0


class Metadata:
    def __init__(self, documentation, labelnames=()):
        self.documentation = documentation


class OffloadingConnectorStats:
    def __init__(self):
        self.counters, self.gauges = {}, {}

    def increase_counter(self, name, value=1, labelvalues=()):
        self.counters[name] = self.counters.get(name, 0) + value

    def set_gauge(self, name, value, labelvalues=()):
        self.gauges[name] = value


class OffloadingManager(abc.ABC):
    @abc.abstractmethod
    def lookup(self, key, req_context): ...
    def get_load_source(self, key, req_context): ...
    @abc.abstractmethod
    def prepare_load(self, keys, req_context): ...
    def touch(self, keys, req_context): ...
    def complete_load(self, keys, req_context): ...
    @abc.abstractmethod
    def prepare_store(self, keys, req_context): ...
    def complete_store(self, keys, req_context, success=True): ...
    @abc.abstractmethod
    def on_new_request(self, req_context): ...
    def on_request_finished(self, req_context): ...
    def take_events(self): ...
    def on_schedule_end(self, context): ...
    def has_pending_work(self): ...
    def reset_cache(self): ...
    def get_stats(self): ...
    def shutdown(self): ...


class OffloadingWorker(abc.ABC):
    @abc.abstractmethod
    def submit_store(self, job_id, src_spec, dst_spec): ...
    @abc.abstractmethod
    def submit_load(self, job_id, src_spec, dst_spec): ...
    @abc.abstractmethod
    def get_finished(self): ...
    @abc.abstractmethod
    def wait(self, job_ids): ...
    def shutdown(self): ...


class OffloadingSpec(abc.ABC):
    @classmethod
    def build_metric_definitions(cls, extra_config): ...

    def __init__(self, config):
        self.config, self.extra_config = config, config.extra_config
        self.replicated_layout = False
        self.kv_events_config = types.SimpleNamespace(enable_kv_cache_events=config.enable_kv_cache_events)
        self.tokens_per_block = tuple(g.tokens_per_block for g in config.groups)
        self.blocks_per_chunk = config.cache.blocks_per_chunk

    @abc.abstractmethod
    def get_manager(self): ...
    @abc.abstractmethod
    def get_worker(self, kv_caches): ...


@dataclasses.dataclass
class OffloadingWorkerMetadata:
    completed_jobs: dict = dataclasses.field(default_factory=dict)

    def aggregate(self, other):
        jobs = {*self.completed_jobs, *other.completed_jobs}
        return OffloadingWorkerMetadata({j: self.completed_jobs.get(j, 0) + other.completed_jobs.get(j, 0) for j in jobs})


def prefix_lookup(m, keys, ctx):
    """vLLM's: how many of the first ones are there, asked one by one; None: ask again."""
    hits, later = 0, False
    for k in keys:
        got = m.lookup(k, ctx)
        if got is LookupResult.MISS:
            break
        later |= got is not LookupResult.HIT
        hits += got is not LookupResult.RETRY
    return None if later else hits


def hit_sources(m, ranges, start, n, ctx):
    """vLLM's: tokens by the tier that a load of them comes from, of several the outermost; others are of nobody."""
    order, out = list(CacheHitSource), {}
    for token in range(start, start + n):
        of = [m.get_load_source(k, ctx) for low, high, k in ranges if low <= token < high] or [CacheHitSource.EXTERNAL_UNSPECIFIED]
        source = max(of, key=order.index)
        out[source] = out.get(source, 0) + 1
    return out


class OffloadingConnector:
    """Where GPCConnector hooks in."""
    connector_scheduler = connector_worker = None

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config):
        return False

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config):
        return "LBHNC"

    def __init__(self, vllm_config, role, kv_cache_config):
        if role == "scheduler":
            self.connector_scheduler = half = kv_cache_config.half
            half._events_tracker = ns(self_describing_enabled=getattr(half, "describes", False))
            half._maximal_prefix_lookup = lambda keys, ctx, *more: prefix_lookup(half.manager, keys, ctx)
        else:
            self.connector_worker = kv_cache_config.half

    def register_kv_caches(self, kv_caches): ...

    def bind_connector_metadata(self, connector_metadata): ...

    def get_transfer_results(self, finished_req_ids):
        """vLLM's worker forgets a load when it has told its end."""
        self.connector_worker.told = []
        for result in self.connector_worker.worker.get_finished():
            self.connector_worker._load_jobs.pop(result.job_id, None)
            self.connector_worker.told.append(result.job_id)
        return ns(failed_recving=set())

    def build_connector_worker_meta(self):
        """vLLM's of this step, with the jobs that get_transfer_results has told."""
        return OffloadingWorkerMetadata({j: 1 for j in self.connector_worker.told})

    def get_handshake_metadata(self):
        return None

    def build_connector_meta(self, scheduler_output):
        """vLLM's of a step: all chunks of its requests that were not offered yet, which were then."""
        for state in self.connector_scheduler._req_status.values():
            for group in state.group_states:
                keys = group.offload_keys[group.next_stored_chunk_idx:]
                out = self.connector_scheduler.manager.prepare_store(keys, state.req_context)
                group.next_stored_chunk_idx = len(group.offload_keys)
                group.stored += out.keys_to_store

    def on_new_request(self, request):
        self.connector_scheduler.manager.on_new_request(self.connector_scheduler._req_status[request.request_id].req_context)

    def request_finished(self, request, block_ids):
        return False, None

    def request_finished_all_groups(self, request, block_ids):
        return False, None

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self.connector_scheduler.found(request, num_computed_tokens), True

    def get_external_cache_hit_sources(self, request, num_external_tokens):
        state = self.connector_scheduler._req_status[request.request_id]
        return hit_sources(self.connector_scheduler.manager, state.load_key_ranges, state.num_locally_computed_tokens,
                           num_external_tokens, state.req_context)

    def update_state_after_alloc(self, request, blocks, num_external_tokens): ...
    def reset_cache(self): ...
    def get_block_ids_with_load_errors(self): ...

    def update_connector_output(self, connector_output):
        """vLLM's scheduler: a job is complete when all workers have told it."""
        meta, half = getattr(connector_output, "kv_connector_worker_meta", None), self.connector_scheduler
        for number in meta.completed_jobs if meta else ():
            job = half._jobs.pop(number)
            ctx = half._req_status[job.req_id].req_context
            (half.manager.complete_store if job.is_store else half.manager.complete_load)(job.keys, ctx)


def private():
    """What gpc.vllm uses beside the interface: classes of these names, and objects with these attributes."""
    spec = importlib.util.find_spec("gpc.vllm.private")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = {}
    for (where, name), attributes in module.NEEDS.items():
        out.setdefault(where, {})[name] = type(name, (), {"__annotations__": dict.fromkeys(attributes, Any)})
    return out


def install():
    """Put it where gpc.vllm imports it from."""
    names = globals()
    for path, has in {
        "vllm.v1.kv_offload.base": ["LookupResult", "Medium", "Locality", "TierMatcher", "TierFilter", "RequestOffloadingContext", "PrepareStoreOutput",
                                    "OffloadingEvent", "TransferResult", "OffloadingManager", "OffloadingWorker",
                                    "OffloadingSpec", "make_offload_key"],
        "vllm.v1.metrics.cache_hit_source": ["CacheHitSource"],
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics": ["OffloadingConnectorStats"],
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.common": ["OffloadingWorkerMetadata"],
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector": ["OffloadingConnector"],
    }.items():
        whole = ""
        for part in path.split("."):
            parent, whole = whole, (whole + "." + part).lstrip(".")
            if whole not in sys.modules:
                sys.modules[whole] = types.ModuleType(whole)
                if parent:
                    setattr(sys.modules[parent], part, sys.modules[whole])
        for n in has:
            setattr(sys.modules[path], n, names[n])
    for path, has in private().items():
        module = vars(sys.modules.setdefault(path, types.ModuleType(path)))
        module.update((n, c) for n, c in has.items() if n not in module)
    base = sys.modules["vllm.v1.kv_offload.base"]
    base.OffloadingCounterMetadata = base.OffloadingGaugeMetadata = Metadata


# ---- an engine's side ----

class Context:
    """A request's, as vLLM's ReqContext."""

    def __init__(self, req_id="r"):
        self.req_id, self._state, self._offload_key_positions = req_id, {}, {}

    def set_state(self, val):
        self._state[type(val)] = val

    def get_state(self, cls):
        return self._state.get(cls)


def prompt(text, chunks, tokens=16, groups=(0,)):
    """A context, and the keys of its prompt for each group: a hash of all up to the end of the chunk."""
    ctx, keys = Context(text), {}
    for g in groups:
        h, keys[g] = b"", []
        for i in range(chunks):
            h = hashlib.sha256(h + f"{text} {i}".encode()).digest()
            k = h + g.to_bytes(4, "big")
            keys[g].append(k)
            ctx._offload_key_positions[k] = (i + 1) * tokens
    return ctx, keys if len(groups) > 1 else keys[0]


def settle(m):
    """All that its threads are asked has an answer, and so has what that makes them be asked."""
    while m.finder.asker.under_way or m.adapters.asker.under_way:
        m.finder.asker.settle(60)
        m.adapters.asker.settle(60)


def offer(m, keys, ctx):
    """prepare_store of all of them, in as many steps as the manager needs for its questions to the writer, or until the cache
    has no room: what GPCConnector does."""
    later, m.later, got, end = m.later, {}, [], time.monotonic() + 60
    while time.monotonic() < end:
        got += m.prepare_store(keys, ctx).keys_to_store
        if not m.take_later():
            break
        if m.finder.asker.under_way or m.adapters.asker.under_way:
            settle(m)
        elif not m.c.pool_available(0):
            break
        time.sleep(0.001)
    m.later = later
    return m._store_output(got, m._request(ctx))


def ns(**more):
    return types.SimpleNamespace(**more)


def vllm_config(rope=1.0, lora=None, **more):
    """As vLLM's VllmConfig, of a model without overrides."""
    text = ns(rope_parameters={"rope_type": "linear", "factor": rope}, num_attention_heads=4)
    model = ns(model="model", dtype="bfloat16", quantization=None, revision=None, max_model_len=4096, seed=0,
               hf_config=text, hf_text_config=text)
    model.__dict__.update(more)
    return ns(model_config=model, cache_config=ns(cache_dtype="auto", gpu_memory_utilization=0.9), lora_config=lora)


def config(extra, rank=0, world=1, blocks_per_chunk=1, block_bytes=1024, groups=1, **more):
    """As vLLM's OffloadingConfig."""
    base = dict(
        groups=tuple(ns(tokens_per_block=16, layer_names=(f"layer{i}",), group_id=i) for i in range(groups)),
        worker_kv_bytes_per_block=block_bytes, enable_kv_cache_events=False, extra_config=extra, engine_id="engine",
        model=ns(name="model", dtype="bfloat16"),
        cache=ns(tokens_per_hash=16, blocks_per_chunk=blocks_per_chunk),
        parallel=ns(rank=rank, world_size=world, tp_size=world, pp_size=1, pcp_size=1, dcp_size=1),
        replicated_layout=False, canonical_layout=False, kv_cache_layout="NHD", vllm_config=vllm_config())
    base.update(more)
    return ns(**base)


class Tensor:
    """A KV cache of `blocks` pages."""
    device = ns(type="cpu")

    def __init__(self, blocks, page, gap=0):
        self.blocks, self.page, self.step = blocks, page, page + gap
        self.at = 0
        self.bytes = bytearray(blocks * self.step)
        self.keep = (ctypes.c_char * len(self.bytes)).from_buffer(self.bytes)

    def piece(self, first, blocks):
        """Some of its blocks, as a tensor."""
        t = Tensor(0, self.page, self.step - self.page)
        t.blocks, t.bytes, t.keep, t.at = blocks, self.bytes, self.keep, first * self.step
        return t

    def data_ptr(self):
        return ctypes.addressof(self.keep) + self.at

    def stride(self, dim):
        return self.step

    def element_size(self):
        return 1

    def get(self, block):
        at = self.at + block * self.step
        return bytes(self.bytes[at:at + self.page])

    def put(self, block, what):
        at = self.at + block * self.step
        self.bytes[at:at + self.page] = (what * self.page)[:self.page]


def caches(tensors, groups=1):
    return ns(tensors=[ns(tensor=t, page_size_bytes=t.page) for t in tensors],
              group_data_refs=[[ns(tensor_idx=i, page_size_bytes=t.page) for i, t in enumerate(tensors)]
                               for _ in range(groups)])


def blocks(ids, sizes=None, indices=(0,)):
    """As vLLM's GPULoadStoreSpec."""
    return ns(block_ids=ids, group_sizes=sizes or [len(ids)], block_indices=list(indices))
