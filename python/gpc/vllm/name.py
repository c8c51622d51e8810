# SPDX-License-Identifier: Apache-2.0
"""Who may share a cache: a fingerprint of all that gives the bytes of a chunk their meaning.

Engines that differ in anything that is named here have different fingerprints.  Without gpc_name they use
different caches; with it, the second one fails at start.
"""

import hashlib
import json
import os

from .config import ConfigError

IMAGE_VERSION = 1                # grows when what lies in a slot changes
_SAMPLES, _SAMPLE = 16, 1 << 16
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def _sample(h, path):
    """Length, and pieces at equal distances: all bytes would take minutes."""
    size = os.path.getsize(path)
    h.update(f"{os.path.basename(path)} {size}\n".encode())
    with open(path, "rb") as f:
        for i in range(_SAMPLES if size > _SAMPLES * _SAMPLE else 1):
            f.seek(i * (size - _SAMPLE) // (_SAMPLES - 1) if size > _SAMPLES * _SAMPLE else 0)
            h.update(f.read(_SAMPLE if size > _SAMPLES * _SAMPLE else size))


def _folder(path):
    h = hashlib.sha256()
    files = [f for f in sorted(os.listdir(path)) if f.endswith(_WEIGHTS) or f == "config.json"]
    if not any(f.endswith(_WEIGHTS) for f in files):
        return None
    for f in files:
        _sample(h, os.path.join(path, f))
    return "files " + h.hexdigest()


def _hub(model):
    """The commit of a model of the Hugging Face hub that was downloaded under its name."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or
                                                     os.path.expanduser("~/.cache"), "huggingface")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    try:
        with open(os.path.join(hub, "models--" + model.replace("/", "--"), "refs", "main")) as f:
            return "commit " + f.read().strip()
    except OSError:
        return None


def weights_of(model, given=""):
    """What tells these weights from others of the same name."""
    found = "given " + given if given else None
    if not found and os.path.isdir(model):
        found = _folder(model)
    elif not found and os.path.isfile(model):
        h = hashlib.sha256()
        _sample(h, model)
        found = "files " + h.hexdigest()
    found = found or _hub(model)
    if not found:
        raise ConfigError(f"gpc_weights: '', the weights of {model!r} are neither files nor a download of the hub "
                          "that this process sees: give their revision, or another text that changes with them")
    return found


def fingerprint(config, weights, rank_bytes, parts):
    """32 bytes, of a vllm.v1.kv_offload.config.OffloadingConfig or what has its fields."""
    p = config.parallel
    meaning = {
        "image": IMAGE_VERSION, "weights": weights, "dtype": config.model.dtype,
        "layout": config.kv_cache_layout, "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk, "rank_bytes": rank_bytes, "parts": parts,
        "world": [p.world_size, p.tp_size, p.pp_size, p.pcp_size, p.dcp_size],
        "groups": [[g.group_id, g.tokens_per_block, list(g.layer_names)] for g in config.groups],
    }
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).digest()


def cache_name(config, layout):
    return config.name or "vllm-" + layout[:8].hex()
