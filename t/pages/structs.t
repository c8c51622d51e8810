#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each struct of a public header is on a page of section 3 or 7, with the same fields in the same order, and no page shows
# a struct with other fields.
# Tests: man/ lib/gpc.h lib/gpc_bytes.h lib/gpc_look.h lib/gpc_tiers.h

srcdir=${top_srcdir:-$(dirname "$0")/../..}
LC_ALL=C
export LC_ALL
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-structs-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15
n=0

tap()	# NAME FILE: what is wrong, a line each
{
	n=$((n + 1))
	if test -s "$2"; then
		echo "not ok $n - $1"
		head -n 20 "$2" | cut -c1-1000 | sed 's/^/# /'
	else
		echo "ok $n - $1"
	fi
}

# FILE...: "NAME: fields" of each struct there.  Comments, white space and roff's escapes do not count.
structs()
{
	awk '
	FNR == 1 { inside = comment = 0 }
	{
		gsub(/\\-/, "-"); gsub(/\\e/, "\\"); gsub(/\\&/, "")
		gsub(/\/\*([^*]|\*[^\/])*\*\//, "")
		if (comment && sub(/^.*\*\//, ""))
			comment = 0
		if (comment)
			next
		if (sub(/\/\*.*$/, ""))
			comment = 1
	}
	/^struct gpc_[a-z_]+ \{/ { inside = 1; name = $2; body = ""; next }
	inside && /^\.Ed/ { inside = 0 }
	inside && /^};?/ { print name ": " body; inside = 0 }
	inside { gsub(/[ \t]+/, " "); gsub(/^ | $/, ""); gsub(/ ?\* ?/, "*"); body = body (body == "" || $0 == "" || body ~ / $/ ? "" : " ") $0 }' "$@" |
		awk '{
			# int *a, b; is int*a; int b;
			out = $1
			m = split(substr($0, length($1) + 1), field, ";")
			for (i = 1; i < m; i++) {
				gsub(/^ +| +$/, "", field[i])
				if (field[i] ~ /\(/ || split(field[i], part, / *, */) < 2) {
					out = out " " field[i] ";"
					continue
				}
				k = split(field[i], part, / *, */)
				type = part[1]
				sub(/ *\**[a-z_0-9]+(\[[^]]*\])*$/, " ", type)
				for (j = 1; j <= k; j++)
					out = out " " (j > 1 ? type : "") part[j] ";"
			}
			gsub(/ \*/, "*", out)
			print out
		}' | sort -u
}

for header in "$srcdir"/lib/gpc*.h; do
	case $header in
	*/gpc_remote.h) continue ;; # remote-page.t knows that one
	esac
	structs "$header"
done | sort -u >"$tmp/headers"
structs "$srcdir"/man/*.[37] | grep -v '^gpc_remote_' >"$tmp/pages"

cut -d: -f1 "$tmp/headers" | sort -u >"$tmp/names"
test "$(wc -l <"$tmp/names")" -ge 25 || echo "only $(wc -l <"$tmp/names") structs are found" >"$tmp/few"
tap "the headers have structs" "$tmp/few"

comm -13 "$tmp/headers" "$tmp/pages" | sort >"$tmp/others"
join -t: "$tmp/others" "$tmp/headers" -o 0,1.2,2.2 |
	awk -F: '{ print "page:   " $1 ":" $2; print "header: " $1 ":" $3 }' >"$tmp/out"
tap "a page shows a struct as its header has it" "$tmp/out"

cut -d: -f1 "$tmp/pages" | sort -u | comm -23 "$tmp/names" - | sed 's/$/ is on no page/' >"$tmp/out"
tap "each struct is on a page" "$tmp/out"

# the test itself
printf 'struct gpc_a { /* set\n * size */\n\tuint32_t size; /* it */\n\tint *b, c;\n};\n' >"$tmp/a.h"
printf '.Bd -literal\nstruct gpc_a {\n\tuint32_t size;\n\tint *b;\n\tint c;\n};\n.Ed\n' >"$tmp/right.3"
printf '.Bd -literal\nstruct gpc_a {\n\tuint32_t size;\n};\n.Ed\n' >"$tmp/wrong.3"
: >"$tmp/out"
test "$(structs "$tmp/a.h")" = "$(structs "$tmp/right.3")" || echo "equal structs differ" >"$tmp/out"
test "$(structs "$tmp/a.h")" != "$(structs "$tmp/wrong.3")" || echo "a missing field is not seen" >>"$tmp/out"
tap "a field that a page lacks is seen" "$tmp/out"
echo "1..$n"
