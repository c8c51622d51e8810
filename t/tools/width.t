#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tables and progress fit the terminal, with long names too; what is no terminal gets whole lines.
# Tests: tools/common/output.c tools/common/shown.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

test -x "$helpers/pty" || skip_all "t/sh/pty is not built"
unset COLUMNS

long=a-cache-with-a-name-of-sixty-four-bytes-which-is-the-longest-one
words=a-label-of-thirty-one-bytes-now
trace=$tmp/a-trace-in-a-folder-whose-path-is-much-longer-than-a-terminal-is-wide.jsonl
cp "$small_trace" "$trace"

# What stands in the lines in the end: of what a carriage return begins anew, each part.  Messages are sentences, which
# the terminal breaks.
fits()	# COLUMNS NAME
{
	tr '\r' '\n' <"$tmp/out" | sed "s/$(printf '\033')\[K//g" |
		LC_ALL=C awk -v most="$1" 'length($0) > most && !/^gpc-inspect: / { print length($0) ": " $0 }' >"$tmp/wide"
	test -s "$tmp/out" && ! test -s "$tmp/wide"
	ok $? "$2 at $1 columns" "$tmp/wide"
}

on()	# COLUMNS CMD...: on a terminal so wide
{
	columns=$1
	shift
	run "$helpers/pty" "$columns" "$@"
}

serve $long --block-size 16 --vram-blocks 1000000 --ram-blocks 2000 --device host \
	--layout 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
start held "$helpers/hold" "$shm" $long $words 5 2 3
until_ok grep -q holding "$tmp/held.out" || bail "hold: $(cat "$tmp/held.err")"
printf 'not an index' >"$shm/gpc.broken.idx"

for columns in 80 40; do
	for command in list 'stat '$long 'peers '$long 'ls '$long 'check '$long env; do
		on $columns gpc-inspect --dir "$shm" $command
		exits 0 "gpc-inspect ${command%% *}"
		fits $columns "gpc-inspect ${command%% *}"
	done
	on $columns gpc-replay "$trace" --dir "$shm" --vram-blocks 150 --ram-blocks 100 --workers 2
	exits 0 "gpc-replay"
	fits $columns "gpc-replay"
	grep -q '100 %  *20/20\|%  ' "$tmp/out"
	ok $? "with its progress" "$tmp/out"
	on $columns gpc-bench --quick --rounds 1 --entries 4096 --dir "$shm" ref hash
	exits 0 "gpc-bench"
	fits $columns "gpc-bench"
done

# each value is there, however narrow it is
on 40 gpc-inspect --dir "$shm" peers $long
for title in PEER PID LABEL STATE REFS RESERVED SECTIONS OLDEST 'RING FULL' LOOKUPS \
	'VRAM HITS' 'RAM HITS' MISSES PUBLISHED LEADER; do
	prints "(^|  )$title( |$(printf '\r')|\$)" "peers at 40 columns: $title"
done
prints '^ +1 ' "and the seats, in each part"
on 40 gpc-inspect --dir "$shm" stat $long
is "$(tr -d '\r\n ' <"$tmp/out" | grep -c "layout:00112233445566778899aabbccddeeff0*112233")" 1 \
	"stat at 40 columns: long values are wrapped"
on 80 gpc-inspect --dir "$shm" list
prints '^a-cache-.*\.\.\.  ' "list at 80 columns: long names are cut, and that is to be seen"

# COLUMNS counts where there is a terminal, and there alone
COLUMNS=50
export COLUMNS
on 200 gpc-inspect --dir "$shm" list
fits 50 "COLUMNS"
inspect list
prints "^$long .* served$" "elsewhere nothing is cut: list"
inspect peers $long
prints "$words .* 5 +- *$" "nor in parts: peers"
aligned "but aligned"
run gpc-replay "$trace" --dir "$shm"
prints "^$trace: 1 worker on a cache of its own, 10000 VRAM blocks$" "gpc-replay"

done_testing
