#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: every call with wrong arguments.  It refuses them, and never crashes.
# Tests: python/src/args.c python/src/array.c python/src/gpcpy.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test arguments
