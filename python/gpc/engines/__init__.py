# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""The modules that gpc.vllm, gpc.sglang and gpc.lmcache share.  They import no engine."""
