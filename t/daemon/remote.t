#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd with a store whose plugin breaks its contract: workers go on, gpcd ends when it is told to, what is seen of the store is
# right, and after a plugin that ends the process the next gpcd finds all in order.
# Tests: tools/daemon/tiers.c tools/daemon/tiers_options.c lib/tiers/steward/store_lanes.c lib/tiers/remote/lane.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

chmod 755 "$tmp"
plugin=$tmp/gpc_remote_bad.so
cp "$builddir/t/lib/.libs/gpc_remote_bad.so" "$plugin" && chmod 644 "$plugin"
NODE_DIR=$shm
export NODE_DIR
make='--block-size 16 --ram-blocks 32 --block-bytes 4k --max-peers 8'

serves()	# LABEL
{
	grep -q 'serving as process' "$tmp/$1.err"
}

serve()	# LABEL HOW OPTION...: the cache `bad`, until it serves; $pid
{
	label=$1
	how=$2
	shift 2
	rm -f "$tmp/flag"
	# shellcheck disable=SC2086
	start "$label" gpcd bad --dir "$shm" --remote-blocks 1024 --remote-deadline 200 --key-file "$tmp/key" --remote "$plugin:how=$how,flag=$tmp/flag" "$@"
	until_ok serves "$label" || diag "$(cat "$tmp/$label.err")"
}

state()	# WANT
{
	gpc-inspect stat bad --dir "$shm" --json 2>/dev/null | grep -q "\"state\": \"$1\""
}

# sixteen blocks in the store, and none of them in RAM
fill()
{
	run "$helpers/node" bad fill 1 16
	run "$helpers/node" bad fill 2 30
	run "$helpers/node" bad fill 3 30
}

end()	# SIGNAL
{
	kill -"$1" "$pid"
	finish "$pid"
}

fresh()
{
	run gpc-inspect rm bad --dir "$shm" --force
}

# ---- what is refused before there is any memory: it would be refused, too ----

early="--block-size 16 --ram-blocks 32 --block-bytes 4k --max-peers 8 --huge-dir $shm"
# shellcheck disable=SC2086
{
refuses 1 '--remote: there is no plugin rediss, neither in the folder gpc beside the library nor in .*; correct the name' \
	gpcd bad --dir "$shm" $early --key-file "$tmp/key" --remote rediss:server=localhost
refuses 1 '--remote: [^ ]* has no option hwo; it takes how' \
	gpcd bad --dir "$shm" $early --key-file "$tmp/key" --remote "$plugin:hwo=right"
refuses 1 '--remote: the remote store has no name' gpcd bad --dir "$shm" $early --key-file "$tmp/key" --remote :a=b
refuses 1 '--remote: --ram-blocks and --block-bytes are missing: a tier keeps blocks of a pool of RAM with memory$' \
	gpcd bad --dir "$shm" --block-size 16 --key-file "$tmp/key" --remote "$plugin:how=right"
}
is "$(ls "$shm")" '' "and no cache is made for it"

# ---- what is seen ----

# shellcheck disable=SC2086
serve seen wrong $make
is "$(grep -c "^gpcd: bad: tier remote: $plugin:how=wrong,flag=$tmp/flag, 1024 blocks of 4096 bytes$" "$tmp/seen.err")" 1 \
	"the log says which store, and how much of it is known here"
until_ok state up
ok $? "a store that answers is up"
fill
run gpc-inspect stat bad --dir "$shm"
like "$(cat "$tmp/out")" 'TIER.* STATE .* BROUGHT +BROUGHT BYTES +WRITTEN +WRITTEN BYTES +FOUND .* FULL +DOWN' \
	"each column of the table has its own name"
like "$(cat "$tmp/out")" 'REMOTE .* up ' "and one has the state"
touch "$tmp/flag"
run "$helpers/node" bad load 1 16
like "$(cat "$tmp/out")" '^0 0 ' "wrong bytes reach nobody"
until_ok state off
ok $? "a store that gives wrong bytes is off"
run gpc-inspect stat bad --dir "$shm" --json
like "$(cat "$tmp/out")" '^ *"calls": [0-9]+' "the plugin's counters stand in JSON"
run gpc-inspect metrics bad --dir "$shm"
like "$(cat "$tmp/out")" 'gpc_tier_state\{cache="bad",tier="remote"\} 2' "metrics have the state"
like "$(cat "$tmp/out")" 'gpc_tier_store_total\{cache="bad",tier="remote",counter="calls"\} [0-9]+' "and the counters"
like "$(cat "$tmp/seen.err")" 'is switched off: it has answered wrong bytes' "the log says why it is off"
end TERM
is "$status" 0 "gpcd ends by SIGTERM"
run gpc-inspect metrics bad --dir "$shm"
like "$(cat "$tmp/out")" 'gpc_tier_state\{cache="bad",tier="remote"\} 0' "nobody keeps it: it is down"
fresh

# ---- a plugin that does not return ----

for how in get put; do
	# shellcheck disable=SC2086
	serve "lost-$how" "$how" $make
	fill
	touch "$tmp/flag"
	run "$helpers/node" bad load 1 16 200000
	test "$how" = put || {
		like "$(cat "$tmp/out")" '^0 0 [0-9]+$' "$how does not return: a worker misses"
		soon "$(sed 's/.* //' "$tmp/out")" 10000
		ok $? "after some seconds" "$tmp/out"
	}
	run "$helpers/node" bad fill 4 12
	exits 0 "$how does not return: a worker computes and publishes"
	run "$helpers/node" bad load 4 12 0
	like "$(cat "$tmp/out")" '^12 12 ' "and finds what it has"
	until_ok state down
	ok $? "the store is down"
	end TERM
	is "$status" 0 "and gpcd ends by SIGTERM"
	like "$(cat "$tmp/lost-$how.err")" "does not return from $how" "which it has said"
	run gpc-inspect check bad --dir "$shm"
	exits 0 "the cache is sound"
	fresh
done

# ---- a plugin that ends the process ----

# shellcheck disable=SC2086
serve crash crash $make
fill
run "$helpers/node" bad load 1 16
like "$(cat "$tmp/out")" '^16 16 ' "sixteen blocks come from the store"
touch "$tmp/flag"
end TERM
test "$status" -ge 128
ok $? "a plugin that crashes in close ends gpcd: status $status"
serve next never
like "$(cat "$tmp/next.err")" 'serving as process' "the next gpcd serves the cache"
run "$helpers/node" bad load 1 16 0
like "$(cat "$tmp/out")" '^16 16 ' "with what was in RAM"
run gpc-inspect check bad --dir "$shm"
exits 0 "and it is sound"
end TERM
is "$status" 0 "it ends"
fresh

# ---- a cache that has another secret ----

# shellcheck disable=SC2086
serve ours never $make
end TERM
refuses 1 "--key-file $tmp/other-key: there is no such file, and it is made with a new cache" gpcd bad --dir "$shm" \
	--key-file "$tmp/other-key" --remote-blocks 1024 --remote "$plugin:how=never,flag=$tmp/flag"
test ! -e "$tmp/other-key"
ok $? "which is not made"
echo 000102030405060708090a0b0c0d0e0f >"$tmp/other-key"
chmod 600 "$tmp/other-key"
refuses 1 '--remote: .*secret' gpcd bad --dir "$shm" --key-file "$tmp/other-key" --remote-blocks 1024 \
	--remote "$plugin:how=never,flag=$tmp/flag"
like "$(cat "$tmp/err")" 'gpc-inspect --dir .* rm bad' "with the remedy"
serve again never
like "$(cat "$tmp/again.err")" 'serving as process' "with its own key the cache is served"
end TERM
fresh

# ---- more keys than the cache has room for ----

# shellcheck disable=SC2086
refuses 1 '--remote-blocks is 1024, .* --max-blocks 100, of which 4 are left; ask for fewer' gpcd bad --dir "$shm" $make \
	--max-blocks 100 --key-file "$tmp/key" --remote-blocks 1024 --remote "$plugin:how=never,flag=$tmp/flag"

# ---- two stores ----

refuses 2 "--remote: a cache has one store, and 'folder:dir=/a' and 'folder:dir=/b' are two: give one" \
	gpcd bad --dir "$shm" --remote folder:dir=/a --remote folder:dir=/b

# ---- a store that is none ----

for how in null positive; do
	# shellcheck disable=SC2086
	refuses 1 'its open has answered' gpcd bad --dir "$shm" --key-file "$tmp/key" --remote-blocks 1024 $make \
		--remote "$plugin:how=$how,flag=$tmp/flag"
done
is "$(ls "$shm")" '' "nothing is left of that"
done_testing
