#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The keeper: a pool of VRAM, on the host device, that outlives workers and writers, and goes with
# the process that owns it.
# Tests: tools/daemon/keep.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

is_written()	# REGEX FILE
{
	grep -Eq -e "$1" "$2"
}

pools()	# how many the cache has
{
	inspect --json stat kept
	value pools | tr -d '[]'
}

pools_are()	# N
{
	test "$(pools)" = "$1"
}

memory_files()
{
	ls "$shm" | grep -c '^gpc\.kept\.p'
}

keep()	# LABEL [OPTION]...
{
	label=$1
	shift
	start "$label" gpcd kept --dir "$shm" --keep --device host --vram-blocks 32 \
		--block-bytes 64k "$@"
	until_ok is_written 'keeping pool' "$tmp/$label.err" || bail "$(cat "$tmp/$label.err")"
}

# ---- usage ----

refused()	# REGEX OPTION...: wrong usage
{
	want=$1
	shift
	refuses 2 "$want" gpcd kept --dir "$shm" --keep "$@"
}

refused 'vram-blocks is missing' --device host --block-bytes 64k
refused 'block-bytes is missing' --device host --vram-blocks 32
refused 'device is missing' --vram-blocks 32 --block-bytes 64k
refused 'one --device' --device host --device cuda:0 --vram-blocks 32 --block-bytes 64k
refused 'pieces: 7 does not divide' --device host --vram-blocks 32 --block-bytes 64k --pieces 7
refused 'space' --device host --vram-blocks 32 --block-bytes 64k --space 32
refused 'exclude' --device host --vram-blocks 32 --block-bytes 64k --standby
refused 'exclude' --device host --vram-blocks 32 --block-bytes 64k --unlink
refused 'exclude' --device host --vram-blocks 32 --block-bytes 64k --block-size 16
refuses 2 'pieces.*keep' gpcd kept --dir "$shm" --pieces 4

# ---- its life ----

start writer gpcd kept --dir "$shm" --block-size 16 --max-blocks 1k --ram-blocks 8 --block-bytes 64k
writer=$pid
until_ok is_written 'serving as' "$tmp/writer.err" || bail "$(cat "$tmp/writer.err")"
is "$(pools)" 1 "a cache with a RAM pool"
refuses 1 'has max_blocks 1024.*make the cache anew with a larger --max-blocks$' gpcd kept --dir "$shm" --keep \
	--device host --vram-blocks 1k --block-bytes 64k
keep first --pieces 16 --demote-to 0
first=$pid
like "$(cat "$tmp/first.err")" 'kept: keeping pool 1, 32 blocks of 65536 bytes on host' "the keeper says what it keeps"
is "$(pools)" 2 "its pool is there"
is "$(memory_files)" 2 "and a file of memory for each pool"
inspect stat kept
prints '^ +1 +2\.0 MiB +64\.0 KiB +1 +1 +1 .* host ' "stat shows its memory"
inspect --json stat kept
is "$(values pools/1/memory/block_bytes pools/1/memory/slots pools/1/memory/device)" \
	'65536 32 host' "and says it to programs"
inspect peers kept
like "$(cat "$tmp/out")" 'gpcd keep' "it is a peer"
inspect --json stat kept
is "$(value writer_pid)" "$writer" "that has not taken the writer's seat"

kill -KILL "$writer"
finish "$writer"
is "$(pools)" 2 "the pool outlives a writer"
start second gpcd kept --dir "$shm"
second=$pid
until_ok is_written 'serving as' "$tmp/second.err"
is "$(pools)" 2 "and is there for the next one"

kill -KILL "$first"
finish "$first"
until_ok pools_are 1
ok $? "it goes when its keeper is killed"
until_ok test "$(memory_files)" = 1
keep again
again=$pid
is "$(pools)" 2 "another keeper brings another one"
kill -TERM "$again"
finish "$again"
is "$status" 0 "SIGTERM ends a keeper well"
like "$(cat "$tmp/again.err")" 'kept: ended by SIGTERM, its pool goes' "it says so"
until_ok pools_are 1
ok $? "and its pool goes"

keep third
third=$pid
run gpc-inspect --dir "$shm" rm --force kept
finish "$third"
is "$status" 1 "without the cache's name it ends"
like "$(cat "$tmp/third.err")" 'lost its name' "and says why"
kill -TERM "$second"
finish "$second"
is "$(memory_files)" 0 "no file of memory is left"

done_testing
