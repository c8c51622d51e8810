#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs of tests that take options: --help names them, and what makes no sense is refused in one
# line, with status 2, before anything has run.
# Needs: t/torture/grace.t t/torture/kill.t t/torture/prefix.t t/torture/step.t t/torture/successor.t
# Needs: t/fuzz/ring.t t/fuzz/segment.t t/fuzz/tools.t t/fuzz/trace.t
# Tests: t/torture/ t/fuzz/

builddir=$(cd "${top_builddir:-$(dirname "$0")/../..}" && pwd) || exit 99
srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-918-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15
cd "$tmp" || exit 99

n=0
result()	# STATUS TEXT
{
	n=$((n + 1))
	test "$1" = 0 || printf 'not '
	echo "ok $n - $2"
	test "$1" = 0 || sed 's/^/# /' out err
}

helps()	# PROGRAM
{
	"$builddir/$1" --help >out 2>err && grep -q -e --seed out && ! test -s err
	result $? "$1 --help"
}

refuses()	# TEXT PROGRAM OPTION...
{
	text=$1
	tried=$2
	shift 2
	"$builddir/$tried" "$@" >out 2>err
	test $? = 2 && ! test -s out && test "$(wc -l <err)" = 1 && grep -q -e "$text" err
	result $? "$tried $*: $text"
}

for program in grace kill prefix step successor; do
	program=t/torture/$program.t
	helps $program
	refuses '--seconds 0: must be 1 to' $program --seconds 0
	refuses '--seconds -1: not a number' $program --seconds -1
	refuses '--seed x: not a number' $program --seed x
	refuses 'options only: more' $program --seed 1 more
	refuses 'no such option: --nonsense' $program --nonsense
	refuses '--seed needs a value' $program --seed
done
for program in grace kill successor; do
	refuses '--kills 0: must be 1 to' t/torture/$program.t --kills 0
	refuses '--workers 9: must be 1 to 8' t/torture/$program.t --workers 9
done
refuses '--nest 0: must be 1 to' t/torture/prefix.t --nest 0
for program in ring segment tools trace; do
	program=t/fuzz/$program.t
	helps $program
	refuses '--runs x: not a number' $program --runs x
	refuses '--runs 0: must be 1 to' $program --runs 0
	refuses '--seconds 0: must be 1 to' $program --seconds 0
	refuses 'options only: more' $program more
	refuses '--input nowhere: No such file' $program --input nowhere
done

SECONDS_EACH=1 sh "$srcdir/t/fuzz/libfuzzer" "$srcdir" nosuch >out 2>err
test $? = 2 && grep -q 'no harness nosuch: HARNESSES are some of disk ring segment tools trace' err
result $? "make fuzz names its harnesses"

# Who is told to stop has found nothing.
"$builddir/t/fuzz/trace.t" --seconds 600 >out 2>err &
pid=$!
until grep -q -e --seed out || ! kill -0 $pid 2>/dev/null; do
	sleep 0.1
done
sleep 0.2                               # inputs are being drawn; either way it must stop
kill $pid
wait $pid
test $? = 143 && ! grep -q '^not ok' out && grep -q 'stopped by signal 15' out &&
	test -z "$(ls | grep bin)"
result $? "a fuzzer that is told to stop"
echo "1..$n"
