# SPDX-License-Identifier: Apache-2.0
"""vLLM's own modules, out of an unpacked wheel and without PyTorch: those of the interface, the offloading connector whole,
and what starts an engine.  All other modules of vLLM that these import are stand-ins, as those of other packages are."""

import importlib
import importlib.machinery
import os
import sys

import stub

V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
OFFLOADING = V1 + ".offloading"
REAL = ("vllm.v1.kv_offload.base", "vllm.v1.kv_offload.config", "vllm.v1.kv_offload.factory",
        "vllm.v1.metrics.cache_hit_source", V1 + ".base", V1 + ".metrics",
        *(f"{OFFLOADING}.{n}" for n in ("common", "config", "events", "metrics", "scheduler", "worker")),
        V1 + ".offloading_connector", "vllm.v1.core.sched.scheduler", "vllm.v1.worker.gpu_worker", "vllm.v1.engine.core")


class _Others(stub.Finder):
    """The first one that is asked: modules of vLLM that are not REAL."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "vllm" or any(r == name or r.startswith(name + ".") for r in REAL):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)


def _packages(tree):
    """What their own __init__ imports is not there."""
    for name in sorted({r.rpartition(".")[0] for r in REAL}):
        whole = ""
        for part in name.split("."):
            parent, whole = whole, (whole + "." + part).lstrip(".")
            if whole not in sys.modules:
                m = sys.modules[whole] = stub._Module(whole)
                m.__path__ = [os.path.join(tree, *whole.split("."))]
                if parent:
                    setattr(sys.modules[parent], part, m)


def install(tree):
    """After stub.install("vllm")."""
    sys.meta_path.insert(0, _Others(set()))
    _packages(tree)
    base = importlib.import_module(V1 + ".base")
    for name in ("KVConnectorBase_V1", "KVConnectorRole", "SupportsHMA"):
        setattr(sys.modules[V1], name, getattr(base, name))
    for name in REAL:
        importlib.import_module(name)
