# SPDX-License-Identifier: Apache-2.0
"""What tells the weights of a model from others of the same name."""

import hashlib
import os

from .config import ConfigError

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
