# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-worker.t
"""The names of vLLM that gpc.vllm uses although no interface promises them.  They are looked for when GPCConnector is
imported.  So a vLLM without one is refused at start, with a sentence that names it, and not in the middle of a request.

Nothing is imported here: vLLM's connector has imported these modules.
"""

import sys

MADE_FOR = "0.32 and 0.33"

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1."
_OFFLOADING = _V1 + "offloading."
NEEDS = {                        # (module, class) -> attributes of its objects
    # methods that GPCConnector overrides: if vLLM has lost one, it would not call ours
    (_V1 + "offloading_connector", "OffloadingConnector"): (
        "connector_scheduler", "connector_worker", "register_kv_caches", "build_connector_worker_meta",
        "get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta", "update_connector_output",
        "get_external_cache_hit_sources", "reset_cache", "get_required_kvcache_layout", "on_new_request", "request_finished", "request_finished_all_groups"),
    (_V1 + "base", "KVConnectorBase_V1"): ("bind_connector_metadata", "get_transfer_results",
                                           "get_block_ids_with_load_errors", "get_handshake_metadata",
                                           "requires_piecewise_for_cudagraph"),
    (_V1 + "base", "KVConnectorTransferResults"): ("failed_recving",),
    (_OFFLOADING + "common", "OffloadingWorkerMetadata"): ("completed_jobs", "aggregate"),
    (_OFFLOADING + "scheduler", "OffloadingConnectorScheduler"): ("manager", "config", "_req_status", "_jobs",
                                                               "_maximal_prefix_lookup", "_events_tracker"),
    (_OFFLOADING + "events", "OffloadingEventsTracker"): ("self_describing_enabled",),
    (_OFFLOADING + "scheduler", "SchedulerOffloadConfig"): ("kv_group_configs", "blocks_per_chunk"),
    (_OFFLOADING + "scheduler", "GroupOffloadConfig"): ("group_idx", "sliding_window_size_in_chunks", "hashes_per_chunk",
                                                      "tokens_per_chunk"),
    (_OFFLOADING + "scheduler", "RequestOffloadState"): ("req", "req_context", "group_states", "transfer_jobs",
                                                       "update_offload_keys", "load_key_ranges",
                                                       "num_locally_computed_tokens"),
    (_OFFLOADING + "scheduler", "RequestGroupState"): ("next_stored_chunk_idx", "offload_keys"),
    (_OFFLOADING + "scheduler", "TransferJobStatus"): ("req_id", "is_store"),
    (_OFFLOADING + "worker", "OffloadingConnectorWorker"): ("worker", "_load_jobs"),
    ("vllm.v1.kv_offload.base", "ReqContext"): ("req_id", "get_state", "set_state", "_offload_key_positions",
                                                "load_tier_filter"),
    ("vllm.v1.request", "Request"): ("request_id", "num_computed_tokens", "lora_request", "cache_salt",
                                     "all_token_ids", "prompt_embeds", "block_hashes"),
    ("vllm.lora.request", "LoRARequest"): ("lora_name", "lora_path", "lora_int_id", "load_inplace"),
    ("vllm.v1.outputs", "KVConnectorOutput"): ("kv_connector_worker_meta", "failed_recving", "invalid_block_ids"),
    ("vllm.v1.core.kv_cache_manager", "KVCacheBlocks"): ("get_block_ids",),
    ("vllm.config.compilation", "CompilationConfig"): ("static_forward_context",),
}


def _has(cls, name):
    """A method or a field, or an attribute that its __init__ assigns."""
    init = getattr(cls.__init__, "__code__", None)
    return hasattr(cls, name) or any(name in vars(c).get("__annotations__", {}) for c in cls.__mro__) or \
        name in getattr(cls, "__dataclass_fields__", {}) or init is not None and name in init.co_names


def missing(modules=sys.modules):
    """The missing names in words, or None."""
    for (module, name), attributes in NEEDS.items():
        cls = getattr(modules.get(module), name, None)
        if cls is None:
            return f"{module} has no {name}"
        for a in attributes:
            if not _has(cls, a):
                return f"{name} has no {a}"
    return None


def check(modules=sys.modules):
    what = missing(modules)
    if what:
        version = getattr(modules.get("vllm"), "__version__", "of an unknown version")
        raise ImportError(f"gpc.vllm: this is vLLM {version}, and gpc.vllm is made for {MADE_FOR}: {what}. Take one of "
                          "these, or a newer gpc")
