# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""Facts of the engine beside HiCacheStorageConfig: its arguments, and a secret that its ranks share.  It imports no
module of SGLang that SGLang has not imported itself."""

import itertools
import json
import os
import sys

from ..engines.namespace import SALT

# arguments that change the bytes of KV for the same tokens and files of weights
_MEANING = ("dtype", "quantization", "quantization_param_path", "kv_cache_dtype", "revision", "model_config_parser",
            "modelopt_quant", "rl_quant_profile", "torchao_config", "decrypted_config_file")
_DRAFT = ("speculative_draft_model_path", "speculative_draft_model_revision", "speculative_draft_model_quantization",
          "speculative_draft_kv_cache_dtype", "decrypted_draft_config_file")
_WHERE = (("sglang.srt.runtime_context", "get_server_args"), ("sglang.srt.server_args", "get_global_server_args"))
_resets = itertools.count(1)


def server_args():
    """None: this version of SGLang tells them elsewhere."""
    for module, name in _WHERE:
        get = getattr(sys.modules.get(module), name, None)
        try:
            if get is not None and get() is not None:
                return get()
        except (ValueError, RuntimeError):       # not set yet, or an older name
            pass
    return None


def _words(names, *where):
    """The value of each argument that is set, in the first of these objects that has it."""
    has = {n: next((getattr(w, n) for w in where if hasattr(w, n)), None) for n in names}
    return {n: str(v) for n, v in has.items() if v}


def meaning(config, args):
    """Arguments of the model: an engine with other ones has other KV."""
    words = _words(_MEANING, config, args)
    overrides = _words(["json_model_override_args"], config, args).get("json_model_override_args", "{}")
    try:
        overrides = json.loads(overrides)
    except ValueError:
        pass
    words.update({"overrides": overrides} if overrides else {})
    if _words(["load_format"], config, args).get("load_format") == "dummy":
        words["load_format"] = "dummy"           # the weights do not come from the files
    return words


def draft(args):
    """The same of the draft model, whose pages are in pools of their own."""
    return _words(_DRAFT, args)


def common_random(log):
    """A function that gives random bytes.  They are the same in all ranks of this engine, which call it equally
    often."""
    def random():
        mine, number = os.urandom(SALT), next(_resets)
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_initialized() or dist.get_world_size() == 1:
            return mine
        try:                             # the first rank that asks sets it
            from torch.distributed.distributed_c10d import _get_default_store
            key = f"gpc.sglang reset {number}"
            return bytes.fromhex(_get_default_store().compare_set(key, "", mine.hex()).decode())
        except Exception as e:
            log.warning("gpc: the ranks of this engine share no pages until it is restarted: %s. A gpc_version_file "
                        "says what they have in common", e)
            return mine
    return random
