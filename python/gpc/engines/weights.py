# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""Tells the weights of a model from other weights of the same name."""

import hashlib
import json
import os
import re

import gpc

from .config import ConfigError

WHOLE = 1 << 30                  # a model of that many bytes is read whole; a larger one would take long
_SAMPLES, _SAMPLE = 16, 1 << 16
_OF_TENSOR = 256                 # bytes at the ends and in the middle of each tensor
_HEADER = 100 << 20              # most bytes of a header of safetensors
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
# files that decide how the weights are read: of a model, of its quantization, of an adapter
_CONFIGS = ("config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json", "kv_cache_scales.json",
            "adapter_config.json")


def _whole(h, f):
    crc = 0
    while piece := f.read(1 << 20):
        crc = gpc.crc32c(piece, crc)
    h.update(crc.to_bytes(4, "little"))


def _at(h, f, at, n):
    f.seek(at)
    h.update(f.read(n))


def _tensors(f, size):
    """(from, to) in the file for each tensor of a safetensors file, and the bytes of its header; nothing for other
    files."""
    n = int.from_bytes(f.read(8), "little")
    if n > min(size, _HEADER):
        return [], 0
    try:
        header = json.loads(f.read(n))
        spans = [t["data_offsets"] for name, t in header.items() if name != "__metadata__"]
        return [(8 + n + a, 8 + n + b) for a, b in sorted(spans) if 0 <= a < b <= size - 8 - n], n
    except (ValueError, TypeError, KeyError, AttributeError):
        return [], 0


def _parts(h, f, size):
    """Pieces at equal distances.  A file of safetensors adds its header and some bytes of each tensor."""
    for i in range(_SAMPLES):
        _at(h, f, max(i * (size - _SAMPLE) // (_SAMPLES - 1), 0), _SAMPLE)
    f.seek(0)
    spans, header = _tensors(f, size)
    _at(h, f, 0, 8 + header)
    for a, b in spans:
        for at in (a, (a + b) // 2, max(a, b - _OF_TENSOR)):
            _at(h, f, at, min(_OF_TENSOR, b - at))


def _sample(h, path, whole):
    size = os.path.getsize(path)
    h.update(f"{os.path.basename(path)} {size}\n".encode())
    with open(path, "rb") as f:
        if whole:
            _whole(h, f)
        else:
            _parts(h, f, size)


def _folder(path):
    h = hashlib.sha256()
    files = [f for f in sorted(os.listdir(path)) if f.endswith(_WEIGHTS) or f in _CONFIGS]
    if not any(f.endswith(_WEIGHTS) for f in files):
        return None
    paths = [os.path.join(path, f) for f in files]
    whole = sum(os.path.getsize(p) for p in paths) <= WHOLE
    for p in paths:
        _sample(h, p, whole)
    return "files " + h.hexdigest()


def _hub(model, revision):
    """The commit of a model of the Hugging Face hub that was downloaded under its name.  revision: a branch, a tag, or
    a commit itself."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or
                                                     os.path.expanduser("~/.cache"), "huggingface")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    try:
        with open(os.path.join(hub, "models--" + model.replace("/", "--"), "refs", revision)) as f:
            return "commit " + f.read().strip()
    except OSError:
        return "commit " + revision if re.fullmatch("[0-9a-f]{40}", revision) else None


def weights_of(model, given="", revision=""):
    """A text that tells these weights from others of the same name."""
    found = "given " + given if given else None
    if not found and os.path.isdir(model):
        found = _folder(model)
    elif not found and os.path.isfile(model):
        h = hashlib.sha256()
        _sample(h, model, os.path.getsize(model) <= WHOLE)
        found = "files " + h.hexdigest()
    found = found or _hub(model, revision or "main")
    if not found:
        raise ConfigError(f"gpc_weights: '', the weights of {model!r} are neither files nor a download of the hub "
                          "that this process sees: give their revision, or another text that changes with them")
    return found
