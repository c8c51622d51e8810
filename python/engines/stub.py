# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for packages that are not installed, as PyTorch, so that modules that declare an interface can be imported.
Each name of such a package is a class: it can be called, subclassed, subscripted, put into annotations and used as a
decorator.  Nothing that is computed by one is right."""

import importlib.abc
import importlib.machinery
import sys
import types

_ABSENT = {"opentelemetry"}      # LMCache does without, and takes a handler of logging from it


class _Meta(type):
    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return make(name)

    def __call__(cls, *args, **more):
        if not cls.__dict__.get("_stub"):
            return super().__call__(*args, **more)       # of a class that is derived from one
        if len(args) == 1 and not more and isinstance(args[0], (type, types.FunctionType)):
            return args[0]                               # a decorator
        return make(cls.__name__)

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __getitem__(cls, item):
        return cls

    def __bool__(cls):
        return not cls.__dict__.get("_stub")

    def __iter__(cls):
        return iter(())


class _Stub(metaclass=_Meta):
    _stub = True

    def __init_subclass__(cls, **more):
        pass

    def __init__(self, *args, **more):
        pass


def make(name):
    return _Meta(name, (_Stub,), {"_stub": True})


class _Module(types.ModuleType):
    __version__ = "0"
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return make(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last one that is asked: of names beyond those of `real`, packages whose modules have to be there."""

    def __init__(self, real):
        self.real, self.stubs = real, set()

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in self.real or top in sys.stdlib_module_names or top in _ABSENT:
            return None
        self.stubs.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def install(*real):
    finder = Finder({"gpc", *real})
    sys.meta_path.append(finder)
    return finder
