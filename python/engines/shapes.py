# SPDX-License-Identifier: Apache-2.0
"""shapes.py FOLDER [SHAPE...] - models of every shape of KV cache: one engine computes, another one loads.  TAP.

Each shape is a small model of random weights in float32.  The answers of an engine without gpc are the right ones:
tokens, and logprobs within NEAR, since sums have another order.  Then, for chunks of 1, 3 and 16 blocks, with
vLLM's own prefix cache and without it, a second engine loads what the first one has stored.  Two processes stay for all
of that: each opens one engine after the other.  That the comparison sees one chunk of wrong bytes is tried as
well.  Where vLLM cannot run a shape on CPUs, that is said here and in README.md, and sim.py has it.
"""

import ctypes
import json
import os
import random
import sys
import time

import gpc
import make_model
from fleet import Cache, Engine, EngineError, end_all, wait

import tap
from tap import is_, name, ok

LONG, BRANCH = [[1, 1100]], [[1, 600], [2, 233]]
NEAR, ROUGH = 2e-3, 2e-2         # of float32, of bfloat16
SLOTS = 700 << 20                # bytes: of a 64th of them, which engines have in hand, a prompt is stored without the writer
COMMON = dict(vocab_size=make_model.VOCAB, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
              num_key_value_heads=2, head_dim=64, max_position_embeddings=8192, bos_token_id=1, eos_token_id=2,
              pad_token_id=0, tie_word_embeddings=False, initializer_range=0.06)
TWICE = ["full_attention"] * 2
# config class of transformers, its fields; then the engine's options, the kinds of its groups, and which chunks hit
SHAPES = {
    "full": ("LlamaConfig", {}, {}, ["FullAttentionSpec"]),
    "lora": ("LlamaConfig", {}, {"enable_lora": True, "max_lora_rank": 8, "max_loras": 2}, ["FullAttentionSpec"]),
    "windows": ("MistralConfig", {"sliding_window": 128}, {}, ["SlidingWindowSpec"]),
    "window": ("Gemma3TextConfig", {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2,
                                    "query_pre_attn_scalar": 64}, {}, ["SlidingWindowSpec", "FullAttentionSpec"]),
    "conv": ("Lfm2Config", {"layer_types": ["conv", "full_attention"] * 2, "conv_dim": 256, "block_dim": 256,
                            "block_auto_adjust_ff_dim": False}, {}, ["MambaSpec", "FullAttentionSpec"]),
    "linear": ("Qwen3NextConfig", {"layer_types": ["linear_attention", "full_attention"] * 2, "linear_num_key_heads": 2,
                                   "linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
                                   "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                                   "shared_expert_intermediate_size": 64}, {"dtype": "bfloat16"}, ["MambaSpec", "FullAttentionSpec"]),
    "mamba": ("GraniteMoeHybridConfig", {"layer_types": ["mamba", "attention"] * 2, "mamba_n_heads": 8, "mamba_d_head": 64,
                                         "mamba_d_state": 64, "mamba_n_groups": 1, "mamba_chunk_size": 64,
                                         "mamba_expand": 2, "num_local_experts": 0, "num_experts_per_tok": 0,
                                         "shared_intermediate_size": 512, "position_embedding_type": "nope"},
              {}, ["MambaSpec", "FullAttentionSpec"]),
    "mla": ("DeepseekV2Config", {"num_key_value_heads": 4, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64,
                                 "qk_nope_head_dim": 64, "v_head_dim": 64, "first_k_dense_replace": 4, "n_routed_experts": 2,
                                 "num_experts_per_tok": 1, "n_shared_experts": 1, "moe_intermediate_size": 64},
            {}, ["MLAAttentionSpec"]),
}
# vLLM 0.32 on CPUs: what it says, or does, where a shape does not run
NOT_ON_CPUS = {
    "mamba": "its kernel of Mamba 2 for CPUs gives the state at the end of a prompt alone, and a prefix cache wants those between",
    "mla": "its reference kernels of MLA look at no prefix: it switches its own prefix cache off, and gpc refuses to load there",
}


def make(folder, shape):
    """Weights by transformers, as it would begin to train, but larger."""
    import torch
    import transformers
    kind, fields, _, _ = SHAPES[shape]
    torch.manual_seed(31)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**{**COMMON, **fields}),
                                                          dtype=torch.float32)
    model.save_pretrained(folder)
    if shape == "lora":
        for i in (1, 2):
            adapter(f"{folder}-{i}", model.config, i)


def adapter(folder, c, seed):
    import torch
    from safetensors.torch import save_file
    g = torch.Generator().manual_seed(seed)
    heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads, "v_proj": c.num_key_value_heads}
    w = {}
    for i in range(c.num_hidden_layers):
        for p, n in heads.items():
            at = f"base_model.model.model.layers.{i}.self_attn.{p}.lora_"
            w[at + "A.weight"] = torch.randn(8, c.hidden_size, generator=g) * c.hidden_size ** -0.5
            w[at + "B.weight"] = torch.randn(n * c.head_dim, 8, generator=g) * 0.4
    os.makedirs(folder, exist_ok=True)
    save_file(w, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "bias": "none",
                   "target_modules": sorted(heads), "base_model_name_or_path": "", "inference_mode": True}, f)


def near(a, b, most=NEAR):
    """Tokens up to the first that is nearly as likely as another one, and logprobs of all up to there."""
    for t, u, p, q in zip(a["ids"], b["ids"], a["logprobs"], b["logprobs"]):
        p, q = dict(map(tuple, p)), dict(map(tuple, q))
        if t != u:
            top = sorted(p.values(), reverse=True)
            return top[0] - top[1] < most
        if abs(p[t] - q[t]) > most:
            return False
    return True


class Shape:
    engines = ()

    def __init__(self, shape, folder):
        self.shape = shape
        _, _, self.options, self.kinds = SHAPES[shape]
        self.model = os.path.join(folder, "model-" + shape)
        if not os.path.exists(os.path.join(self.model, "config.json")):
            make(self.model, shape)
        self.number, self.right = 0, {}
        self.most = ROUGH if "dtype" in self.options else NEAR
        self.a, self.b = Shape.engines or self.processes(folder)
        self.adapters = [[f"l{i}", f"{self.model}-{i}"] for i in (1, 2)] if shape == "lora" else []

    @staticmethod
    def processes(folder):
        Shape.engines = [Engine(f"shapes-{n}", folder, "", (i,), later=True, env={
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "WARNING"}) for i, n in enumerate("ab")]
        for e in Shape.engines:
            e.ready()
        return Shape.engines

    def open(self, engines, extra, caching):
        options = {"model": self.model, "dtype": "float32", "max_model_len": 2048, "max_num_batched_tokens": 2048,
                   "kv_cache_memory_bytes": 128 << 20, "enable_prefix_caching": caching, **self.options}
        if extra is not None:
            options["kv_connector_extra_config"] = extra
        for e in engines:
            e.send("open", options=options)
        said = [e.answer() for e in engines]
        for s in said:
            if "error" in s:
                raise EngineError(f"{self.shape}: {s['error']}")
        return said[0]["groups"]

    def answers(self, caching):
        """The right ones: computed, and from the engine's own prefix cache, where it has one."""
        groups = self.open([self.a], None, caching)
        print(f"# {self.shape}: " + ", ".join(f"{k} of {n} layers, {t} tokens a block" for k, t, n in groups), flush=True)
        if caching:
            is_(sorted({k for k, _, _ in groups}), sorted(set(self.kinds)), f"{self.shape}: its groups are of these kinds")
        self.right = {}
        for i, (prompt, lora) in enumerate((p, a) for p in (LONG, BRANCH) for a in (None, *self.adapters)):
            for loaded in (False, True):
                self.right[str((prompt, lora)), loaded] = self.a.ask("generate", prompt=prompt, n=8, lora=lora, salt=f"r{i}")

    def is_right(self, got, prompt, lora=None):
        return near(got, self.right[str((prompt, lora)), got["cached"] > 0], self.most)

    def right_one(self, e, prompt, what, wanted, lora=None, salt=None):
        got = e.ask("generate", prompt=prompt, n=8, lora=lora, salt=salt)
        ok(self.is_right(got, prompt, lora), f"{what}: the answer of an engine without gpc")
        is_(got["cached"], wanted, f"{what}: {wanted} tokens are loaded")
        return got

    def case(self, chunk, caching, checksum=True):
        """Both engines anew, on a new cache."""
        self.number += 1
        called = f"{name}-{self.shape}-{self.number}"
        extra = {"gpc_bytes": SLOTS, "gpc_name": called, "gpc_pending_ms": 60000, "blocks_per_chunk": chunk,
                 "gpc_checksum": checksum}
        groups = self.open([self.a, self.b], extra, caching)
        return called, Cache(called, checksum=checksum), chunk * min(t for _, t, _ in groups)

    def stored(self, cache, what, lora=None, salt=None):
        """The first engine computes and stores.  What the writer was asked for comes in a later step, and a request of a few
        steps of a small model may end before; so it is asked again, and longer."""
        self.right_one(self.a, LONG, what + ", stored", 0, lora, salt)
        self.a.ask("generate", prompt=LONG, n=16, lora=lora, salt=salt)
        self.a.generate([99, 8], n=2)            # whose steps tell the ends of the stores
        seen = []

        def quiet():
            seen.append(cache.c.stats().live)
            time.sleep(0.1)
            return len(seen) > 3 and len(set(seen[-4:])) == 1
        wait(quiet, "stores come to their end")

    def try_case(self, chunk, caching):
        what = f"{self.shape}, chunks of {chunk}, " + ("prefix cache" if caching else "no prefix cache")
        called, cache, tokens = self.case(chunk, caching)
        hit, half = 1099 // tokens * tokens, 600 // tokens * tokens      # the last token is computed
        if set(self.kinds) != {"FullAttentionSpec"}:         # vLLM need not keep what is behind a window, nor states on the way
            half = None
        if "MambaSpec" in self.kinds:    # README, Limits: vLLM keeps one block of a chunk, so no chunk of several is whole
            hit = hit if chunk == 1 else 0
        self.stored(cache, what)
        self.right_one(self.b, LONG, what, hit)
        self.branch(what, half)
        if chunk == 1:
            self.salts(cache, what, hit)
        for lora in self.adapters:
            self.stored(cache, f"{what}, adapter {lora[0]}", lora)
            self.right_one(self.b, LONG, f"{what}, adapter {lora[0]}", hit, lora)
        is_([e.block for e in cache.bad()], [], what + ": all live slots have the bytes of their keys")
        is_(cache.c.check(), 0, what + ": no invariant is broken")
        cache.close()
        gpc.unlink(called)

    def branch(self, what, half):
        wait(lambda: self.b.ask("reset")["reset"], "an engine empties its own cache")
        got = self.b.generate(*BRANCH)
        ok(self.is_right(got, BRANCH), what + ", a branch: the answer of an engine without gpc")
        if half is None:
            print(f"# {what}, a branch: {got['cached']} tokens are loaded")
        else:
            is_(got["cached"], half, f"{what}, a branch: {half} tokens are loaded")

    def salts(self, cache, what, hit):
        self.stored(cache, what + ", a salt", salt="s1")
        self.right_one(self.b, LONG, what + ", another salt", 0, salt="s2")
        self.right_one(self.b, LONG, what + ", the same salt", hit, salt="s1")

    def power(self, caching):
        """Without checksums nobody but this comparison could see it: one chunk of each group has other bytes."""
        called, cache, _ = self.case(1, caching, checksum=False)
        self.stored(cache, f"{self.shape}, no checksums")
        r, by_group = random.Random(3), {}
        for e in cache.live():
            by_group.setdefault(e.group, []).append(e)
        for some in by_group.values():
            cache.fill(max(some, key=lambda e: e.depth), r)
        got = self.b.generate(*LONG)
        ok(got["cached"] > 0 and not self.is_right(got, LONG),
           f"{self.shape}: the comparison sees one chunk of wrong bytes")
        cache.close()
        gpc.unlink(called)

    def is_refused(self):
        """Where vLLM's kernels look at no prefix, an engine with gpc ends at start: with AMX they do."""
        try:
            cache = self.case(1, False)[1]
        except EngineError as e:
            ok("its answers would be wrong" in str(e), f"{self.shape}: gpc refuses to load where vLLM looks at no prefix")
            print(f"# not run: {self.shape}: {NOT_ON_CPUS[self.shape]}; sim.py has it")
            return True
        cache.close()
        return False

    def run(self):
        if self.shape == "mla" and self.is_refused():
            return
        for caching in (False, True):
            if not caching and "MambaSpec" in self.kinds:
                print(f"# not run: {self.shape} without vLLM's prefix cache: vLLM refuses that with a connector that offloads")
                continue
            self.answers(caching)
            for chunk in (1, 3, 16):
                self.try_case(chunk, caching)
        self.power(True)

    def end(self, failed):
        """What has failed may have left anything in the processes."""
        if failed:
            for e in Shape.engines:
                e.kill()
            Shape.engines = ()
        for i in range(1, self.number + 1):
            try:
                gpc.unlink(f"{name}-{self.shape}-{i}")
            except gpc.Error:
                pass


def main():
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(SHAPES):
        raise SystemExit(__doc__)
    for shape in sys.argv[2:] or [s for s in SHAPES if s != "mamba"]:
        since, s, failed = time.monotonic(), None, False
        try:
            s = Shape(shape, sys.argv[1])
            s.run()
        except Exception as e:
            failed = True
            ok(False, f"{shape}: it got to its end: {type(e).__name__}: {e}")
        finally:
            if s:
                s.end(failed)
        print(f"# {shape}: {time.monotonic() - since:.0f} s", flush=True)
    for e in Shape.engines:
        e.quit()
    if "mamba" not in sys.argv[2:]:
        print(f"# not run: mamba: {NOT_ON_CPUS['mamba']}; sim.py has it")
    end_all()
    tap.done()


main()
