# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-words.t
"""The entries of vLLM's configuration that decide the bytes of a KV cache, beside those of an OffloadingConfig.  No
vLLM here.

Two engines may differ in entries that these tables leave out, and share all the same.  A field that a later vLLM adds
to a config of EVERY counts until its row says that it does not: it is better to share a chunk too few than a wrong one.

Entries that change a number only by the order of sums are left out: kernels, CUDA graphs, compiled code, the sizes of
batches.  vLLM's own prefix cache mixes these as well.  Entries that round otherwise count, such as another dtype or
quantized activations.
"""

import contextvars
import enum
import os

TOLD = contextvars.ContextVar("vllm_config", default=None)       # set by GPCConnector, while it makes its spec

_FILES = "the files tell, by their bytes"
_TOKENS = "keys are of the numbers of tokens"
_OUTPUT = "what follows the last layer"
_LIMIT = "how much at once, or how long: no byte of a block"
_PLACE = "where and how weights and caches lie, run or are loaded"
_CONFIG = "where a config comes from; hf_config is what came of it"
_KERNEL = "the order of sums, or the time that it takes"
_DERIVED = "follows from others"
_ELSEWHERE = "name.py has it from the OffloadingConfig"
_KEYS = "names of blocks, or which are kept"

# Config of VllmConfig -> field -> the reason why it does not count.  All others do.
EVERY = {
    "model_config": {
        "model": _FILES, "model_weights": _FILES, "tokenizer": _TOKENS, "tokenizer_mode": _TOKENS,
        "tokenizer_revision": _TOKENS, "skip_tokenizer_init": _TOKENS, "seed": "of samples; see load, for dummy weights",
        "is_submodel_config": _DERIVED, "word_embeddings_untied_by_checkpoint": _OUTPUT, "hf_config_path": _CONFIG,
        "config_format": _CONFIG, "hf_overrides": _CONFIG, "hf_text_config": "it is a part of hf_config, which counts",
        "allowed_local_media_path": _PLACE, "allowed_media_domains": _PLACE, "hf_token": _PLACE,
        "max_model_len": _LIMIT + "; see longrope", "spec_target_max_model_len": _LIMIT, "max_logprobs": _OUTPUT,
        "quantization_config": "see quantization", "allow_deprecated_quantization": _PLACE, "enforce_eager": _KERNEL,
        "return_sampling_mask": _OUTPUT, "logprobs_mode": _OUTPUT, "use_fp64_gumbel": _OUTPUT,
        "enable_trace_replay": _PLACE, "disable_cascade_attn": _KERNEL, "enable_prompt_embeds": _TOKENS,
        "served_model_name": "a name", "generation_config": _OUTPUT, "override_generation_config": _OUTPUT,
        "enable_sleep_mode": _PLACE, "sleep_preserve_parameter_names": _PLACE, "sleep_mode_backend": _PLACE,
        "sleep_mode_offload_cudagraph": _PLACE, "enable_nccl_comm_suspend": _PLACE, "enable_cumem_allocator": _PLACE,
        "logits_processors": _OUTPUT, "io_processor_plugin": _OUTPUT, "renderer_num_workers": _LIMIT,
        "pooler_config": _OUTPUT, "multimodal_config": "a table of its own",
        # fields of vLLM 0.33 and later, or of versions before 0.32
        "task": _OUTPUT, "max_seq_len_to_capture": _KERNEL, "trust_remote_code": "whether code may run, not which",
    },
    "multimodal_config": {
        "limit_per_prompt": _LIMIT, "mm_processor_cache_gb": _LIMIT, "mm_processor_cache_type": _PLACE,
        "mm_hasher_algorithm": _KEYS, "mm_shm_cache_max_object_size_mb": _LIMIT, "mm_encoder_tp_mode": _PLACE,
        "mm_encoder_attn_backend": _KERNEL, "mm_encoder_fp8_scale_save_path": _PLACE,
        "mm_encoder_fp8_scale_save_margin": _PLACE, "interleave_mm_strings": _TOKENS, "skip_mm_profiling": _LIMIT,
        "mm_tensor_ipc": _PLACE, "mm_ipc_gpu_memory_gb": _LIMIT, "mm_processor_device": _PLACE,
        "enable_mm_embeds": _TOKENS, "mm_encoder_only": _PLACE,
    },
    "cache_config": {
        "DEFAULT_BLOCK_SIZE": "a constant", "block_size": _ELSEWHERE, "user_specified_block_size": _ELSEWHERE,
        "kv_cache_layout": _ELSEWHERE, "prefix_match_unit": _KEYS, "gpu_memory_utilization": _LIMIT,
        "is_attention_free": _DERIVED, "num_gpu_blocks_override": _LIMIT, "enable_prefix_caching": _KEYS,
        "prefix_caching_hash_algo": _KEYS, "prefix_cache_retention_interval": _KEYS, "mamba_page_size_padded": _ELSEWHERE,
        "skip_page_size_padded": _ELSEWHERE, "enable_mamba_shared_prefix_checkpoint": _KEYS, "num_gpu_blocks": _LIMIT,
        "num_cpu_blocks": _LIMIT, "effective_attention_block_size": _ELSEWHERE, "kv_cache_size_tokens": _LIMIT,
        "kv_cache_max_concurrency": _LIMIT, "hash_block_size": _ELSEWHERE, "cache_hit_alignment_tokens": _KEYS,
        "swa_bounded_replay": _KEYS, "kv_cache_memory_bytes": _LIMIT, "kv_offloading_size": _LIMIT,
        "kv_offloading_backend": _PLACE, "_block_size_resolved": _DERIVED, "swap_space": _LIMIT, "cpu_offload_gb": _PLACE,
        "calculate_kv_scales": "see made_at_run_time",
        "mamba_block_size": _ELSEWHERE,
    },
    "attention_config": {
        "minimax_m3_msa_decode_backend": _KERNEL, "flash_attn_version": _KERNEL,
        "flash_attn_max_num_splits_for_cuda_graph": _KERNEL, "tokenspeed_mla_min_split_kv": _KERNEL,
        "tq_max_kv_splits_for_cuda_graph": _KERNEL, "use_trtllm_attention": _KERNEL, "mla_prefill_backend": _KERNEL,
        "sparse_mla_force_mqa": _KERNEL, "sparse_mla_prefill_workspace_factor": _LIMIT, "flex_attn_block_m": _KERNEL,
        "flex_attn_block_n": _KERNEL, "flex_attn_q_block_size": _KERNEL, "flex_attn_kv_block_size": _KERNEL,
        "use_cudnn_prefill": _KERNEL, "use_prefill_decode_attention": _KERNEL,
    },
    "mamba_config": {"backend": _KERNEL, "ssu_algorithm": _KERNEL},
}

# Config of VllmConfig -> the fields that count.
SOME = {
    # sizes: name.py.  Experts, copies of them, batches and ways to send: the order of sums
    "parallel_config": ("dcp_kv_cache_interleave_size", "cp_kv_cache_interleave_size", "dcp_q_replicate"),
    # the kernel decides whether activations are quantized
    "kernel_config": ("moe_backend", "linear_backend", "linear_backend_per_quant"),
    "device_config": ("device_type",),
}
# Nothing counts of: scheduler_config (who is computed when, and how much at once), load_config but for load_format, offload,
# structured outputs, observability, logging, profiler, events, kv_transfer_config (its keys are this plugin's),
# compilation_config and optimization_level (the order of sums), reasoning, watermark, diffusion, weight transfer, instance_id.

# Variables of the environment that round otherwise, or send tokens to other experts, with their defaults.  All other
# variables decide how, where and in which order sums are made.  A file that one names counts by its name.
ENVIRONMENT = {
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest", "VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "",
    # activations, or the part of them that is sent, in fewer bits
    "VLLM_MARLIN_INPUT_DTYPE": "", "VLLM_HUMMING_ONLINE_QUANT_CONFIG": "", "VLLM_HUMMING_INPUT_QUANT_CONFIG": "",
    "VLLM_HUMMING_USE_F16_ACCUM": "", "VLLM_USE_DEEP_GEMM_E8M0": "1", "VLLM_B12X_MOE_FP4_FORCE_A16": "0",
    "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER": "1", "VLLM_DEEPEPLL_NVFP4_DISPATCH": "0",
    "VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE": "0", "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "none",
    "VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16": "1", "VLLM_ROCM_USE_AITER_FP8BMM": "1", "VLLM_ROCM_USE_AITER_FP4BMM": "1",
    "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM": "0", "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4": "", "VLLM_ROCM_FP8_MFMA_PAGE_ATTN": "0",
    # another form of the cache
    "VLLM_MLA_DISABLE": "0",
}

# lora_config counts for requests with an adapter: adapter_words.  max_lora_rank, max_loras and the like are limits.
_LORA = ("lora_dtype", "enable_tower_connector_lora", "target_modules")

_WITHOUT_DRAFT = ("ngram", "ngram_gpu", "suffix")

_NAMES = {"_commit_hash", "_name_or_path", "name_or_path", "transformers_version", "_attn_implementation",
          "_attn_implementation_internal", "_attn_implementation_autoset", "_experts_implementation_internal",
          "use_cache", "torch_dtype", "output_attentions", "output_hidden_states", "return_dict", "id2label",
          "label2id", "problem_type", "finetuning_task", "task_specific_params", "_output_attentions"}


def plain(value, deep=0):
    """A value as JSON has it, the same in each process: no address, no order of a set."""
    if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, dict):
        return {str(k): plain(v, deep + 1) for k, v in value.items() if str(k) not in _NAMES}
    if isinstance(value, (list, tuple)):
        return [plain(v, deep + 1) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v, deep + 1) for v in value), key=repr)
    if hasattr(value, "to_dict"):                # a config of transformers
        return plain(value.to_dict(), deep + 1)
    if type(value).__module__ == "torch":        # a dtype
        return str(value).removeprefix("torch.")
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if deep < 4 and hasattr(value, "__dict__"):
        return {k: plain(v, deep + 1) for k, v in vars(value).items() if not k.startswith("__") and k not in _NAMES}
    return type(value).__qualname__


def _fields(config):
    names = getattr(config, "__dataclass_fields__", None) or vars(config)
    return [n for n in names if hasattr(config, n)]


def _table(config, name):
    if config is None:
        return None
    if name in SOME:
        return {n: plain(getattr(config, n)) for n in SOME[name] if hasattr(config, n)}
    return {n: plain(getattr(config, n)) for n in _fields(config) if n not in EVERY[name]}


def _model(config):
    """Words of a model, or of the draft beside it."""
    out = _table(config, "model_config")
    out["multimodal"] = _table(getattr(config, "multimodal_config", None), "multimodal_config")
    if getattr(config, "quantization", None):
        out["quantization_config"] = plain(getattr(config, "quantization_config", None))
    if out.get("revision") in (None, "main"):
        out.pop("revision", None)
    out.update(_resolved(config))
    out["longrope"] = _long(config)
    return out


def _resolved(config):
    """The value that vLLM has made of "auto": an engine that asks for it by name has the same."""
    out = {n: plain(getattr(config, n + "_type")) for n in ("runner", "convert") if hasattr(config, n + "_type")}
    asked = getattr(config, "using_transformers_backend", None)
    if asked and getattr(config, "model_impl", None) in ("auto", "vllm", "transformers"):
        out["model_impl"] = "transformers" if asked() else "vllm"
    return out


def _long(config):
    """Scaling that chooses its factors by the length that an engine is started for."""
    rope = getattr(getattr(config, "hf_text_config", None), "rope_parameters", None)
    rope = rope or getattr(getattr(config, "hf_text_config", None), "rope_scaling", None)
    several = [rope, *rope.values()] if isinstance(rope, dict) else []       # some models have one for each kind of layer
    for r in several:
        if isinstance(r, dict) and (r.get("rope_type") or r.get("type")) in ("longrope", "su"):
            text = config.hf_text_config
            first = r.get("original_max_position_embeddings") or getattr(text, "original_max_position_embeddings", 0)
            return bool(config.max_model_len > (first or 0))
    return False


def _draft(config, weights_of):
    """Layers of a draft model lie in the same chunks.  A method without a model has none, though vLLM puts the model
    itself there."""
    model = getattr(config, "draft_model_config", None)
    if model is None or getattr(config, "method", None) in _WITHOUT_DRAFT:
        return None
    out = _model(model)
    out.update(method=plain(getattr(config, "method", None)), weights=weights_of(model.model, revision=revision_of(model)))
    return out


def environment(has=os.environ):
    """Those of these variables that differ from their defaults."""
    said = {"true": "1", "false": "0", "none": "none"}
    out = {n: said.get(v.strip().lower(), v.strip().lower()) for n in ENVIRONMENT if (v := has.get(n)) is not None}
    return {n: v for n, v in out.items() if v != ENVIRONMENT[n]}


def revision_of(config):
    return getattr(config, "revision", None) or ""


def words_of(vllm_config, weights_of):
    """Words of a VllmConfig, at the time when the scheduler is made: after overrides, defaults and the choices of the
    platform."""
    c = vllm_config
    out = {n: _table(getattr(c, n, None), n) for n in (*EVERY, *SOME) if n not in ("model_config", "multimodal_config")}
    out["model"] = _model(c.model_config)
    if (out["cache_config"] or {}).get("cache_dtype") == "auto":
        out["cache_config"]["cache_dtype"] = out["model"].get("dtype")
    out["draft"] = _draft(getattr(c, "speculative_config", None), weights_of)
    out["runner_v2"] = bool(getattr(c, "use_v2_model_runner", False))
    out["additional"] = plain(getattr(c, "additional_config", None))
    if there := environment():
        out["environment"] = there
    load = getattr(getattr(c, "load_config", None), "load_format", None)
    out["load"] = f"dummy, seed {c.model_config.seed}" if plain(load) == "dummy" else None
    return out


def adapter_words(vllm_config):
    config = getattr(vllm_config, "lora_config", None)
    return {n: plain(getattr(config, n, None)) for n in _LORA}


def made_at_run_time(vllm_config):
    """The reason why two engines of these words may have different KV, or nothing."""
    if getattr(getattr(vllm_config, "cache_config", None), "calculate_kv_scales", False):
        return "calculate_kv_scales: true, the scales of the KV cache are made of the first prompts of each engine"
    if getattr(getattr(vllm_config, "mamba_config", None), "enable_stochastic_rounding", False):
        return "enable_stochastic_rounding: true, states are rounded by chance"
    return ""


def cannot_load(vllm_config):
    """The reason why this engine would answer wrongly after loaded blocks, or nothing.  vLLM's reference kernels of MLA
    for CPUs look at no prefix.  So vLLM switches chunks of a prefill and its own prefix cache off for them, but asks
    connectors."""
    def of(config, field):
        return getattr(getattr(vllm_config, config, None), field, None)
    if (of("device_config", "device_type") == "cpu" and of("model_config", "use_mla") and
            of("scheduler_config", "enable_chunked_prefill") is False and of("cache_config", "enable_prefix_caching") is False):
        return ("vLLM computes prompts of this model (MLA, on a CPU without AMX) in one go, and not behind a prefix that is "
                "loaded: its answers would be wrong. Leave kv_transfer_config out")
    return ""
