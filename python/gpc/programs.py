# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/wheel.t
"""gpcd, gpc-inspect and gpc-replay of a wheel.  They lie in the folder bin beside this file, and the commands that pip
makes exec them.  So a command is one process, which has the tool's name and takes its signals."""

import os
import signal
import sys


def _become(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    for one in (signal.SIGPIPE, signal.SIGXFSZ):         # Python ignores this signal, and an exec does not undo that
        signal.signal(one, signal.SIG_DFL)
    try:
        os.execv(path, sys.argv)
    except OSError as e:
        raise SystemExit(f"{name}: {path}: {e.strerror}; the programs come with the wheel of make wheel") from None


def gpcd():
    _become("gpcd")


def gpc_inspect():
    _become("gpc-inspect")


def gpc_replay():
    _become("gpc-replay")
