#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One list of functions, told four times: gpc.h declares it, libgpc.sym and the shared library
# export it and nothing else, man/ has a page for each.
# Tests: lib/gpc.h lib/libgpc.sym man/

srcdir=${top_srcdir:-$(dirname "$0")/../..}
builddir=${top_builddir:-$(dirname "$0")/../..}
library=$builddir/lib/.libs/libgpc.so
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-912-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
tap()	# NAME STATUS
{
	n=$((n + 1))
	test "$2" = 0 && echo "ok $n - $1" || echo "not ok $n - $1"
}

same()	# NAME LEFT RIGHT
{
	diff "$tmp/$2" "$tmp/$3" >"$tmp/diff"
	status=$?
	sed 's/^/# /' "$tmp/diff"
	tap "$1" $status
}

# declarations begin in the first column; comments and macros do not
${CC:-cc} -E -P -I"$srcdir/lib" "$srcdir/lib/gpc.h" | tr '\n' ' ' | tr ';' '\n' |
	sed -n 's/^[^({]*[ *]\(gpc_[a-z0-9_]*\)(.*$/\1/p' | sort >"$tmp/header"
sed -n 's/^	\(gpc_[a-z0-9_]*\);$/\1/p' "$srcdir/lib/libgpc.sym" | sort >"$tmp/sym"

test "$(wc -l <"$tmp/header")" -ge 40
tap "gpc.h declares functions" $?
same "libgpc.sym lists what gpc.h declares" header sym

grep '\*;$\|^	[^g]' "$srcdir/lib/libgpc.sym" | grep -v '^	\*;$' >"$tmp/odd"
test ! -s "$tmp/odd"
tap "libgpc.sym has no pattern and no other name" $?

for page in "$srcdir"/man/gpc_*.3; do
	basename "$page" .3
done | sort >"$tmp/pages"
same "each function has a page, each page a function" header pages

if test -e "$library" && command -v nm >/dev/null 2>&1; then
	# versions themselves are absolute symbols
	nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
		sort >"$tmp/exported"
	same "the library exports that and nothing else" header exported
else
	n=$((n + 1))
	echo "ok $n - the library exports that and nothing else # SKIP no $library or no nm"
fi

# a program that loads the library late has next to no static thread-local memory left
if test -e "$library" && command -v readelf >/dev/null 2>&1; then
	! readelf -d "$library" | grep STATIC_TLS
	tap "the library can be loaded late" $?
else
	n=$((n + 1))
	echo "ok $n - the library can be loaded late # SKIP no $library or no readelf"
fi

echo "1..$n"
