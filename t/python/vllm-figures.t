#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm, gpc.sglang and gpc.lmcache: what they count, and what the library counts of them.
# Tests: python/gpc/vllm/metrics.py python/gpc/vllm/finder.py python/gpc/vllm/manager.py python/gpc/engines/store.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_figures
