#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pages teach by code: each SYNOPSIS agrees with its header, each EXAMPLES block and
# each C file of doc/cmd compiles, a program there links where a library is built.
# Tests: man/ doc/cmd/

srcdir=${top_srcdir:-$(dirname "$0")/../..}
builddir=${top_builddir:-$(dirname "$0")/../..}
CC=${CC:-cc}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-910-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
tap()	# NAME STATUS [FILE with diagnostics]
{
	n=$((n + 1))
	if test "$2" = 0; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		sed 's/^/# /' "${3:-/dev/null}"
	fi
}

compiles()
{
	$CC -std=c11 -Wall -Werror -fsyntax-only -I"$srcdir/lib" "$1" >"$tmp/log" 2>&1
}

# each literal block of EXAMPLES in its own file; roff's \e \& \- undone
blocks()	# PAGE PREFIX
{
	awk -v prefix="$2" '
	/^\.Sh / { in_examples = /^\.Sh EXAMPLES$/ }
	/^\.Bd / && in_examples { n++; out = prefix n ".c"; next }
	/^\.Ed/ { out = ""; next }
	out {
		gsub(/\\&/, ""); gsub(/\\-/, "-"); gsub(/\\e/, "\\")
		print > out
	}' "$1"
}

# .In .Ft .Fn .Fo .Fa .Fc of SYNOPSIS as C declarations
synopsis()
{
	awk '
	function unquoted(s) { gsub(/"/, "", s); return s }
	/^\.Sh / { on = /^\.Sh SYNOPSIS$/; next }
	!on { next }
	/^\.In / { print "#include <" $2 ">" }
	/^\.Ft / { sub(/^\.Ft /, ""); type = unquoted($0) }
	/^\.Fn / {
		line = $0; sub(/^\.Fn [^ ]* */, "", line)
		gsub(/" "/, ", ", line)
		print type " " $2 "(" unquoted(line) ");"
	}
	/^\.Fo / { printf "%s %s(", type, $2; comma = "" }
	/^\.Fa / { sub(/^\.Fa /, ""); printf "%s%s", comma, unquoted($0); comma = ", " }
	/^\.Fc/ { print ");" }' "$1"
}

for page in "$srcdir"/man/*.3; do
	name=$(basename "$page" .3)
	grep -q '^\.so ' "$page" && continue

	# one of the functions of NAME, as a regular expression
	call=$(sed -n 's/^\.Nm \(gpc_[a-z0-9_]*\).*/\1/p' "$page" | paste -sd'|' -)
	blocks "$page" "$tmp/$name-"
	: >"$tmp/$name.c"
	test ! -f "$tmp/$name-1.c" || mv "$tmp/$name-1.c" "$tmp/$name.c"
	grep -q '^#include <gpc[a-z_]*\.h>$' "$tmp/$name.c" && grep -Eq "($call)\(" "$tmp/$name.c" &&
		compiles "$tmp/$name.c"
	tap "$name: the example compiles and calls it" $? "$tmp/log"

	synopsis "$page" >"$tmp/$name-synopsis.c"
	grep -q " \**$name(" "$tmp/$name-synopsis.c" && compiles "$tmp/$name-synopsis.c"
	tap "$name: the synopsis agrees with the header" $? "$tmp/log"
done

blocks "$srcdir/man/gpc_engine.7" "$tmp/engine-"
test -f "$tmp/engine-2.c"
tap "gpc_engine(7) has two examples" $?
for file in "$tmp"/engine-*.c; do
	compiles "$file"
	tap "$(basename "$file" .c) of gpc_engine(7) compiles" $? "$tmp/log"
done

for file in "$srcdir"/doc/cmd/*.c; do
	name=$(basename "$file" .c)
	compiles "$file"
	tap "$name compiles" $? "$tmp/log"
	grep -q 'main(' "$file" || continue
	if test -e "$builddir/lib/.libs/libgpc.so"; then
		# undefined symbols of a sanitizer are its program's business
		$CC -std=c11 -I"$srcdir/lib" -o "$tmp/$name" "$file" \
			-L"$builddir/lib/.libs" -lgpc -Wl,--allow-shlib-undefined \
			>"$tmp/log" 2>&1
		tap "$name links" $? "$tmp/log"
	else
		n=$((n + 1))
		echo "ok $n - $name links # SKIP no shared library in $builddir"
	fi
done

echo "1..$n"
