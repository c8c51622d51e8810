#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: namespaces after resets, versions, and the bytes of adapters.
# Tests: python/gpc/engines/namespace.py python/gpc/vllm/adapters.py python/gpc/vllm/manager.py python/gpc/vllm/events.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_namespace
