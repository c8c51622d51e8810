#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: what a load of a long prompt costs the scheduler.
# Tests: python/gpc/vllm/connector.py python/gpc/vllm/manager.py python/gpc/vllm/finder.py python/gpc/vllm/chunks.py
#   python/gpc/vllm/image.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_loads
