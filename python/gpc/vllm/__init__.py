# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-manager.t
"""gpc.vllm: one RAM tier for all vLLM engines of a machine.

    --kv-transfer-config '{"kv_connector": "GPCConnector", "kv_connector_module_path": "gpc.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"spec_name": "GPCOffloadingSpec", "spec_module_path": "gpc.vllm",
                                      "gpc_bytes": 68719476736}}'

README.md beside this file has each key.  Parts that need vLLM are imported when they are asked for, so that the rest
can be used and tested without it.
"""

_LAZY = {"GPCOffloadingSpec": "spec", "GPCOffloadingManager": "spec", "GPCOffloadingWorker": "spec",
         "GPCConnector": "connector"}


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    return getattr(importlib.import_module("." + _LAZY[name], __name__), name)
