#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A test leaves nothing behind, however it ends: by itself, by its limit, by a signal, or killed
# together with the program that watches it.
# Tests: t/sh/within.c t/lib/patience.h t/lib/tap.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

within=$helpers/within
test -x "$within" || skip_all "t/sh/within is not built"
mkdir "$tmp/tmp" "$tmp/here"
TMPDIR=$tmp/tmp
export TMPDIR
cd "$tmp/here" || exit 99

# A test as it is in the middle: folders, a cache, and a daemon; then what $1 says.
cat >"$tmp/test" <<'EOF'
mkdir -p /dev/shm/gpc-test-$$-abc/deep "$TMPDIR/gpc-t-x-$$.abc" gpc-t-disk-$$.abc
: >/dev/shm/gpc.left-$$.idx
: >/dev/shm/gpc-test-$$-abc/deep/file
setsid sh -c 'echo $$ >"$1/daemon"; exec sleep 1000' sh "$TMPDIR" &
while ! test -s "$TMPDIR/daemon"; do sleep 0.01; done
echo $$ >"$TMPDIR/test"
eval "$1"
EOF

left()	# what is there of the process that the test was
{
	number=$(cat "$TMPDIR/test")
	ls -d /dev/shm/gpc*-"$number"[-.]* "$TMPDIR"/gpc*-"$number"[-.]* ./gpc*-"$number"[-.]* 2>/dev/null
	is_gone "$(cat "$TMPDIR/daemon")" || echo "a daemon"
}

is_under_way()
{
	test -s "$TMPDIR/test"
}

began()	# WHAT: a test that hangs is under way: $pid watches it
{
	rm -f "$TMPDIR"/test "$TMPDIR"/daemon
	start "$1" "$within" 100,1 sh "$tmp/test" 'trap "" TERM INT; while :; do sleep 0.1; done'
	until_ok is_under_way
}

run "$within" 100 sh "$tmp/test" 'exit 3'
exits 3 "a test that ends has its own status"
is "$(left)" '' "and nothing is left of it"
rm -f "$TMPDIR"/test "$TMPDIR"/daemon
run "$within" 1 sh "$tmp/test" 'while :; do :; done'
exits 142 "one that spins is ended by its limit"
prints '^Bail out! out of time' "and it is said"
is "$(left)" '' "nothing is left"
rm -f "$TMPDIR"/test "$TMPDIR"/daemon
run "$within" 1,1 sh "$tmp/test" 'trap "" ALRM; while :; do sleep 0.1; done'
exits 137 "one that sleeps, and ignores the limit"
is "$(left)" '' "nothing is left"

for signal in TERM HUP; do
	began $signal
	kill -$signal "$pid"
	finish "$pid"
	test $status -gt 128
	ok $? "SIG$signal ends one that ignores it"
	is "$(left)" '' "nothing is left"
done

began killed
number=$(cat "$TMPDIR/test")
kill -9 "$pid" "$number"
finish "$pid"
is_reaped()	# PID: the sweep takes one that its parent has not seen for alive
{
	! kill -0 "$1"
}
until_ok is_reaped "$number"
is "$(ls -d /dev/shm/gpc-test-"$number"-* | wc -l)" 1 "both are killed: a folder is left"
run "$within" --sweep
prints "^# /dev/shm/gpc-test-$number-abc was left behind" "the sweep says what it finds"
is "$(ls -d /dev/shm/gpc-*-"$number"[-.]* "$TMPDIR"/gpc-*-"$number"[-.]* ./gpc-*-"$number"[-.]* 2>/dev/null)" '' \
	"and removes the folders"
test -e "/dev/shm/gpc.left-$number.idx"
ok $? "a cache stays: its name may be anybody's"
rm -f "/dev/shm/gpc.left-$number.idx"

mkdir "/dev/shm/gpc-test-$$-lives"
run "$within" --sweep
test -d "/dev/shm/gpc-test-$$-lives"
ok $? "a folder of a process that lives stays"
rmdir "/dev/shm/gpc-test-$$-lives"

# The number of a test is no process, also where one had that number: first the test, then the process.
cat >"$tmp/other" <<'END'
echo $$ >"$TMPDIR/other"
mkdir "/dev/shm/gpc-$$-$1.lives"
END
run "$within" 100 sh "$tmp/other" $$
test -d "/dev/shm/gpc-$(cat "$TMPDIR/other")-$$.lives"
ok $? "the last number of a name is the process"
rmdir "/dev/shm/gpc-$(cat "$TMPDIR/other")-$$.lives"

# A compiled test, whose watchdog is its parent.
if test -x "$builddir/t/torture/kill.t"; then
	folders()
	{
		ls -d /dev/shm/gpc-*-"$pid" 2>/dev/null
	}
	start kill "$builddir/t/torture/kill.t" --seconds 600
	# its first line comes when its watchdog is there
	until_ok grep -q seed "$tmp/kill.out" && folders >/dev/null
	ok $? "a compiled test is under way"
	kill -TERM "$pid"
	finish "$pid"
	is "$(folders)" '' "asked to end, it leaves nothing"
else
	skip 2 "t/torture/kill.t is not built"
fi
done_testing
