#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bundle.py WHEEL [LIBDIR] - put libgpc.so into a wheel, so that it needs no other installation.

By auditwheel where it is there, which renames the wheel for manylinux and takes what libgpc needs as
well.  Else libgpc.so.N of LIBDIR (or pkg-config's) is copied beside the module, which looks there first
(patchelf); its own libraries are then the system's.  Prints the name of the new wheel.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from glob import glob


def run(*command, **more):
    subprocess.run(command, check=True, **more)


def by_auditwheel(wheel, libdir):
    env = dict(os.environ, LD_LIBRARY_PATH=libdir + ":" + os.environ.get("LD_LIBRARY_PATH", ""))
    to = os.path.join(os.path.dirname(os.path.abspath(wheel)), "wheelhouse")
    run(sys.executable, "-m", "auditwheel", "repair", "-w", to, wheel, env=env, stdout=sys.stderr)
    return max(glob(to + "/*.whl"), key=os.path.getmtime)


def by_copy(wheel, libdir):
    with tempfile.TemporaryDirectory() as tmp:
        run(sys.executable, "-m", "wheel", "unpack", "-d", tmp, wheel, stdout=sys.stderr)
        (folder,) = glob(tmp + "/*")
        (library,) = [f for f in glob(libdir + "/libgpc.so.*") if f.count(".so.") and f.rsplit(".so.")[1].isdigit()]
        shutil.copy(os.path.realpath(library), os.path.join(folder, "gpc", os.path.basename(library)))
        for module in glob(folder + "/gpc/_gpc*.so"):
            run("patchelf", "--set-rpath", "$ORIGIN", module)
        run(sys.executable, "-m", "wheel", "pack", "-d", os.path.dirname(os.path.abspath(wheel)), folder,
            stdout=sys.stderr)
    return wheel


def main():
    if not 2 <= len(sys.argv) <= 3:
        raise SystemExit(__doc__)
    wheel = sys.argv[1]
    libdir = sys.argv[2] if len(sys.argv) > 2 else subprocess.run(
        ["pkg-config", "--variable=libdir", "libgpc"], check=True, capture_output=True, text=True).stdout.strip()
    have = subprocess.run([sys.executable, "-m", "auditwheel", "--version"], capture_output=True).returncode == 0
    print((by_auditwheel if have else by_copy)(wheel, libdir))


main()
