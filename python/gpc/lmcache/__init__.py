# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""gpc.lmcache: one RAM tier for all LMCache servers of a machine, as an L2 adapter.

    --l2-adapter '{"type": "plugin", "module_path": "gpc.lmcache", "class_name": "GPCL2Adapter",
        "adapter_params": {"gpc_bytes": 68719476736}}'

README.md beside this file has each key.  LMCache is imported when GPCL2Adapter is asked for.
"""


def __getattr__(name):
    if name != "GPCL2Adapter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .adapter import GPCL2Adapter
    return GPCL2Adapter
