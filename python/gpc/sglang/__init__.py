# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""gpc.sglang: one RAM tier for all SGLang engines of a machine, as a HiCache storage backend.

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{"backend_name": "gpc",
        "module_path": "gpc.sglang", "class_name": "GPCStorage", "interface_v1": 1, "gpc_bytes": 68719476736}'

README.md beside this file has each key.  SGLang is imported when GPCStorage is asked for.
"""


def __getattr__(name):
    if name != "GPCStorage":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .storage import GPCStorage
    return GPCStorage
