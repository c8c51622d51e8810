#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.lmcache: every method of L2AdapterInterface, without LMCache: locks, events, bad bytes, no room.
# Tests: python/gpc/lmcache/ python/gpc/engines/store.py python/gpc/engines/__init__.py
#   python/gpc/engines/config.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test lmcache_adapter
