#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The mutants of t/torture/mutants are up to date: each patch applies to the sources as they are,
# says what it breaks and by which programs it is caught, and no rule is without one.  That they
# are caught is for "make mutants".

builddir=$(cd "${top_builddir:-.}" && pwd) || exit 99
srcdir=$(cd "${top_srcdir:-$(dirname "$0")/..}" && pwd) || exit 99
cd "$srcdir" || exit 99
here=t/torture/mutants
if ! command -v patch >/dev/null; then
	echo "1..0 # SKIP patch is missing"
	exit 0
fi

n=0
result()	# TEXT LINES: what is wrong
{
	n=$((n + 1))
	if test -z "$2"; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		echo "$2" | sed 's/^/# /'
	fi
}

field()	# FIELD PATCH
{
	sed -n "/^---/q; s/^$1: *//p" "$2"
}

each()	# FUNCTION: what it says of the patches it dislikes
{
	for patch in $here/*.patch; do
		name=$(basename "$patch" .patch)
		$1
	done
}

does_not_apply()
{
	patch -p1 -F0 -f --dry-run <"$patch" >/dev/null 2>&1 || echo "$name"
}

has_no_head()
{
	test -n "$(field Breaks "$patch")" && test -n "$(field Caught-by "$patch")" &&
		test -n "$(sed -n '1{/^[A-Z]/p;}' "$patch")" || echo "$name"
}

# The first word that is no variable is a program, and it has a source.
is_caught_by_nothing()
{
	field Caught-by "$patch" | sed 's/^\([A-Z_]*=[^ ]* \)*//; s/ .*//' |
		while read -r program; do
			test -e "${program%.t}.c" || echo "$name: $program"
		done
}

is_not_listed()
{
	grep -q "^| $name |" $here/README.md || echo "$name"
}

breaks()
{
	field Breaks "$patch" | tr -d ' ' | tr ',' '\n'
}

rules_without()
{
	broken=$(each breaks)
	for rule in A C D E F G H $(sed -n 's/^\* \*\*\([TSCRB][0-9][0-9]*\)\*\* .*/\1/p' ARCHITECTURE.md)
	do
		echo "$broken" | grep -qx "$rule" || echo "$rule"
	done
}

# NAME STATUS TEXT: what "run" says of a mutant that it cannot take
runs_otherwise()
{
	said=$(top_builddir=$builddir COMPILE=: LINKER=: sh $here/run --no-baseline "$1" 2>&1)
	status=$?
	test $status = "$2" && test "$(echo "$said" | grep -c "$3")" = 1 ||
		echo "status $status, $said"
}

stale=$(mktemp "${TMPDIR:-/tmp}/gpc-t-701.XXXXXX") || exit 99
trap 'rm -f "$stale"' 0
trap 'exit 1' 1 2 15
sed 's/^ \(.*[a-z]\)/ of another year \1/' "$(ls $here/*.patch | head -n 1)" >"$stale"

result "there are mutants" "$(ls $here/*.patch >/dev/null 2>&1 || echo "none")"
result "each applies" "$(each does_not_apply)"
result "each says what is wrong, what it breaks and what catches it" "$(each has_no_head)"
result "the programs that catch them exist" "$(each is_caught_by_nothing)"
result "the table has each" "$(each is_not_listed)"
result "every rule has one" "$(rules_without)"
result "a name that none has is refused" \
	"$(runs_otherwise nosuch 99 '^Bail out! there is no mutant nosuch')"
result "a patch that does not apply is said to be one" \
	"$(runs_otherwise "$stale" 1 ': the patch does not apply$')"
echo "1..$n"
