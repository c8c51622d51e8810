#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plugins for engines store the beginning of a prompt that is longer than RAM, and with a disk all of it.
# Tests: python/gpc/vllm/manager.py python/gpc/engines/store.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test long_prompts
