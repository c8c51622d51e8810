#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: the manager against the contract of vLLM's interface, without vLLM.
# Tests: python/gpc/vllm/manager.py python/gpc/vllm/pending.py python/gpc/vllm/finder.py python/gpc/vllm/config.py
#   python/gpc/vllm/spec.py python/gpc/vllm/events.py python/gpc/vllm/metrics.py
#   python/gpc/vllm/__init__.py python/gpc/engines/publisher.py python/gpc/engines/cache.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_manager
