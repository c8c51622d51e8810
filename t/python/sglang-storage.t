#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.sglang: every method of HiCacheStorage, without SGLang: host pools of several layouts, bad bytes, no room.
# Tests: python/gpc/sglang/ python/gpc/engines/store.py python/gpc/engines/config.py
#   python/gpc/engines/bytes.py python/gpc/engines/weights.py python/gpc/engines/namespace.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test sglang_storage
