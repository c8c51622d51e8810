# SPDX-License-Identifier: Apache-2.0
"""interfaces.py FOLDER sglang|lmcache - the tests of gpc.sglang (t/python/sglang-storage.t) and gpc.lmcache (t/python/lmcache-adapter.t) once more, over the
real interfaces: those modules of SGLang 0.5.23 and LMCache 0.5.6 that declare them.  TAP.

Their wheels come from PyPI into FOLDER, without the packages that they want: these modules do not import them.
"""

import importlib
import os
import runpy
import subprocess
import sys
import types
import zipfile
from glob import glob

WANTED = {"sglang": ["sglang==0.5.23"], "lmcache": ["lmcache==0.5.6", "sortedcontainers==2.4.0"]}
TESTS = {"sglang": "sglang_storage.py", "lmcache": "lmcache_adapter.py"}


def unpacked(folder, what):
    there = os.path.join(folder, what)
    if not os.path.exists(os.path.join(there, "complete")):
        for wanted in WANTED[what]:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                            "--only-binary", ":all:", "-d", there, wanted], check=True)
        for wheel in glob(os.path.join(there, "*.whl")):
            zipfile.ZipFile(wheel).extractall(there)
        open(os.path.join(there, "complete"), "w").close()
    return there


def over_sglang(there):
    """Its packages import a GPU's kernels when they are imported; the module itself does not."""
    for name in ("sglang", "sglang.srt", "sglang.srt.mem_cache"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [os.path.join(there, *name.split("."))]
    api = importlib.import_module("sglang.srt.mem_cache.hicache_storage")
    import sglang_fake as fake
    sys.modules["sglang.srt.runtime_context"] = types.SimpleNamespace(get_server_args=lambda: fake.ARGS)
    for c in ("PoolName", "PoolHitPolicy", "PoolTransfer", "PoolTransferResult", "HiCacheStorage"):
        setattr(fake, c, getattr(api, c))
    fake.install = lambda: sys.modules.update(torch=types.SimpleNamespace(empty=lambda n, dtype: fake.Tensor(n),
                                                                          uint8=None))


def over_lmcache(there):
    sys.path.append(there)
    base = importlib.import_module("lmcache.v1.distributed.l2_adapters.base")
    import lmcache_fake as fake
    key = importlib.import_module("lmcache.v1.distributed.api").ObjectKey
    fake.ObjectKey = lambda chunk_hash, model_name="model", kv_rank=0, **more: key(chunk_hash, model_name, kv_rank, **more)
    fake.L2AdapterInterface, fake.AdapterUsage = base.L2AdapterInterface, base.AdapterUsage
    fake.install = lambda: None

    def told(name):
        real = getattr(base.L2AdapterInterface, "_notify_keys_" + name)

        def notify(self, keys, *sizes):
            self.__dict__.setdefault("told", []).append((name, keys, *sizes))
            real(self, keys, *sizes)
        return notify
    for name in ("stored", "accessed", "deleted"):
        setattr(base.L2AdapterInterface, "_notify_keys_" + name, told(name))


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in WANTED:
        raise SystemExit(__doc__)
    folder, what = os.path.abspath(sys.argv[1]), sys.argv[2]
    there = unpacked(folder, what)
    {"sglang": over_sglang, "lmcache": over_lmcache}[what](there)
    here = os.path.dirname(os.path.abspath(__file__))
    runpy.run_path(os.path.join(here, "..", "tests", TESTS[what]), run_name="__main__")


if __name__ == "__main__":
    main()
