#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.sglang, gpc.lmcache and the store under both, with tiers below RAM: what is there is found and loaded, in time.
# Needs: t-plugins
# Tests: python/gpc/engines/store.py python/gpc/engines/below.py python/gpc/sglang/storage.py
#   python/gpc/lmcache/adapter.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test store_below
