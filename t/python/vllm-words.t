#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: who shares a cache, and what an engine is told that does not.
# Tests: python/gpc/vllm/model.py python/gpc/vllm/name.py python/gpc/engines/words.py lib/index/segment/remove.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_words
