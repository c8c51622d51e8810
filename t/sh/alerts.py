# SPDX-License-Identifier: Apache-2.0
"""Each alert of tools/dashboard/gpc.rules.yml, seen to fire once and to end, in a real Prometheus beside real daemons.

    alerts.py SOURCES BUILD [RULES]        "make check-alerts"; exit status 77: there is no prometheus, or no tmpfs of one's own

Prometheus scrapes and evaluates each second.  A minute of the rules is a second here: `for:`, ranges, which have 5 seconds at
least as a rate needs several scrapes, and limits of whole seconds, such as `> 300` of gpc_..._seconds.  Other limits stay.

Most caches have two daemons with metrics, a writer and a standby, and all are told of by a page besides, as the textfile
collector of node_exporter tells of them.  So each alert has up to three sources, and must be there once.

    GPC_ALERTS_KEEP=1       the folder of this run stays, with all logs
"""
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

MOST = 240                      # seconds until an alert fires or ends; most need less than ten
SECOND = {'m': 1, 'h': 60}      # of a minute, of an hour
BEAT = 0.3


def say(*words):
    print('check-alerts:', *words, flush=True)


def skip(why):
    say(why)
    sys.exit(77)


# ---- the rules, whose minutes are seconds ----

def fast(text):
    text = re.sub(r'for: (\d+)([mh])', lambda m: f'for: {int(m[1]) * SECOND[m[2]]}s', text)
    text = re.sub(r'\[(\d+)([mh])\]', lambda m: f'[{max(5, int(m[1]) * SECOND[m[2]])}s]', text)

    def limit(m):
        return m[1] + str(int(m[2]) // 60) if '_seconds' in m[1] and int(m[2]) >= 60 else m[0]
    return re.sub(r'(?m)^(\s+expr: .*[<>] )(\d+)$', limit, text)


# ---- processes and folders ----

class World:
    def __init__(self, source, build, rules):
        self.source, self.build, self.rules = source, build, rules
        self.folder = tempfile.mkdtemp(prefix=f'gpc-alerts-{os.getpid()}-', dir='/dev/shm')
        self.shm, self.small = (os.path.join(self.folder, n) for n in ('shm', 'small'))
        self.env = dict(os.environ, PATH=f"{build}/tools:{os.environ['PATH']}", NODE_DIR=self.shm)
        self.running, self.ports = {}, {}
        self.lock = threading.Lock()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def port(self, label):
        if label not in self.ports:
            s = socket.socket()
            s.bind(('127.0.0.1', 0))
            self.ports[label] = (s.getsockname()[1], s)
        return self.ports[label][0]

    def start(self, label, *command):
        if label in self.ports:
            self.ports[label][1].close()
        log = open(self.path(label + '.log'), 'ab')
        p = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env,
                             start_new_session=True)
        self.running[label] = p
        return p

    def said(self, label):
        with open(self.path(label + '.log'), errors='replace') as f:
            return f.read()

    def until_said(self, label, what, times=1):
        def done():
            if self.said(label).count(what) >= times:
                return True
            if self.running[label].poll() is not None:
                raise SystemExit(f'{label} ended: {self.said(label)}')
        self.until(done, f'{label} says "{what}"')

    def until(self, done, what):
        end = time.monotonic() + MOST
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f'{MOST} seconds were too few until {what}')
            time.sleep(BEAT)

    def gpcd(self, label, cache, *options, folder=None, says=None, limit=None):
        before = self.said(label).count('serving as process') if os.path.exists(self.path(label + '.log')) else 0
        limited = ('sh', '-c', f'ulimit -n {limit}; exec "$@"', 'sh') if limit else ()
        self.start(label, *limited, 'gpcd', cache, '--dir', folder or self.shm, '--metrics', self.port(label), *options)
        self.until_said(label, says or 'serving as process', 1 if says else before + 1)

    def helper(self, label, name, *arguments):
        return self.start(label, f'{self.build}/t/sh/{name}', *arguments)

    def run(self, *command):
        r = subprocess.run([str(c) for c in command], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if r.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}: {r.stdout}{r.stderr}")

    def kill(self, label, number):
        os.kill(self.running[label].pid, number)

    def end(self, label, number=signal.SIGKILL):
        p = self.running.pop(label)
        if p.poll() is None:
            os.kill(p.pid, number)
            if number == signal.SIGTERM:
                os.kill(p.pid, signal.SIGCONT)
        p.wait()

    def end_all(self):
        for label in list(self.running):
            self.end(label)


# ---- a page beside the daemons ----

def textfile(w):
    """The page of a node_exporter whose textfile collector has `gpc-inspect metrics` of all caches."""
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = subprocess.run(['gpc-inspect', '--dir', w.shm, 'metrics'], env=w.env, stdout=subprocess.PIPE).stdout
            self.send_response(200)
            self.send_header('Content-Type', 'text/plain; version=0.0.4')
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


class Prometheus:
    def __init__(self, w, daemons):
        self.w, self.web = w, w.port('prometheus')
        with open(w.path('rules.yml'), 'w') as f:
            f.write(fast(open(w.rules).read()))
        with open(w.path('prometheus.yml'), 'w') as f:
            json.dump({
                'global': {'scrape_interval': '1s', 'scrape_timeout': '1s', 'evaluation_interval': '1s'},
                'rule_files': [w.path('rules.yml')],
                'scrape_configs': [
                    {'job_name': 'gpc', 'static_configs': [{'targets': [f'127.0.0.1:{w.port(d)}' for d in daemons]}]},
                    {'job_name': 'node', 'static_configs': [{'targets': [f'127.0.0.1:{textfile(w)}']}]}]}, f)
        w.start('prometheus', 'prometheus', f"--config.file={w.path('prometheus.yml')}",
                f"--storage.tsdb.path={w.path('tsdb')}", f'--web.listen-address=127.0.0.1:{self.web}', '--log.level=warn')
        w.until(self.ready, 'Prometheus is ready')

    def ask(self, path):
        with urllib.request.urlopen(f'http://127.0.0.1:{self.web}{path}', timeout=60) as f:
            return f.read()

    def ready(self):
        try:
            return self.ask('/-/ready')
        except OSError:
            if self.w.running['prometheus'].poll() is not None:
                raise SystemExit(self.w.said('prometheus'))
            return False

    def names(self):
        groups = json.loads(self.ask('/api/v1/rules'))['data']['groups']
        return [r['name'] for g in groups for r in g['rules']]

    def firing(self):
        return [a['labels'] for a in json.loads(self.ask('/api/v1/alerts'))['data']['alerts'] if a['state'] == 'firing']

    def value(self, query):
        q = urllib.parse.urlencode({'query': query})
        got = json.loads(self.ask(f'/api/v1/query?{q}'))['data']['result']
        return float(got[0]['value'][1]) if got else None


class Report:
    def __init__(self, w, prometheus):
        self.w, self.p = w, prometheus
        self.rows, self.failed, self.twice, self.seen = {}, [], set(), set()

    def of(self, alert, where):
        """The alerts of this name that fire there.  Two that differ in their scrape alone are noted, and so is each other one."""
        firing = self.p.firing()
        self.seen |= {(l['alertname'], l['cache']) for l in firing if 'cache' in l}
        got = [l for l in firing if l['alertname'] == alert and where in (l.get('cache'), l.get('instance'))]
        bare = [json.dumps({k: v for k, v in l.items() if k not in ('instance', 'job')}, sort_keys=True) for l in got]
        if len(set(bare)) != len(bare):
            self.twice.add(alert)
        return got

    def fires(self, alert, where, what):
        begun = time.monotonic()
        try:
            self.w.until(lambda: self.of(alert, where), f'{alert} fires')
        except TimeoutError as e:
            self.failed.append(str(e))
            say(f'FAILED: {alert}: {e}')
            return
        self.rows[alert] = [where, what, time.monotonic() - begun, None]

    def ends(self, alert):
        if alert not in self.rows:
            return
        begun, row = time.monotonic(), self.rows[alert]
        try:
            self.w.until(lambda: not self.of(alert, row[0]), f'{alert} ends')
        except TimeoutError as e:
            self.failed.append(str(e))
            say(f'FAILED: {alert}: {e}')
            return
        row[3] = time.monotonic() - begun
        say(f'{alert:20} fires {row[2]:5.1f} s later, once; ends {row[3]:5.1f} s later: {row[1]}')

    def quiet(self, when, seconds=0):
        """No alert fires, from now on or from a moment on; and none does for so long."""
        firing = []
        try:
            self.w.until(lambda: seconds or not self.p.firing(), f'no alert fires {when}')
            end = time.monotonic() + seconds
            while time.monotonic() < end and not firing:
                firing = self.p.firing()
                time.sleep(BEAT)
        except TimeoutError:
            firing = self.p.firing()
        if firing:
            self.failed.append(f'{when}: {firing}')
        else:
            say(f'no alert fires {when}')


# ---- the caches ----

SIZE = ('--block-size', 16, '--max-peers', 16)
DESCRIPTORS, CLIENTS = 76, 58   # of one daemon: 13 are its own, and a look at the cache takes some for a moment
RAM = SIZE + ('--ram-blocks', 64, '--block-bytes', '4k', '--max-blocks', 2000)


def redis_server():
    for name in ('redis-server', 'valkey-server'):
        if shutil.which(name):
            return [name]
    # Debian's redis-tools has the server under this name
    return ['bash', '-c', 'exec -a redis-server /usr/bin/redis-check-rdb "$@"', '-'] \
        if os.access('/usr/bin/redis-check-rdb', os.X_OK) else None


class Caches:
    def __init__(self, w):
        self.w, self.redis = w, redis_server()
        self.pair = RAM + ('--disk', w.path('disk'), '--disk-blocks', 100, '--standby')
        self.folder_store = RAM + ('--key-file', w.path('folder.key'), '--remote-blocks', 1024,
                                   '--remote', f"{w.build}/plugins/.libs/gpc_remote_folder.so:dir={w.path('folder')}")
        if self.redis:
            self.redis_port = w.port('redis-server')
            self.redis_store = RAM + ('--key-file', w.path('redis.key'), '--remote-blocks', 1024, '--remote',
                                      f'{w.build}/plugins/.libs/gpc_remote_redis.so:server=127.0.0.1:{self.redis_port}')

    def start(self):
        w = self.w
        os.mkdir(w.path('folder'), 0o700)
        w.gpcd('pair-writer', 'pair', *self.pair)
        w.gpcd('pair-standby', 'pair', *self.pair, says='standing by')
        w.gpcd('alone', 'alone', *SIZE, '--vram-blocks', 64)
        w.gpcd('again', 'again', *SIZE, '--vram-blocks', 64)
        w.gpcd('tight', 'tight', *SIZE, '--vram-blocks', 400, '--ram-blocks', 200)
        w.gpcd('table', 'table', *SIZE, '--vram-blocks', 64)
        w.gpcd('slow', 'slow', *SIZE, '--vram-blocks', 64)
        w.gpcd('slow-standby', 'slow', *SIZE, '--vram-blocks', 64, '--standby', says='standing by')
        w.gpcd('small', 'small', *SIZE, '--vram-blocks', 64, folder=w.small)
        w.gpcd('few', 'few', *SIZE, '--vram-blocks', 64, limit=DESCRIPTORS)
        w.gpcd('bytes', 'bytes', *RAM)
        w.start('bytes-keeper', 'gpcd', 'bytes', '--dir', w.shm, '--keep', '--device', 'host', '--vram-blocks', 32,
                '--block-bytes', '4k', '--demote-to', 0)
        w.until_said('bytes-keeper', 'keeping pool')
        w.gpcd('folder', 'folder', *self.folder_store)
        w.helper('ill-mirror', 'ill', w.shm, 'mirror', 'mirror')
        w.until_said('ill-mirror', 'well')
        w.gpcd('mirror', 'mirror', '--standby', says='standing by')
        if self.redis:
            self.start_redis()
            w.gpcd('redis', 'redis', *self.redis_store)

    def start_redis(self):
        self.w.start('redis-server', *self.redis, '--port', self.redis_port, '--bind', '127.0.0.1', '--save', '',
                     '--appendonly', 'no')
        self.w.until_said('redis-server', 'eady to accept connections')

    def daemons(self):
        return [d for d in self.w.ports if d not in ('prometheus', 'redis-server')]


# ---- causes, and their ends ----

def holder(w, c, r):
    w.helper('holder', 'hold', w.shm, 'pair', 'holder', 60, 4, 1)
    w.until_said('holder', 'holding')
    r.fires('GpcReferencesHeld', 'pair', 'a process holds blocks')
    r.fires('GpcSectionOpenLong', 'pair', 'it has a section open')
    r.fires('GpcPoolHeld', 'pair', 'it leaves hardly any block')
    w.end('holder', signal.SIGTERM)
    for alert in 'GpcReferencesHeld', 'GpcSectionOpenLong', 'GpcPoolHeld':
        r.ends(alert)


def stopped_writer(w, c, r):
    w.kill('pair-writer', signal.SIGSTOP)
    w.helper('waits', 'hold', w.shm, 'pair', 'waits', 0, 1, 0, 200)
    r.fires('GpcWriterStuck', 'pair', 'the writer is stopped and a command waits')
    r.fires('GpcTierStopped', 'pair', 'the steward of the tier is stopped')
    w.kill('pair-writer', signal.SIGCONT)
    r.ends('GpcWriterStuck')
    r.ends('GpcTierStopped')
    w.end('waits', signal.SIGTERM)


def all_dead(w, c, r):
    w.end('pair-standby')
    w.end('pair-writer')
    r.fires('GpcWriterMissing', 'pair', 'writer and standby are killed')
    r.fires('GpcTierUnkept', 'pair', 'the steward of the tier is killed')
    r.fires('GpcPeersDead', 'pair', 'nobody gives back what they had')
    w.gpcd('pair-writer', 'pair', *c.pair)
    w.gpcd('pair-standby', 'pair', *c.pair, says='standing by')
    for alert in 'GpcWriterMissing', 'GpcTierUnkept', 'GpcPeersDead':
        r.ends(alert)


def lone_dead(w, c, r):
    instance = f"127.0.0.1:{w.port('alone')}"
    w.end('alone')
    os.rename(w.path('shm', 'gpc.alone.idx'), w.path('alone.idx'))
    r.fires('GpcScrapeDead', instance, 'a gpcd is killed')
    r.fires('GpcDaemonsGone', 'alone', 'nobody tells of its cache')
    os.rename(w.path('alone.idx'), w.path('shm', 'gpc.alone.idx'))
    w.gpcd('alone', 'alone', *SIZE, '--vram-blocks', 64)
    r.ends('GpcScrapeDead')
    r.ends('GpcDaemonsGone')


def unreadable(w, c, r):
    open(w.path('shm', 'gpc.damaged.idx'), 'w').close()
    r.fires('GpcCacheUnreadable', 'damaged', 'a file of a cache is empty')
    os.unlink(w.path('shm', 'gpc.damaged.idx'))
    r.ends('GpcCacheUnreadable')


def again_and_again(w, c, r):
    stop = threading.Event()

    def restart():
        while not stop.is_set():
            seen = r.p.value('max(gpc_writer_generation{cache="again"})')
            w.end('again')
            w.gpcd('again', 'again', *SIZE, '--vram-blocks', 64)
            w.until(lambda: r.p.value('max(gpc_writer_generation{cache="again"})') > seen, 'the next writer is told of')
    t = threading.Thread(target=restart)
    t.start()
    r.fires('GpcWriterRestarts', 'again', 'one writer after another is killed')
    stop.set()
    t.join()
    r.ends('GpcWriterRestarts')


def too_small(w, c, r):
    w.start('replay', 'sh', '-c', 'while :; do gpc-replay "$0" --dir "$1" --name tight --workers 2 >/dev/null; done',
            f'{w.source}/t/data/small.jsonl', w.shm)
    r.fires('GpcCacheTooSmall', 'tight', 'a trace needs more blocks than there are')
    os.killpg(w.running['replay'].pid, signal.SIGKILL)
    r.ends('GpcCacheTooSmall')


def full_table(w, c, r):
    w.helper('ill-table', 'ill', w.shm, 'table', 'table')
    w.until_said('ill-table', 'ill')
    r.fires('GpcTableFull', 'table', 'a key finds both of its buckets full')
    w.end('ill-table', signal.SIGTERM)
    r.ends('GpcTableFull')


def bad_bytes(w, c, r):
    w.helper('ill-bytes', 'ill', w.shm, 'bytes', 'bytes')
    w.until_said('ill-bytes', 'ill')
    r.fires('GpcBadBlocks', 'bytes', 'a bit of RAM changes')
    w.end('ill-bytes', signal.SIGTERM)
    r.ends('GpcBadBlocks')


def retired_mirror(w, c, r):
    w.kill('ill-mirror', signal.SIGUSR1)
    w.until_said('ill-mirror', 'ill\n')
    r.fires('GpcMirrorRetired', 'mirror', 'a flush of a mirror fails')
    w.end('ill-mirror', signal.SIGTERM)
    r.ends('GpcMirrorRetired')


def slow_writer(w, c, r):
    w.start('pings', 'sh', '-c', 'while :; do gpc-inspect --dir "$0" ping slow --put; done >/dev/null', w.shm)
    stop = threading.Event()

    def stutter():
        while not stop.is_set():
            for number, seconds in (signal.SIGSTOP, 0.4), (signal.SIGCONT, 0.2):
                w.kill('slow', number)
                time.sleep(seconds)
    t = threading.Thread(target=stutter)
    t.start()
    r.fires('GpcRoundTripsSlow', 'slow', 'the writer is stopped for 0.4 s again and again')
    stop.set()
    t.join()
    r.ends('GpcRoundTripsSlow')
    os.killpg(w.running['pings'].pid, signal.SIGKILL)


def full_folder(w, c, r):
    with open(os.path.join(w.small, 'filler'), 'wb') as f:
        try:
            while True:
                f.write(bytes(1 << 16))
                f.flush()
        except OSError:
            pass
    r.fires('GpcFolderFull', 'small', 'another program fills the tmpfs')
    os.unlink(os.path.join(w.small, 'filler'))
    r.ends('GpcFolderFull')


def few_descriptors(w, c, r):
    """Clients that ask for nothing: gpcd ends them after some seconds, and others come.  Their address is another one than that
    of Prometheus, whose connection would be closed for one of theirs."""
    stop = threading.Event()

    def crowd():
        there = []
        while not stop.is_set():
            for s in there[:CLIENTS // 3]:
                s.close()
            there = there[CLIENTS // 3:]
            time.sleep(0.1)
            while len(there) < CLIENTS:
                there.append(socket.create_connection(('127.0.0.1', w.port('few')), source_address=('127.0.0.2', 0)))
            time.sleep(1)
        for s in there:
            s.close()
    t = threading.Thread(target=crowd)
    t.start()
    r.fires('GpcDescriptorsShort', 'few', 'connections take nearly all descriptors')
    stop.set()
    t.join()
    r.ends('GpcDescriptorsShort')


def wrong_store(w, c, r):
    node = f'{w.build}/t/sh/node'
    for prompt, n in (1, 16), (2, 60), (3, 60):
        w.run(node, 'folder', 'fill', prompt, n)
    for folder, _, names in os.walk(w.path('folder')):
        for name in names:
            with open(os.path.join(folder, name), 'r+b') as f:
                f.seek(2048)
                byte = f.read(1)
                f.seek(2048)
                f.write(bytes([byte[0] ^ 1]) if byte else b'')
    w.run(node, 'folder', 'load', 1, 16)
    r.fires('GpcTierWrongBytes', 'folder', 'files of the store change')
    w.end('folder', signal.SIGTERM)
    shutil.rmtree(w.path('folder'))
    os.mkdir(w.path('folder'), 0o700)
    w.gpcd('folder', 'folder', *c.folder_store)
    r.ends('GpcTierWrongBytes')


def dead_store(w, c, r):
    if not c.redis:
        say('GpcTierDown is not tried: there is no redis-server')
        r.rows['GpcTierDown'] = None
        return
    w.end('redis-server')
    r.fires('GpcTierDown', 'redis', 'the Redis of a tier is killed')
    c.start_redis()
    r.ends('GpcTierDown')


# A gpcd that is restarted may be away for a second, which is a minute here; a cache that was removed is gone.
GONE = ('GpcWriterMissing', 'GpcTierUnkept', 'GpcPeersDead', 'GpcDaemonsGone')
BESIDE = {'folder': GONE, 'again': GONE, 'mirror': GONE, 'damaged': GONE}

# Those of a turn are at the same time; each turn would be in the way of the one before.
TURNS = ((again_and_again, too_small, full_table, bad_bytes, retired_mirror, slow_writer, full_folder, few_descriptors, wrong_store, dead_store,
          unreadable, holder),
         (stopped_writer,), (all_dead, lone_dead))


def play(w):
    c = Caches(w)
    c.start()
    p = Prometheus(w, c.daemons())
    r = Report(w, p)
    w.until(lambda: p.value('sum(up)') == len(c.daemons()) + 1, 'each target is scraped')
    r.quiet('in caches that are well', 12)
    for turn in TURNS:
        threads = [threading.Thread(target=one, args=(f, w, c, r), name=f.__name__) for f in turn]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    r.quiet('at the end')
    return r


def one(f, w, c, r):
    try:
        f(w, c, r)
    except BaseException as e:
        r.failed.append(f'{f.__name__}: {e}')
        say(f'FAILED: {f.__name__}: {e}')


def judge(r):
    named, seen = set(r.p.names()), set(r.rows)
    r.failed += [f'{a}: was not made to fire' for a in sorted(named - seen)]
    r.failed += [f'{a}: there is no such rule' for a in sorted(seen - named)]
    r.failed += [f'{a}: fires twice for one thing' for a in sorted(r.twice)]
    wanted = {(a, row[0]) for a, row in r.rows.items() if row}
    r.failed += [f'{a} fires for {cache}, and nothing of that kind was done' for a, cache in sorted(r.seen - wanted)
                 if a not in BESIDE.get(cache, ())]
    for why in r.failed:
        say(f'FAILED: {why}')
    done = sum(1 for row in r.rows.values() if row and row[3] is not None)
    say(f'{done} of {len(named)} alerts have fired once and ended')
    return 1 if r.failed else 0


def main():
    source, build = sys.argv[1:3]
    rules = sys.argv[3] if len(sys.argv) > 3 else f'{source}/tools/dashboard/gpc.rules.yml'
    os.environ['PATH'] += f':{build}/prometheus/usr/bin'
    if not shutil.which('prometheus'):
        skip('there is no prometheus: ./bootstrap check-alerts unpacks one')
    if 'GPC_ALERTS_INSIDE' not in os.environ:
        own = ['-m'] if os.geteuid() == 0 else ['-U', '-r', '-m']
        if subprocess.run(['unshare', *own, 'true'], stderr=subprocess.DEVNULL).returncode:
            skip('this user may have no mounts of its own: nothing was tried')
        os.environ['GPC_ALERTS_INSIDE'] = '1'
        os.execvp('unshare', ['unshare', *own, sys.executable, *sys.argv])
    w = World(source, build, rules)
    os.mkdir(w.shm)
    os.mkdir(w.small)
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', w.small], check=True)
    signal.signal(signal.SIGTERM, lambda *a: sys.exit(1))
    try:
        r = play(w)
        return judge(r)
    finally:
        w.end_all()
        if os.environ.get('GPC_ALERTS_KEEP'):
            say(f'{w.folder} has the logs')
        else:
            subprocess.run(['umount', w.small])
            shutil.rmtree(w.folder, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
