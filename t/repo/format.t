#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format decides: each source is what it makes of it.  Versions differ, so one of them is asked.
# Tests: .clang-format

srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
cd "$srcdir" || exit 99
want=14

for program in clang-format-$want clang-format; do
	version=$($program --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
	test "$version" = $want && break
done
if test "$version" != $want; then
	echo "1..0 # SKIP clang-format $want decides, and here is ${version:-none}"
	exit 0
fi

tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-format-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

find lib kernels tools plugins python/src t \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
	-o -name '*.cc' \) ! -type d -exec $program --dry-run {} + 2>"$tmp/out"
if grep -q . "$tmp/out"; then
	echo "not ok 1 - every source is as clang-format $want has it"
	grep 'clang-formatted' "$tmp/out" | sed 's/^/# /' | head -n 20
else
	echo "ok 1 - every source is as clang-format $want has it"
fi

# the test itself: a line that is not
printf 'int  a;\n' >"$tmp/wrong.c"
cp .clang-format "$tmp"
if $program --dry-run "$tmp/wrong.c" 2>&1 | grep -q 'clang-formatted'; then
	echo "ok 2 - and it says where one is not"
else
	echo "not ok 2 - and it says where one is not"
fi
echo "1..2"
