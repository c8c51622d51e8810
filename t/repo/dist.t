#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "make dist" twice: the same bytes, whoever makes it and when.
# Tests: Makefile.am

builddir=$(cd "${top_builddir:-.}" && pwd) || exit 99
name=gpc-t-919-$$
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-919-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp" "$builddir/$name" "$builddir/$name".tar.gz' 0
trap 'exit 1' 1 2 15

skip()
{
	echo "1..0 # SKIP $1"
	exit 0
}

test -f "$builddir/Makefile" || skip "there is no build"
tar --sort=name --version >/dev/null 2>&1 || skip "tar cannot sort"
unset SOURCE_DATE_EPOCH MAKEFLAGS MFLAGS MAKELEVEL

# its own, but quickly
flags=$(sed -n 's/^GZIP_ENV = -9/-1/p' "$builddir/Makefile")

make_dist()	# UMASK FILE
{
	(umask "$1" && make -s -C "$builddir" dist distdir="$name" GZIP_ENV="$flags") >"$tmp/log" 2>&1 &&
		mv "$builddir/$name.tar.gz" "$2"
}

n=0
ok()	# STATUS NAME
{
	n=$((n + 1))
	test "$1" -eq 0 && echo "ok $n - $2" || echo "not ok $n - $2"
}

echo 1..5
make_dist 022 "$tmp/one.tar.gz"
ok $? "make dist" || sed 's/^/# /' "$tmp/log"
second=$(date +%s)
until test "$(date +%s)" -gt "$second"; do sleep 0.1; done
make_dist 077 "$tmp/two.tar.gz"
ok $? "and again, a second later, with another umask"
cmp "$tmp/one.tar.gz" "$tmp/two.tar.gz" >"$tmp/cmp" 2>&1
ok $? "the same bytes"
sed 's/^/# /' "$tmp/cmp"
is=$(tar -tvf "$tmp/one.tar.gz" --numeric-owner --full-time --utc 2>/dev/null |
	awk '{ print $2, $4, $5 }' | sort -u | grep -c .)
test "$is" -eq 1
ok $? "one owner and one time"
tar -tf "$tmp/one.tar.gz" | sed 's|/$||' >"$tmp/names" && LC_ALL=C sort -c "$tmp/names" 2>/dev/null
test -s "$tmp/names"
ok $? "with the files"
