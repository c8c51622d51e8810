#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table of t/torture/mutants is up to date: each mutant applies to the sources as they are,
# says what it breaks and by which programs it is caught, and no rule is without one.  That they
# are caught is for "make mutants".
# Tests: t/torture/mutants/table t/torture/mutants/apply.c t/torture/mutants/run

builddir=$(cd "${top_builddir:-.}" && pwd) || exit 99
srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
cd "$srcdir" || exit 99
here=t/torture/mutants
table=$here/table
apply=$builddir/t/torture/mutants/apply
if ! test -x "$apply"; then
	echo "Bail out! $apply is missing; make check builds it"
	exit 99
fi
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-701-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

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

lines()
{
	grep -v '^#' $table
}

# The first line of a mutant says all, the others have "=" there.
are_incomplete()
{
	lines | awk -F '\t' '
	NF != 8 { print "line " NR ": " NF " columns"; next }
	$1 !~ /^[a-z0-9-]+$/ || $3 == "" || $4 == "" || $5 == "" || $5 == $6 { print $1 ": " $3 }
	$1 == last && ($2 != "=" || $7 != "=" || $8 != "=") { print $1 ": a second first line" }
	$1 != last && $1 in seen { print $1 ": its lines do not stand together" }
	$1 != last && ($2 !~ /^[A-Z]/ || $7 !~ /t\/.*\.t/ || $8 !~ /^[A-Z`].*\.$/) {
		print $1 ": its rules, its tests or its sentence"
	}
	{ seen[$1] = 1; last = $1 }'
}

# The first word that is no variable is a program, and it has a source, or is a script.
are_caught_by_nothing()
{
	lines | awk -F '\t' '$7 != "=" { n = split($7, test, / \| /)
		for (i = 1; i <= n; i++) print $1, test[i] }' |
		sed 's/^\([^ ]*\) \([A-Z_]*=[^ ]* \)*/\1 /' |
		while read -r name program rest; do
			test -e "${program%.t}.c" || test -x "$program" || echo "$name: $program"
		done
}

rules_without()
{
	lines | cut -f 2 | tr -d ' ' | tr ',' '\n' | sort -u >"$tmp/broken"
	for rule in A C D E F G H $(sed -n 's/^\* \*\*\([TSCRB][0-9][0-9]*\)\*\* .*/\1/p' lib/RULES.md)
	do
		grep -qx "$rule" "$tmp/broken" || echo "$rule"
	done
}

# STATUS TEXT OPTION...: what "run" says of what it cannot take
runs_otherwise()
{
	want=$1 text=$2
	shift 2
	said=$(top_builddir=$builddir COMPILE=: LINKER=: sh $here/run --no-baseline "$@" 2>&1)
	status=$?
	test $status = "$want" && test "$(echo "$said" | grep -c "$text")" = 1 ||
		echo "status $status, $said"
}

# What "apply" says of a table with one mutant, of a source with two functions.
mkdir "$tmp/lib"
cat >"$tmp/lib/a.c" <<'END'
struct pair { int a; /* first */ int b; };
#define LEAST 2
static int twice(int a);
static const int known[] = { 1, 2 };
static int twice(int a)
{
	const char *s = "a +  /* b";

	return a + /* once
		    * more */ a;
}
int sum(int a, int b)
{
	a += b;
	a += b;
	return a << 1;
}
END
row()	# PLACE OLD NEW [FILE]
{
	printf 'some\tA\t%s\t%s\t%s\t%s\tt/a.t\tIt is.\n' "${4:-lib/a.c}" "$1" "$2" "$3"
}

says_otherwise()	# STATUS TEXT: what it must say of $tmp/table
{
	said=$("$apply" "$tmp/table" "$tmp" 2>&1)
	status=$?
	test "$status:$said" = "$1:$2" || echo "status $status, $said"
}

says_of_row()	# STATUS TEXT ROW...
{
	want=$1 text=$2
	shift 2
	row "$@" >"$tmp/table"
	says_otherwise "$want" "$text"
}

# What it makes of the source, without blanks; the rest stays.
makes_otherwise()
{
	{
		row twice 'a+a ;' 'a;'
		row twice '"a +  /* b"' '"b"'
		row 'struct pair' 'int a; int b;' 'int b;'
		row '#define LEAST' '2' '3'
		row known '1,2' '2, 2'
		row sum 'return a<<1;' ''
		row - 'int sum(int a' 'int sum(int c'
	} >"$tmp/table"
	"$apply" "$tmp/table" "$tmp" some "$tmp/out" >"$tmp/said" 2>&1 || echo "status $?"
	test "$(cat "$tmp/said")" = lib/a.c || cat "$tmp/said"
	cat >"$tmp/want" <<'END'
struct pair { int b; };
#define LEAST 3
static int twice(int a);
static const int known[] = { 2, 2 };
static int twice(int a)
{
	const char *s = "b";

	return a;
}
int sum(int c, int b)
{
	a += b;
	a += b;
	
}
END
	diff "$tmp/want" "$tmp/out/lib/a.c"
}

lists_otherwise()
{
	for file in $(lines | cut -f 3 | sort -u); do
		lines | awk -F '\t' -v file="$file" '$3 == file { print $1 }' >"$tmp/want"
		sh $here/run --list "$file" | sed -n 's/^\([^ ][^ ]*\) .*/\1/p' >"$tmp/got"
		diff "$tmp/want" "$tmp/got"
	done
	said=$(sh $here/run --list lib/nosuch.c) && echo "lib/nosuch.c has some: $said"
}

result "there are mutants" "$(lines | grep -q . || echo "none")"
result "each applies" "$("$apply" $table . 2>&1 || echo "status $?")"
result "each says what is wrong, what it breaks and what catches it" "$(are_incomplete)"
result "the programs that catch them exist" "$(are_caught_by_nothing)"
result "every rule has one" "$(rules_without)"
result "a name that none has is refused" \
	"$(runs_otherwise 99 '^Bail out! there is no mutant nosuch' nosuch)"
result "a wrong shard is refused" "$(runs_otherwise 99 '^Bail out! --shard 2: ' --shard 2)"
result "the mutants of a file are listed" "$(lists_otherwise)"

result "changes are made where they are named" "$(makes_otherwise)"
result "no such function" "$(says_of_row 1 'some: lib/a.c: thrice is not in it' thrice a b)"
result "no such text in the function" \
	"$(says_of_row 1 'some: lib/a.c: twice has no longer the old text' twice 'a += b;' '')"
result "the text twice in the function" \
	"$(says_of_row 1 'some: lib/a.c: sum has the old text more than once' sum 'a += b;' '')"
result "the text once with what follows" "$(says_of_row 0 '' sum 'a += b; return' '')"
result "half a token is none" \
	"$(says_of_row 1 'some: lib/a.c: sum has no longer the old text' sum 'a <' 'a >')"
result "no such file" "$(says_of_row 1 \
	'some: lib/b.c: sum cannot be looked for, the file is not there' sum 'a' 'b' lib/b.c)"
row sum 'return a << 1' 'b' >"$tmp/table"
row sum '<< 1;' ';' >>"$tmp/table"
result "two changes of one place" \
	"$(says_otherwise 1 'some: lib/a.c: sum is changed twice in the same place')"
printf 'some\tlib/a.c\n' >"$tmp/table"
result "a line without all columns" \
	"$(says_otherwise 2 'Bail out! line 1 of the table has less than 8 columns')"
row nosuch 'a' 'b' lib/index/table/lru.c >"$tmp/table"
result "run says of a mutant that it does not apply, and why" "$(export MUTANTS_TABLE="$tmp/table"
	runs_otherwise 1 '^not ok - some: it does not apply' some
	runs_otherwise 1 '^# some: lib/index/table/lru.c: nosuch is not in it' some)"
echo "1..$n"
