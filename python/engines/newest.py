# SPDX-License-Identifier: Apache-2.0
"""newest.py FOLDER [PACKAGE[==VERSION]...] - the tests of gpc.vllm, gpc.sglang and gpc.lmcache over the interface modules
of the newest versions, pre-releases too, that PyPI has of vLLM, SGLang and LMCache.

What they import beside is a stand-in (stub.py), so this needs no PyTorch, and seconds when the wheels are there.
Their Python files are kept in FOLDER; a wheel of vLLM has some 350 MB and is downloaded once for each version.  It
prints what failed, and a table.  The status is 1 if anything failed.

newest.py FOLDER --over PACKAGE TREE TEST is one of its runs.
"""

import ast
import contextlib
import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import types
import zipfile
from glob import glob

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = {"vllm": ["vllm_manager.py", "vllm_worker.py", "vllm_events.py", "vllm_failures.py", "vllm_figures.py",
                  "vllm_namespace.py", "vllm_seen.py", "vllm_step.py", "vllm_words.py", "vllm_below.py", "vllm_hints.py",
                  "../engines/vllm_start.py"],
         "sglang": ["sglang_storage.py"], "lmcache": ["lmcache_adapter.py"]}


# ---- the wheels ----

def _pip(*args):
    return subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *args], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def newest(package):
    """The version that pip would take, without a download."""
    if "==" in package:
        return package.partition("==")[2]
    found = json.loads(_pip("install", "-q", "--dry-run", "--no-deps", "--pre", "--ignore-installed", "--only-binary",
                            ":all:", "--report", "-", package))
    return found["install"][0]["metadata"]["version"]


def unpacked(folder, package, version):
    """Where its Python files are."""
    tree = os.path.join(folder, f"{package}-{version}")
    if not os.path.exists(tree):
        with tempfile.TemporaryDirectory(dir=folder) as wheels:
            _pip("download", "-q", "--no-deps", "--pre", "--only-binary", ":all:", "-d", wheels,
                 f"{package}=={version}")
            with zipfile.ZipFile(*glob(os.path.join(wheels, "*.whl"))) as wheel:
                wheel.extractall(wheels + "/tree", [n for n in wheel.namelist() if n.endswith((".py", "/METADATA"))])
            os.rename(wheels + "/tree", tree)
    return tree


# ---- one test over one tree ----

def over_vllm(tree, own=False):
    """own: with vLLM's offloading connector; else it is a fake one."""
    import vllm_modules
    vllm_modules.install(tree)
    if own:
        return
    import vllm_fake as fake
    base = sys.modules["vllm.v1.kv_offload.base"]
    for n in ("LookupResult", "Medium", "Locality", "TierMatcher", "TierFilter", "RequestOffloadingContext", "PrepareStoreOutput", "OffloadingEvent",
              "TransferResult", "OffloadingManager", "OffloadingWorker", "OffloadingSpec"):
        setattr(fake, n, getattr(base, n))
    fake.CacheHitSource = sys.modules["vllm.v1.metrics.cache_hit_source"].CacheHitSource
    fake.OffloadingWorkerMetadata = sys.modules[vllm_modules.OFFLOADING + ".common"].OffloadingWorkerMetadata
    sys.modules[vllm_modules.OFFLOADING + ".metrics"].OffloadingConnectorStats = fake.OffloadingConnectorStats
    sys.modules[vllm_modules.V1 + ".offloading_connector"].OffloadingConnector = fake.OffloadingConnector
    fake.install = lambda: None


def over_sglang(tree):
    import interfaces
    interfaces.over_sglang(tree)


def over_lmcache(tree):
    import interfaces
    import lmcache_fake as fake
    sys.path.insert(0, tree)
    import stub
    native = sys.modules["lmcache.lmcache_native"] = stub._Module("lmcache.lmcache_native")     # in C++
    native.Bitmap = fake.Bitmap
    interfaces.over_lmcache(tree)


def over(package, tree, test):
    import stub
    stub.install(package)
    if test.endswith("vllm_start.py"):
        over_vllm(tree, True)
    else:
        {"vllm": over_vllm, "sglang": over_sglang, "lmcache": over_lmcache}[package](tree)
    sys.argv = [test]
    runpy.run_path(os.path.join(HERE, "..", "tests", test), run_name="__main__")


# ---- what no interface promises, in vLLM's source ----

def _attributes(cls):
    """Fields and methods of a class, and what its __init__ assigns."""
    out = set()
    for node in ast.walk(cls):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            out.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            out.add(node.target.id if isinstance(node.target, ast.Name) else getattr(node.target, "attr", ""))
        elif isinstance(node, ast.Assign):
            out.update(t.attr for t in node.targets if isinstance(t, ast.Attribute))
    return out


def private(tree):
    """Lines of TAP."""
    from gpc.vllm.private import NEEDS
    for (module, name), wanted in NEEDS.items():
        path = os.path.join(tree, *module.split(".")) + ".py"
        with contextlib.suppress(OSError), open(path) as f:
            classes = {n.name: n for n in ast.walk(ast.parse(f.read())) if isinstance(n, ast.ClassDef)}
            gone = set(wanted) - _attributes(classes[name]) if name in classes else {name}
            yield f"{'not ok' if gone else 'ok'} - {module}.{name} has {', '.join(wanted)}"
            continue
        yield f"not ok - {module} is there"


def arguments(tree):
    """Of SGLang's: that gpc.sglang asks for those that there are, where they are told."""
    from gpc.sglang.engine import _WHERE
    text = ""
    for path in glob(os.path.join(tree, "sglang/srt/server_args.py")) + \
            glob(os.path.join(tree, "sglang/srt/arg_groups/fields/*.py")):
        with open(path) as f:
            text += f.read()
    told = False
    for module, name in _WHERE:
        with contextlib.suppress(OSError), open(os.path.join(tree, *module.split(".")) + ".py") as f:
            told |= re.search(rf"def {name}\(\) -> (?!NoReturn)", f.read()) is not None
    yield f"{'ok' if told else 'not ok'} - {' or '.join(n for _, n in _WHERE)} tells its arguments"
    for name in ("json_model_override_args", "dtype", "quantization", "kv_cache_dtype", "revision", "load_format"):
        yield f"{'ok' if re.search(rf'^    {name}:', text, re.M) else 'not ok'} - {name} is one of them"


# ---- all ----

def run(folder, package, tree, test):
    """(ok, what is not)."""
    got = subprocess.run([sys.executable, os.path.abspath(__file__), folder, "--over", package, tree, test], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
                         env={**os.environ, "GPC_T_CACHE": f"newest-{package}-{os.getpid()}"})
    good = len(re.findall(r"^ok ", got.stdout, re.M))
    bad = re.findall(r"^not ok .*(?:\n#.*)*", got.stdout, re.M)
    if got.returncode and not bad:
        bad = [f"not ok - {test} ends with {got.returncode}: " + "\n# ".join(got.stderr.strip().splitlines()[-4:])]
    return good, bad


def check(folder, wanted):
    package, since = wanted.partition("==")[0], time.monotonic()
    version = newest(wanted)
    tree = unpacked(folder, package, version)
    good, bad = 0, []
    for test in TESTS[package]:
        g, b = run(folder, package, tree, test)
        good, bad = good + g, bad + b
    lines = list({"vllm": private, "sglang": arguments}.get(package, lambda tree: [])(tree))
    good += sum(line.startswith("ok") for line in lines)
    bad += [line for line in lines if line.startswith("not")]
    print("\n".join([f"# {package} {version}: {good} ok, {len(bad)} not ok, {time.monotonic() - since:.0f} s", *bad]),
          flush=True)
    return package, version, good, len(bad)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder = os.path.abspath(sys.argv[1])
    if sys.argv[2:3] == ["--over"]:
        return over(*sys.argv[3:6])
    os.makedirs(folder, exist_ok=True)
    rows = [check(folder, wanted) for wanted in sys.argv[2:] or sorted(TESTS)]
    print("\n| package | version | checked | ok | not ok |\n|---|---|---|---|---|")
    for package, version, good, bad in rows:
        print(f"| {package} | {version} | {time.strftime('%Y-%m-%d')} | {good} | {bad} |")
    for package, version, *_ in rows:            # those of older versions go
        for old in glob(os.path.join(folder, package + "-*")):
            if old != os.path.join(folder, f"{package}-{version}"):
                shutil.rmtree(old, ignore_errors=True)
    sys.exit(any(bad for *_, bad in rows))


if __name__ == "__main__":
    main()
