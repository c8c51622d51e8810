#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The dashboard and the alerts ask for metrics and labels that exist, and gpc-metrics(7) has these alerts.
# Tests: tools/dashboard/gpc.json tools/dashboard/gpc.rules.yml man/gpc-metrics.7

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/metrics.sh"

dashboard=$srcdir/tools/dashboard/gpc.json
rules=$srcdir/tools/dashboard/gpc.rules.yml
gpc-inspect metrics --list >"$tmp/list"

"$PYTHON" - "$tmp/list" "$dashboard" "$rules" >"$tmp/out" 2>&1 <<'END'
import json
import re
import sys

known = {}
for line in open(sys.argv[1]):
    name, kind, labels, _ = line.rstrip('\n').split('\t')
    for suffix in ('_bucket', '_sum', '_count') if kind == 'histogram' else ('',):
        known[name + suffix] = set(labels.split()) | ({'le'} if suffix == '_bucket' else set())
# of each scrape, and of what the query itself makes
always = {'instance', 'job', 'machine'}


def check(where, expr, legend=''):
    used = set(re.findall(r'gpc_[a-z_]+', expr))
    if not used and not expr.startswith('up{'):
        print(f'{where}: no metric')
    for name in used - set(known):
        print(f'{where}: there is no {name}')
    labels = set.union(always, *(known.get(n, set()) for n in used))
    asked = set(re.findall(r'\{\{\s*(?:\$labels\.)?([a-z]+)\s*\}\}', legend))
    asked |= set(re.findall(r'([a-z]+)\s*(?:=~|!=|="|!~)', expr))
    for group in re.findall(r'(?:by|on|without|group_left)\s*\(([^)]*)\)', expr):
        asked |= {g.strip() for g in group.split(',') if g.strip()}
    for name in asked - labels:
        print(f'{where}: there is no label {name}')
    if expr.count('(') != expr.count(')') or expr.count('{') != expr.count('}'):
        print(f'{where}: not balanced')


board = json.load(open(sys.argv[2]))
ids, places, n = set(), set(), 0
for p in board['panels']:
    if p['id'] in ids or (p['gridPos']['x'], p['gridPos']['y']) in places:
        print(f'{p["title"]}: its number or place is taken')
    ids.add(p['id'])
    places.add((p['gridPos']['x'], p['gridPos']['y']))
    for t in p['targets']:
        check(p['title'], t['expr'], t['legendFormat'])
        if 'max without (instance, job)' not in t['expr'] and '{{instance}}' not in t['legendFormat']:
            print(f'{p["title"]}: counts twice beside a standby')
        n += 1
for v in board['templating']['list']:
    if v['type'] == 'query':
        check(v['name'], v['definition'])
if n < 20:
    print(f'{n} queries only')

text = open(sys.argv[3]).read()
alerts = re.split(r'\n\s+- alert: ', text)[1:]
for a in alerts:
    name = a.split('\n')[0]
    check(name, re.search(r'expr: (.*)', a)[1], re.search(r'summary: (.*)', a)[1])
if len(alerts) < 8:
    print(f'{len(alerts)} alerts only')
END
is "$(cat "$tmp/out")" '' "each metric and each label is there"

sed -n '/^groups:/,/^\.Ed/p' "$srcdir/man/gpc-metrics.7" | sed '/^\.Ed/d; s/\\e/\\/g' >"$tmp/page"
sed 1d "$rules" | diff - "$tmp/page" >"$tmp/diff"
ok $? "gpc-metrics(7) has the alerts as they are" "$tmp/diff"
promtool_takes "promtool takes them" check rules "$rules"

done_testing
