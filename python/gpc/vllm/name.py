# SPDX-License-Identifier: Apache-2.0
# Tests: t/kv/vllm-events.t t/python/vllm-words.t
"""Which engines may share a cache: a fingerprint of all that gives the bytes of a chunk their meaning.

Engines have different fingerprints if they differ in an entry that is named here, or in one that model.py counts.
Without gpc_name they use different caches; with it, the second one fails at start.
"""

import os

from ..engines import words
from ..engines.weights import weights_of as weights_of

IMAGE_VERSION = 4                # grows when the bytes in a slot change


def words_of(config, weights, rank_bytes, parts, model=None):
    """Words of a vllm.v1.kv_offload.config.OffloadingConfig, or of an object with its fields.  model: the words of
    vLLM's whole configuration (model.py); None: they are not known."""
    p = config.parallel
    return {
        "image": IMAGE_VERSION, "engine": "vllm", "weights": weights, "dtype": config.model.dtype,
        "layout": config.kv_cache_layout, "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk, "rank_bytes": rank_bytes, "parts": parts,
        "world": [p.world_size, p.tp_size, p.pp_size, p.pcp_size, p.dcp_size],
        "groups": [[g.group_id, g.tokens_per_block, list(g.layer_names)] for g in config.groups], **(model or {}),
    }


def fingerprint(config, weights, rank_bytes, parts, model=None):
    """32 bytes."""
    return words.fingerprint(words_of(config, weights, rank_bytes, parts, model))


def label(model, pid):
    """31 bytes by which a person knows an engine among others of the machine: its model, and which engine it is."""
    end = f" {pid}"
    short = os.path.basename(model.rstrip("/")).encode()[:31 - len("vllm ") - len(end)].decode(errors="ignore")
    return f"vllm {short}{end}"


def cache_name(config, layout):
    return config.name or "vllm-" + layout[:8].hex()
