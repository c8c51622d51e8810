# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine as a process: engine.py OPTIONS FD

OPTIONS are JSON: those of vllm.LLM, where kv_connector_extra_config stands for the whole kv_transfer_config.
Commands come as lines of JSON on the standard input, answers go as lines of JSON to FD.  fleet.py is the other end.
"""

import gc
import json
import os
import random
import sys
import time


def prompt(parts):
    """[[seed, n], ...] -> tokens: parts that two prompts share are the same tokens."""
    out = []
    for seed, n in parts:
        r = random.Random(seed)
        out += [r.randrange(3, 4096) for _ in range(n)]
    return out


def start(options):
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"        # apply_model takes a function
    from vllm import LLM
    extra = options.pop("kv_connector_extra_config", None)
    if extra is not None and "secondary_tiers" in extra:        # vLLM's own
        options["kv_transfer_config"] = {
            "kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    elif extra is not None and "lmcache.mp.port" in extra:      # LMCache's server
        options["kv_transfer_config"] = {
            "kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    elif extra is not None:
        options["kv_transfer_config"] = {
            "kv_connector": "GPCConnector", "kv_connector_module_path": "gpc.vllm", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"spec_name": "GPCOffloadingSpec", "spec_module_path": "gpc.vllm", **extra}}
    defaults = {"skip_tokenizer_init": True, "dtype": "bfloat16", "enforce_eager": True, "max_model_len": 8192,
                "max_num_seqs": 4, "max_num_batched_tokens": 8192, "block_size": 32, "seed": 0,
                "disable_log_stats": False}
    return LLM(**{**defaults, **options})


def roll(model):
    """Other weights, in place, as a trainer leaves them: those that a CPU engine has not packed."""
    for name, w in model.named_parameters():
        if "embed_tokens" in name:
            w.data.copy_(w.data.roll(1, 0))


def close(llm):
    """The end of an engine whose core is in this process."""
    if llm is not None:
        llm.llm_engine.engine_core.shutdown()


def generate(llm, parts, n, salt=None, lora=None):
    """lora: name and folder of an adapter."""
    from vllm import SamplingParams
    more = {}
    if lora:
        from vllm.lora.request import LoRARequest
        more["lora_request"] = LoRARequest(lora[0], 1 + sum(lora[0].encode()), lora[1])
    how = SamplingParams(temperature=0, max_tokens=n, logprobs=3, ignore_eos=True, detokenize=False)
    since = time.perf_counter()
    asked = {"prompt_token_ids": prompt(parts), **({"cache_salt": salt} if salt else {})}
    (out,) = llm.generate([asked], how, use_tqdm=False, **more)
    seconds = time.perf_counter() - since
    got = out.outputs[0]
    return {"seconds": seconds, "cached": out.num_cached_tokens, "ids": list(got.token_ids),
            "logprobs": [sorted((t, p.logprob) for t, p in d.items()) for d in got.logprobs]}


def groups_of(llm):
    """Of an engine whose core is in this process: its KV groups."""
    config = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config
    return [[type(g.kv_cache_spec).__name__, g.kv_cache_spec.block_size, len(g.layer_names)] for g in config.kv_cache_groups]


def metrics(llm):
    """Counters and gauges by name, summed over their labels."""
    out = {}
    for m in llm.get_metrics():
        if hasattr(m, "value"):
            out[m.name] = out.get(m.name, 0) + m.value
    return out


def main():
    options, fd = json.loads(sys.argv[1]), int(sys.argv[2])
    answers = os.fdopen(fd, "w", buffering=1)
    os.set_inheritable(fd, False)        # the engine's end is the end of the answers

    def say(what):
        answers.write(json.dumps(what) + "\n")

    if not options.pop("later", False):
        llm = start(options)
    else:                                # "open" says which engine, and may say it again
        llm = None
        import vllm  # noqa: F401
    say({"ready": True})
    for line in sys.stdin:
        c = json.loads(line)
        if c["do"] == "generate":
            say(generate(llm, c["prompt"], c["n"], c.get("salt"), c.get("lora")))
        elif c["do"] == "open":
            close(llm)
            llm = None
            gc.collect()
            try:
                llm = start(c["options"])
                say({"groups": groups_of(llm)})
            except Exception as e:
                say({"error": f"{type(e).__name__}: {e}"})
        elif c["do"] == "reset":         # the engine's own cache alone
            say({"reset": llm.reset_prefix_cache()})
        elif c["do"] == "update":        # of weights, as RL trainers do it
            from engine import roll     # workers import it by that name
            llm.apply_model(roll)
            say({"reset": llm.reset_prefix_cache(reset_connector=True)})
        elif c["do"] == "metrics":
            say(metrics(llm))


if __name__ == "__main__":
    main()
