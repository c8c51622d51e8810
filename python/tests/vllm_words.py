# SPDX-License-Identifier: Apache-2.0
"""Who shares a cache of gpc.vllm: every word of the model's configuration that changes KV is in the fingerprint, those
that change none are not, and an engine that is refused is told which one differs."""

import os
import sys
import tempfile

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
from gpc.engines import words  # noqa: E402
from gpc.engines.weights import weights_of  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec, model  # noqa: E402
from gpc.vllm.config import ConfigError  # noqa: E402
from gpc.vllm.name import fingerprint, words_of  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

EXTRA = {"gpc_name": name, "gpc_weights": "w1", "gpc_bytes": (64 + 40) * 4096, "gpc_free_target": -1, "gpc_stock": 0}
_made.add(name)


def no_weights(path, given="", revision=""):
    return f"{path} {revision}"


def prints(config, **more):
    return fingerprint(fake.config({}, **more), "w", 1024, 1, model.words_of(config, no_weights))


def changed(**more):
    return fake.vllm_config(**more)


def part(at, **more):
    c = fake.vllm_config()
    setattr(c, at, fake.ns(**more))
    return c


# ---- what counts, and what does not ----

base = prints(fake.vllm_config())
text = fake.ns(rope_parameters={"rope_type": "linear", "factor": 1.0}, num_attention_heads=4, transformers_version="5.1",
               _name_or_path="/elsewhere", _commit_hash="1234")
is_(prints(changed(hf_config=text)), base, "names, commits and versions in a model's config are none of it")
for what, same in {
        "how long prompts may be": changed(max_model_len=8192), "the seed": changed(seed=7),
        "the name": changed(model="/other/place"), "eager": changed(enforce_eager=True),
        "the name it is served under": changed(served_model_name="x"), "main, which is the default": changed(revision="main"),
        "what auto is": part("cache_config", cache_dtype="bfloat16"),
        "share of the GPU": part("cache_config", cache_dtype="auto", gpu_memory_utilization=0.5),
        "blocks of the GPU": part("cache_config", cache_dtype="auto", num_gpu_blocks=9),
        "what is scheduled": part("scheduler_config", max_num_seqs=3, enable_chunked_prefill=False),
        "adapters, which are in their keys": changed(lora=fake.ns(max_loras=3, lora_dtype="float16"))}.items():
    is_(prints(same), base, f"shared: {what}")
seen = {base}
for what, other in {
        "RoPE": changed(rope=4.0), "quantization": changed(quantization="fp8"), "dtype": changed(dtype="float16"),
        "a revision": changed(revision="v2.0"), "another one": changed(revision="v1.0"),
        "no sliding window": changed(disable_sliding_window=True), "dtype of the KV": part("cache_config", cache_dtype="fp8_e5m2"),
        "another one of 8 bits": part("cache_config", cache_dtype="fp8_e4m3"),
        "layers that are not quantized": part("cache_config", cache_dtype="auto", kv_cache_dtype_skip_layers=["0"]),
        "a backend": part("attention_config", backend="FLASHINFER"), "another one ": part("attention_config", backend="FLASH"),
        "a field that no table names": changed(twist=3), "V2": (lambda c: setattr(c, "use_v2_model_runner", True) or c)(changed()),
        "a draft": part("speculative_config", method="eagle", draft_model_config=fake.ns(model="d", hf_config={"n": 1})),
        "a draft of other weights": part("speculative_config", method="eagle", draft_model_config=fake.ns(model="e", hf_config={"n": 1})),
        "images": changed(multimodal_config=fake.ns(video_pruning_rate=0.5)), "dummy weights": part("load_config", load_format="dummy"),
        "interleaved ranks": part("parallel_config", cp_kv_cache_interleave_size=8)}.items():
    got = prints(other)
    ok(got not in seen, f"not shared: {what}")
    seen.add(got)
is_(prints(part("speculative_config", method="ngram", draft_model_config=None)), base, "shared: a draft without a model")
as_it_was, variables = prints(changed()), {}
for n, v in (("VLLM_MARLIN_INPUT_DTYPE", "fp8"), ("VLLM_MARLIN_INPUT_DTYPE", "int8"), ("VLLM_FLOAT32_MATMUL_PRECISION", "medium"),
             ("VLLM_USE_DEEP_GEMM_E8M0", "0"), ("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "INT4"), ("VLLM_MLA_DISABLE", "1"),
             ("VLLM_MOE_ROUTING_SIMULATION_STRATEGY", "uniform_random")):
    os.environ[n] = v
    variables[n, v] = prints(changed())
    del os.environ[n]
is_(len({as_it_was, *variables.values()}), 8, "variables of the environment that change a byte")
for n, v in (("VLLM_USE_DEEP_GEMM_E8M0", "1"), ("VLLM_FLOAT32_MATMUL_PRECISION", "HIGHEST"), ("VLLM_ROCM_USE_AITER_FP8BMM", "True"),
             ("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "NONE"), ("VLLM_LOGGING_LEVEL", "DEBUG"), ("VLLM_PORT", "1234")):
    was, os.environ[n] = os.environ.get(n), v
    is_(prints(changed()), as_it_was, f"{n}={v} changes none")
    os.environ.pop(n) if was is None else os.environ.update({n: was})

rope = {"rope_type": "longrope", "original_max_position_embeddings": 4096}
long = [prints(changed(hf_text_config=fake.ns(rope_parameters=rope), max_model_len=n)) for n in (2048, 4096, 8192, 16384)]
is_([long[0] == long[1], long[1] == long[2], long[2] == long[3]], [True, False, True],
    "longrope chooses its factors by the length that an engine is started for")
is_(model.plain({"b": {2, 1}, "a": fake.LookupResult.HIT, "c": (1, None)}), {"b": [1, 2], "a": "HIT", "c": [1, None]},
    "values are the same in each process")
ok("0x" not in str(model.plain(fake.ns(a=object(), b=len))), "without addresses")
is_(model.made_at_run_time(fake.vllm_config()), "", "scales of the files")
no_prefix = fake.vllm_config(use_mla=True)
no_prefix.cache_config.enable_prefix_caching = False
no_prefix.scheduler_config = fake.ns(enable_chunked_prefill=False)
no_prefix.device_config = fake.ns(device_type="cuda")
is_((model.cannot_load(None), model.cannot_load(no_prefix)), ("", ""), "a GPU computes behind what is loaded")
no_prefix.device_config.device_type = "cpu"
raises(ConfigError, "its answers would be wrong", lambda: GPCOffloadingSpec(fake.config(EXTRA, vllm_config=no_prefix)),
       "vLLM's MLA for CPUs does not, and is refused")
ok("calculate_kv_scales" in model.made_at_run_time(part("cache_config", calculate_kv_scales=True)), "scales of the first prompts")

# ---- weights ----

with tempfile.TemporaryDirectory() as d:
    os.makedirs(d + "/hub/models--org--m/refs")
    for ref, commit in (("main", "a" * 40), ("v1", "b" * 40)):
        with open(d + "/hub/models--org--m/refs/" + ref, "w") as f:
            f.write(commit)
    os.environ["HF_HUB_CACHE"] = d + "/hub"
    is_([weights_of("org/m"), weights_of("org/m", revision="v1"), weights_of("org/m", revision="c" * 40)],
        ["commit " + x * 40 for x in "abc"], "a model of the hub: the commit of its revision")
    raises(ValueError, "gpc_weights", lambda: weights_of("org/m", revision="v9"), "one that was not downloaded")
    with open(d + "/a.safetensors", "wb") as f:
        f.write(bytes(100))
    plain = weights_of(d)
    for f in ("hf_quant_config.json", "quantize_config.json", "tokenizer.json"):
        with open(f"{d}/{f}", "w") as g:
            g.write("{}")
        is_(weights_of(d) == plain, f == "tokenizer.json", f"{f} is read with the weights" if f[0] != "t" else f"{f} is not")
        plain = weights_of(d)

# ---- the connector tells the spec ----


class Half:
    manager = fake.ns(set_chained=lambda groups: None, prompts=fake.ns())
    config = fake.ns(kv_group_configs=[])


told = []
init = fake.OffloadingConnector.__init__
fake.OffloadingConnector.__init__ = lambda self, *args: (told.append(model.TOLD.get()), init(self, *args))[1]
mine = changed(rope=2.0)
GPCConnector(mine, "scheduler", fake.ns(half=Half(), kv_cache_groups=[None]))
is_((told, model.TOLD.get()), ([mine], None), "while it makes it")
fake.OffloadingConnector.__init__ = init

# ---- a message that names the field ----

a = GPCOffloadingSpec(fake.config(EXTRA)).get_manager()
raises(gpc.Error, "differs: model.hf_config.rope_parameters.factor is 4.0 here and 1.0 there. Give",
       lambda: GPCOffloadingSpec(fake.config(EXTRA, vllm_config=changed(rope=4.0))).get_manager(), "another RoPE")
raises(gpc.Error, "dtype is fp8 here and bfloat16 there, model.disable_sliding_window is true here and none there, "
       "model.quantization is fp8 here and none there, and 1 more", lambda: GPCOffloadingSpec(fake.config(
           {**EXTRA, "gpc_weights": "w2"}, model=fake.ns(name="m", dtype="fp8"),
           vllm_config=changed(quantization="fp8", disable_sliding_window=True))).get_manager(), "several")
path = f"/dev/shm/gpc.{name}.words"
is_((os.stat(path).st_mode & 0o777, words.read(name, "", a.c.info().layout)["weights"]), (0o600, "given w1"), "they lie beside it")
with open(path, "w") as f:
    f.write('{"weights": "of another cache"}')
raises(gpc.Error, "differs: weights, configuration of the model", lambda: GPCOffloadingSpec(fake.config(
    EXTRA, vllm_config=changed(rope=4.0))).get_manager(), "words that are not the cache's say nothing")
a.shutdown()
with open(f"/dev/shm/gpc.{name}.idx", "r+b") as f:      # magic, and then the version of the layout
    f.seek(8)
    version = int.from_bytes(f.read(4), sys.byteorder)
    f.seek(8)
    f.write((version + 1).to_bytes(4, sys.byteorder))
raises(gpc.Error, f"gpc_name: cache {name} was made by a newer gpc (layout {version + 1})", lambda: GPCOffloadingSpec(
    fake.config(EXTRA)).get_manager(), "a cache of another gpc is told from one of another fingerprint")
with open(f"/dev/shm/gpc.{name}.idx", "r+b") as f:
    f.seek(8)
    f.write(version.to_bytes(4, sys.byteorder))
open(path + ".tmp", "w").close()
gpc.unlink(name)
is_([f for f in os.listdir("/dev/shm") if f.startswith(f"gpc.{name}.")], [], "who removes the cache removes its words")
is_(words.fingerprint(words_of(fake.config({}), "w", 1, 1)), fingerprint(fake.config({}), "w", 1, 1), "the file's SHA-256 is it")
done()
