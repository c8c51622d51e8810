#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect on what is no cache any more: every command, on every kind of damage, ends
# with a message and the documented exit status, never by a signal.
# Tests: tools/inspect/main.c tools/inspect/state.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

file()	# SUFFIX
{
	echo "$shm/gpc.bad.$1"
}

size()	# SUFFIX
{
	stat -c %s "$(file "$1")"
}

noise()	# SUFFIX OFFSET BYTES: what is there becomes something else
{
	dd if="$tmp/noise" of="$(file "$1")" bs=1 seek="$2" count="$3" conv=notrunc \
		2>/dev/null
}

all_noise()	# SUFFIX: all behind the first page
{
	while cat "$tmp/noise"; do
		:
	done 2>/dev/null | head -c $(($(size "$1") - 4096)) |
		dd of="$(file "$1")" bs=4096 seek=1 conv=notrunc 2>/dev/null
}

fresh()	# a sound copy
{
	for suffix in idx ctl lock; do
		cp "$tmp/sound.$suffix" "$(file $suffix)"
	done
}

# ---- a sound cache, without a process ----

serve bad --block-size 16 --vram-blocks 64 --ram-blocks 32 --max-peers 4
start worker "$helpers/hold" "$shm" bad worker 20 2 1
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
key=$(sed -n 3p "$tmp/worker.out")
kill -9 "$(cat "$tmp/bad.pid")"
until_ok is_gone "$(cat "$tmp/bad.pid")"
kill -9 $pid
finish $pid
for suffix in idx ctl lock; do
	cp "$(file $suffix)" "$tmp/sound.$suffix"
done
seed=${GPC_T_SEED:-1}
diag "GPC_T_SEED=$seed makes the same noise"
printf "$(awk -v seed="$seed" 'BEGIN {
	for (i = 0; i < 65536; i++) {
		seed = (seed * 16807) % 2147483647
		printf "\\%03o", int(seed / 128) % 256
	}
}')" >"$tmp/noise"

# every command ends with a status it documents, its message on standard error
turn=
some_commands()	# DAMAGE
{
	wrong=
	for command in 'stat bad' 'peers bad' 'ls bad' 'check bad' list env \
		"lookup bad $key" 'reap bad'; do
		test -z "$turn" && turn=--json || turn=
		inspect $turn $command
		case ${command%% *}-$status in
		list-0|env-0|stat-[01]|peers-[01]|ls-[01]|lookup-[01]|reap-[01]) ;;
		check-[013]) ;;
		*) wrong="$wrong; $command $turn: status $status" ;;
		esac
		if test "$status" -eq 0; then
			test -z "$turn" || value >/dev/null ||
				wrong="$wrong; $command is not JSON"
		elif ! grep -q '^gpc-inspect: bad: ' "$tmp/err" &&
			! grep -q 'violation\|not found\|^\[\]$' "$tmp/out"; then
			wrong="$wrong; $command $turn: no message"
		fi
	done
	is "$wrong" '' "$1: every command ends as it should"
}

all_commands()	# DAMAGE: gpcd, too
{
	some_commands "$1"
	run gpcd bad --dir "$shm" --standby
	test "$status" -eq 1 && grep -q '^gpcd: bad: ' "$tmp/err"
	ok $? "$1: gpcd does not serve it" "$tmp/err"
}

# What is left can be looked at; check tells what is wrong.
is_damaged()	# DAMAGE
{
	all_commands "$1"
	inspect stat bad
	exits 0 "$1: stat shows what is left"
	inspect check bad
	exits 1 "$1: check does not take it for sound"
	prints 'bad: [0-9]+ violation' "$1: check says what is wrong"
}

# What needs the missing bytes, or would show zeros for them, ends with a sentence: not as of an
# empty cache.
is_cut()	# DAMAGE
{
	is_damaged "$1"
	for command in 'ls bad' 'peers bad' "lookup bad $key" '--json ls bad' '--json peers bad'; do
		inspect $command
		exits 1 "$1: $command fails"
		grep -q '^gpc-inspect: bad: .*\(bytes\|gpc\.bad\.\)' "$tmp/err"
		ok $? "$1: $command says why" "$tmp/err"
	done
}

# Nothing can be believed any more.
is_refused()	# DAMAGE [REGEX]
{
	all_commands "$1"
	refuses 1 "bad: .*$2" gpc-inspect --dir "$shm" stat bad
	refuses 3 "bad: .*$2" gpc-inspect --dir "$shm" check bad
	inspect list
	exits 0 "$1: list goes on"
	prints '^bad ' "$1: list has a line for it"
	aligned "$1: list is aligned"
}

# ---- dead, but sound ----

inspect check bad
exits 0 "a cache without a process is sound"
for command in stat peers ls; do
	inspect $command bad
	exits 0 "$command works on it"
done
inspect lookup bad "$key"
exits 0 "lookup works on it"

# ---- the index cannot be believed ----

fresh
noise idx 0 256
is_refused "noise in the header of the index"
fresh
noise idx 24 1
is_refused "one byte of the header of the index"
fresh
truncate -s 100 "$(file idx)"
is_refused "an index cut to 100 bytes"
fresh
: >"$(file idx)"
is_refused "an empty index"
bytes=$(stat -c %s "$tmp/sound.idx")
truncate -s "$bytes" "$(file idx)"
is_refused "an index that is a hole"
rm "$(file idx)"
mkdir "$(file idx)"
is_refused "an index that is a folder"
rmdir "$(file idx)"
mkfifo "$(file idx)"
is_refused "an index that is a pipe"
rm "$(file idx)"
ln -s "$tmp/sound.idx" "$(file idx)"
is_refused "an index that is a link" 'symbolic link'
rm "$(file idx)"

# ---- the rest may be ----

fresh
truncate -s $((bytes - 4096)) "$(file idx)"
is_cut "an index a page too short"
fresh
truncate -s 4096 "$(file idx)"
is_cut "an index of its header only"
fresh
noise ctl 0 256
is_refused "noise in the header of control" 'does not belong to the index|bytes instead of'
fresh
truncate -s 100 "$(file ctl)"
is_cut "control cut to 100 bytes"
fresh
truncate -s $(($(size ctl) - 4096)) "$(file ctl)"
is_cut "control a page too short"
: >"$(file ctl)"
is_cut "an empty control segment"
truncate -s "$bytes" "$(file ctl)"
is_refused "a control segment that is a hole" 'does not belong to the index|bytes instead of'
rm "$(file ctl)"
is_cut "no control segment"
mkfifo "$(file ctl)"
is_cut "a control segment that is a pipe"
rm "$(file ctl)"
ln -s "$tmp/sound.ctl" "$(file ctl)"
is_cut "a control segment that is a link"
rm "$(file ctl)"

# wherever it hits: records, table, seats, references, rings
for part in 1 2 3 4 5 6 7 8; do
	fresh
	noise idx $(($(size idx) * part / 9)) 2048
	noise ctl $(($(size ctl) * part / 9)) 2048
	some_commands "noise in part $part of 8"
done
fresh
all_noise idx
is_damaged "an index of noise behind its header"
fresh
all_noise ctl
some_commands "noise for seats, references and rings"

fresh
inspect check bad
exits 0 "the copy was sound all the time"

done_testing
