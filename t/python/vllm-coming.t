#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: an engine answers before the memory of its cache is made.
# Tests: python/gpc/vllm/coming.py python/gpc/vllm/spec.py python/gpc/vllm/connector.py python/gpc/vllm/meet.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_coming
