#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Engines with tiers below RAM: the keys and the file of gpc_config, who keeps the tiers of engines and gpcd, deaths of
# stewards, and what is refused at the start. t/daemon/config.t has gpcd refuse the same files.
# Needs: tools/gpcd
# Tests: python/gpc/engines/tiers.py python/gpc/engines/file.py python/gpc/engines/keys.py python/gpc/engines/secret.py
#   python/gpc/engines/cache.py tools/daemon/tiers.c tools/daemon/serve.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/python.sh"
python_test tiers
