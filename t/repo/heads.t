#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each test says which sources it is about, and each source which tests it has; t/repo/heads compares.
# The lines of the sources are made from those of the tests.
# Tests: t/repo/heads CONTRIBUTING.md

srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
heads=$srcdir/t/repo/heads
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-heads-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
result()	# TEXT: by the status before
{
	test $? = 0 && ok=ok || ok='not ok'
	n=$((n + 1))
	echo "$ok $n - $1"
	test "$ok" = ok || sed 's/^/# /' "$tmp/out" | head -n 40
}

sh "$heads" "$srcdir" >"$tmp/out" 2>&1
result "tests and sources name each other; t/repo/heads --write makes the lines of the sources"

# ---- the comparison itself, on a few files ----

cd "$tmp" && mkdir -p lib/a lib/b t/a t/b t/lib python/gpc || exit 99
spdx='SPDX-License-Identifier: Apache-2.0'
begin()
{
	printf '/* %s */\n/* one.c - one. */\nint one;\n' "$spdx" >lib/a/one.c
	printf '/* %s */\n/* two.c - two,\n * and more. */\nint two;\n' "$spdx" >lib/a/two.c
	printf '/* %s */\n/* two.h - no line. */\nint two;\n' "$spdx" >lib/a/two.h
	printf '/* %s */\nint bare;\n' "$spdx" >lib/b/bare.c
	printf '# %s\n"""Three."""\nx = 3\n' "$spdx" >python/gpc/three.py
	printf '/* %s */\n/* One.\n * Tests: lib/a/one.c lib/a/two.h */\nint main;\n' "$spdx" >t/a/one.c
	printf '/* %s */\n/* Two.\n * Tests: lib/a/two.c\n *   lib/b/ lib/a/one.c */\nint main;\n' "$spdx" >t/a/two.c
	printf '#!/bin/sh\n# %s\n# Three.\n# Tests: python/gpc/three.py lib/a/one.c\n# Needs: x\n\nexit\n' \
		"$spdx" >t/b/three.t
}
heads()	# ARGUMENT...: on this folder
{
	sh "$heads" "$@" "$tmp" >out 2>&1
}

begin
heads
test $? = 1 && test "$(grep -c 'its head has "Tests:", the tests say' out)" = 4
result "sources without a line are told"
heads --write && heads && ! grep -q . out
result "--write makes them"
printf '/* %s */\n/* one.c - one.\n * Tests: t/a/one.t t/a/two.t t/b/three.t */\nint one;\n' \
	"$spdx" | diff - lib/a/one.c >out
result "those of its hall come first, then those that name it first, then those that name few"
{
	printf '/* %s */\n/* two.c - two,\n * and more.\n * Tests: t/a/two.t */\nint two;\n' "$spdx"
	printf '/* %s */\n/* two.h - no line. */\nint two;\n' "$spdx"
	printf '/* %s */\n/* Tests: t/a/two.t */\nint bare;\n' "$spdx"
	printf '# %s\n# Tests: t/b/three.t\n"""Three."""\nx = 3\n' "$spdx"
} >want
cat lib/a/two.c lib/a/two.h lib/b/bare.c python/gpc/three.py | diff want - >out
result "in heads of several lines, where there was none, by a folder, in Python; not in a header of a source"

for i in 4 5 6 7 8; do
	printf '/* %s */\n/* N.\n * Tests: lib/a/one.c */\n' "$spdx" >t/a/much-longer-name-of-a-test-$i.c
done
heads --write
heads && test "$(grep -o 't/[a-z0-9/-]*\.t' lib/a/one.c | wc -l)" = 6 &&
	grep -q '^ \*   t/a.* \*/$' lib/a/one.c && ! awk 'length > 100' lib/a/one.c | grep -q .
result "at most six, in lines of 100 columns"
cp lib/a/one.c once && heads --write && cmp once lib/a/one.c >out
result "written again, nothing changes"

wrong()	# TEXT WHAT...: the message after that change
{
	text=$1
	shift
	rm -f t/a/*
	begin
	heads --write
	eval "$*"
	heads
	test $? = 1 && grep -qxF "$text" out
	result "$text"
}
wrong 't/a/one.c: its head has no line "Tests: FILE..."' "sed -i '/Tests:/s/.*/ *\\//' t/a/one.c"
wrong 't/b/three.t: it names lib/a/gone.c, which is not there' "sed -i 's|lib/a/one.c|lib/a/gone.c|' t/b/three.t"
wrong 'python/gpc/three.py: no test names it or its folder' "sed -i 's|python/gpc/three.py||' t/b/three.t"
wrong 'lib/a/two.c: its head has "Tests: t/a/two.t t/b/three.t", the tests say "Tests: t/a/two.t"' \
	"sed -i 's|Tests: t/a/two.t|& t/b/three.t|' lib/a/two.c"
wrong 'lib/a/two.c: its head has "Tests: t/a/two.t", the tests say "Tests: t/a/one.t t/a/two.t"' \
	"sed -i 's|lib/a/two.h|lib/a/two.c|' t/a/one.c && sed -i 's|lib/a/two.c|lib/a/one.c|; s|lib/a/one.c \\*|lib/a/two.c *|' t/a/two.c"
echo "1..$n"
