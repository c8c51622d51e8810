#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/wheel.t
"""wheel.py STAGE OUT VERSION EPOCH [FILE=PATH...] - write a wheel of what lies in STAGE, a folder with the package gpc.

    gpc/_gpc.abi3.so        gpc/lib/libgpc.so.N             gpc/bin/gpcd
                            gpc/lib/gpc/gpc_remote_*.so     gpc/bin/gpc-inspect ...

Each has an RPATH of its own that names gpc/lib.  Whatever else they need is copied there from the system, as it is: an RPATH,
other than a RUNPATH, holds for what a library needs in turn.  What every system of a manylinux tag has stays the system's.
The tag is computed from the versions of symbols that all of these objects need, so a wheel of an older system serves more
systems.  The licence of each library that is copied is that of its Debian package.

A FILE is a path in the wheel's scheme "data", share/man/man1/x.1 for instance.  Equal trees and EPOCHs give equal bytes:
entries stand in order, with one time and two modes.  Prints the name of the wheel.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

# What PEP 600 leaves to the system, as far as any of ours needs it.
SYSTEMS = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2", "libutil.so.1",
           "libnsl.so.1", "libanl.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
LOADER = re.compile(r"(ld-linux.*|linux-vdso|ld64)\.so\.\d+$")

# The newest versions that the systems of a glibc's year have beside it: RHEL 7 and 8, Debian 11, RHEL 9, Ubuntu 22.04,
# 23.10 and 24.04.  Each row has all of those above.
BESIDE_GLIBC = ((17, "GLIBCXX_3.4.19", "CXXABI_1.3.7", "GCC_4.8.0"),
                (28, "GLIBCXX_3.4.24", "CXXABI_1.3.11", "GCC_7.0.0"),
                (31, "GLIBCXX_3.4.28", "CXXABI_1.3.12", "GCC_7.0.0"),
                (34, "GLIBCXX_3.4.29", "CXXABI_1.3.13", "GCC_7.0.0"),
                (35, "GLIBCXX_3.4.30", "CXXABI_1.3.13", "GCC_12.0.0"),
                (38, "GLIBCXX_3.4.32", "CXXABI_1.3.14", "GCC_13.0.0"),
                (39, "GLIBCXX_3.4.33", "CXXABI_1.3.15", "GCC_14.0.0"))


def die(text):
    raise SystemExit(f"wheel.py: {text}")


def say(*command):
    env = dict(os.environ, LC_ALL="C")
    env.pop("LD_LIBRARY_PATH", None)                     # what it names is not there where the wheel goes
    try:
        return subprocess.run(command, env=env, capture_output=True, text=True)
    except OSError as e:
        die(f"{command[0]}: {e.strerror}; its package is binutils, libc-bin or dpkg")


# ---- objects ----

def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def objects(stage):
    for folder, _, files in os.walk(stage):
        yield from (p for p in (os.path.join(folder, f) for f in files) if is_elf(p))


def dynamic(path, word):
    return re.findall(rf"\({word}\)[^\[]*\[(.*?)\]", say("readelf", "-dW", path).stdout)


def loads(path):
    """Each library that is loaded with this object: {name: path}."""
    text = say("ldd", path).stdout
    if missing := re.search(r"^\t(\S+) => not found$", text, re.M):
        die(f"{path} needs {missing[1]}, which this system does not have")
    return dict(re.findall(r"^\t(\S+) => (/.*) \(0x[0-9a-f]+\)$", text, re.M))


def bundle(stage):
    """Copies what is missing.  {name: where it was}"""
    lib, copied = os.path.join(stage, "gpc", "lib"), {}
    for path in sorted(objects(stage)):
        for name, at in loads(path).items():
            if re.match(r"lib(asan|tsan|ubsan|lsan)\.", name):
                die(f"{path} needs {name}: a build with sanitizers makes no wheel")
            if name in SYSTEMS or LOADER.match(name) or at.startswith(stage + "/") or name in copied:
                continue
            if other := dynamic(at, "RPATH|RUNPATH"):
                die(f"{at} looks for libraries in {other[0]}: it would look past the wheel's own")
            copied[name] = os.path.realpath(at)
    for name, at in copied.items():
        shutil.copy(at, os.path.join(lib, name))
    return copied


# ---- the tag ----

def number(version):
    return tuple(map(int, re.findall(r"\d+", version.split("_")[1])))


def least_glibc(path, versions, named):
    """The minor number of the first glibc that has these versions."""
    least = 17
    for v in versions:
        family = v.split("_")[0]
        if family == "GLIBC" and re.fullmatch(r"GLIBC_2\.\d+(\.\d+)?", v):
            need = number(v)[1]
        elif family in ("GLIBCXX", "CXXABI", "GCC"):
            need = next((row[0] for row in BESIDE_GLIBC for have in row[1:]
                         if have.startswith(family + "_") and number(v) <= number(have)), None)
            if need is None:
                die(f"{path} needs {v}, which no manylinux tag has yet")
        else:
            die(f"{path} needs {v}, which is private to one version of the C library")
        if need > least:
            least, named[need] = need, f"{os.path.basename(path)} needs {v}"
    return least


def tag(stage):
    named = {17: "nothing needs more"}
    least = 17
    told = re.split(r"^File: (.*)$", say("readelf", "-VW", *sorted(objects(stage))).stdout, flags=re.M)
    for path, text in zip(told[1::2], told[2::2]):
        versions = re.findall(r"Name: ((?:GLIBC|GLIBCXX|CXXABI|GCC)_\S+)", text)
        least = max(least, least_glibc(path, versions, named))
    machine = sysconfig.get_platform().removeprefix("linux-").replace("-", "_").replace(".", "_")
    return f"cp311-abi3-manylinux_2_{least}_{machine}", named[least]


# ---- licences ----

def packages_of(paths):
    """{path: package}.  Packages name a file as it was before /lib was /usr/lib, or as it is now."""
    names = {n: p for p in paths for n in (p, p.removeprefix("/usr"), "/usr" + p)}
    told = re.findall(r"^(\S+?)(?:, .*)?: (/.*)$", say("dpkg-query", "-S", *names).stdout, re.M)
    found = {names[name]: package for package, name in told if name in names}
    for path in paths:
        if path not in found:
            die(f"{path} is of no package of Debian or Ubuntu, so its licence is not known: build with the system's library, or "
                "without (../configure --help)")
    return found


def sources_of(packages):
    told = say("dpkg-query", "-W", "-f", "${Package}:${Architecture}\t${Package}\t${source:Package} ${source:Version}\n",
               *packages).stdout
    return {name: source for *names, source in (line.split("\t") for line in told.splitlines()) for name in names}


def licences(copied, put):
    rows, common = [], set()
    packages = packages_of(copied.values())
    sources = sources_of(sorted(set(packages.values())))
    for name, path in sorted(copied.items()):
        plain = packages[path].split(":")[0]
        with open(f"/usr/share/doc/{plain}/copyright", encoding="utf-8") as f:
            text = f.read()
        common |= set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", text))
        put(f"{plain}.copyright", text.encode())
        rows.append(f"{name}: package {plain}, source {sources[packages[path]]}\n")
    for one in sorted(common):
        with open(f"/usr/share/common-licenses/{one}", "rb") as f:
            put(one, f.read())
    put("BUNDLED", ("Libraries in gpc/lib that are copies of those of the system of this build, the licence of each beside "
                    "this file:\n\n" + "".join(rows)).encode())


# ---- the wheel ----

def metadata(version, files):
    with open(os.path.join(HERE, "pyproject.toml"), "rb") as f:
        project = tomllib.load(f)["project"]
    with open(os.path.join(HERE, project["readme"]), encoding="utf-8") as f:
        readme = f.read()
    return ("Metadata-Version: 2.4\n"
            f"Name: {project['name']}\nVersion: {version}\nSummary: {project['description']}\n"
            f"License-Expression: {project['license']['text']}\n"
            + "".join(f"License-File: {f}\n" for f in sorted(files))
            + "".join(f"Classifier: {c}\n" for c in project["classifiers"])
            + f"Requires-Python: {project['requires-python']}\nDescription-Content-Type: text/markdown\n\n{readme}").encode()


ENTRY_POINTS = """[console_scripts]
gpcd = gpc.programs:gpcd
gpc-inspect = gpc.programs:gpc_inspect
gpc-replay = gpc.programs:gpc_replay
"""


def write(out, entries, info, when):
    """entries: {name: (bytes, is a program)}"""
    rows = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        def add(name, data, mode):
            item = zipfile.ZipInfo(name, when)
            item.create_system, item.external_attr, item.compress_type = 3, (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            z.writestr(item, data)

        for name in sorted(entries, key=lambda n: (n.startswith(info), n)):      # as PEP 427 likes it
            data, program = entries[name]
            add(name, data, 0o755 if program else 0o644)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            rows.append(f"{name},sha256={digest},{len(data)}\n")
        add(f"{info}/RECORD", ("".join(rows) + f"{info}/RECORD,,\n").encode(), 0o644)


def main():
    if len(sys.argv) < 5:
        raise SystemExit(__doc__)
    stage, out, version, epoch = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    info, more, entries = f"gpc-{version}.dist-info", {}, {}
    copied = bundle(stage)
    tags, why = tag(stage)

    def read(path):
        with open(path, "rb") as f:
            return f.read()

    licences(copied, lambda name, data: more.__setitem__(name, data))
    more["LICENSE"] = read(os.path.join(HERE, "..", "LICENSE"))
    for folder, _, files in os.walk(stage):
        for f in files:
            path = os.path.join(folder, f)
            entries[os.path.relpath(path, stage)] = read(path), os.path.basename(folder) == "bin"
    for one in sys.argv[5:]:
        name, path = one.split("=", 1)
        entries[f"gpc-{version}.data/data/{name}"] = read(path), False
    for name, data in more.items():
        entries[f"{info}/licenses/{name}"] = data, False
    entries[f"{info}/METADATA"] = metadata(version, more), False
    entries[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode(), False
    entries[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: gpc {version}\nRoot-Is-Purelib: false\n"
                                f"Tag: {tags}\n").encode(), False
    name = f"gpc-{version}-{tags}.whl"
    write(os.path.join(out, name), entries, info, time.gmtime(max(epoch, 315532800))[:6])      # a zip begins in 1980
    print(f"{name}: {why}; {len(copied)} libraries of the system inside")


main()
