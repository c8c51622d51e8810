#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm carries out hints of an orchestrator: prefetch and demote.
# Tests: python/gpc/vllm/hints.py python/gpc/vllm/connector.py python/gpc/engines/below.py lib/bytes/payload/ask.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_hints
