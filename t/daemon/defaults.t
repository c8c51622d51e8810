#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The default of each option: what --help says, the page says, and what is so.
# Tests: man/ tools/daemon/options.c tools/replay/options.c tools/common/cli.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# "--option default", of those that have one; an option's text may have several lines
of_help()
{
	awk '
	function flush()
	{
		if (match(text, /\(default [^)]*\)/))
			print option, substr(text, RSTART + 9, RLENGTH - 10)
		option = text = ""
	}
	/^  -/ { flush(); option = $1 }
	/^[^ ]/ || /^$/ { flush() }
	option { sub(/^ +/, ""); text = text " " $0 }
	END { flush() }' "$1" | sed 's/^-h,.*//' | sort
}

of_page()
{
	awk '
	/^\.(It|El|Ss|Sh)/ { option = "" }
	/^\.It Fl -/ { option = "-" $3 }
	option && /^Default: .*\.$/ { print option, substr($0, 10, length($0) - 10) }' "$1" | sort
}

for page in gpcd.8 gpc-replay.1 gpc-bench.1 gpc-inspect.1; do
	tool=${page%.*}
	run $tool --help
	exits 0 "$tool --help"
	awk 'length($0) > 80' "$tmp/out" >"$tmp/wide"
	test ! -s "$tmp/wide"
	ok $? "on 80 columns" "$tmp/wide"
	of_help "$tmp/out" >"$tmp/help"
	of_page "$srcdir/man/$page" >"$tmp/page"
	diff "$tmp/help" "$tmp/page" >"$tmp/diff" && grep -q '^--dir /dev/shm$' "$tmp/help"
	ok $? "$tool: the page has the same defaults" "$tmp/diff"
done

default()	# TOOL OPTION
{
	"$1" --help >"$tmp/text"
	of_help "$tmp/text" | sed -n "s/^$2 //p"
}

# ---- and it is so ----

serve plain --block-size 16
inspect --json stat plain
is "$(value max_peers)" "$(default gpcd --max-peers)" "--max-peers"
is "$(value max_pools)" "$(default gpcd --max-pools)" "--max-pools"
is "$(value max_blocks)" 65536 "--max-blocks, without pools"
like "$(default gpcd --max-blocks)" 'else 64k$' "as it says"
is "$(value pools)" '[0]' "--vram-blocks, --ram-blocks: none"
is "$(default gpcd --vram-blocks) $(default gpcd --ram-blocks)" '0 0' "as it says"
is "$(value devices)" "$(default gpcd --device)" "--device"
is "$(value tick_us)" "$(default gpcd --tick)000" "--tick"
is "$(value free_target)" "$(default gpcd --free-target)" "--free-target"
is "$(value keeps)" '[0]' "--keep-tokens, --keep-digests"
is "$(value max_aliases)" 8193 "--max-aliases, an eighth of --max-blocks, in buckets of three"
is "$(stat -c 0%a "$shm/gpc.plain.idx")" "$(default gpcd --mode | sed 's/,.*//')" "--mode"
serve pools --block-size 16 --vram-blocks 8 --ram-blocks 4
inspect --json stat pools
is "$(value max_blocks)" 76 "--max-blocks, with pools and their transit slots"

run gpc-replay "$small_trace" --dir "$shm" --json
is "$(value workers)" "$(default gpc-replay --workers)" "gpc-replay --workers"
is "$(value vram_blocks)" "$(default gpc-replay --vram-blocks)" "gpc-replay --vram-blocks"
is "$(value ram_blocks)" "$(default gpc-replay --ram-blocks)" "gpc-replay --ram-blocks"
is "$(value payload_bytes)" "$(default gpc-replay --payload)" "gpc-replay --payload"
is "$(value on_device) $(default gpc-replay --device)" '0 none' "gpc-replay --device"

done_testing
