#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A keeper that spills ahead: so many blocks of its pool are free, or have a copy in another space, before
# anybody needs them; without a writer, with none that answers, and where nothing can come of it.
# Tests: tools/daemon/ahead.c lib/bytes/payload/spill.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

keep()	# LABEL CACHE [OPTION]...: of 32 blocks; $pid
{
	label=$1
	name=$2
	shift 2
	start "$label" gpcd "$name" --dir "$shm" --keep --device host --vram-blocks 32 \
		--block-bytes 4k "$@"
	until_ok grep -q 'keeping pool' "$tmp/$label.err" || bail "$(cat "$tmp/$label.err")"
}

publish()	# LABEL CACHE BLOCKS FIRST: a chain in pool 1, whose process goes
{
	start "$1" "$helpers/hold" "$shm" "$2" "$1" "$3" 0 0 "$4" 1
	until_ok grep -q holding "$tmp/$1.out" || bail "hold: $(cat "$tmp/$1.err")"
	grep -v holding "$tmp/$1.out" >>"$tmp/$2.keys"
	kill "$pid"
	finish "$pid"
	test "$status" = 0 || bail "hold: $(cat "$tmp/$1.err")"
}

blocks()	# CACHE: in pools 0 and 1
{
	for pool in 0 1; do
		inspect --json ls "$1" --pool $pool
		value '' | tr -d '[]'
	done | paste -sd' ' -
}

blocks_are()	# CACHE WANT
{
	test "$(blocks "$1")" = "$2"
}

spilled()	# CACHE
{
	inspect --json stat "$1"
	values stats/spilled stats/evicted stats/transfers
}

# ---- usage ----

refused()	# REGEX OPTION...
{
	want=$1
	shift
	refuses 2 "$want" gpcd ahead --dir "$shm" "$@"
}

refused 'demote-to is missing' --keep --device host --vram-blocks 32 --block-bytes 4k --spill-ahead 8
refused '33 is more than --vram-blocks 32' --keep --device host --vram-blocks 32 --block-bytes 4k \
	--demote-to 0 --spill-ahead 33
refused 'spill-ahead' --keep --device host --vram-blocks 32 --block-bytes 4k --demote-to 0 \
	--spill-ahead many
refused 'spill-ahead: it is for the pool of --keep' --spill-ahead 8

# ---- one space: blocks are free ----

serve ahead --block-size 16 --max-blocks 512 --ram-blocks 64 --block-bytes 4k
writer=$pid
keep first ahead --demote-to 0 --spill-ahead 8
keeper=$pid
publish one ahead 24 1000
is "$(blocks ahead)" '0 24' "8 are free: nothing is due"
publish two ahead 6 2000
until_ok blocks_are ahead '6 24'
ok $? "two are free: six go" || diag "$(blocks ahead)"
publish three ahead 8 3000
until_ok blocks_are ahead '14 24'
ok $? "nobody waits for room: eight more go, later" || diag "$(blocks ahead)"
is "$(spilled ahead)" '14 0 0' "by transfers that are over; nothing was evicted"
for key in $(cat "$tmp/ahead.keys"); do
	inspect lookup ahead "$key"
	test $status = 0 || echo "$key"
done >"$tmp/lost"
is "$(cat "$tmp/lost")" '' "each of the 38 keys is there"
inspect check ahead
exits 0 "the cache is sound"

kill -9 "$writer"
until_ok is_gone "$writer"
serve ahead
writer=$pid
publish four ahead 8 4000
until_ok blocks_are ahead '22 24'
ok $? "it goes on with the next writer" || diag "$(blocks ahead)"
is "$(grep -c 'cannot spill' "$tmp/first.err")" 0 "and has nothing to say"

stop_process "$writer"
kill -TERM "$keeper"
finish "$keeper"
is "$status" 0 "with a writer that is stopped it ends by a signal all the same"
kill -CONT "$writer"
is "$(grep -c 'cannot spill' "$tmp/first.err")" 0 "without a word"

# ---- another space: blocks have a copy ----

serve apart --block-size 16 --max-blocks 512 --ram-blocks 64 --block-bytes 4k
writer=$pid
keep second apart --space 1 --demote-to 0 --spill-ahead 3
keeper=$pid
for first in 1000 2000 3000 4000 5000; do
	publish root$first apart 1 $first
done
until_ok blocks_are apart '3 5'
ok $? "three have a copy" || diag "$(blocks apart)"
inspect --json ls apart --pool 0
is "$(value '*/key' | cut -d' ' -f2 | sort)" "$(head -n 3 "$tmp/apart.keys" | sort)" \
	"which are the least recent ones"
is "$(spilled apart)" '3 0 0' "each was copied once"

# a leaf whose parent has no copy there is refused
run "$helpers/clear" "$shm" apart
publish chain apart 4 6000
ticks()	# of CPU, the keeper's and the writer's
{
	sed 's/.*) //' "/proc/$keeper/stat" "/proc/$writer/stat" | awk '{ n += $12 + $13 } END { print n }'
}
before=$(ticks)
sleep 1
after=$(ticks)
is "$(blocks apart)" '0 4' "a chain whose first block is no leaf has no copy"
test $((after - before)) -lt $(($(getconf CLK_TCK) / 8))
ok $? "and the keeper does not work for nothing: $((after - before)) ticks"
inspect check apart
exits 0 "the cache is sound"

# ---- no place to go ----

serve gone --block-size 16 --max-blocks 512 --ram-blocks 8 --block-bytes 4k
writer=$pid
keep third gone --demote-to 0 --spill-ahead 32
keeper=$pid
publish eight gone 8 1000
until_ok blocks_are gone '8 0'
ok $? "all of a pool may go" || diag "$(blocks gone)"
publish more gone 4 2000
until_ok blocks_are gone '8 0'
ok $? "RAM that is full loses what is least recent" || diag "$(blocks gone)"
is "$(spilled gone)" '12 4 0' "all were spilled, and RAM has lost what it had no room for"
inspect rm --force gone
finish "$keeper"
is "$status" 1 "without the cache's name it ends"

done_testing
