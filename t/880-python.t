#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: keys, lookups, publishes, by lists and by buffers.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/python.sh"
python_test basic
