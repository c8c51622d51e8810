#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: walks, events, statistics, check, devices.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/python.sh"
python_test look
