#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs stay good that were built with the headers of a release: symbols, calls, constants, sizes
# and offsets are those of lib/abi.txt.
#
# A difference is one of two things.  Something new, at the end of a struct that begins with its size
# or with a name and a bit of its own: t/repo/abi --write adds it.  Anything else breaks programs that
# nobody builds again; it needs another soname (GPC_LT_VERSION), and a line in NEWS that says so.
# Tests: lib/abi.txt t/repo/abi lib/gpc.h lib/gpc_bytes.h lib/gpc_device.h lib/gpc_look.h
#   lib/gpc_remote.h lib/gpc_serve.h lib/gpc_tiers.h lib/libgpc.sym

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

abi=$srcdir/t/repo/abi
sh "$abi" "$srcdir" >"$tmp/now" 2>"$tmp/log"
status=$?
test $status != 77 || skip_all "a machine of 32 bits has other offsets"
ok $status "the headers say what they are" "$tmp/log"
diff "$srcdir/lib/abi.txt" "$tmp/now" >"$tmp/diff"
ok $? "it is what lib/abi.txt has: see t/repo/abi" "$tmp/diff"

# all that stands in the headers is looked at: no hole in a struct that a field would fit in, no two
# flags of one bit, and as many calls as symbols
awk '
/^(struct |gpc_key)/ { at = $0; end = 0; next }
/^    / {
	if ($2 < end || $2 - end >= 8)
		print at ": " $0
	end = $2 + $3
}' "$tmp/now" >"$tmp/out"
test ! -s "$tmp/out" && test "$(grep -c '^struct gpc_' "$tmp/now")" -ge 35
ok $? "no field is left out" "$tmp/out"
test "$(grep -c '^symbol ' "$tmp/now")" = "$(grep -c '^call ' "$tmp/now")"
ok $? "each symbol has its call"
cat "$srcdir"/lib/gpc*.h | sed -n 's/^.*\(GPC_[A-Z_]*\) = 1 << \([0-9]*\).*/\1 \2/p' |
	grep -v '^GPC_POOL_\|^GPC_TIERS_' | sort -k2n >"$tmp/flags"
cut -d' ' -f2 "$tmp/flags" >"$tmp/bits"
seq 0 $(($(wc -l <"$tmp/bits") - 1)) | diff - "$tmp/bits" >"$tmp/out" && test -s "$tmp/bits"
ok $? "flags of all headers are bits of one number, from 0 on" "$tmp/out"

# ---- the comparison itself, on a copy ----

mkdir "$tmp/src" && cp -R "$srcdir/lib" "$tmp/src/lib" && chmod -R u+w "$tmp/src" || exit 99
changed()	# NAME, FILE, SED
{
	cp "$srcdir/lib/$2" "$tmp/src/lib/$2"
	sed "$3" "$srcdir/lib/$2" >"$tmp/src/lib/$2"
	! cmp -s "$srcdir/lib/$2" "$tmp/src/lib/$2" && sh "$abi" "$tmp/src" >"$tmp/then" 2>"$tmp/log" &&
		! diff "$srcdir/lib/abi.txt" "$tmp/then" >"$tmp/diff"
	ok $? "$1 is seen" "$tmp/log"
	cp "$srcdir/lib/$2" "$tmp/src/lib/$2"
}
changed "a field of another type" gpc.h 's/^	uint32_t tag; .*/	uint64_t tag;/'
changed "a field that is gone" gpc_look.h '/^	uint64_t created_ns;/d'
changed "a field elsewhere" gpc_tiers.h 's/^	uint32_t questions;/	uint32_t x; uint32_t questions;/'
changed "another number" gpc_bytes.h 's/GPC_CANCEL = 1 << 9/GPC_CANCEL = 1 << 22/'
changed "an argument more" gpc_serve.h 's/^int gpc_unlink(/&int x, /'
changed "a symbol that is gone" libgpc.sym '/gpc_ref;/d'
done_testing
