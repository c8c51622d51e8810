#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc_segment(5) tells the bytes of shm.h and its parts: each row of its tables becomes a static assertion,
# the rows of a table leave no byte out, every field that is no padding (pad0, pad1 ...) is on the page by
# its name, and version and operations agree.
# Tests: man/gpc_segment.5 lib/index/segment/shm.h lib/index/segment/shm_memo.h lib/index/segment/shm_command.h
#   lib/index/segment/shm_memory.h lib/index/segment/shm_meter.h lib/index/segment/shm_tiers.h

srcdir=${top_srcdir:-$(dirname "$0")/../..}
CC=${CC:-cc}
page=$srcdir/man/gpc_segment.5
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-915-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
tap()	# NAME STATUS
{
	n=$((n + 1))
	test "$2" = 0 && echo "ok $n - $1" || echo "not ok $n - $1"
}

holds()	# NAME: what stands in $tmp/$1.c compiles
{
	$CC -std=gnu11 -fsyntax-only -I"$srcdir/lib" "$tmp/$1.c" >"$tmp/log" 2>&1
	status=$?
	sed -n 's/.*static assertion failed: /# /p' "$tmp/log"
	tap "$2" $status
}

# rows of one table: .It AT Ta BYTES Ta Fa FIELD Ta MEANING, or "unused"
assertions()	# STRUCT
{
	echo '#include <stddef.h>'
	echo '#include "index/segment/shm.h"'
	awk -v s="struct $1" '
	function must(what) { printf "_Static_assert(%s, \"%s\");\n", what, what }
	/^\.Ss / { on = $0 ~ s "$"; next }
	!on || !/^\.It [0-9]+ Ta [0-9]+ Ta / { next }
	{
		must(at + 0 " == " $2)          # the row before ends here
		at = $2 + $4
	}
	$6 == "Fa" {
		must("offsetof(" s ", " $7 ") == " $2)
		must("sizeof(((" s " *)0)->" $7 ") == " $4)
	}
	END { must("sizeof(" s ") == " at + 0) }' "$page"
}

# what is declared in a struct: 1 NAME, its own; 2 NAME, of a union or struct in it
fields()	# STRUCT
{
	cat "$srcdir"/lib/index/segment/shm*.h | awk -v s="struct $1 {" '
	{ text = text $0 "\n" }
	END {
		while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
			text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
		text = substr(text, index(text, "\n" s) + length(s) + 1)
		for (depth = 1; depth; text = substr(text, RSTART + 1)) {
			match(text, /[{};]/)
			mark = substr(text, RSTART, 1)
			n = mark == ";" ? split(substr(text, 1, RSTART - 1), name, ",") : 0
			for (i = 1; i <= n; i++) {
				gsub(/\[[^]]*\]/, "", name[i])
				gsub(/.*[^A-Za-z0-9_]/, "", name[i])
				if (name[i] != "" && name[i] !~ /^pad[0-9]*$/)
					print depth, name[i]
			}
			depth += (mark == "{") - (mark == "}")
		}
	}'
}

# of these, the ones that the page keeps to itself
hidden()	# STRUCT
{
	awk -v s="struct $1" '/^\.Ss / { on = $0 ~ s "$"; next } on' "$page" >"$tmp/section"
	fields "$1" >"$tmp/fields"
	test -s "$tmp/fields" || echo "no field is found"
	while read -r depth name; do
		case $depth in
		1) grep -q "^\.It [0-9]* Ta [0-9]* Ta Fa $name Ta" "$tmp/section" ;;
		*) grep -qw "$name" "$tmp/section" ;;
		esac || echo "$name"
	done <"$tmp/fields"
}

for struct in $(sed -n 's/^struct \(shm_[a-z_]*\) {.*/\1/p' "$srcdir"/lib/index/segment/shm*.h); do
	assertions "$struct" >"$tmp/$struct.c"
	holds "$struct" "$struct is as the page has it"
	hides=$(hidden "$struct")
	test -z "$hides" || echo "$hides" | sed 's/^/# /'
	test -z "$hides"
	tap "$struct: each field is on the page" $?
done

version=$(sed -n 's/^This page describes version \([0-9]*\)\.$/\1/p' "$page")
printf '#include "index/segment/shm.h"\n_Static_assert(SHM_VERSION == %s, "version of the page");\n' \
	"$version" >"$tmp/version.c"
holds version "the page describes this version"

# operations of a ring, in the order of the enumeration
sed -n '/CMD_NONE = 0/,/CMD_LAST/s/^	CMD_\([A-Z]*\),.*/\1/p' "$srcdir/lib/index/segment/shm_command.h" |
	sed 's/NOP/NOTHING/' | tr 'A-Z' 'a-z' | awk '{ print NR, $1 }' >"$tmp/ops"
awk '/^\.Ss / { on = /Commands/ } on && /^\.It [0-9]+ Ta [a-z]/ { print $2, $4 }' "$page" \
	>"$tmp/page-ops"
diff "$tmp/ops" "$tmp/page-ops" | sed 's/^/# /'
cmp -s "$tmp/ops" "$tmp/page-ops" && test -s "$tmp/ops"
tap "the page lists all operations" $?

echo "1..$n"
