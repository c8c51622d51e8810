#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect command: what it prints makes the cache again: made, printed, removed, made so, and stat shows the same.
# Tests: tools/inspect/command.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

refuses 2 '--config is an option of command' gpc-inspect --dir "$shm" stat --config
refuses 2 'either --config or --json' gpc-inspect --dir "$shm" command --config --json
refuses 1 'absent' gpc-inspect --dir "$shm" command absent

# Without the fields that no two caches share: times, pids, numbers of memory, its file.
shape()	# NAME
{
	gpc-inspect --dir "$shm" --json stat "$1" | grep -v '"created"\|"writer_since"\|"writer_pid"\|"file"\|"tick"\|"at"\|"commands"\|generation"' |
		sed 's/"huge_bytes": [0-9]*/"huge_bytes": N/' && stat -c '%a %g' "$shm/gpc.$1.idx"
	gpc-inspect --dir "$shm" --json command "$1"
}

ends()	# NAME: that cache
{
	kill "$(cat "$tmp/$1.pid")"
	until_ok gpc-inspect --dir "$shm" rm "$1"
}

round()	# NAME OPTION...
{
	name=$1
	serve "$@"
	shape "$name" >"$tmp/before" 2>"$tmp/err"
	is "$(cat "$tmp/err")" '' "$name: nothing is left out"
	gpc-inspect --dir "$shm" command "$name" >"$tmp/line" || bail "command"
	gpc-inspect --dir "$shm" command --config "$name" >"$tmp/file" || bail "command --config"
	ends "$name"
	# as a shell reads it
	sh -c "$(cat "$tmp/line") --daemonize --quiet --pidfile \"\$0\"" "$tmp/$name.pid" >"$tmp/out" 2>&1
	ok $? "$name: the command line is taken" "$tmp/out"
	shape "$name" >"$tmp/after"
	diff "$tmp/before" "$tmp/after" >"$tmp/diff"
	ok $? "$name: the cache is the same" "$tmp/diff"
	ends "$name"
	if gpcd --help | grep -q -e '--config'; then
		run gpcd --config "$tmp/file" --daemonize --quiet --pidfile "$tmp/$name.pid"
		exits 0 "$name: the file is taken"
		shape "$name" >"$tmp/after"
		diff "$tmp/before" "$tmp/after" >"$tmp/diff"
		ok $? "$name: the cache is the same" "$tmp/diff"
		ends "$name"
	else
		skip 2 "this gpcd has no --config"
	fi
}

round plain --block-size 16
round one --block-size 32 --vram-blocks 100
round two --block-size 1 --vram-blocks 64 --ram-blocks 128 --tick exact --free-target 0 --max-aliases 0 --max-peers 5
round ram --block-size 16 --ram-blocks 64 --block-bytes 4099 --ram-space 3 --unchained --numa interleave --keep-tokens \
	--max-blocks 1000 --max-aliases 100 --quota 17
round parts --block-size 16 --ram-blocks 20 --block-bytes 12k --sums 3
round all --block-size 16 --vram-blocks 64 --ram-blocks 8 --block-bytes 4k --device host --layout 00ff10 --keep-digests \
	--keep-tokens --quarantine 77 --tick 250 --free-target 9 --max-pools 3 --mode 0640 --group "$(id -g)"
round "it's a name" --block-size 16

# ---- what it cannot have ----

serve more --block-size 16 --ram-blocks 64 --block-bytes 4k --disk "$tmp/disk" --disk-blocks 256 --max-blocks 1k
start keeper gpcd more --dir "$shm" --keep --device host --vram-blocks 8 --block-bytes 4k --space 1
keeper=$pid
until_ok sh -c "gpc-inspect --dir '$shm' command more 2>&1 | grep -q 'of 8 blocks'"
inspect command more
exits 0 "a cache with more than gpcd makes"
says '^gpc-inspect: more: pool [0-9]+, of 8 blocks, was made by another process' "the keeper's pool"
says '^gpc-inspect: more: the cache has a tier on disk \(--disk\): its options are those of the process that keeps it$' "the tier"
inspect --json command more
is "$(value notes) $(value command/0)" '[2] gpcd' "as JSON"
inspect command --config more
prints '^\[gpc\]$' "a file"
prints '^ram-blocks = 64$' "with its options"
kill "$keeper"
finish "$keeper"

serve 'a;b' --block-size 16
refuses 1 '--config: the name, or the folder, has what a line of a configuration file cannot have' \
	gpc-inspect --dir "$shm" command --config 'a;b'

done_testing
