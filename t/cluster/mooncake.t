#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mooncake Store: a master and two clients on loopback; what one has stored the other one loads, and without the client
# that has the memory, or without the master, all is a miss.  GPC_T_MOONCAKE names the master's program.
# Tests: plugins/mooncake.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

plugin=$builddir/plugins/.libs/gpc_remote_mooncake.so
test -e "$plugin" || skip_all "this build has no plugin for Mooncake Store"
master=${GPC_T_MOONCAKE:-$(command -v mooncake_master)}
test -x "$master" || skip_all "there is no mooncake_master: GPC_T_MOONCAKE names one"

chmod 755 "$tmp"
cp "$plugin" "$tmp/" && chmod 644 "$tmp/gpc_remote_mooncake.so"
port=$((21000 + $$ % 20000))
"$master" -rpc_port=$port -rpc_address=127.0.0.1 -metrics_port=$((port + 1)) >"$tmp/master.log" 2>&1 &
pid=$!
store=$tmp/gpc_remote_mooncake.so:master=127.0.0.1:$port
mkfifo "$tmp/wait"
sleep 60 >"$tmp/wait" &
"$helpers/store" "$store,segment=256" put 1 48 65536 20000 stay <"$tmp/wait" >"$tmp/a.out" 2>"$tmp/a.err" &
a=$!
i=0
while ! test -s "$tmp/a.out" && test $i -lt 300; do
	i=$((i + 1))
	sleep 0.1
done
is "$(cat "$tmp/a.out")" 48 "one client gives memory, and stores 48 images" "$tmp/a.err"
run "$helpers/store" "$store" get 1 64 65536 20000
prints '^48$' "the other one loads them, byte by byte, and misses the rest"
run "$helpers/store" "$store" exists 40 64 65536 20000
prints '^9$' "it knows which are there"
run "$helpers/store" "$store" remove 1 8 65536 20000
prints '^8$' "eight are removed"
run "$helpers/store" "$store" get 1 48 65536 20000
prints '^40$' "and are misses"
kill -9 $a
run "$helpers/store" "$store" get 9 4 65536 20000
prints '^0$' "without the client that had the memory all is a miss"
kill -9 $pid
run "$helpers/store" "$store" get 9 4 65536 20000
exits 1 "without the master the store cannot be opened"
grep -q "master=127.0.0.1:$port" "$tmp/err"
ok $? "which names it" "$tmp/err"
done_testing
