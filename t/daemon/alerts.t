#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each alert fires once beside a standby, and none in a cache that is well: by promtool, on series that are written down,
# and in a Prometheus whose minutes are seconds, beside real daemons that are killed and stopped. Where gpcd cannot be
# brought into a state, a page plays it, and the names say so. make check-metrics has both programs.
# Tests: tools/dashboard/gpc.rules.yml

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/metrics.sh"

command -v promtool >/dev/null || skip_all "there is no promtool: make check-metrics unpacks one"
rules=$srcdir/tools/dashboard/gpc.rules.yml

# ---- on series ----

"$PYTHON" - "$rules" >"$tmp/unit.yml" 2>"$tmp/made" <<'END'
import json
import re
import sys

# A cache that is well, as one daemon tells it, and what makes each alert of it: series that take the place of these.
WELL = {
    'gpc_up': '1x40', 'gpc_writer_up': '1x40', 'gpc_writer_generation': '1x40',
    'gpc_pending_commands': '0x40', 'gpc_commands_total': '0+600x40', 'gpc_bad_blocks_total': '0x40',
    'gpc_tier_state{tier="disk"}': '1x40', 'gpc_tier_kept{tier="disk"}': '1x40',
    'gpc_mirror_retired{mirror="0",device="cuda:0"}': '0x40', 'gpc_peers{state="dead"}': '0x40',
    'gpc_peer_references_held_seconds{seat="3",label="vllm"}': '2x40', 'gpc_oldest_section_seconds': '0x40',
    'gpc_pool_available_blocks{pool="0",space="0",tier="vram"}': '50x40',
    'gpc_pool_blocks{pool="0",space="0",tier="vram"}': '100x40', 'gpc_no_bucket_total': '0x40',
    'gpc_round_trip_seconds_bucket{le="0.01"}': '0+60x40', 'gpc_round_trip_seconds_bucket{le="1"}': '0+60x40',
    'gpc_round_trip_seconds_bucket{le="+Inf"}': '0+60x40',
    'gpc_eviction_idle_seconds_bucket{le="30"}': '0x40', 'gpc_eviction_idle_seconds_bucket{le="3600"}': '0+60x40',
    'gpc_eviction_idle_seconds_bucket{le="+Inf"}': '0+60x40',
    'gpc_folder_bytes': '1000x40', 'gpc_folder_free_bytes': '500x40', 'gpc_daemon_serving': '1x40',
}
GONE = '1x9 stale'
ILL = {
    'GpcScrapeDead': {'up': '0x40'},
    'GpcDaemonsGone': dict.fromkeys(WELL, GONE),
    'GpcCacheUnreadable': {'gpc_up': '0x40'},
    'GpcWriterMissing': {'gpc_writer_up': '0x40'},
    'GpcWriterStuck': {'gpc_pending_commands': '3x40', 'gpc_commands_total': '600x40'},
    'GpcBadBlocks': {'gpc_bad_blocks_total': '0x30 1x9'},
    'GpcTierDown': {'gpc_tier_state{tier="disk"}': '0x40'},
    'GpcTierWrongBytes': {'gpc_tier_state{tier="disk"}': '2x40'},
    'GpcTierStopped': {'gpc_tier_state{tier="disk"}': '3x40'},
    'GpcTierUnkept': {'gpc_tier_kept{tier="disk"}': '0x40'},
    'GpcMirrorRetired': {'gpc_mirror_retired{mirror="0",device="cuda:0"}': '1x40'},
    'GpcWriterRestarts': {'gpc_writer_generation': '1+1x40'},
    'GpcPeersDead': {'gpc_peers{state="dead"}': '1x40'},
    'GpcReferencesHeld': {'gpc_peer_references_held_seconds{seat="3",label="vllm"}': '0+60x40'},
    'GpcSectionOpenLong': {'gpc_oldest_section_seconds': '0+60x40'},
    'GpcPoolHeld': {'gpc_pool_available_blocks{pool="0",space="0",tier="vram"}': '1x40'},
    'GpcTableFull': {'gpc_no_bucket_total': '0x30 1x9'},
    'GpcRoundTripsSlow': {'gpc_round_trip_seconds_bucket{le="0.01"}': '0+50x40'},
    'GpcCacheTooSmall': {'gpc_eviction_idle_seconds_bucket{le="30"}': '0+50x40'},
    'GpcFolderFull': {'gpc_folder_free_bytes': '20x40'},
}
KEEP = {'GpcScrapeDead': {'instance': '127.0.0.1:9400'}}
text = open(sys.argv[1]).read()
rules = {}
for part in re.split(r'\n\s+- alert: ', text)[1:]:
    rules[part.split('\n')[0]] = (re.search('summary: "(.*)"', part)[1], re.search('severity: ([a-z]+)', part)[1])
for name in sorted(set(rules) ^ set(ILL)):
    print(f'{name}: is in one of both', file=sys.stderr)


def series(name, values, instance, cache='demo', job='gpc'):
    bare, _, labels = name.partition('{')
    mine = f'cache="{cache}",' if bare != 'up' else ''
    return {'series': f'{bare}{{{mine}instance="{instance}",job="{job}"{"," + labels if labels else "}"}', 'values': values}


def daemons(ill):
    for instance, serves in (('127.0.0.1:9400', 1), ('127.0.0.1:9401', 0)):
        told = WELL | {'up': '1x40'} | (ill if serves or 'up' not in ill else {})
        for name, values in told.items():
            yield series(name, f'{serves}x40' if name == 'gpc_daemon_serving' and not ill else values, instance)
    # a cache of the same name on another machine, which is well
    yield from (series(n, v, '10.0.0.7:9400') for n, v in (WELL | {'up': '1x40'}).items())


def labels(name):
    first = next(iter(ILL[name]))
    ret = dict(re.findall(r'([a-z]+)="([^"]*)"', first)) if name != 'GpcDaemonsGone' else {}
    ret.pop('le', None)
    ret |= {'cache': 'demo', 'machine': '127.0.0.1', 'job': 'gpc'} if name not in KEEP else KEEP[name] | {'job': 'gpc'}
    if name == 'GpcDaemonsGone':
        ret.pop('job')
    return ret


def expected(name):
    l = labels(name)
    summary = re.sub(r'\{\{ \$labels\.([a-z]+) \}\}', lambda m: l.get(m[1], '?'), rules[name][0])
    return {'exp_labels': l | {'severity': rules[name][1]}, 'exp_annotations': {'summary': summary}}


def test(name, ill):
    at = '39m' if name != 'GpcDaemonsGone' else '15m'
    return {'name': name, 'interval': '1m', 'input_series': list(daemons(ill)), 'alert_rule_test': [
        {'eval_time': at, 'alertname': a, **({'exp_alerts': [expected(a)]} if a == name else {})} for a in rules]}


tests = [test(n, ill) for n, ill in ILL.items()] + [test('well', {})]
print(json.dumps({'rule_files': [sys.argv[1]], 'evaluation_interval': '1m', 'tests': tests}, indent=1))
END
is "$(cat "$tmp/made")" '' "each alert has its series"
promtool test rules "$tmp/unit.yml" >"$tmp/promtool" 2>&1
ok $? "each fires on them, once beside a standby, and no other does" "$tmp/promtool"

command -v prometheus >/dev/null || { done_testing; exit; }

# ---- in a Prometheus, whose minutes are seconds ----

sed -E 's/for: 30m/for: 3s/; s/for: ([0-9]+)m/for: \1s/; s/\[([0-9]+)m\]/[\1s]/g; s/held_seconds(.*) > 300/held_seconds\1 > 2/
	s/section_seconds(.*) > 60/section_seconds\1 > 1/; s/< 0.05$/< 2/' "$rules" >"$tmp/fast.yml"
mkdir "$tmp/page" "$shm/alone"
: >"$tmp/page/metrics"
cat >"$tmp/serve.py" <<'END'
import http.server, subprocess, sys
folder, played = sys.argv[1:]
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = open(played, 'rb').read() if self.server is page else subprocess.run(
            ['gpc-inspect', '--dir', folder, 'metrics'], stdout=subprocess.PIPE).stdout
        self.send_response(200)
        self.send_header('Content-Type', 'text/plain; version=0.0.4')
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *args):
        pass
import threading
page = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)
look = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)
threading.Thread(target=page.serve_forever, daemon=True).start()
print(page.server_port, look.server_port, flush=True)
look.serve_forever()
END
mkdir "$shm/pair"
start served "$PYTHON" "$tmp/serve.py" "$shm/pair" "$tmp/page/metrics"
until_ok test -s "$tmp/served.out"
read -r page look <"$tmp/served.out"

port_of()	# LABEL
{
	sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/$1.err"
}

serve()	# LABEL FOLDER OPTION...: $pid
{
	label=$1 folder=$2
	shift 2
	start "$label" setsid gpcd "$folder" --dir "$shm/$folder" --block-size 16 --max-peers 16 "$@"
	until_ok grep -q 'serving as process\|standing by' "$tmp/$label.err"
}

small='--ram-blocks 64 --block-bytes 4k --max-blocks 400'
# shellcheck disable=SC2086
serve writer pair $small --disk "$tmp/disk" --disk-blocks 100 --metrics 0 --standby
writer=$pid
# shellcheck disable=SC2086
serve standby pair $small --disk "$tmp/disk" --disk-blocks 100 --metrics 0 --standby
standby=$pid
serve alone alone --vram-blocks 64 --metrics 0
alone=$pid
cat >"$tmp/prometheus.yml" <<END
global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}
rule_files: [$tmp/fast.yml]
scrape_configs:
  - job_name: gpc
    static_configs:
      - targets: ["127.0.0.1:$(port_of writer)", "127.0.0.1:$(port_of standby)", "127.0.0.1:$(port_of alone)"]
  - job_name: others
    scrape_interval: 500ms
    scrape_timeout: 500ms
    static_configs:
      - targets: ["127.0.0.1:$page", "127.0.0.1:$look"]
END
web=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start prometheus prometheus --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/tsdb" \
	--web.listen-address="127.0.0.1:$web" --log.level=warn
cat >"$tmp/firing.py" <<'END'
import json, sys, urllib.request
web, name, wanted = sys.argv[1:]
q = json.load(urllib.request.urlopen(f'http://127.0.0.1:{web}/api/v1/alerts', timeout=60))
got = [a['labels'] for a in q['data']['alerts'] if a['state'] == 'firing' and a['labels']['alertname'] == name]
got = [l for l in got if wanted in l.values()]
print(got)
sys.exit(not got)
END
fires()	# ALERT VALUE-OF-A-LABEL WHAT
{
	until_ok "$PYTHON" "$tmp/firing.py" "$web" "$1" "$2"
	ok $? "$1: $3" "$tmp/prometheus.err"
}

until_ok sh -c '"$1" -c "import urllib.request as u; u.urlopen(\"http://127.0.0.1:$2/-/ready\")"' sh "$PYTHON" "$web"
until_ok "$PYTHON" "$tmp/firing.py" "$web" GpcFolderFull pair
ok $? "GpcFolderFull: with a limit that each folder is below" "$tmp/prometheus.err"

# processes at a gate
start holder "$helpers/hold" "$shm/pair" pair holder 60 4 1
until_ok grep -q holding "$tmp/holder.out" || bail "$(cat "$tmp/holder.err")"
holder=$pid
fires GpcReferencesHeld holder "a process holds blocks"
fires GpcSectionOpenLong pair "and has a section open"
fires GpcPoolHeld pair "and hardly leaves any"

# a writer that is stopped
kill -STOP "$writer"
start clear "$helpers/hold" "$shm/pair" pair waits 0 1 0 200
fires GpcWriterStuck pair "a writer is stopped, and a command waits: the standby tells of it"
fires GpcTierStopped pair "and of its tier"
kill -CONT "$writer"
kill "$pid" "$holder" 2>/dev/null
finish "$holder"

# dead ones
kill -9 "$alone"
fires GpcScrapeDead "127.0.0.1:$(port_of alone)" "a gpcd is dead"
fires GpcDaemonsGone alone "and nobody else tells of its cache"
: >"$shm/pair/gpc.damaged.idx"
fires GpcCacheUnreadable damaged "a damaged cache"
kill -9 "$standby" "$writer"
fires GpcWriterMissing pair "writer and standby are dead: gpc-inspect metrics tells"
fires GpcTierUnkept pair "nobody keeps its tier"
fires GpcPeersDead pair "and what they held is not free"

# again and again
for i in 1 2 3 4 5 6; do
	# shellcheck disable=SC2086
	serve "again$i" pair $small --metrics 0
	until_ok sh -c '"$1" - "$2" "$3" <<-END
		import json, sys, urllib.request, urllib.parse
		q = urllib.parse.urlencode({"query": "max(gpc_writer_generation{cache=\"pair\"})"})
		r = json.load(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/api/v1/query?{q}"))
		sys.exit(float(r["data"]["result"][0]["value"][1]) < float(sys.argv[2]))
	END' sh "$PYTHON" "$web" $((i + 1))
	kill -9 "$pid"
	finish "$pid"
done
fires GpcWriterRestarts pair "writers come and go"

# too small for what is asked of it
start tight gpcd tight --dir "$shm/pair" --block-size 16 --vram-blocks 400 --ram-blocks 200
tight=$pid
until_ok grep -q 'serving as process' "$tmp/tight.err"
short_trace 400
(while :; do gpc-replay "$small_trace" --dir "$shm/pair" --name tight --workers 2 >"$tmp/replay.out" 2>&1 || sleep 0.2; done) &
loop=$!
fires GpcCacheTooSmall tight "a trace that does not fit"
kill "$loop"
kill "$tight"

# ---- what a page plays ----

play()	# LINE...
{
	printf '%s\n' "$@" >"$tmp/page/new"
	mv "$tmp/page/new" "$tmp/page/metrics"
}

seen()	# METRIC: Prometheus has it
{
	until_ok sh -c '"$1" - "$2" "$3" <<-END
		import json, sys, urllib.request
		r = json.load(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/api/v1/query?query={sys.argv[2]}"))
		sys.exit(not r["data"]["result"])
	END' sh "$PYTHON" "$web" "$1"
}

b=gpc_round_trip_seconds_bucket
play 'gpc_bad_blocks_total{cache="played"} 0' 'gpc_no_bucket_total{cache="played"} 0' \
	"$b{cache=\"played\",le=\"0.01\"} 0" "$b{cache=\"played\",le=\"1\"} 0" "$b{cache=\"played\",le=\"+Inf\"} 0"
seen gpc_no_bucket_total
(
	n=1
	while :; do
		play "gpc_bad_blocks_total{cache=\"played\"} $n" "gpc_no_bucket_total{cache=\"played\"} $n" \
			'gpc_mirror_retired{cache="played",mirror="0",device="cuda:0"} 1' \
			'gpc_tier_state{cache="played",tier="disk"} 0' 'gpc_tier_state{cache="played",tier="remote"} 2' \
			"$b{cache=\"played\",le=\"0.01\"} 0" "$b{cache=\"played\",le=\"1\"} $n" "$b{cache=\"played\",le=\"+Inf\"} $n"
		n=$((n + 1))
		sleep 0.1
	done
) &
player=$!
for alert in GpcBadBlocks GpcTableFull GpcMirrorRetired GpcTierDown GpcTierWrongBytes GpcRoundTripsSlow; do
	fires "$alert" played "as a page plays it"
done
kill "$player"

done_testing
