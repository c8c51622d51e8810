#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each alert fires once beside a standby and beside the textfile collector of node_exporter, and none in a cache that is
# well or still to come: by promtool, on series that are written down. make check-metrics unpacks it; make check-alerts sees each alert in
# a real Prometheus.
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
    # the steward of a tier reserves all slots that no block has
    'gpc_pool_available_blocks{pool="1",space="31",tier="disk"}': '0x40',
    'gpc_pool_blocks{pool="1",space="31",tier="disk"}': '100x40',
    'gpc_round_trip_seconds_bucket{le="0.01"}': '0+60x40', 'gpc_round_trip_seconds_bucket{le="1"}': '0+60x40',
    'gpc_round_trip_seconds_bucket{le="+Inf"}': '0+60x40',
    'gpc_eviction_idle_seconds_bucket{le="30"}': '0x40', 'gpc_eviction_idle_seconds_bucket{le="3600"}': '0+60x40',
    'gpc_eviction_idle_seconds_bucket{le="+Inf"}': '0+60x40',
    'gpc_folder_bytes': '1000x40', 'gpc_folder_free_bytes': '500x40', 'gpc_daemon_serving': '1x40', 'gpc_daemon_opening': '0x40',
    'gpc_daemon_descriptors': '40x40', 'gpc_daemon_descriptors_limit': '1024x40',
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
    # a tier that nobody keeps is down, which is not told twice
    'GpcTierUnkept': {'gpc_tier_kept{tier="disk"}': '0x40', 'gpc_tier_state{tier="disk"}': '0x40'},
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
    'GpcDescriptorsShort': {'gpc_daemon_descriptors': '1000x40'},
}
# of one daemon, whatever the other one tells
KEEP = {'GpcScrapeDead': {'instance': '127.0.0.1:9400'}, 'GpcDescriptorsShort': {'instance': '127.0.0.1:9400', 'cache': 'demo'}}
OF_ONE = {'up', 'gpc_daemon_descriptors'}
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
        told = WELL | {'up': '1x40'} | (ill if serves or not set(ill) <= OF_ONE else {})
        for name, values in told.items():
            yield series(name, f'{serves}x40' if name == 'gpc_daemon_serving' and not ill else values, instance)
    # gpc-inspect metrics, as node_exporter tells what it has said
    told = WELL | ({n: v for n, v in ill.items() if n != 'up'})
    yield from (series(n, v, '127.0.0.1:9100', job='node') for n, v in told.items() if not n.startswith('gpc_daemon_'))
    # a cache of the same name on another machine, which is well
    yield from (series(n, v, '10.0.0.7:9400') for n, v in (WELL | {'up': '1x40'}).items())


def labels(name):
    first = next(iter(ILL[name]))
    ret = dict(re.findall(r'([a-z]+)="([^"]*)"', first)) if name != 'GpcDaemonsGone' else {}
    ret.pop('le', None)
    ret |= {'cache': 'demo', 'machine': '127.0.0.1'} if name not in KEEP else KEEP[name] | {'job': 'gpc'}
    return ret


def expected(name):
    l = labels(name)
    summary = re.sub(r'\{\{ \$labels\.([a-z]+) \}\}', lambda m: l.get(m[1], '?'), rules[name][0])
    return {'exp_labels': l | {'severity': rules[name][1]}, 'exp_annotations': {'summary': summary}}


def test(name, ill):
    at = '39m' if name != 'GpcDaemonsGone' else '15m'
    return {'name': name, 'interval': '1m', 'input_series': list(daemons(ill)), 'alert_rule_test': [
        {'eval_time': at, 'alertname': a, **({'exp_alerts': [expected(a)]} if a == name else {})} for a in rules]}


# Daemons without a cache: each waits for it or makes it, or one has served a cache that has lost its name.
def without_cache(opening):
    for instance, opens in zip(('127.0.0.1:9400', '127.0.0.1:9401'), opening):
        told = {'up': 1, 'gpc_up': 0, 'gpc_daemon_serving': 0, 'gpc_daemon_opening': opens}
        yield from (series(n, f'{v}x40', instance) for n, v in told.items())
    yield series('gpc_up', '0x40', '127.0.0.1:9100', job='node')


def test_without_cache(name, opening, fires):
    return {'name': name, 'interval': '1m', 'input_series': list(without_cache(opening)), 'alert_rule_test': [
        {'eval_time': '39m', 'alertname': a, **({'exp_alerts': [expected(a)]} if a in fires else {})} for a in rules]}


tests = [test(n, ill) for n, ill in ILL.items()] + [test('well', {})]
tests += [test_without_cache('waits', (1, 1), ()), test_without_cache('lost', (1, 0), ('GpcCacheUnreadable',))]
print(json.dumps({'rule_files': [sys.argv[1]], 'evaluation_interval': '1m', 'tests': tests}, indent=1))
END
is "$(cat "$tmp/made")" '' "each alert has its series"
promtool test rules "$tmp/unit.yml" >"$tmp/promtool" 2>&1
ok $? "each fires on them, once beside a standby, and no other does; none on daemons that wait for their cache" "$tmp/promtool"

done_testing
