#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: moves, fetch, spill and claims, on the host device.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/python.sh"
python_test transfers
