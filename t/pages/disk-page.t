#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc_disk(5) tells the bytes of lib/tiers/disk/format.h: each row of its tables becomes a static assertion, the
# rows of a table leave no byte out, every field is on the page, and the version agrees.
# Tests: man/gpc_disk.5 lib/tiers/disk/format.h

srcdir=${top_srcdir:-$(dirname "$0")/../..}
CC=${CC:-cc}
page=$srcdir/man/gpc_disk.5
header=$srcdir/lib/tiers/disk/format.h
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-921-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
tap()	# NAME STATUS
{
	n=$((n + 1))
	test "$2" = 0 && echo "ok $n - $1" || echo "not ok $n - $1"
}

rows()	# STRUCT: the rows of its table
{
	awk -v s="struct $1" '/^\.Ss / { on = $0 ~ s "$"; next } on && /^\.It [0-9]+ Ta [0-9]+ Ta /' "$page"
}

for struct in disk_super disk_header disk_note; do
	{
		echo '#include "tiers/disk/format.h"'
		rows "$struct" | awk -v s="struct $struct" '
		function must(what) { printf "_Static_assert(%s, \"%s\");\n", what, what }
		{
			must(at + 0 " == " $2)
			at = $2 + $4
		}
		$6 == "Fa" {
			must("offsetof(" s ", " $7 ") == " $2)
			must("sizeof(((" s " *)0)->" $7 ") == " $4)
		}
		END { must("sizeof(" s ") == " at + 0) }'
	} >"$tmp/x.c"
	$CC -std=gnu11 -fsyntax-only -I"$srcdir/lib" "$tmp/x.c" >"$tmp/log" 2>&1
	status=$?
	sed -n 's/.*static assertion failed: /# /p' "$tmp/log"
	tap "$struct is as the page has it" $status

	sed -n "/^struct $struct {/,/^};/p" "$header" | sed 's|/\*.*||; s|^.*\*/||' |
		grep -o '[a-z_0-9][a-z_0-9]*\(\[[^]]*\]\)*[,;]' | sed 's/[[,;].*//' | grep -v '^pad$' |
		sort >"$tmp/declared"
	rows "$struct" | awk '$6 == "Fa" { print $7 }' | sort >"$tmp/told"
	diff "$tmp/declared" "$tmp/told" | grep '^[<>]' | sed 's/^/# /'
	cmp -s "$tmp/declared" "$tmp/told" && test -s "$tmp/told"
	tap "$struct: each field is on the page" $?
done

constant()	# NAME VALUE
{
	printf '#include "tiers/disk/format.h"\n_Static_assert(%s == %s, "%s is %s");\n' "$1" "$2" "$1" "$2"
}
{
	constant DISK_VERSION "$(sed -n 's/^This page describes version \([0-9]*\)\.$/\1/p' "$page")"
	constant DISK_SUPER_A "$(sed -n 's/^superblock A  *at \([0-9]*\) .*/\1/p' "$page")"
	constant DISK_SUPER_B "$(sed -n 's/^superblock B  *at \([0-9]*\) .*/\1/p' "$page")"
	constant DISK_GROUPS "$(sed -n 's/^group 0  *at \([0-9]*\)$/\1/p' "$page")"
	constant DISK_GROUP "$(sed -n 's/^  image\[\([0-9]*\)\].*/\1/p' "$page")"
	constant DISK_HEADER_BYTES "$(sed -n 's/^  header\[[0-9]*\]  *\([0-9]*\) bytes each/\1/p' "$page")"
	constant DISK_MOST_SLOTS '(1u << 28)'
	constant DISK_MOST_IMAGE '(1ull << 32)'
	constant DISK_MOST_NOTE 65536
} >"$tmp/x.c"
$CC -std=gnu11 -fsyntax-only -I"$srcdir/lib" "$tmp/x.c" >"$tmp/log" 2>&1
status=$?
sed 's/^/# /' "$tmp/log"
tap "version and places are those of the page" $status

echo "1..$n"
