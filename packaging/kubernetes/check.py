# SPDX-License-Identifier: Apache-2.0
"""make check-kubernetes: gpc-device-plugin beside a kubelet that this program plays, on real sockets. Messages are those
of protobuf's own encoder, from the field numbers of the kubelet's v1beta1. A real kubelet was not there to be tried.
Tests: packaging/kubernetes/gpc-device-plugin"""
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

srcdir, builddir = sys.argv[1:]
tools, libs = f'{builddir}/tools/.libs', f'{builddir}/lib/.libs'
count = failed = 0
WAIT_S = 60


def ok(good, what):
    global count, failed
    count += 1
    failed += not good
    print(f'{"ok" if good else "not ok"} {count} - {what}', flush=True)


def messages():
    """Of the kubelet's API, by name."""
    f = descriptor_pb2.FileDescriptorProto(name='api.proto', package='v1beta1', syntax='proto3')
    kinds = {'string': 9, 'bool': 8}

    def add(name, *members, within=f.message_type):
        m = within.add(name=name)
        for number, (member, kind, many) in enumerate(members, 1):
            field = m.field.add(name=member, number=number, label=3 if many else 1, type=kinds.get(kind, 11))
            if kind not in kinds:
                field.type_name = f'.v1beta1.{kind}'
        return m

    add('Empty')
    add('Options', ('pre_start_required', 'bool', 0), ('get_preferred_allocation_available', 'bool', 0))
    add('RegisterRequest', ('version', 'string', 0), ('endpoint', 'string', 0), ('resource_name', 'string', 0), ('options', 'Options', 0))
    add('Device', ('ID', 'string', 0), ('health', 'string', 0))
    add('ListAndWatchResponse', ('devices', 'Device', 1))
    add('ContainerAllocateRequest', ('devices_ids', 'string', 1))
    add('AllocateRequest', ('container_requests', 'ContainerAllocateRequest', 1))
    add('Mount', ('container_path', 'string', 0), ('host_path', 'string', 0), ('read_only', 'bool', 0))
    c = add('ContainerAllocateResponse', ('envs', 'ContainerAllocateResponse.EnvsEntry', 1), ('mounts', 'Mount', 1))
    add('EnvsEntry', ('key', 'string', 0), ('value', 'string', 0), within=c.nested_type).options.map_entry = True
    add('AllocateResponse', ('container_responses', 'ContainerAllocateResponse', 1))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(f)
    return {m.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f'v1beta1.{m.name}')) for m in f.message_type}


M = messages()


class Kubelet(grpc.GenericRpcHandler):
    """Its registry, as a server on kubelet.sock."""

    def __init__(self, folder):
        self.folder, self.registered = folder, queue.Queue()
        self.server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[self])
        self.server.add_insecure_port(f'unix://{folder}/kubelet.sock')
        self.server.start()

    def service(self, call):
        if call.method == '/v1beta1.Registration/Register':
            return grpc.unary_unary_rpc_method_handler(self.register, M['RegisterRequest'].FromString, lambda m: m.SerializeToString())
        return None

    def register(self, request, context):
        self.registered.put(request)
        return M['Empty']()

    def end(self):
        """As one that is restarted does: all sockets go."""
        self.server.stop(0).wait()
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))


class Client:
    """The kubelet's side of a plugin that has registered."""

    def __init__(self, folder, request):
        self.channel = grpc.insecure_channel(f'unix://{folder}/{request.endpoint}')
        self.states = queue.Queue()
        threading.Thread(target=self.watch, daemon=True).start()

    def call(self, name, request, answer):
        return self.channel.unary_unary(f'/v1beta1.DevicePlugin/{name}', lambda m: m.SerializeToString(), M[answer].FromString)(
            request, timeout=WAIT_S)

    def watch(self):
        try:
            for answer in self.channel.unary_stream('/v1beta1.DevicePlugin/ListAndWatch', lambda m: m.SerializeToString(),
                                                    M['ListAndWatchResponse'].FromString)(M['Empty']()):
                self.states.put([(d.ID, d.health) for d in answer.devices])
        except grpc.RpcError as e:
            self.states.put(e.code())

    def allocate(self, *shares):
        request = M['AllocateRequest']()
        for share in shares:
            request.container_requests.add(devices_ids=[share])
        return self.call('Allocate', request, 'AllocateResponse').container_responses


def run(work, crew):
    env = os.environ | {'LD_LIBRARY_PATH': libs, 'PATH': f'{tools}:{os.environ["PATH"]}'}
    kubelet_dir, caches, seen = f'{work}/kubelet', tempfile.mkdtemp(prefix='gpc-kubernetes-', dir='/dev/shm'), f'{work}/gpc'
    crew.append(lambda: shutil.rmtree(caches, ignore_errors=True))
    for folder in (kubelet_dir, seen):
        os.mkdir(folder)

    def spawn(*argv, **more):
        p = subprocess.Popen(argv, env=env, **more)
        crew.append(lambda: p.poll() is None and p.kill())
        return p

    kubelet = Kubelet(kubelet_dir)
    plugin = spawn(sys.executable, f'{srcdir}/packaging/kubernetes/gpc-device-plugin', '--name', 'llama', '--dir', caches,
                   '--mount', seen, '--kubelet', kubelet_dir, '--shares', '3')
    r = kubelet.registered.get(timeout=WAIT_S)
    ok((r.version, r.resource_name, r.endpoint) == ('v1beta1', 'gpc.local/llama', 'gpc-llama.sock'), f'it registers {r.resource_name}')
    client = Client(kubelet_dir, r)
    options = client.call('GetDevicePluginOptions', M['Empty'](), 'Options')
    ok(not options.pre_start_required and not options.get_preferred_allocation_available, 'with no wish')
    shares = [f'llama-{i}' for i in range(3)]
    ok(client.states.get(timeout=WAIT_S) == [(s, 'Unhealthy') for s in shares], 'without a cache no share is healthy')
    try:
        client.allocate(shares[0])
        ok(False, 'and none is given')
    except grpc.RpcError as e:
        ok(e.code() == grpc.StatusCode.UNAVAILABLE and 'no cache llama' in e.details(), f'and none is given: {e.details()}')
    gpcd = spawn('gpcd', 'llama', '--dir', caches, '--block-size', '16', '--vram-blocks', '64', '--quiet')
    ok(client.states.get(timeout=WAIT_S) == [(s, 'Healthy') for s in shares], 'gpcd makes one: all are')
    answers = client.allocate(shares[1], shares[2])
    ok(len(answers) == 2, 'two containers of a pod get an answer each')
    mounts = [(m.container_path, m.host_path, m.read_only) for m in answers[0].mounts]
    ok(mounts == [(seen, caches, False)], 'the folder, to be written')
    ok(dict(answers[0].envs) == {'GPC_CACHE': 'llama', 'GPC_CACHE_DIR': seen}, 'and its name in the environment')

    # as the runtime does it: no /dev/shm of the machine, and that mount
    pod = subprocess.run(['unshare', '-m', 'sh', '-c',
                          'mount --bind "$1" "$2" && mount -t tmpfs none /dev/shm && test -z "$(ls /dev/shm)" && shift 2 && exec "$@"',
                          'sh', caches, seen, 'gpc-replay', f'{srcdir}/t/data/small.jsonl', '--dir', seen, '--name', 'llama',
                          '--workers', '1', '--json'], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    ok(pod.returncode == 0, 'a process that has that mount alone, and an empty /dev/shm, uses the cache')
    if pod.returncode:
        print('# ' + pod.stdout.replace('\n', '\n# '))

    kubelet.end()
    kubelet = Kubelet(kubelet_dir)
    r = kubelet.registered.get(timeout=WAIT_S)
    ok(r.resource_name == 'gpc.local/llama', 'a kubelet that was restarted hears of it again')
    ok(Client(kubelet_dir, r).states.get(timeout=WAIT_S)[0][1] == 'Healthy', 'with the state of the shares')
    client = Client(kubelet_dir, r)
    client.states.get(timeout=WAIT_S)
    gpcd.send_signal(signal.SIGTERM)
    ok(gpcd.wait(WAIT_S) == 0, 'gpcd ends, and the cache stays')
    subprocess.run(['gpc-inspect', '--dir', caches, 'rm', 'llama'], env=env, check=True, stdout=subprocess.DEVNULL)
    ok(client.states.get(timeout=WAIT_S) == [(s, 'Unhealthy') for s in shares], 'it is removed: no share is healthy')
    plugin.send_signal(signal.SIGTERM)
    ok(plugin.wait(WAIT_S) == 0, 'SIGTERM ends the plugin')
    ok(os.listdir(kubelet_dir) == ['kubelet.sock'], 'and its socket goes')


def main():
    crew, work = [], tempfile.mkdtemp(prefix='gpc-kubernetes-')
    try:
        run(work, crew)
    finally:
        for end in reversed(crew):
            end()
        shutil.rmtree(work, ignore_errors=True)
    print(f'1..{count}')
    sys.stdout.flush()
    os._exit(failed != 0)


main()
