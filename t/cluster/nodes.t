#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two machines and one Redis, each in a network namespace of its own: what A has computed B loads; a cut network costs
# hits and nothing else; A starts anew; a clock that is three days off changes nothing.
# Tests: plugins/redis/ lib/tiers/steward/remote.c

GPC_T_LIMIT=200
. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

test "$(id -u)" = 0 || skip_all "only root makes network namespaces"
command -v ip >/dev/null && command -v redis-cli >/dev/null || skip_all "there is no ip, or no redis-cli"
test -e "$builddir/plugins/.libs/gpc_remote_redis.so" || skip_all "this build has no plugin for Redis"
redis=
for path in /usr/bin/redis-server /usr/bin/valkey-server /usr/bin/redis-check-rdb; do
	test -z "$redis" && test -x "$path" && redis=$path
done
test -n "$redis" || skip_all "there is no redis-server"

name=gpct$$
ip netns add "${name}s" 2>/dev/null || skip_all "no network namespaces here"
redis_pid=
end_nets()
{
	# it writes its title over its environment, by which our processes are found
	test -z "$redis_pid" || kill -9 "$redis_pid" 2>/dev/null
	for n in s a b; do
		ip netns del "$name$n" 2>/dev/null
	done
}
trap 'end_nets; clean_up' EXIT
ip netns add "${name}a" && ip netns add "${name}b"
in_net()	# a, b or s, COMMAND...
{
	net=$1
	shift
	ip netns exec "$name$net" "$@"
}

# a bridge at the server, a cable to each machine
in_net s ip link add br0 type bridge
in_net s ip addr add 10.97.0.1/24 dev br0
in_net s ip link set br0 up
in_net s ip link set lo up
for n in a b; do
	ip link add "v$n" netns "$name$n" type veth peer name "p$n" netns "${name}s"
	in_net s ip link set "p$n" master br0
	in_net s ip link set "p$n" up
done
in_net a ip addr add 10.97.0.2/24 dev va && in_net a ip link set va up
in_net b ip addr add 10.97.0.3/24 dev vb && in_net b ip link set vb up

ln -s "$redis" "$tmp/redis-server"
ip netns exec "${name}s" "$tmp/redis-server" --port 6379 --bind 10.97.0.1 --protected-mode no --save '' --dir "$tmp" \
	>"$tmp/redis.log" 2>&1 &
redis_pid=$!
up()
{
	in_net a timeout 1 redis-cli -h 10.97.0.1 ping >/dev/null 2>&1
}
i=0
while ! up && test $i -lt 100; do
	i=$((i + 1))
	sleep 0.1
done
up
ok $? "Redis is reached from A" "$tmp/redis.log"

chmod 755 "$tmp"
cp "$builddir/plugins/.libs/gpc_remote_redis.so" "$tmp/" && chmod 644 "$tmp/gpc_remote_redis.so"
other_caches="$cache-a $cache-b"
machine()	# a or b, LOG, further words in front of gpcd
{
	m=$1
	log=$2
	shift 2
	in_net "$m" "$@" gpcd "$cache-$m" --block-size 16 --ram-blocks 64 --free-target 0 --block-bytes 64k \
		--key-file "$tmp/key" --remote "$tmp/gpc_remote_redis.so:server=10.97.0.1" --remote-deadline 500 \
		--remote-blocks 4096 --disk-ahead 64 >"$tmp/$log" 2>&1 &
	i=0
	while ! grep -q 'serving as process' "$tmp/$log" && test $i -lt 100; do
		i=$((i + 1))
		sleep 0.1
	done
	grep -q 'serving as process' "$tmp/$log"
}
pid_of()	# LOG
{
	sed -n 's/.*serving as process //p' "$tmp/$1"
}
worker()	# a or b, fill or load, PROMPT, N [MS]
{
	m=$1
	shift
	in_net "$m" "$helpers/node" "$cache-$m" "$@" 2>>"$tmp/worker"
}
loads()	# a or b, PROMPT, N, WANTED, NAME
{
	got=$(worker "$1" load "$2" "$3" 10000)
	is "${got% *}" "$4 $4" "$5 (${got##* } ms)"
}

machine a a.log
ok $? "gpcd runs on A" "$tmp/a.log"
machine b b.log
ok $? "and on B" "$tmp/b.log"
for p in 1 2 3 4 5 6; do
	worker a fill $p 20 >/dev/null
done
keys=$(in_net s redis-cli -h 10.97.0.1 dbsize 2>/dev/null)
ok "$(test "${keys:-0}" -ge 40; echo $?)" "A has computed six prompts, and stored $keys blocks"
loads b 1 20 20 "B loads the first one, every byte"
loads b 2 20 20 "and the second one"

# ---- the network of B is cut ----
in_net s ip link set pb down
got=$(worker b load 3 20 10000)
is "${got% *}" "0 0" "B is cut off: a miss"
ok "$(test "${got##* }" -lt 2500; echo $?)" "after ${got##* } ms"
sleep 1
got=$(worker b load 4 20 10000)
ok "$(test "${got##* }" -lt 200; echo $?)" "and then at once (${got##* } ms)"
loads b 1 20 20 "what it has it has"
worker b fill 50 20 >/dev/null
ok $? "and it computes"
loads a 1 20 20 "A is not concerned"
in_net s ip link set pb up
i=0
while test $i -lt 100; do
	i=$((i + 1))
	got=$(worker b load 3 20 10000)
	test "${got%% *}" = 20 && break
	sleep 0.3
done
loads b 3 20 20 "the network is whole again: B loads the third one"
grep -q 'is down: ' "$tmp/b.log" && grep -q 'answers again' "$tmp/b.log"
ok $? "B's log has told both" "$tmp/b.log"

# ---- A starts anew, with nothing ----
kill -9 "$(pid_of a.log)"
i=0
while test -d "/proc/$(pid_of a.log)" && test $i -lt 100; do
	i=$((i + 1))
	sleep 0.1
done
rm -f "/dev/shm/gpc.$cache-a."*
machine a a2.log
ok $? "A was killed, lost its memory, and runs again" "$tmp/a2.log"
loads a 1 20 20 "it loads what it had computed before"

# ---- B's clock is three days ahead ----
fake=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null | head -n 1)
if test -n "$fake"; then
	kill -9 "$(pid_of b.log)"
	sleep 0.5
	rm -f "/dev/shm/gpc.$cache-b."*
	machine b b2.log env "LD_PRELOAD=$fake" FAKETIME=+3d DONT_FAKE_MONOTONIC=1
	ok $? "B runs three days ahead" "$tmp/b2.log"
	loads b 2 20 20 "and loads what A has stored"
	worker b fill 77 20 >/dev/null
	for p in 78 79 80 81; do
		worker b fill $p 20 >/dev/null
	done
	loads a 77 20 20 "and A what B stores in the future"
else
	skip 3 "there is no libfaketime"
fi
done_testing
