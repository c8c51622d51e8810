#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd --mode, --group, --numa and --key-file for a cache that exists: all its files get that mode and group, if
# they are this user's; the rest is refused with both ways out.
# Tests: lib/index/segment/redress.c lib/index/segment/create.c lib/index/segment/validate.c lib/index/door/attach.c tools/daemon/options_check.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

chmod 755 "$shm"
if test "$(id -u)" -eq 0; then
	mine=$(id -g) other=65534
else
	mine=$(id -g) other=$(id -G | tr ' ' '\n' | grep -vx "$(id -g)" | head -n 1)
	other=${other:-$mine}
fi
make='--block-size 16 --ram-blocks 20 --block-bytes 4k --max-peers 8 --device host'

# modes and groups of all its files, each one once; how many files there are
dressed()
{
	stat -c '%a %g' "$shm/gpc.made."* | sort -u
}

serves()	# OPTION...: it serves the cache once
{
	# shellcheck disable=SC2086
	run gpcd made --dir "$shm" $make "$@" --daemonize --pidfile "$tmp/made.pid"
	test "$status" -eq 0 || return 1
	pid=$(cat "$tmp/made.pid")
}

leaves()
{
	kill "$pid"
	until_ok is_gone "$pid"
}

serves
is "$(dressed)" "600 $mine" "as it is made by default"
leaves
is "$(ls "$shm"/gpc.made.*.idx "$shm"/gpc.made.p* 2>/dev/null | wc -l)" 1 "with memory"

start held gpcd made --dir "$shm" --block-size 16 --log-level debug
held=$pid
until_ok grep -q 'serving as' "$tmp/held.err"
serves --group "$other" --standby
ok $? "--group of a cache that exists" "$tmp/err"
is "$(dressed)" "660 $other" "all its files get it, while another process serves"
leaves
kill "$held"
finish "$held"

serves
is "$(dressed)" "660 $other" "without the option they stay"
leaves
chmod 600 "$shm"/gpc.made.p* "$shm/gpc.made.ctl"
start again gpcd made --dir "$shm" --block-size 16 --group "$other"
until_ok grep -q 'serving as' "$tmp/again.err"
is "$(dressed)" "660 $other" "what a killed one has left is changed, too"
grep -q 'made: its files have mode 660 now' "$tmp/again.err"
ok $? "and the log says so" "$tmp/again.err"
kill "$pid"
finish "$pid"
start same gpcd made --dir "$shm" --block-size 16 --group "$other"
until_ok grep -q 'serving as' "$tmp/same.err"
is "$(grep -c 'its files have' "$tmp/same.err")" 0 "where nothing changes nothing is said"
kill "$pid"
finish "$pid"

if test "$(id -u)" -eq 0 && setpriv --reuid 65534 --regid 65534 --clear-groups \
	"$builddir/tools/gpc-inspect" --version >/dev/null 2>&1
then
	refused="made exists with --mode 660, group 65534, instead of --mode 600, and only its owner, user 0, can change them: ask for what it has, or remove the cache \('gpc-inspect --dir $shm rm made'\)\$"
	refuses 1 'EACCES|mode' setpriv --reuid 65533 --regid 65533 --clear-groups gpcd made --dir "$shm" --block-size 16 --mode 0600
	run setpriv --reuid 65534 --regid 65534 --clear-groups gpcd made --dir "$shm" --block-size 16 --mode 0600
	exits 1 "another user's cache"
	says "$refused" "keeps its mode, and it is said who may"
	start member setpriv --reuid 65534 --regid 65534 --clear-groups gpcd made --dir "$shm" --block-size 16 --group 65534
	until_ok grep -q 'serving as' "$tmp/member.err"
	ok $? "a member of its group may say what it has" "$tmp/member.err"
	kill "$pid"
	finish "$pid"
else
	skip 4 "needs root and setpriv"
fi

start closed gpcd made --dir "$shm" --block-size 16 --mode 0600
until_ok grep -q 'serving as' "$tmp/closed.err"
is "$(stat -c %a "$shm/gpc.made."* | sort -u)" 600 "--mode 0600 closes it again"
kill "$pid"
finish "$pid"

# ---- what cannot be changed ----

# shellcheck disable=SC2086
refuses 1 'made exists with --numa default on the nodes 0x[0-9a-f]+ instead of interleave on 0x[0-9a-f]+: ask for what it has, or remove the cache \(' \
	gpcd made --dir "$shm" $make --numa interleave
# shellcheck disable=SC2086
refuses 1 'made exists with another secret than that of --key-file or --disk: give the one that it was made with, or remove the cache \(' \
	gpcd made --dir "$shm" $make --key-file "$tmp/key"
test ! -e "$tmp/key"
ok $? "and no key file is made for it"
inspect rm made
serves --key-file "$tmp/key" --numa interleave
ok $? "made anew it has them" "$tmp/err"
leaves
serves --key-file "$tmp/key" --numa interleave
ok $? "and takes them again" "$tmp/err"
leaves

refuses 2 '--group: --block-size is missing' gpcd made --dir "$shm" --group "$other"
refuses 2 '--mode: --block-size is missing' gpcd made --dir "$shm" --mode 0600
refuses 2 '--key-file: --block-size is missing' gpcd made --dir "$shm" --key-file "$tmp/key"

done_testing
