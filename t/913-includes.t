#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes go one way.  The ranks are the table of ARCHITECTURE.md: every file of lib/ stands
# there once; a header includes headers of lower ranks, a source those of its own rank too.
# Beside that: who may include what, and who may hold atomics and shared structs.

srcdir=${top_srcdir:-$(dirname "$0")/..}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-913.XXXXXX") || exit 99
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

# "rank file" for each name in the first three columns
awk -F'|' '
/^## Files of lib/ { on = 1; next }
/^## / { on = 0 }
on && $2 ~ /^ [0-9]+ $/ {
	gsub(/`/, "", $3); gsub(/`/, "", $4)
	count = split($3 " " $4, names, " ")
	for (i = 1; i <= count; i++)
		print $2 + 0, names[i]
}' "$srcdir/ARCHITECTURE.md" >"$tmp/ranks"

files()
{
	(cd "$srcdir" && ls lib/*.[ch] kernels/*.h)
}

# "file header" for each include of ours, libraries of the system left out
includes()
{
	for path in $(files); do
		sed -n "s|^#include \"\(.*\)\"|$(basename "$path") \1|p" "$srcdir/$path"
	done | grep -v ' config\.h$'
}

files | sed 's|.*/||' | sort >"$tmp/present"
cut -d' ' -f2 "$tmp/ranks" | sort >"$tmp/ranked"
diff "$tmp/present" "$tmp/ranked" | grep '^[<>]' |
	sed 's/^</has no rank:/; s/^>/has a rank twice, or is not there:/' >"$tmp/out"
empty "every file of lib/ has a rank" "$tmp/out"

includes | awk '
FILENAME != "-" { rank[$2] = $1; next }
{
	header = $1 ~ /\.h$/
	if (!($2 in rank))
		print $1 " includes " $2 ", which has no rank"
	else if (rank[$2] > rank[$1] || (header && rank[$2] == rank[$1]))
		print $1 " (rank " rank[$1] ") includes " $2 " (rank " rank[$2] ")"
}' "$tmp/ranks" - >"$tmp/out"
empty "includes go to lower ranks" "$tmp/out"

# a header before the sources that stand for it
for path in $(files); do
	name=$(basename "$path")
	case $name in
	*.h) continue ;;
	esac
	grep '^#include' "$srcdir/$path" | grep -n 'config\.h' | grep -v '^1:' |
		sed "s|^.*|$name includes config.h after something else|"
	own=$(basename "$name" .c).h
	test -f "$srcdir/lib/$own" && ! grep -q "^#include \"$own\"" "$srcdir/$path" \
		$(sed -n "s|^#include \"\(.*\)\"|$srcdir/lib/\1|p" "$srcdir/$path") 2>/dev/null &&
		echo "$name does not include $own"
done >"$tmp/out"
empty "config.h comes first, and the own header is included" "$tmp/out"

for path in $(files); do
	case $path in
	*.h) grep -L '^#ifndef GPC_[A-Z_]*H$' "$srcdir/$path" ;;
	esac
done >"$tmp/out"
empty "headers have guards" "$tmp/out"

grep -n '__atomic_\|__sync_\|atomic_thread_fence\|_Atomic' "$srcdir"/lib/*.[ch] |
	grep -v '/order\.h:' >"$tmp/out"
empty "order.h alone has atomics" "$tmp/out"

grep -n '^struct shm_[a-z]* {' "$srcdir"/lib/*.[ch] "$srcdir"/kernels/*.h |
	grep -v '/shm\.h:' >"$tmp/out"
empty "shm.h alone declares shared structs" "$tmp/out"

# not even system headers of a kind: any language, any device can read these
{
	grep -n '^#include' "$srcdir/lib/gpc.h" | grep -v '<stddef\.h>\|<stdint\.h>'
	grep -n '^#include' "$srcdir/lib/shm.h" "$srcdir/kernels/probe.h" |
		grep -v '<stdint\.h>'
} >"$tmp/out"
empty "gpc.h, shm.h and probe.h stand alone" "$tmp/out"

for path in "$srcdir"/tools/*.[ch]; do
	sed -n 's/^#include "\(.*\)"/\1/p' "$path" | while read -r header; do
		test "$header" = gpc.h || test "$header" = config.h ||
			test -f "$srcdir/tools/$header" ||
			echo "$(basename "$path") includes $header"
	done
done >"$tmp/out"
empty "tools use the public header alone" "$tmp/out"

echo "1..$n"
