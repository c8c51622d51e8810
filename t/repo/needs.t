#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "make check TESTS=..." builds what these tests need: t/sh/needs says what that is, and refuses a name
# that no test has.
# Tests: t/sh/needs t/sh/of t/local.mk

srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
cd "$srcdir" || exit 99
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-needs-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15
known=$(for mk in t/local.mk t/*/local.mk; do
	grep -o '%reldir%/[A-Za-z0-9_/-]*\.t' "$mk" | sed "s|%reldir%|$(dirname "$mk")|"
done | sort -u)
known=$(echo $known)

n=0
LC_ALL=C
export LC_ALL
result()	# TEXT: by the status before
{
	test $? = 0 && ok=ok || ok='not ok'
	n=$((n + 1))
	echo "$ok $n - $1"
	test "$ok" = ok || sed 's/^/# /' "$tmp/out" | head -n 20
}

needs()	# TEST...: into $tmp/out, in order
{
	sh t/sh/needs . "$known" "$@" >"$tmp/raw" 2>"$tmp/err"
	status=$?
	sort "$tmp/raw" >"$tmp/out"
	return $status
}

are()	# TEST TARGET...
{
	test=$1
	shift
	needs "$test" && test "$(paste -sd' ' - <"$tmp/out")" = "$*"
	result "$test needs ${*:-nothing}"
}

are t/index/publish.t t/index/publish.t
are t/index/publish t/index/publish.t
are t/index/late-answers.t t/index/late-answers.t
are t/bytes/hostile-files.t lib/libgpc.la t/bytes/hostile-files.t tools/gpc-inspect
are t/kv/events.t t/kv/events.t tools/gpcd
are t/tiers/remote-plugins.t t-plugins t/tiers/remote-plugins.t
are t/tiers/remote-kept.t t-plugins t/tiers/remote-kept.t
are t/tools/inspect.t lib/libgpc.la t/sh/hold t/sh/json tools/gpc-inspect tools/gpcd
are t/tools/replay-lru.t lib/libgpc.la t/sh/json tools/gpc-inspect tools/gpc-replay tools/gpcd
are t/python/module.t lib/libgpc.la t-python t/sh/json tools/gpc-inspect tools/gpcd
are t/repo/exports.t lib/libgpc.la
are t/repo/mutants.t t/torture/mutants/apply
are t/repo/includes.t
are t/repo/heads.t

sh t/sh/of . lib/bytes/mapping/huge.c >"$tmp/out" 2>&1 && grep -qx t/bytes/pool-make.t "$tmp/out"
result "a source has the tests whose heads name it"
! sh t/sh/of . lib/bytes/memory/huge.c >"$tmp/out" 2>&1 &&
	grep -q 'no lib/bytes/memory/huge.c; .* like lib/bytes/mapping/huge.c$' "$tmp/out"
result "a file that is not there is refused, with one of its name"

# all of them at once: each target is one that the makefiles have
{
	echo $known | tr ' ' '\n'
	sed -n 's/^\(t-[a-z]*\):.*/\1/p' t/local.mk
	sed -n 's|^[a-z]*_PROGRAMS += %reldir%|tools|p' tools/local.mk
	sed -n '/^t_helpers/,/^$/s|^	%reldir%\(/[a-z/]*\).*|t\1|p' t/local.mk
	sed -n 's|^pkglib_LTLIBRARIES += %reldir%|plugins|p' plugins/local.mk
	sed -n 's|^check_PROGRAMS += %reldir%/mutants|t/torture/mutants|p' t/torture/local.mk
	echo lib/libgpc.la
} | sort -u >"$tmp/targets"
needs $known && comm -23 "$tmp/out" "$tmp/targets" >"$tmp/none" && cp "$tmp/none" "$tmp/out" &&
	! test -s "$tmp/none"
result "what tests need can be built"

refused()	# TEXT TEST...
{
	text=$1
	shift
	needs "$@"
	test $? = 2 && ! test -s "$tmp/out" && test "$(wc -l <"$tmp/err")" = 1 && grep -qF "$text" "$tmp/err"
	result "$*: $text" || cat "$tmp/err"
}
refused 'there is no test t/no-such-thing.t; TESTS has names like t/index/publish.t' t/no-such-thing.t
refused 'there is no test t/index/publsh.t; TESTS has names like t/index/publish.t' t/index/publsh.t t/index/publish.t
known=t/index/publish.t
refused 't/index/keys.t is not built here' t/index/keys.t
refused 't/tools/inspect.t is not listed in t/local.mk' t/tools/inspect.t
echo "1..$n"
