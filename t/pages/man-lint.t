#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The pages are clean mdoc, name each other truly and at most ten under SEE ALSO, gpc(7) names each call, and
# man/local.mk installs all of them.
# Tests: man/

srcdir=${top_srcdir:-$(dirname "$0")/../..}
MANDOC=${MANDOC:-mandoc}
n=0

tap()	# NAME STATUS
{
	n=$((n + 1))
	test "$2" = 0 && echo "ok $n - $1" || echo "not ok $n - $1"
}

is_link()
{
	grep -q '^\.so ' "$1"
}

lint()
{
	if ! command -v "$MANDOC" >/dev/null 2>&1; then
		n=$((n + 1))
		echo "ok $n - $1: lint # SKIP mandoc is missing"
		return
	fi
	text=$("$MANDOC" -T lint -W warning "$2" 2>&1)
	status=$?
	test -z "$text" || echo "$text" | sed 's/^/# /'
	tap "$1: lint" $status
}

# Words of a heading that mdoc takes for macros of its own vanish, or become something else: "In C++" prints "<C++>".
# mandoc and groff call these macros in such a line; \& before one keeps it a word.
heading()
{
	awk -v page="$1" '
	BEGIN { split("Ad An Ao Ap Aq Ar At Bc Bo Bq Brc Bro Brq Bsx Bx Cd Cm Dc Do Dq Dv Dx Ec Em En Eo Er Es Ev Fa Fc Fl Fn " \
		"Fo Ft Fx Ic In Li Lk Ms Mt Nm No Ns Nx Oc Oo Op Ot Ox Pa Pc Pf Po Pq Qc Ql Qo Qq Rs Sc Sm So Sq St Sx Sy Ta Tn Ux Va " \
		"Vt Xc Xo Xr", names); for (i in names) macro[names[i]] = 1 }
	/^\.S[hs] / { for (i = 2; i <= NF; i++) if ($i in macro) { print "# " page ": " $0; bad = 1 } }
	END { exit bad }' "$2"
	tap "$1: headings are words" $?
}

# every page of ours that this one refers to exists
references()
{
	bad=0
	for ref in $(awk '/^\.Xr gpc/ { print $2 "." $3 }' "$2"); do
		test -f "$srcdir/man/$ref" && continue
		echo "# $1 refers to $ref"
		bad=1
	done
	tap "$1: its references exist" $bad
}

# a link page names the page whose NAME has it
link_target()
{
	target=$(awk '/^\.so / { sub(/.*\//, ""); print; exit }' "$2")
	grep -q "^\.Nm ${1%.*}\( ,\)*$" "$srcdir/man/$target"
	tap "$1: $target documents it" $?
}

for page in "$srcdir"/man/*.[1-8]; do
	name=$(basename "$page")
	if is_link "$page"; then
		link_target "$name" "$page"
	else
		lint "$name" "$page"
		references "$name" "$page"
		heading "$name" "$page"
		test "$(awk '/^\.Dt / { print tolower($2) "." $3 }' "$page")" = "$name"
		tap "$name: title" $?
		test "$(awk '/^\.Sh / { see = /SEE ALSO/ } see && /^\.Xr / { n++ } END { print n + 0 }' "$page")" -le 10
		tap "$name: SEE ALSO of at most ten" $?
		case $name in *.3)
			grep -q "^\.Xr ${name%.3} 3\( ,\)*$" "$srcdir/man/gpc.7"
			tap "$name: gpc(7) names it" $?
			;;
		esac
	fi
	grep -q "^	%reldir%/$name\( .\)*$" "$srcdir/man/local.mk"
	tap "$name: is installed" $?
done

echo "1..$n"
