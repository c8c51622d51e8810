#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The models of t/model: the correct versions pass, mutants are caught.  "make models" leaves
# nothing out.
# Tests: t/model/

MODEL_SHORT=${MODEL_SHORT-yes} exec "${top_srcdir:-$(dirname "$0")/../..}/t/model/run"
