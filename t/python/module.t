#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: keys, lookups, publishes, by lists and by buffers.
# Tests: python/src/find.c python/src/fill.c python/src/keys.c python/src/array.c
#   python/src/publish.c python/src/open.c python/src/module.c python/gpc/__init__.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test basic
