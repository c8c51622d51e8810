#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: it keeps nothing of what it is given, and gives back what it takes.
# Tests: python/src/handle.c python/src/publish.c python/src/module.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test leaks
