#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "make check TESTS=..." builds what these tests need: t/sh/needs says what that is, and refuses a name
# that no test has.
# Tests: t/sh/needs t/local.mk

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

are t/110-publish.t t/110-publish.t
are t/110-publish t/110-publish.t
are t/request/late-answers.t t/request/late-answers.t
are t/390-hostile-files.t lib/libgpc.la t/390-hostile-files.t tools/gpc-inspect
are t/850-kv-events.t t/850-kv-events.t tools/gpcd
are t/051-remote-plugins.t t-plugins t/051-remote-plugins.t
are t/055-remote-kept.t t-plugins t/055-remote-kept.t
are t/810-inspect.t lib/libgpc.la t/sh/hold t/sh/json tools/gpc-inspect tools/gpcd
are t/820-replay-lru.t lib/libgpc.la t/sh/json tools/gpc-inspect tools/gpc-replay tools/gpcd
are t/880-python.t lib/libgpc.la t-python t/sh/json tools/gpc-inspect tools/gpcd
are t/912-exports.t lib/libgpc.la
are t/913-includes.t
are t/repo/heads.t

# all of them at once: each target is one that the makefiles have
{
	echo $known | tr ' ' '\n'
	sed -n 's/^\(t-[a-z]*\):.*/\1/p' t/local.mk
	sed -n 's|^[a-z]*_PROGRAMS += %reldir%|tools|p' tools/local.mk
	sed -n '/^t_helpers/,/^$/s|^	%reldir%\(/[a-z/]*\).*|t\1|p' t/local.mk
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
refused 'there is no test t/no-such-thing.t; TESTS has names like t/110-publish.t' t/no-such-thing.t
refused 'there is no test t/111-publish.t; TESTS has names like t/110-publish.t' t/111-publish.t t/110-publish.t
known=t/110-publish.t
refused 't/112-keys.t is not built here' t/112-keys.t
refused 't/810-inspect.t is not listed in t/local.mk' t/810-inspect.t
echo "1..$n"
