#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The index is built, linked and right without the halls above it: "make index" with a few of its
# tests, and with one that needs more.
# Tests: t/sh/index t/sh/index.mk lib/index/ lib/look/

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "${top_builddir:-$top_srcdir}" || exit 99
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-index-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
result()	# TEXT: what stands before it was right; "$tmp/out" is the diagnosis
{
	if test $? = 0; then r=ok; else r="not ok"; fi
	n=$((n + 1))
	echo "$r $n - $1"
	test "$r" = ok || sed 's/^/# /' "$tmp/out"
}
index()	# TEST...
{
	unset MAKEFLAGS MAKELEVEL MFLAGS
	make --no-print-directory index INDEX_TESTS="$*" >"$tmp/out" 2>&1
}

index t/index/publish t/index/window-stores t/index/groups
result "three tests, with an index alone"
tail -n 1 "$tmp/out" | grep -q '^[1-9][0-9]* passed, 0 failed$'
result "all of them passed"
! index t/bytes/copy && grep -q 'undefined reference to .gpc_copy' "$tmp/out"
result "a test that copies cannot be linked"
echo "1..$n"
