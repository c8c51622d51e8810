# SPDX-License-Identifier: Apache-2.0
# metrics.sh - what tests of metrics share.
#
#	. "${top_srcdir:-$(dirname "$0")/..}/t/sh/metrics.sh"

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

PYTHON=$(command -v python3) || skip_all "there is no python3"
# unpacked by ./bootstrap check-metrics, if they are not installed
PATH=$PATH:$builddir/prometheus/usr/bin

parse()	# FILE [BEFORE]: strictly; samples, one a line, in FILE.samples
{
	"$PYTHON" "$srcdir/t/sh/prom.py" "$@" >"$1.samples" 2>"$tmp/parse"
}

promtool_takes()	# NAME COMMAND... <FILE
{
	what=$1
	shift
	if ! command -v promtool >/dev/null; then
		skip 1 "$what: there is no promtool"
		return
	fi
	promtool "$@" >"$tmp/promtool" 2>&1
	ok $? "$what" "$tmp/promtool"
}
