#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One list of functions, told four times: the headers declare it, each function in one of them,
# libgpc.sym and the shared library export it and nothing else, man/ has a page for each, whose
# SYNOPSIS names the header.  A header is of a hall of lib/, and so are its functions.
# Tests: lib/gpc.h lib/gpc_bytes.h lib/gpc_device.h lib/gpc_look.h lib/gpc_serve.h lib/gpc_tiers.h
#   lib/libgpc.sym man/

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

# "function header" for each declaration: it begins in the first column; comments and macros do not
for header in $(cd "$srcdir/lib" && ls gpc.h gpc_*.h); do
	grep -v '^#[ 	]*include "' "$srcdir/lib/$header" >"$tmp/$header"
	${CC:-cc} -E -P -I"$tmp" "$tmp/$header" | tr '\n' ' ' | tr ';' '\n' |
		sed -n 's/^[^({]*[ *]\(gpc_[a-z0-9_]*\)(.*$/\1/p' | sed "s/\$/ $header/"
done >"$tmp/declared"
cut -d' ' -f1 "$tmp/declared" | sort >"$tmp/header"
sed -n 's/^	\(gpc_[a-z0-9_]*\);$/\1/p' "$srcdir/lib/libgpc.sym" | sort >"$tmp/sym"

test "$(wc -l <"$tmp/header")" -ge 40
tap "the headers declare functions" $?
uniq -d "$tmp/header" >"$tmp/twice"
: >"$tmp/none"
same "each in one header" twice none
same "libgpc.sym lists what they declare" header sym

grep '\*;$\|^	[^g]' "$srcdir/lib/libgpc.sym" | grep -v '^	\*;$' >"$tmp/odd"
test ! -s "$tmp/odd"
tap "libgpc.sym has no pattern and no other name" $?

for page in "$srcdir"/man/gpc_*.3; do
	basename "$page" .3
done | sort >"$tmp/pages"
same "each function has a page, each page a function" header pages

# "function header": the page that has the function in its SYNOPSIS, and the header there
for page in "$srcdir"/man/gpc_*.3; do
	awk '
	/^\.Sh / { on = /^\.Sh SYNOPSIS$/ }
	on && /^\.In / { header = $2 }
	on && /^\.F[no] / { print $2, header }' "$page"
done | sort >"$tmp/taught"
sort "$tmp/declared" >"$tmp/where"
same "each SYNOPSIS names the header of its functions" where taught

# ---- halls ----

# "header hall" of those that declare functions
cat >"$tmp/halls" <<'end'
gpc.h index
gpc_serve.h index
gpc_bytes.h bytes
gpc_device.h bytes
gpc_tiers.h tiers
gpc_look.h look
end
# "function hall reason": it is defined in another hall than its header's
cat >"$tmp/elsewhere" <<'end'
gpc_crc32c index one checksum for all halls; its callers sum images
gpc_demote index the first half of a move, whose copy is a call of that header
gpc_promote index as gpc_demote
gpc_commit index its second half
gpc_pool_make index adds the pool; its memory, which most callers want, is of that header
gpc_claim index a claim is of a block whose bytes are computed, or come by gpc_fetch
gpc_claim_wait index as gpc_claim
gpc_claim_drop index as gpc_claim
gpc_section_enter index each reader has sections; only ids without a reference need the call
gpc_section_leave index as gpc_section_enter
gpc_grace_start index as gpc_section_enter
gpc_grace_done index as gpc_section_enter
gpc_event_read index tiers follow the feed, too
gpc_root_keep index a command; those that read the feed want the names
gpc_tiers_sync index drops and clears wait for the same answer
gpc_prefetch bytes gpc_fetch asks in the same way
end
# "function hall", as the sources have it
find "$srcdir/lib" -name '*.c' | while read -r path; do
	hall=${path#"$srcdir/lib/"}
	sed -n 's/^GPC_EXPORT .*[ *]\(gpc_[a-z0-9_]*\)(.*/\1/p' "$path" | sed "s|\$| ${hall%%/*}|"
done | sort >"$tmp/defined"
cut -d' ' -f1 "$tmp/defined" | sort | diff "$tmp/header" - >"$tmp/diff"
status=$?
sed 's/^/# /' "$tmp/diff"
tap "each is defined once" $status

misplaced()	# DECLARED: what is wrong there
{
	awk '
	FILENAME ~ /halls$/ { hall[$1] = $2; next }
	FILENAME ~ /elsewhere$/ { if (NF < 4) print $1 " has no reason"; other[$1] = $2; next }
	FILENAME ~ /defined$/ { home[$1] = $2; next }
	!($2 in hall) { print $2 " has no hall"; next }
	$1 in other {
		if (other[$1] != home[$1] || home[$1] == hall[$2])
			print $1 " of " $2 " is in the table of those that are elsewhere, and is in " home[$1] "/"
		delete other[$1]
		next
	}
	home[$1] != hall[$2] { print $1 " of " $2 " is in " home[$1] "/" }
	END { for (f in other) print f " is in the table of those that are elsewhere, and is no function" }' \
		"$tmp/halls" "$tmp/elsewhere" "$tmp/defined" "$1"
}
misplaced "$tmp/declared" >"$tmp/wrong"
same "and in the hall of its header" wrong none
sed 's/^gpc_lookup gpc\.h$/gpc_lookup gpc_bytes.h/' "$tmp/declared" >"$tmp/moved"
misplaced "$tmp/moved" | grep -q '^gpc_lookup of gpc_bytes.h is in index/$'
tap "a function that is declared elsewhere is seen" $?

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
