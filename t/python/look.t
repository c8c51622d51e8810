#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: walks, events, statistics, check, devices.
# Tests: python/src/look.c python/src/walk.c python/src/field.c python/src/device.c
#   python/gpc/_types.py python/gpc/_gpc.pyi

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test look
