#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect on caches in good health: list, stat, ls, lookup, check, env, as tables and
# as JSON; it takes no seat and touches nothing.
# Tests: tools/inspect/main.c tools/inspect/list.c tools/inspect/stat.c tools/inspect/ls.c
#   tools/inspect/check.c tools/inspect/inspect.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# ---- without a cache ----

inspect list
exits 0 "list, with nothing to list"
is "$(cat "$tmp/out")" '' "prints nothing"
is "$(cat "$tmp/err")" "gpc-inspect: there is no cache in $shm; --dir looks elsewhere" \
	"and says why"
inspect --json list
is "$(value '')" '[0]' "list --json is an empty array"
is "$(cat "$tmp/err")" '' "of which there is nothing to say"
for command in stat peers ls reap; do
	refuses 1 "there is no cache in $shm" gpc-inspect --dir "$shm" $command
	refuses 1 "no cache absent in .*; 'gpc-inspect list' shows" \
		gpc-inspect --dir "$shm" $command absent
done
refuses 3 "there is no cache in $shm" gpc-inspect --dir "$shm" check
refuses 3 'absent' gpc-inspect --dir "$shm" check absent
refuses 1 'nowhere: No such file' gpc-inspect --dir "$shm/nowhere" list

# ---- mistakes ----

refuses 2 'COMMAND is missing' gpc-inspect
refuses 2 "no command 'frob'; there are list, stat, .*, rm$" gpc-inspect frob
refuses 2 'top: it prints no JSON' gpc-inspect --json top one
refuses 2 "option '--nonsense' is unknown" gpc-inspect --nonsense list
refuses 2 "option '--frob=3' is unknown" gpc-inspect --frob=3 list
refuses 2 "option '--json' takes no value" gpc-inspect list --json=yes
refuses 2 "option '--js' takes no value" gpc-inspect list --js=yes
refuses 2 "no option '-x'" gpc-inspect -x list
refuses 2 "no option '-x'" gpc-inspect --json -x list
refuses 2 "no option '-j'" gpc-inspect --json -jh list
refuses 2 "option '--dir' needs a value" gpc-inspect list --dir
refuses 2 "list: 'one' is one argument too many" gpc-inspect list one
refuses 2 "env: 'one' is one argument too many" gpc-inspect env one
refuses 2 "stat: 'two' is one argument too many" gpc-inspect stat one two
refuses 2 "'a/b' cannot name a cache" gpc-inspect stat a/b
refuses 2 'lookup: KEY is missing' gpc-inspect lookup
refuses 2 "'beef' is not a key of 32 hex digits" gpc-inspect lookup one beef
refuses 2 'is not a key' gpc-inspect lookup one "$(printf '%031dg' 0)"
refuses 2 'is not a key' gpc-inspect lookup one "$(printf '%034d' 0)"
refuses 2 'stat: --force is an option of rm$' gpc-inspect stat one --force
refuses 2 'check: --limit is an option of stat, ls, hot, slow and watch$' gpc-inspect check one --limit 3
refuses 2 'list: --pool is an option of ls, hot, ping, set, clear and drop$' gpc-inspect list --stale --pool 3
refuses 2 'ls: --stale is an option of rm$' gpc-inspect ls --stale --pool 3
refuses 2 '--limit: .x. is not a number' gpc-inspect ls one --limit x
refuses 2 '--pool: 127 is out of range' gpc-inspect ls one --pool 127
run gpc-inspect --help
exits 0 "--help"
prints 'Exit status' "tells about exit statuses"
run gpc-inspect --version
prints '^gpc-inspect [0-9.]+ \(libgpc [0-9.]+\)$' "--version"

# ---- a live cache with one worker in it ----

serve live --block-size 16 --vram-blocks 64 --ram-blocks 32 --max-peers 8 --device host
writer=$pid
start worker "$helpers/hold" "$shm" live worker 5 2 0
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
grep -v holding "$tmp/worker.out" >"$tmp/keys"

show()	# COMMAND...: as people and as programs see it
{
	inspect "$@" --json
	exits 0 "$* --json"
	value >/dev/null
	ok $? "$* --json is JSON" "$tmp/out"
	plain "$* --json is plain text"
	inspect "$@"
	exits 0 "$*"
	plain "$* is plain text"
	is "$(cat "$tmp/err")" '' "$* has nothing to complain of"
}

show list
aligned "list is aligned"
prints "^live +16 +160 +5 +2 +2 +0 +$writer .* MiB +0 B +served$" "list has its line"
show stat live
aligned "stat is aligned"
show peers live
aligned "peers is aligned"
show ls live
aligned "ls is aligned"
show lookup live "$(head -n 1 "$tmp/keys")"
aligned "lookup is aligned"
show check live
is "$(cat "$tmp/out")" 'live: clean' "check finds it clean"
show env
aligned "env is aligned"

inspect --json stat live
is "$(value name writer_pid writer_generation peers max_peers block_tokens max_blocks)" \
	"live
$writer
1
2
8
16
$((64 + 32 + 64))" "stat: geometry, with transit blocks of the RAM pool"
is "$(value pools/0/kind pools/0/blocks pools/0/demote_to pools/0/owner pools/0/space)" \
	"VRAM
64
1
null
0" "stat: the VRAM pool"
is "$(value pools/1/kind pools/1/blocks pools/1/transit)" "RAM
32
64" "stat: the RAM pool"
is "$(value stats/live stats/refs stats/reserved stats/sections stats/dying)" "5
5
2
0
0" "stat: blocks, references, reservations"
is "$(value stats/free_blocks)" $((64 + 32 + 64 - 5 - 2)) "stat: free blocks"
is "$(value stats/published)" 5 "stat: what was published"
like "$(value bytes)" '^[1-9][0-9]+$' "stat: memory"
like "$(value hash)" . "stat: the name of the hash function"
is "$(value mirrors/0/device)" host "stat: the mirror"

inspect --json list
is "$(value '*/name' '*/state' '*/live' '*/writer_pid')" "0/name live
0/state served
0/live 5
0/writer_pid $writer" "list --json"

# ---- ls and lookup ----

inspect --json ls live
is "$(value '')" '[5]' "ls: five blocks"
is "$(value '*/key' | cut -d' ' -f2)" "$(cat "$tmp/keys")" "ls: parents first, by key"
is "$(value '*/parent' | sed 1d | cut -d' ' -f2)" "$(sed '$d' "$tmp/keys")" \
	"ls: each has the one before it as its parent"
is "$(value '*/refs' '*/tag' | cut -d' ' -f2 | sort | uniq -c | tr -s ' ')" " 5 1
 5 7" "ls: references and tags"
is "$(value '*/depth' | awk 'NR > 1 && $2 != last + 1 { print } { last = $2 }')" \
	'' "ls: each is one deeper"
inspect --json ls live --limit 2
is "$(value '')" '[2]' "ls --limit"
inspect --json ls live --limit 0
is "$(value '')" '[0]' "ls --limit 0"
inspect --json ls live --pool 1
is "$(value '')" '[0]' "ls --pool: none there"
inspect --json ls live --pool 0
is "$(value '')" '[5]' "ls --pool: all are here"
refuses 1 'live has no pool 2$' gpc-inspect --dir "$shm" ls live --pool 2
refuses 1 'live has no pool 126$' gpc-inspect --dir "$shm" ls live --pool 126 --json
inspect ls live
is "$(awk 'NR > 1 { print $7 }' "$tmp/out")" "$(cat "$tmp/keys")" \
	"ls for people says the same"

while read -r key; do
	inspect --json lookup live "$key"
	is "$(value 0/space 0/pool 0/kind '')" "0
0
VRAM
[1]" "lookup $key"
done <"$tmp/keys"
inspect lookup live "$(head -n 1 "$tmp/keys" | tr a-f A-F)"
exits 0 "lookup: capitals are hex digits, too"
inspect lookup live 0123456789abcdef0123456789abcdef
exits 1 "lookup: a key that is not there"
is "$(cat "$tmp/out")" 'not found' "lookup says so"
inspect --json lookup live 0123456789abcdef0123456789abcdef
exits 1 "lookup --json: a key that is not there"
is "$(value '')" '[0]' "is an empty array"

# ---- it only looks ----

inspect --json ls live
value '*/stamp' >"$tmp/stamps"
inspect --json stat live
value stats/lookups stats/miss stats/published >"$tmp/counts"
for i in 1 2 3; do
	inspect lookup live "$(head -n 1 "$tmp/keys")"
	inspect ls live
	inspect check live
	inspect peers live
done
inspect --json ls live
is "$(value '*/stamp')" "$(cat "$tmp/stamps")" "looking does not touch recency"
inspect --json stat live
is "$(value stats/lookups stats/miss stats/published)" "$(cat "$tmp/counts")" \
	"nor statistics"
is "$(value peers)" 2 "and takes no seat"

# ---- names may be left out, and the state of others ----

inspect stat
exits 0 "the only cache needs no name"
prints '^cache: +live$' "it is the one"
inspect lookup "$(head -n 1 "$tmp/keys")"
exits 0 "lookup needs none either"

serve alone --block-size 16 --vram-blocks 64
alone=$pid
start left "$helpers/hold" "$shm" alone left 1 0 0
until_ok grep -q holding "$tmp/left.out"
kill "$pid" "$alone"
refuses 2 'there are 2 caches; name one of them: alone, live$' gpc-inspect --dir "$shm" peers
serve abandoned --block-size 16 --vram-blocks 64
kill "$pid"
until_ok is_gone "$pid"
serve waiting --block-size 16 --vram-blocks 64
waiting=$pid
start waits "$helpers/hold" "$shm" waiting waits 1 0 0
until_ok grep -q holding "$tmp/waits.out"
kill "$waiting"
until_ok is_gone "$waiting"
until_ok is_gone "$alone"
inspect --json list
is "$(value '*/name' '*/state')" "0/name abandoned
1/name alone
2/name live
3/name waiting
0/state unused
1/state unused
2/state served
3/state no writer" "list: by name, with their states"
is "$(value '*/writer_pid')" "0/writer_pid null
1/writer_pid null
2/writer_pid $writer
3/writer_pid null" "list: and their writers"
inspect list
aligned "list with several states is aligned"
for command in stat peers ls check; do
	inspect $command waiting
	exits 0 "$command needs no writer"
done

# ---- the output goes nowhere ----

run sh -c 'exec gpc-inspect --dir "$1" stat live >/dev/full' sh "$shm"
exits 1 "a full disk"
says 'cannot write the output' "says so"

done_testing
