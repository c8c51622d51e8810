# SPDX-License-Identifier: Apache-2.0
"""Builds the module against an installed libgpc: that of GPC_PREFIX, or what pkg-config finds.

The wheel serves every CPython since 3.11.  A Python without the GIL has no stable interface, so there it
is a wheel for that version alone.
"""

import os
import subprocess
import sysconfig
from glob import glob

from setuptools import Extension, setup

no_gil = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def pkg_config(*what):
    env = dict(os.environ)
    prefix = env.get("GPC_PREFIX")
    if prefix:
        env["PKG_CONFIG_PATH"] = prefix + "/lib/pkgconfig:" + env.get("PKG_CONFIG_PATH", "")
    try:
        return subprocess.run([env.get("PKG_CONFIG", "pkg-config"), *what, "libgpc"], env=env, check=True,
                              capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as e:
        raise SystemExit("setup.py: libgpc is not installed where pkg-config looks: set GPC_PREFIX to "
                         f"its prefix, or PKG_CONFIG_PATH ({e})")


def version():
    return pkg_config("--modversion")[0]


libdir = pkg_config("--variable=libdir")
extension = Extension(
    "gpc._gpc",
    sources=sorted(glob("src/*.c")),
    depends=sorted(glob("src/*.h")),
    define_macros=[("GPC_PY_FULL_API", "1")] if no_gil else [],
    extra_compile_args=["-std=gnu11", "-fvisibility=hidden", *pkg_config("--cflags")],
    extra_link_args=pkg_config("--libs"),
    # make wheel is another way, which needs none
    runtime_library_dirs=libdir if os.environ.get("GPC_PREFIX") else [],
    py_limited_api=not no_gil,
)
setup(version=version(), ext_modules=[extension],
      options={} if no_gil else {"bdist_wheel": {"py_limited_api": "cp311"}})
