# SPDX-License-Identifier: Apache-2.0
"""A strict reader of Prometheus' text, version 0.0.4.  Ends with a message at the first thing that is wrong; else prints
each sample as NAME{LABELS} VALUE, labels sorted.

    python3 prom.py FILE                 read it
    python3 prom.py FILE BEFORE          and no counter is less than in BEFORE
"""
import re
import sys

NAME = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
NUMBER = re.compile(r'[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|Inf)|NaN')
SUFFIXES = ('_bucket', '_sum', '_count')
UNITS = ('_seconds', '_bytes', '_blocks', '_tokens')


def die(where, what):
    sys.exit(f'line {where}: {what}')


def labels_of(text, where):
    out, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        if not m or m[1] in out or m[1].startswith('__'):
            die(where, f'bad label at {text[at:]!r}')
        out[m[1]] = m[2]
        at = m.end()
        if at < len(text):
            if text[at] != ',' or at + 1 == len(text):
                die(where, f'bad label at {text[at:]!r}')
            at += 1
    return out


def family_of(name, types):
    for s in SUFFIXES:
        if name.endswith(s) and types.get(name[:-len(s)]) == 'histogram':
            return name[:-len(s)]
    return name


def check_histogram(name, cells):
    for key, c in cells.items():
        le = [(float(b), v) for b, v in c['_bucket']]
        if [b for b, _ in le] != sorted({b for b, _ in le}) or le[-1][0] != float('inf'):
            sys.exit(f'{name}{key}: buckets are not in order, or without +Inf')
        if any(a[1] > b[1] for a, b in zip(le, le[1:])):
            sys.exit(f'{name}{key}: buckets are not cumulative')
        if c['_count'] != le[-1][1] or '_sum' not in c:
            sys.exit(f'{name}{key}: count is not that of +Inf, or there is no sum')


def check_name(name, kind, where):
    if not name.startswith('gpc_'):
        die(where, f'{name}: no prefix')
    if (kind == 'counter') != name.endswith('_total'):
        die(where, f'{name}: a counter, and only that, ends with _total')
    if name.endswith(SUFFIXES):
        die(where, f'{name}: a suffix of histograms')
    if re.search(r'_(ms|us|ns|kb|mb|percent|millis\w*|milliseconds|minutes)(_|$)', name):
        die(where, f'{name}: not a base unit')


def read(path):
    types, helps, samples, order, hist, last = {}, {}, {}, [], {}, None
    data = open(path, 'rb').read()
    if not data.endswith(b'\n'):
        sys.exit('the last line does not end')
    for where, line in enumerate(data.decode('utf-8').split('\n')[:-1], 1):
        m = re.fullmatch(r'# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)', line)
        if m:
            seen = helps if m[1] == 'HELP' else types
            if m[2] in seen or m[2] in order:
                die(where, f'{m[2]}: {m[1]} twice, or behind its samples')
            seen[m[2]] = m[3]
            if m[1] == 'TYPE':
                if m[3] not in ('counter', 'gauge', 'histogram') or m[2] not in helps:
                    die(where, f'{m[2]}: bad type, or no help')
                check_name(m[2], m[3], where)
            continue
        m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)', line)
        if not m or not NUMBER.fullmatch(m[3]):
            die(where, f'no sample: {line!r}')
        name, labels = m[1], labels_of(m[2] or '', where)
        family = family_of(name, types)
        if family not in types:
            die(where, f'{name}: without a type')
        if family != last:
            if family in order:
                die(where, f'{family}: in two places')
            order.append(family)
            last = family
        key = name + '{' + ','.join(f'{k}="{v}"' for k, v in sorted(labels.items())) + '}'
        if key in samples:
            die(where, f'{key}: twice')
        samples[key] = m[3]
        if types[family] == 'histogram':
            le = labels.pop('le', None)
            cells = hist.setdefault(family, {}).setdefault(tuple(sorted(labels.items())), {'_bucket': []})
            suffix = name[len(family):]
            if suffix == '_bucket':
                cells['_bucket'].append((le, float(m[3])))
            else:
                cells[suffix] = float(m[3])
    for name, cells in hist.items():
        check_histogram(name, cells)
    return types, samples


def main():
    types, samples = read(sys.argv[1])
    if len(sys.argv) > 2:
        for key, value in read(sys.argv[2])[1].items():
            name = key.split('{')[0]
            family = family_of(name, types)
            if types[family] == 'gauge' or name.startswith('gpc_peer'):
                continue
            if float(samples.get(key, '-1')) < float(value):
                sys.exit(f'{key}: {value} before, {samples.get(key)} now')
    for key, value in samples.items():
        print(key, value)


main()
