#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: store_threshold, counted for all engines of a cache.
# Tests: python/gpc/vllm/seen.py python/gpc/vllm/finder.py python/gpc/vllm/manager.py python/gpc/engines/cache.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_seen
