# SPDX-License-Identifier: Apache-2.0
"""configs.py WORK - the fingerprints of real vLLM configurations of a small model: which command lines share a cache."""

import dataclasses
import os
import shutil
import sys

os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")

from make_model import make  # noqa: E402
from tap import done, is_, ok  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402

from gpc.engines import words  # noqa: E402
from gpc.engines.weights import weights_of  # noqa: E402
from gpc.vllm import model  # noqa: E402

# What counts of vLLM 0.32: a later one that has more says here which.
COUNTS = {
    "model_config": {"runner", "convert", "dtype", "hf_config", "revision", "code_revision", "quantization",
                     "disable_sliding_window", "model_class_overrides", "model_impl"},
    "cache_config": {"cache_dtype", "sliding_window", "kv_cache_dtype_skip_layers", "mamba_cache_dtype",
                     "mamba_ssm_cache_dtype", "mamba_cache_mode", "replayssm_buffer_len", "use_replayssm",
                     "use_kda_recoverssm", "kv_sharing_fast_prefill"},
    "attention_config": {"backend", "backend_per_kind", "disable_flashinfer_q_quantization", "use_prefill_query_quantization",
                         "indexer_kv_dtype", "indexer_sparse_logits", "hisparse_config", "use_non_causal"},
    "mamba_config": {"enable_stochastic_rounding", "stochastic_rounding_philox_rounds"},
}
BASE = dict(skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096)
SAME = {
    "max_model_len": dict(max_model_len=8192), "seed": dict(seed=3), "max_num_seqs": dict(max_num_seqs=7),
    "chunked prefill": dict(enable_chunked_prefill=False, max_num_batched_tokens=8192),
    "gpu_memory_utilization": dict(gpu_memory_utilization=0.5), "enforce_eager": dict(enforce_eager=True),
    "served_model_name": dict(served_model_name="other"), "adapters": dict(enable_lora=True, max_lora_rank=8),
    "n-grams": dict(speculative_config={"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}),
    "what auto is, by name": dict(kv_cache_dtype="bfloat16", runner="generate", convert="none", model_impl="vllm"),
    "prefix caching off": dict(enable_prefix_caching=False), "generation_config": dict(generation_config="vllm"),
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 4096}
OTHER = {
    "model.hf_config.rope_parameters.factor": dict(hf_overrides={"rope_parameters": LINEAR}),
    "model.hf_config.rope_parameters.rope_type": dict(hf_overrides={"rope_parameters": YARN}),
    "model.hf_config.rms_norm_eps": dict(hf_overrides={"rms_norm_eps": 1e-3}),
    "model.dtype": dict(dtype="float32"), "cache_config.cache_dtype": dict(kv_cache_dtype="fp8"),
    "model.revision": dict(revision="v2"), "load": dict(load_format="dummy"),
    "attention_config.use_non_causal": dict(attention_config={"use_non_causal": True}),
}


def words_of(folder, **more):
    config = EngineArgs(model=folder, **{**BASE, **more}).create_engine_config()
    return config, model.words_of(config, weights_of)


def main():
    folder = os.path.join(sys.argv[1], "model-configs")
    if not os.path.exists(os.path.join(folder, "config.json")):
        make(folder, 128, 2)
    config, base = words_of(folder)
    for name, counts in COUNTS.items():
        fields = {f.name for f in dataclasses.fields(getattr(config, name))}
        is_(fields - set(model.EVERY[name]) - counts, set(), f"each field of {name} has its row")
    copied = folder + "-moved"
    shutil.copytree(folder, copied, dirs_exist_ok=True)
    is_(words.fingerprint(words_of(copied)[1]), words.fingerprint(base), "shared: a copy of the folder elsewhere")
    for what, more in SAME.items():
        got = words_of(folder, **more)[1]
        is_(words.tell(got, base), "", f"shared: {what}")
    for what, more in OTHER.items():
        try:
            got = words_of(folder, **more)[1]
        except Exception as e:                   # not on this platform
            print(f"# {what}: {str(e).splitlines()[0][:100]}")
            continue
        ok(what in [at for at, _, _ in words.differences(got, base)] and words.fingerprint(got) != words.fingerprint(base),
           f"not shared: {what}")
    draft = dict(model=folder, method="draft_model", num_speculative_tokens=2)
    got = words_of(folder, speculative_config=draft)[1]
    ok(got["draft"]["weights"] == weights_of(folder), "a draft model's weights are in")
    done()


if __name__ == "__main__":
    main()
