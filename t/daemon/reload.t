#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SIGHUP has gpcd read its options again: what counts at once, what is named as it needs a restart, and mistakes. With
# a terminal it ends gpcd.
# Tests: tools/daemon/reload.c tools/daemon/process.c tools/daemon/tiers.c tools/daemon/config.c tools/common/cli.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

conf=$tmp/r.conf

says()	# LABEL PATTERN
{
	grep -q -e "$2" "$tmp/$1.err"
}

reread()	# LABEL: until that many have been read as were asked for
{
	asked=$(($(grep -c 'SIGHUP: the options were read again\|SIGHUP: nothing is changed' "$tmp/$1.err") + 1))
	kill -HUP "$pid"
	until_ok sh -c 'test "$(grep -c "SIGHUP: the options were read again\|SIGHUP: nothing is changed" "$1")" -ge "$2"' \
		sh "$tmp/$1.err" "$asked"
}

file()	# LINE...: the file
{
	{
		printf '[gpc]\nname = fresh\ndir = %s\n' "$shm"
		printf '%s\n' "$@"
	} >"$conf"
}

cache='block-size = 16
ram-blocks = 64
block-bytes = 4k
max-peers = 8
max-blocks = 1000'

# ---- a writer ----

start manager "$helpers/notify" "$tmp/socket"
until_ok grep -q listening "$tmp/manager.out"
file "disk = $tmp/disk" 'disk-blocks = 50' '[gpcd]' "$cache" 'free-target = 9' 'device = none'
cd "$tmp" || exit 99
start writer env NOTIFY_SOCKET="$tmp/socket" setsid gpcd --config r.conf --quota 7
cd / || exit 99
until_ok says writer 'serving as process' || bail "$(cat "$tmp/writer.err")"
reread writer
ok $? "no change is none" "$tmp/writer.err"
says writer 'SIGHUP: --'
is $? 1 "and names nothing" "$tmp/writer.err"
until_ok sh -c 'test "$(grep -c "^READY=1" "$1")" = 2' sh "$tmp/manager.out"
ok $? "the manager hears READY=1 once more" "$tmp/manager.out"
grep -q '^RELOADING=1' "$tmp/manager.out" && grep -q '^MONOTONIC_USEC=[1-9]' "$tmp/manager.out"
ok $? "behind RELOADING=1"

file "disk = $tmp/disk" 'disk-blocks = 50' '[gpcd]' "$cache" 'free-target = 10' 'device = host' 'keep-tokens = yes' \
	'log-level = debug' 'unlink = yes'
reread writer
until_ok says writer 'SIGHUP: --log-level is debug'
ok $? "a level of the log counts" "$tmp/writer.err"
says writer "SIGHUP: --free-target is '10', and it goes on with what the cache has: gpc-inspect set changes it"
ok $? "another option is named, with both values" "$tmp/writer.err"
says writer "SIGHUP: --keep-tokens is 'yes', and it goes on with what the cache has: it is of the cache"
ok $? "one that was not given, too"
says writer "SIGHUP: --unlink is 'yes', and it goes on with what it has by default: a restart takes it"
ok $? "one of the process"
says writer "SIGHUP: --device is 'host', and it goes on with 'none'"
ok $? "and devices"
reread writer
is "$(grep -c 'SIGHUP: --free-target' "$tmp/writer.err")" 2 "it is named each time until the restart"
is "$(grep -c 'SIGHUP: --log-level' "$tmp/writer.err")" 1 "a level that counts is not"

# ---- its tiers ----

file "disk = $tmp/disk" 'disk-blocks = 80' 'disk-resize = yes' '[gpcd]' "$cache" 'free-target = 9' 'device = none'
reread writer
ok $? "another size of the file, and no level any more" "$tmp/writer.err"
says writer 'SIGHUP: --disk-blocks is 80'
ok $? "it is said" "$tmp/writer.err"
says writer "SIGHUP: --log-level is not given any more"
ok $? "both are"
says writer "tier disk: $tmp/disk, 80 blocks"
ok $? "the tier is opened anew" "$tmp/writer.err"
file "disk = $tmp/nowhere/disk" 'disk-blocks = 80' '[gpcd]' "$cache" 'free-target = 9'
reread writer
says writer 'SIGHUP: the tiers stay as they were'
ok $? "a tier that is refused" "$tmp/writer.err"
is "$(grep -c "tier disk: $tmp/disk, 80 blocks" "$tmp/writer.err")" 2 "leaves it with the old one" "$tmp/writer.err"
reread writer
is "$(grep -c 'SIGHUP: the tiers stay as they were' "$tmp/writer.err")" 2 "which is tried again with the next SIGHUP"
file '[gpcd]' "$cache" 'free-target = 9'
reread writer
run gpc-inspect --dir "$shm" --json stat fresh
grep -q '"kind": *"disk"' "$tmp/out"
is $? 1 "no tier in the file is none" "$tmp/out"
file "disk = $tmp/disk" "key-file = $tmp/key" '[gpcd]' "$cache" 'free-target = 9'
reread writer
says writer "SIGHUP: --key-file is '$tmp/key', and it goes on with what it has by default"
ok $? "a key file is of the cache: it needs a restart" "$tmp/writer.err"
test ! -e "$tmp/key"
ok $? "and is not made"
is "$(grep -c "tier disk: $tmp/disk, 80 blocks" "$tmp/writer.err")" 4 "the tier of the file comes back" "$tmp/writer.err"

# ---- mistakes ----

file 'disk-blocks = many' '[gpcd]' "$cache" 'log-level = err'
reread writer
says writer "SIGHUP: nothing is changed: r.conf:4: disk-blocks: 'many' is not a number"
ok $? "a mistake: nothing is changed" "$tmp/writer.err"
rm "$conf"
reread writer
says writer 'SIGHUP: nothing is changed: --config r.conf: there is no such file'
ok $? "nor without the file" "$tmp/writer.err"
file '[gpcd]' 'block-size = 16' 'log-level = err'
sed -i 's/^name = .*/name = other/' "$conf"
kill -HUP "$pid"
until_ok says writer "SIGHUP: the name is 'other', and it goes on with 'fresh'"
ok $? "another name is named" "$tmp/writer.err"
kill "$pid"
finish "$pid"
is "$status" 0 "all the while it served, and SIGTERM ends it well" "$tmp/writer.err"
run gpc-inspect check fresh --dir "$shm"
exits 0 "the cache is sound"

# ---- others ----

start first setsid gpcd fresh --dir "$shm"
first=$pid
until_ok says first 'serving as'
start second setsid gpcd fresh --dir "$shm" --standby
second=$pid
until_ok says second 'standing by'
start keeper setsid gpcd fresh --dir "$shm" --keep --device host --vram-blocks 4 --block-bytes 4k
keeper=$pid
until_ok says keeper 'keeping pool'
kill -HUP "$second" "$keeper"
until_ok says second 'SIGHUP: the options were read again'
ok $? "a standby reads again" "$tmp/second.err"
until_ok says keeper 'SIGHUP: the options were read again'
ok $? "and a keeper, both without a file" "$tmp/keeper.err"
kill "$keeper" "$second" "$first"
finish "$first"
finish "$second"

start screen "$helpers/pty" 80 gpcd fresh --dir "$shm"
until_ok grep -q 'serving as process' "$tmp/screen.out"
kill -HUP "$(sed -n 's/.*serving as process \([0-9]*\).*/\1/p' "$tmp/screen.out")"
finish "$pid"
is "$status" 0 "where it has a terminal SIGHUP ends it" "$tmp/screen.out"
grep -q 'ended by SIGHUP' "$tmp/screen.out"
ok $? "and it says so" "$tmp/screen.out"

done_testing
