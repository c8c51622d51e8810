#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A barrier has a letter in parentheses in the comment beside it, and so has the one it pairs
# with, in the files that the table of lib/index/BARRIERS.md names.
# Tests: lib/index/BARRIERS.md lib/index/base/order.h

srcdir=${top_srcdir:-$(dirname "$0")/../..}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-914-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
empty()	# NAME FILE: nothing in it, else it is the diagnosis
{
	n=$((n + 1))
	if test -s "$2"; then
		echo "not ok $n - $1"
		sed 's/^/# /' "$2"
	else
		echo "ok $n - $1"
	fi
}

# "letter file" for each lettered comment of lib/
for path in $(find "$srcdir/lib" -name '*.[ch]'); do
	awk -v file="${path#"$srcdir"/lib/}" '
	{
		line = $0
		while (line != "") {
			if (!inside) {
				at = index(line, "/*")
				if (!at)
					break
				line = substr(line, at + 2)
				inside = 1
			}
			at = index(line, "*/")
			text = at ? substr(line, 1, at - 1) : line
			line = at ? substr(line, at + 2) : ""
			inside = !at
			while (match(text, /(^|[^A-Za-z0-9_])\([A-Za-z]\)/)) {
				print substr(text, RSTART + RLENGTH - 2, 1), file
				text = substr(text, RSTART + RLENGTH)
			}
			if (inside)
				break
		}
	}' "$path"
done | sort -u >"$tmp/told"

# "letter file side" for each file that a row names
awk -F'|' '
function files(cell, side,  count, words, i) {
	count = split(cell, words, "`")
	for (i = 2; i <= count; i += 2)
		if (words[i] ~ /\.[ch]$/)
			print letter, words[i], side, NR
}
$2 ~ /^ [A-Za-z] $/ {
	letter = $2
	gsub(/ /, "", letter)
	files($3, "release")
	files($4, "partner")
}' "$srcdir/lib/index/BARRIERS.md" >"$tmp/table"

test -s "$tmp/table" && test -s "$tmp/told" || echo "nothing found" >"$tmp/out"
empty "there are barriers, and a table of them" "$tmp/out"

awk 'NR == FNR { told[$1 " " $2] = 1; next }
!(($1 " " $2) in told) { print "(" $1 ") is not told in " $2 ", its " $3 }' \
	"$tmp/told" "$tmp/table" >"$tmp/out"
empty "both sides of each pair name the letter" "$tmp/out"

# headers tell the story of several files
awk 'NR == FNR { row[$1 " " $2] = 1; letter[$1] = 1; next }
!(($1 " " $2) in row) && !($2 ~ /\.h$/ && $1 in letter) {
	print "(" $1 ") of " $2 " is not in the table"
}' "$tmp/table" "$tmp/told" >"$tmp/out"
empty "each letter is in the table" "$tmp/out"

awk '{ print $1, $4 }' "$tmp/table" | sort -u | cut -d' ' -f1 | uniq -d |
	sed 's/.*/(&) has two rows/' >"$tmp/out"
empty "a letter has one meaning" "$tmp/out"

echo "1..$n"
