#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The models of t/model: the correct versions pass, every mutant is caught.

exec "${top_srcdir:-$(dirname "$0")/..}/t/model/run"
