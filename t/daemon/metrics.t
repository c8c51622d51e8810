#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect metrics: a text that a strict reader takes, with the numbers of gpc-inspect stat, over writers.
# Tests: tools/common/metrics.c tools/common/metrics_text.c tools/inspect/metrics.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/metrics.sh"

metrics()	# FILE: of all caches
{
	gpc-inspect --dir "$shm" metrics >"$1" 2>"$tmp/err"
}

writer()	# LABEL: serves, and has the seat
{
	start "$1" gpcd demo --dir "$shm" --block-size 16 --vram-blocks 400 --ram-blocks 200
	until_ok grep -q 'serving as process' "$tmp/$1.err"
}

# ---- without a cache ----

metrics "$tmp/none"
is $? 0 "no cache: a collector gets what there is"
parse "$tmp/none"
ok $? "which is well-formed" "$tmp/parse"
like "$(cat "$tmp/none.samples")" '^gpc_build_info{version="[0-9.]*"} 1$' "the version alone"
refuses 1 'there is no cache nobody' gpc-inspect --dir "$shm" metrics nobody
refuses 2 'watch: --list is an option of metrics' gpc-inspect watch --list

# ---- at work ----

writer one
one=$pid
short_trace 200
run gpc-replay "$small_trace" --dir "$shm" --name demo --workers 2
exits 0 "a trace"
metrics "$tmp/m1"
parse "$tmp/m1"
before=$(sed -n 's/^gpc_created_timestamp_seconds.* //p' "$tmp/m1.samples")
since=$(sed -n 's/^gpc_writer_start_time_seconds.* //p' "$tmp/m1.samples")
awk -v a="$before" -v b="$since" -v now="$(date +%s)" 'BEGIN { exit !(b >= a - 1 && b <= now + 1) }'
ok $? "the writer's start is of the clock that the cache's is: $since, made $before"
ok $? "the text is well-formed" "$tmp/parse"
promtool_takes "promtool has nothing to say" check metrics <"$tmp/m1"

# those that have left count: all of them are in the sums of stat
gpc-inspect --dir "$shm" --json stat demo >"$tmp/stat.json"
"$PYTHON" - "$tmp/m1.samples" "$tmp/stat.json" >"$tmp/differ" 2>&1 <<'END'
import json
import sys

m = dict(line.rsplit(' ', 1) for line in open(sys.argv[1]).read().splitlines())
j = json.load(open(sys.argv[2]))
s = j['stats']
c = 'cache="demo"'
want = {
    f'gpc_prefix_cache_queries_total{{{c}}}': s['lookups'] * 16,
    f'gpc_prefix_cache_hits_total{{{c},tier="vram"}}': s['hit_vram'] * 16,
    f'gpc_prefix_cache_hits_total{{{c},tier="ram"}}': s['hit_ram'] * 16,
    f'gpc_lookup_blocks_total{{{c},result="miss"}}': s['miss'],
    f'gpc_lookup_blocks_total{{{c},result="vram"}}': s['hit_vram'],
    f'gpc_moved_blocks_total{{{c},to="ram"}}': s['demoted'],
    f'gpc_moved_blocks_total{{{c},to="vram"}}': s['promoted'],
    f'gpc_max_blocks{{{c}}}': j['max_blocks'],
    f'gpc_index_bytes{{{c}}}': j['bytes'],
    f'gpc_block_tokens{{{c}}}': 16,
    f'gpc_writer_up{{{c}}}': 1,
    f'gpc_writer_generation{{{c}}}': 1,
    f'gpc_peers{{{c},state="alive"}}': 1,
    f'gpc_copied_bytes_total{{{c},from="vram",to="ram"}}': s['spilled_bytes'],
    f'gpc_pool_blocks{{{c},pool="0",space="0",tier="vram"}}': 400,
    f'gpc_pool_blocks{{{c},pool="1",space="0",tier="ram"}}': 200,
    f'gpc_space_blocks{{{c},space="0",tier="ram"}}': 200,
}
for name in 'published', 'duplicate', 'evicted', 'dropped', 'bad':
    want[f'gpc_{name}_blocks_total{{{c}}}'] = s[name]
for name in 'live', 'free', 'dying':
    want[f'gpc_{name}_blocks{{{c}}}'] = s[name if name != 'free' else 'free_blocks']
for name in 'ring_full', 'no_bucket', 'stale_references', 'relocated_entries':
    want[f'gpc_{name}_total{{{c}}}'] = s[name.replace('references', 'refs').replace('_entries', '')]


def labels(key):
    head, _, rest = key.partition('{')
    return head, tuple(sorted(rest.rstrip('}').split(',')))


m = {labels(k): v for k, v in m.items()}
for k, v in want.items():
    if m.get(labels(k)) != str(v):
        print(f'{k}: {v} is wanted, there is {m.get(labels(k))}')
if not s['lookups'] or not s['evicted']:
    print('nothing has happened')
ages = m[labels(f'gpc_eviction_age_seconds_count{{{c}}}')]
if not 0 < int(ages) <= s['evicted']:
    print(f'{ages} ages of {s["evicted"]} evicted keys')
trips = m[labels(f'gpc_round_trip_seconds_count{{{c}}}')]
if not int(trips):
    print('no round trip')
END
is "$(cat "$tmp/differ")" '' "and says what stat says"

# ---- over writers ----

kill -9 "$one"
finish "$one"
metrics "$tmp/m2"
parse "$tmp/m2" "$tmp/m1"
ok $? "without a writer no counter falls" "$tmp/parse"
like "$(grep '^gpc_writer_up' "$tmp/m2.samples")" '^gpc_writer_up{cache="demo"} 0$' "there is none"
like "$(grep '^gpc_peers' "$tmp/m2.samples")" '^gpc_peers{cache="demo",state="dead"} 1$' "and one is dead"
writer two
two=$pid
run gpc-replay "$small_trace" --dir "$shm" --name demo --workers 2
exits 0 "the trace again"
metrics "$tmp/m3"
parse "$tmp/m3" "$tmp/m2"
ok $? "with the next one none has fallen" "$tmp/parse"
like "$(grep '^gpc_takeover_seconds_count' "$tmp/m3.samples")" '^gpc_takeover_seconds_count{cache="demo"} 1$' "it has taken over"
start three gpcd other --dir "$shm" --block-size 32 --vram-blocks 100
until_ok grep -q 'serving as process' "$tmp/three.err"
kill "$two"
finish "$two"
metrics "$tmp/m4"
parse "$tmp/m4" "$tmp/m3"
ok $? "two caches, each family once, and none has fallen since that writer ended" "$tmp/parse"
like "$(grep '^gpc_block_tokens' "$tmp/m4.samples")" '^gpc_block_tokens{cache="other"} 32$' "the other cache"
like "$(grep '^gpc_writer_start_time_seconds' "$tmp/m4.samples")" '^gpc_writer_start_time_seconds{cache="demo"} 0[.]0*$' "no writer, no time"

# ---- what is not as it should be ----

relabel other gpcd 'a"\\\377'
metrics "$tmp/m5"
parse "$tmp/m5"
ok $? "a label of any bytes" "$tmp/parse"
like "$(grep '^gpc_peer_alive' "$tmp/m5")" '^gpc_peer_alive{cache="other",seat="0",label="a\\"\\\\[?]"} 1$' \
	"is escaped, and bytes that are no characters have others in their place"
: >"$shm/gpc.demo.idx"
metrics "$tmp/m7"
is $? 0 "a damaged cache"
parse "$tmp/m7"
ok $? "is well-formed" "$tmp/parse"
is "$(grep -c 'cache="demo"' "$tmp/m7")" 1 "and has one number"
like "$(grep '^gpc_up' "$tmp/m7")" '^gpc_up{cache="demo"} 0$' "which says that it is down"
like "$(grep '^gpc_up' "$tmp/m7")" '^gpc_up{cache="other"} 1$' "as the other one is not"

# ---- the page ----

gpc-inspect metrics --list >"$tmp/list"
awk '/^\.It Li gpc_.* Pq / {
	name = $3
	type = $5
	sub(":", "", type)
	sub(/^.*Pq [a-z]*: /, "")
	gsub(",", "")
	labels = $0
	getline
	print name "\t" type "\t" labels "\t" $0
}' "$srcdir/man/gpc-metrics.7" >"$tmp/page"
diff "$tmp/list" "$tmp/page" >"$tmp/diff"
ok $? "gpc-metrics(7) lists the same metrics" "$tmp/diff"
cut -f1 "$tmp/list" | grep -vx 'gpc_daemon_.*\|gpc_events_.*\|gpc_scrape_.*' | sort >"$tmp/names"
sed -n 's/^# TYPE \(gpc_[a-z_]*\) .*/\1/p' "$tmp/m1" | sort | diff - "$tmp/names" >"$tmp/diff"
ok $? "which are those of the text, but for what a daemon says of itself" "$tmp/diff"

done_testing
