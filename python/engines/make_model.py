# SPDX-License-Identifier: Apache-2.0
"""make_model.py DIR [HIDDEN LAYERS INNER [QUERIES]] - a Llama of random weights, as safetensors.  QUERIES: heads of
queries for each head of keys, 2.

Engines that read it have the same weights.  Weights that a real model could have make other tokens likely when one
block of the KV cache is wrong; vLLM's own dummy weights are so small that nobody would notice.
"""

import json
import os
import sys

import torch
from safetensors.torch import save_file

VOCAB, HEAD = 4096, 64


def config(hidden, layers, inner, queries):
    heads = hidden // HEAD
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
            "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "head_dim": HEAD,
            "num_attention_heads": heads, "num_key_value_heads": max(1, heads // queries), "vocab_size": VOCAB,
            "max_position_embeddings": 16384, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
            "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}


def shapes(c):
    """name -> (shape, deviation); 0: a norm, all ones.

    Queries and keys are larger than a trained model's start, so that attention prefers some positions to others."""
    h, n = c["hidden_size"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * HEAD, c["num_key_value_heads"] * HEAD
    unit = h ** -0.5
    yield "model.embed_tokens.weight", (VOCAB, h), 1.0
    for i in range(c["num_hidden_layers"]):
        for name, shape, deviation in (
                ("input_layernorm", (h,), 0), ("post_attention_layernorm", (h,), 0),
                ("self_attn.q_proj", (q, h), 1.5 * unit), ("self_attn.k_proj", (kv, h), 1.5 * unit),
                ("self_attn.v_proj", (kv, h), 2 * unit), ("self_attn.o_proj", (h, q), 2 * unit),
                ("mlp.gate_proj", (n, h), unit), ("mlp.up_proj", (n, h), unit),
                ("mlp.down_proj", (h, n), n ** -0.5)):
            yield f"model.layers.{i}.{name}.weight", shape, deviation
    yield "model.norm.weight", (h,), 0
    yield "lm_head.weight", (VOCAB, h), 2 * unit


def make(folder, hidden=256, layers=4, inner=None, queries=2):
    c = config(hidden, layers, inner or 3 * hidden, queries)
    random = torch.Generator().manual_seed(20)
    weights = {}
    for name, shape, deviation in shapes(c):
        w = torch.randn(shape, generator=random) * deviation if deviation else torch.ones(shape)
        weights[name] = w.to(torch.bfloat16)
    os.makedirs(folder, exist_ok=True)
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as f:       # last: a folder that has it is complete
        json.dump(c, f, indent=1)


def words(folder):
    """A tokenizer, as servers want one: token i is the word ti."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    t = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=t, bos_token="t1", eos_token="t2", unk_token="t0",
                            pad_token="t0").save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    make(sys.argv[1], *map(int, sys.argv[2:]))
