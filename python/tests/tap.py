# SPDX-License-Identifier: Apache-2.0
"""tap.py - the Test Anything Protocol for the tests of the Python module.

Each test has a cache name of its own, from the shell that started it, and removes what it made.
"""

import atexit
import os
import sys

import gpc

name = os.environ.get("GPC_T_CACHE", f"python-{os.getpid()}")
_count = _failed = 0
_made = set()
_parent = os.getpid()


def ok(good, what):
    global _count, _failed
    _count += 1
    if not good:
        _failed += 1
    print(f"{'ok' if good else 'not ok'} {_count} - {what}", flush=True)
    return good


def is_(got, want, what):
    if not ok(got == want, what):
        print(f"# got {got!r}, want {want!r}", flush=True)


def raises(kind, text, call, what):
    """call() raises exactly that kind of exception, and its text has `text`."""
    try:
        got = call()
    except BaseException as e:
        if not ok(isinstance(e, kind) and text in str(e), what):
            print(f"# got {type(e).__name__}: {e}, want {kind.__name__} with {text!r}", flush=True)
        return e
    ok(False, what)
    print(f"# got {got!r}, want {kind.__name__}", flush=True)
    return None


def create(suffix="", **options):
    options.setdefault("serve", True)
    c = gpc.create(name + suffix, **options)
    _made.add(name + suffix)
    return c


def skip(what, why):
    global _count
    _count += 1
    print(f"ok {_count} # SKIP {what}: {why}", flush=True)


def done():
    print(f"1..{_count}", flush=True)
    sys.exit(1 if _failed else 0)


@atexit.register
def _remove():
    if os.getpid() == _parent:
        for each in _made:
            try:
                gpc.unlink(each)
            except gpc.Error:
                pass
