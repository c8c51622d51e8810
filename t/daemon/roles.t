#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each option of gpcd where it makes a cache, joins one, or keeps a pool: taken, refused, or, from a file that several
# processes read, named and of no use.  The table is that of tools/daemon/options_check.c.
# Tests: tools/daemon/options_check.c tools/daemon/options.c tools/daemon/main.c tools/daemon/reload.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

conf=$tmp/x.conf
run gpcd --help
sed -n 's/^ *\(-h, \|-V, \)\{0,1\}--\([a-z-]*\).*/\2/p' "$tmp/out" | sort -u >"$tmp/all"

verdict()	# OPTION COMMAND...: taken, unused, refused: of an option; or the message
{
	option=$1
	shift
	start one "$@"
	until_ok eval "is_gone $pid || grep -q waiting '$tmp/one.err'"
	kill "$pid" 2>/dev/null
	finish "$pid"
	if test "$status" -eq 0 && grep -q waiting "$tmp/one.err"; then
		sed -n 's/.*these keys of its file count for nothing: //p' "$tmp/one.err" | tr -d ' ' | tr , '\n' | grep -qx -e "$option" &&
			echo unused || echo taken
	elif test "$status" -eq 2 && grep -q -e "--$option exclude each other\|--$option: \|conf:[0-9]*: $option: " -e "--keep and --disk exclude" \
		-e "--keep and --remote exclude" -e "--keep and --events exclude" -e "--keep and --metrics exclude" "$tmp/one.err"; then
		echo refused
	else
		head -n 1 "$tmp/one.err"
	fi
}

section()	# OPTION
{
	case $1 in
	dir | disk* | key-file | remote*) echo gpc ;;
	*) echo gpcd ;;
	esac
}

# OPTION VALUE: what it is for; who joins: on the line, in the file; who keeps; options that it needs, on the line
: >"$tmp/tried"
while read -r option value joins_line joins_file keeps needs; do
	echo "$option" >>"$tmp/tried"
	needs=$(echo "$needs" | sed "s|@|$tmp|g")
	value=$(echo "$value" | sed "s|@|$tmp|g; s|^-\$||")
	# shellcheck disable=SC2086
	line="--$option${value:+ $value}"
	# shellcheck disable=SC2086
	is "$(verdict "$option" gpcd none --dir "$shm" $needs $line)" "$joins_line" "joins: --$option"
	printf '[%s]\n%s = %s\n' "$(section "$option")" "$option" "${value:-yes}" >"$conf"
	# shellcheck disable=SC2086
	is "$(verdict "$option" gpcd none --dir "$shm" $needs --config "$conf")" "$joins_file" "joins: $option in the file"
	pool="--device host --vram-blocks 8 --block-bytes 4k"
	pool=$(echo "$pool" | sed "s/--$option [0-9a-z]*//")
	# shellcheck disable=SC2086
	is "$(verdict "$option" gpcd none --dir "$shm" --keep $pool $needs $line)" "$keeps" "keeps: --$option"
done <<'END'
max-blocks 100 refused unused refused
ram-blocks 100 refused unused refused
ram-space 3 refused unused refused
unchained - refused unused refused
max-peers 1 refused unused refused
max-pools 3 refused unused refused
tick exact refused unused refused
free-target 0 refused unused refused
quarantine 9 refused unused refused
quota 9 refused unused refused
numa interleave refused unused refused
huge-dir @ refused unused refused
sums 2 refused unused refused
keep-tokens - refused unused refused
keep-digests - refused unused refused
max-aliases 0 refused unused refused
vram-blocks 8 refused unused taken
block-bytes 4k refused unused taken
device host refused unused taken
mode 0660 taken taken refused
group 0 taken taken refused
layout 00ff taken taken taken
key-file @/key refused unused refused
standby - taken taken refused
unlink - taken taken refused
disk @/disk taken taken refused --disk-blocks 50
disk-bytes 1M taken taken refused --disk @/disk
disk-blocks 50 taken taken refused --disk @/disk
disk-exclusive - taken taken refused --disk @/disk
disk-ahead 5 taken taken refused --disk @/disk
disk-min-uses 2 taken taken refused --disk @/disk
disk-max-age 2 taken taken refused --disk @/disk
disk-write-rate 1M taken taken refused --disk @/disk
disk-resize - taken taken refused --disk @/disk
disk-buffered - taken taken refused --disk @/disk
disk-strict - taken taken refused --disk @/disk
events ipc://@/e taken taken refused
metrics 0 taken taken refused
pieces 2 refused refused taken
space 1 refused refused taken
demote-to 1 refused refused taken
dir /dev/shm taken taken taken
pidfile @/pid taken taken taken
foreground - taken taken taken
quiet - taken taken taken
log-level info taken taken taken
END

# these say of themselves what they need, decide it all, or are no keys
for option in block-size keep spill-ahead config daemonize help version remote remote-tag remote-blocks remote-min-uses remote-deadline \
	events-replay events-memory events-public topic metrics-public; do
	echo "$option"
done >>"$tmp/tried"
is "$(sort "$tmp/tried" | comm -23 "$tmp/all" - | paste -sd' ' -)" '' "each option is in the table"
is "$(verdict key-file gpcd none --dir "$shm" --key-file "$tmp/key" --disk "$tmp/disk" --disk-blocks 50)" taken "a key file for a tier"

# ---- one file for who makes the cache and who joins it ----

printf '[gpc]\nname = both\ndir = %s\n[gpcd]\nram-blocks = 20\nblock-bytes = 4k\nmax-peers = 8\ndevice = none\nquota = 7\ngroup = %s\n' \
	"$shm" "$(id -g)" >"$conf"
start joins gpcd --config "$conf"
joins=$pid
until_ok grep -q 'both: waiting' "$tmp/joins.err"
ok $? "who joins takes the maker's file" "$tmp/joins.err"
like "$(cat "$tmp/joins.err")" \
	'both: there is no --block-size, so it makes no cache, and these keys of its file count for nothing: ram-blocks, max-peers, quota, block-bytes, device$' \
	"and names what is not for it"
start makes gpcd --config "$conf" --block-size 16
until_ok grep -q 'serving as' "$tmp/makes.err"
ok $? "who makes the cache takes it, too" "$tmp/makes.err"
finish "$joins"
is "$status" 3 "the other one finds a writer"
start stands setsid gpcd --config "$conf" --standby
stands=$pid
until_ok grep -q 'standing by' "$tmp/stands.err"
ok $? "or stands by" "$tmp/stands.err"
sed -i 's/^quota = 7/quota = 8/' "$conf"
kill -HUP "$stands"
until_ok grep -q "SIGHUP: --quota is '8'.*it is for who makes the cache, with --block-size" "$tmp/stands.err"
ok $? "a change of what is not for it says so" "$tmp/stands.err"
kill "$pid" "$stands"
finish "$stands"

done_testing
