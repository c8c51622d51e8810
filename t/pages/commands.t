#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples of README and doc/: each one of doc/cmd prints what its NAME.out says, and the pages show these files as they
# are.  With GPC_DOC_WRITE=NAME.sh in the environment it writes NAME.out anew.
# Tests: doc/ README.md doc/make t/sh/examples.sh

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"
. "$srcdir/t/sh/examples.sh"

test -e "$libs/libgpc.so" || skip_all "no shared library in $builddir"
! grep -q '__[atu]b*san_' "$libs/libgpc.so" || skip_all "a sanitizer wants its own programs"
cd "$tmp" || exit 99

# python3 or a server is another test's: readme-tiers.t
for file in "$srcdir"/doc/cmd/*.sh; do
	name=${file##*/}
	grep -q 'python3\|redis' "$file" && continue
	if grep -q curl "$file" && { ! command -v curl >/dev/null || gpcd --metrics 1 nobody --dir "$shm/nowhere" 2>&1 | grep -q 'without lib'; }; then
		skip 3 "$name: no curl, or a gpcd without metrics"
		continue
	fi
	example "$name"
done

# ---- the pages ----

run sh "$srcdir/doc/make" --check
exits 0 "the pages show the files of doc/cmd"

(cd "$srcdir" && ls doc/cmd/* && cat ./*.md doc/*.md python/*.md man/*.[1-8]) |
	awk '/^doc\/cmd\/[a-z0-9.-]*$/ { there[$0] = 1; next }
	/^(<!--|\.\\") doc\/cmd\// { delete there[$2] }
	END { for (file in there) if (file !~ /\.out$/) print file " is shown by no page" }' >"$tmp/out"
test ! -s "$tmp/out"
ok $? "each example is shown by a page" "$tmp/out"

# a console block that no file has: what somebody has typed
(cd "$srcdir" && awk '
	FNR == 1 { marked = fence = 0 }
	/^```/ { fence = !fence; if (fence && !marked && /^```(c|python)$/) print FILENAME ":" FNR ": no file of doc/cmd"; marked = 0; next }
	{ marked = /^<!-- doc\/cmd\// }' README.md doc/*.md) >"$tmp/out"
test ! -s "$tmp/out"
ok $? "each program in README.md and doc/ is a file" "$tmp/out"

# each link goes somewhere, and so does its part
(cd "$srcdir" && for page in ./*.md doc/*.md lib/*.md lib/*/*.md lib/*/*/*.md t/README.md; do
	test -e "$page" || continue
	grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//' | while read -r link; do
		case $link in
		http*:*|mailto:*) continue ;;
		'#'*) to=$page ;;
		*) to=$(dirname "$page")/${link%%#*} ;;
		esac
		test -e "$to" || { echo "$page: $link is not there"; continue; }
		case $link in
		*'#'*) grep '^#' "$to" | sed 's/^#* *//; s/`//g' | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' |
			grep -qxF -e "${link#*#}" || echo "$page: $link has no such heading" ;;
		esac
	done
done) >"$tmp/out"
test ! -s "$tmp/out"
ok $? "each link of a page goes somewhere" "$tmp/out"

# README is two screens, and what everybody reads is short
for most in README.md:8192 CONTRIBUTING.md:10240 ARCHITECTURE.md:30720; do
	bytes=$(wc -c <"$srcdir/${most%:*}")
	test "$bytes" -le "${most#*:}"
	ok $? "${most%:*} has at most ${most#*:} bytes" || diag "$bytes"
done

# ---- the test itself ----

mkdir -p "$tmp/tree/doc/cmd" && cd "$tmp/tree" && cp "$srcdir/doc/make" doc || exit 99
printf '# SPDX-License-Identifier: x\nls -\n' >doc/cmd/a.sh
printf '<!-- doc/cmd/a.sh -->\n```sh\nold\n```\nrest\n' >page.md
run sh doc/make --check
exits 1 "a page that was changed by hand is seen"
run sh doc/make
is "$(tail -n +2 page.md | tr '\n' ' ')" '```sh ls - ``` rest ' "and made anew"
echo '<!-- doc/cmd/b.sh -->' >>page.md
run sh doc/make
exits 1 "a file that is not there is an error"

done_testing
