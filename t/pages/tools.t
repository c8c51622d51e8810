#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of a tool names the options that --help names, and no others; pages name commands that there are.
# Needs: tools/gpcd tools/gpc-inspect tools/gpc-replay tools/gpc-bench
# Tests: man/ tools/common/cli.c

srcdir=${top_srcdir:-$(dirname "$0")/../..}
builddir=${top_builddir:-$(dirname "$0")/../..}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-916-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
for page in "$srcdir"/man/*.1 "$srcdir"/man/*.8; do
	tool=$(basename "$page")
	tool=${tool%.*}
	n=$((n + 1))
	if ! test -x "$builddir/tools/$tool"; then
		echo "ok $n - $tool # SKIP it is not built"
		continue
	fi
	"$builddir/tools/$tool" --help 2>&1 | grep -o -e '--[a-z][a-z-]*' | sort -u >"$tmp/help"
	grep -o 'Fl -[a-z][a-z-]*' "$page" | sed 's/Fl -/--/' | sort -u >"$tmp/page"
	if test -s "$tmp/help" && diff "$tmp/help" "$tmp/page" >"$tmp/diff"; then
		echo "ok $n - $tool"
	else
		echo "not ok $n - $tool"
		sed 's/^/# /' "$tmp/diff"
	fi
done

# `gpc-inspect WORD` stands in many pages: each of these words is a command, or the name of another page
"$builddir/tools/gpc-inspect" --help | awk '/^  [a-z]/ { print $1 }' | sort -u >"$tmp/commands"
{
	grep -ho '^\.Ic gpc-inspect [a-z]*' "$srcdir"/man/*.[1-8]
	grep -ho '`gpc-inspect [a-z][a-z]*' "$srcdir"/*.md "$srcdir"/doc/*.md
} | sed 's/.*gpc-inspect //' | sort -u >"$tmp/named"
n=$((n + 1))
comm -13 "$tmp/commands" "$tmp/named" >"$tmp/diff"
if test -s "$tmp/commands" && test -s "$tmp/named" && ! test -s "$tmp/diff"; then
	echo "ok $n - pages name commands that gpc-inspect has"
else
	echo "not ok $n - pages name commands that gpc-inspect has"
	sed 's/^/# /' "$tmp/diff"
fi
echo "1..$n"
