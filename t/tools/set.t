#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect set: each setting of the table of gpc-inspect(1), what it does, what is refused and how; all or none.
# Tests: tools/inspect/set.c tools/daemon/say.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

set_is()	# KEY: what counts now
{
	gpc-inspect --dir "$shm" --json set one $pool >"$tmp/out" && value "$1"
}

sets()	# KEY VALUE WANT: KEY=VALUE is taken
{
	run gpc-inspect --dir "$shm" set one $pool "$1=$2"
	is "$status $(set_is "$1")" "0 $3" "$1=$2"
}

# ---- what is refused ----

refuses 2 'set: NAME is missing' gpc-inspect --dir "$shm" set
refuses 1 'absent' gpc-inspect --dir "$shm" set absent quota=1
start one gpcd one --dir "$shm" --block-size 16 --vram-blocks 64 --ram-blocks 64 --block-bytes 4k --disk "$tmp/disk" \
	--disk-blocks 64 --max-blocks 1k --quota 0 --free-target 0
writer=$pid
until_ok grep -q 'serving as process' "$tmp/one.err"
for bad in quota '=1' 'quota' 'a-key-that-is-much-longer-than-any=1'; do
	refuses 2 "set: '$bad' is not KEY=VALUE" gpc-inspect --dir "$shm" set one "$bad"
done
refuses 2 "there is no setting 'Quota'; there are free-target, quota, log-level" gpc-inspect --dir "$shm" set one Quota=1
refuses 2 'quota is given twice' gpc-inspect --dir "$shm" set one quota=1 quota=1
refuses 2 'mode is given twice' gpc-inspect --dir "$shm" set one mode=0600 mode=0660
for key in block-size max-blocks vram-blocks ram-blocks ram-space unchained block-bytes sums numa huge-dir max-peers max-pools \
	device tick quarantine keep-tokens keep-digests max-aliases layout dir key-file; do
	refuses 2 "set: $key is fixed when a cache is made: " gpc-inspect --dir "$shm" set one $key=1
done
for key in disk disk-bytes disk-blocks disk-exclusive disk-min-uses disk-write-rate disk-resize disk-buffered disk-strict \
	remote remote-tag remote-blocks remote-min-uses remote-deadline events events-replay events-memory events-public topic \
	metrics metrics-public standby foreground daemonize pidfile unlink quiet; do
	refuses 2 "set: $key is an option that gpcd reads when it starts: start it anew" gpc-inspect --dir "$shm" set one $key=1
done
# each option of gpcd that is about a cache that it serves has one of the three answers
gpcd --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' | grep -vx 'keep\|pieces\|space\|demote-to\|config\|join\|slow-ms' >"$tmp/options"
while read -r key; do
	gpc-inspect --dir "$shm" set one "$key=x" 2>&1 | grep -q 'there is no setting' && echo "$key"
done <"$tmp/options" >"$tmp/none"
is "$(cat "$tmp/none")" '' "no option of gpcd is unknown to set"
refuses 2 '--quota: 4294967296 is out of range \(0 to 4294967295\)' gpc-inspect --dir "$shm" set one quota=4294967296
refuses 2 '--free-target: 16777217 is out of range' gpc-inspect --dir "$shm" set one free-target=16777217
refuses 2 "set: log-level: 'loud' is no level: emerg, alert, .*, 0 to 7, or made" gpc-inspect --dir "$shm" set one log-level=loud
refuses 2 '--log-level: 8 is out of range \(0 to 7\)' gpc-inspect --dir "$shm" set one log-level=8
refuses 2 "there is no setting 'foo'; there are .*disk-max-age, slow-ms, mode and group\$" gpc-inspect --dir "$shm" set one foo=1
refuses 2 '--disk-ahead: 0 is out of range \(1 to 4096\)' gpc-inspect --dir "$shm" set one disk-ahead=0
refuses 2 "mode: '0644' is not" gpc-inspect --dir "$shm" set one mode=0644
refuses 2 "mode: '0060' is not" gpc-inspect --dir "$shm" set one mode=0060
refuses 2 "group: there is no group 'nobodys'" gpc-inspect --dir "$shm" set one group=nobodys
refuses 2 'spill-ahead is a pool.s: --pool is missing' gpc-inspect --dir "$shm" set one spill-ahead=1
refuses 1 'spill-ahead: pool 1 demotes to no other one' gpc-inspect --dir "$shm" set one --pool 1 spill-ahead=1 quota=5
refuses 1 'spill-ahead: pool 0 has fewer blocks' gpc-inspect --dir "$shm" set one --pool 0 spill-ahead=65 quota=5
refuses 1 'one has no pool 9' gpc-inspect --dir "$shm" set one --pool 9 quota=5
pool=
is "$(set_is quota)" 0 "and what stood beside it is not set either"

# ---- what is taken ----

sets free-target 9 9
sets free-target made 0
sets quota 2 2
start worker "$helpers/hold" "$shm" one worker 0 3 0
finish "$pid"
like "$(cat "$tmp/worker.err")" 'quota' "a quota counts at once"
sets quota 1k 1024
sets quota made 0
sets disk-ahead 4k 4096
sets disk-ahead made null
sets disk-max-age 60 60
sets slow-ms 5 5
inspect set one
prints '^slow-ms: +5$' "and in words"
# each key of JSON is a line
gpc-inspect --dir "$shm" set one | sed -n 's/^\([a-z-]*\):.*/\1/p' | grep -vx cache | sort >"$tmp/lines"
gpc-inspect --dir "$shm" --json set one | sed -n 's/^ *"\([a-z-]*\)":.*/\1/p' | grep -vx name | sort >"$tmp/keys"
is "$(cat "$tmp/lines")" "$(cat "$tmp/keys")" "each setting is shown in words as in JSON"
sets slow-ms made 100
sets log-level debug 7
sets log-level 3 3
pool='--pool 0'
sets spill-ahead 8 8
inspect --json stat one
is "$(value pools/0/spill_ahead)" 8 "as stat tells it"
sets spill-ahead made 0
pool=
sets mode 0660 0660
is "$(stat -c %a "$shm/gpc.one.idx" "$shm/gpc.one.ctl" "$shm/gpc.one.lock" | sort -u)" 660 "all of its files"
sets group "$(id -g)" "$(id -g)"
if test "$(id -u)" -eq 0; then
	owners()	# modes and groups of its files
	{
		stat -c '%a %g' "$shm"/gpc.one.* | sort -u
	}
	for zero in 0 00 root; do
		inspect set one group=65534
		is "$(owners)" '660 65534' "another group"
		inspect set one "group=$zero"
		is "$status $(owners)" '0 660 0' "group=$zero gives it group 0"
	done
	refuses 2 'group is given twice' gpc-inspect --dir "$shm" set one group=0 group=1
	refuses 2 'group counts for nothing with mode 600, which lets no group in' gpc-inspect --dir "$shm" set one mode=0600 group=65534
	is "$(owners)" '660 0' "and nothing is changed"
	inspect set one mode=0640 group=65534
	is "$(owners)" '640 65534' "both"
	inspect set one mode=0660
	is "$(owners)" '660 65534' "mode alone leaves the group"
	chmod 755 "$shm"
	inspect set one group=65534
	run setpriv --reuid 65534 --regid 65534 --clear-groups gpc-inspect --dir "$shm" set one group=65534 mode=0640
	exits 1 "another user may set neither"
	says 'one: set: group: only user 0, who owns its files, can change that: they have mode 660 and group 65534$' "says who may"
	inspect set one group=root
else
	skip 11 "needs root"
fi
inspect set one
prints '^log-level: +3$' "without a key: what is set"
inspect check one
exits 0 "the cache is sound"

# ---- the level of a gpcd that runs ----

dies()
{
	start bad "$helpers/hold" "$shm" one bad 0 1 0
	bad=$pid
	until_ok grep -q holding "$tmp/bad.out"
	kill -9 "$bad"
	finish "$bad"
}
sets log-level debug 7
before=$(wc -l <"$tmp/one.err")
talks()
{
	dies
	test "$(wc -l <"$tmp/one.err")" -gt "$before"
}
until_ok talks
ok $? "at debug it tells of processes that die" "$tmp/one.err"

# ---- what a keeper of tiers goes by ----

tier()	# COUNTER of the tier on disk
{
	gpc-inspect --dir "$shm" --json stat two >"$tmp/out" && value "tiers/0/$1"
}

more()	# COUNTER
{
	test "$(tier "$1")" -gt 0
}

serve two --block-size 16 --ram-blocks 64 --block-bytes 4k --disk "$tmp/disk2" --disk-blocks 128
two=$pid
inspect set two disk-ahead=1
exits 0 "disk-ahead=1"
NODE_DIR=$shm run "$helpers/node" two fill 1 60
exits 0 "blocks, and some are free"
is "$(tier written)" 0 "none is next to go"
inspect set two disk-ahead=made
until_ok more written
ok $? "with more ahead they are written"
is "$(tier aged)" 0 "none goes for its age"
inspect set two disk-max-age=1
until_ok more aged
ok $? "until that is set"
kill "$two"

# ---- they stay with the cache ----

kill "$writer"
finish "$writer"
serve one --quiet
is "$(set_is disk-max-age) $(set_is log-level)" '60 7' "another writer finds them"

done_testing
