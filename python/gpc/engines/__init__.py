# SPDX-License-Identifier: Apache-2.0
"""What gpc.vllm, gpc.sglang and gpc.lmcache share.  It imports no engine."""
