#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which options of gpc-replay go with which: each option with all that it needs, without each of these, and with each
# other option.  Where they go together, an empty trace is read, and refused.
# Tests: tools/replay/legal.c tools/replay/options.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# option, its value, what it needs, what it excludes
table='workers 3 - -
vram-blocks 9 - -
ram-blocks 9 - -
block-tokens 8 - -
payload 4k - -
pieces 4 payload,device name
name some - -
dir /tmp - -
device host - -
fetch - payload,device name
kill 2 fetch name
disk-blocks 10 payload,device,ram-blocks name,fetch,kill
disk /nowhere/file disk-blocks name,fetch,kill
restart 2 disk-blocks name,fetch,kill
plot /nowhere/plot.svg - name,device,fetch,vram-blocks,ram-blocks,payload,pieces,kill,disk-blocks,disk,restart
sticky session - -
concurrency 4 - -
json - - -'

# The command lines of an option, one a line: what it says, a tab, and the options with their values.  Alone with all
# that it needs, without each of these, and with each other option, with all that both need or without.
lines()	# OPTION
{
	echo "$table" | awk -v one="$1" '
	function closure(option, set,  i, n, list) {
		if (option in set)
			return
		set[option] = 1
		n = split(needs[option], list, ",")
		for (i = 1; i <= n; i++)
			closure(list[i], set)
	}
	# do two of them exclude each other?  are all there that they need?
	function is_there(set, what, all,  o, i, n, list) {
		for (o in set) {
			n = split(what[o], list, ",")
			for (i = 1; i <= n; i++)
				if ((list[i] in set) != all)
					return 1
		}
		return 0
	}
	function judge(set,  k, args, want) {
		for (k = 1; k <= count; k++)
			if (order[k] in set)
				args = args " --" order[k] (value[order[k]] == "-" ? "" : " " value[order[k]])
		if (is_there(set, excludes, 0))
			want = "2 --[a-z-]* and --[a-z-]* exclude each other: ."
		else if (!is_there(set, needs, 1))
			want = "1 /dev/null: there are no requests"
		else
			want = "2 --[a-z-]*: give --[a-z-]*.*, too$"
		print want "\t" args
	}
	{
		order[++count] = $1
		value[$1] = $2
		if ($3 != "-")
			needs[$1] = $3
		if ($4 != "-")
			excludes[$1] = $4
	}
	END {
		closure(one, all)
		judge(all)
		for (o in all) {
			delete some
			for (p in all)
				if (p != o)
					some[p] = 1
			judge(some)
		}
		for (k = 1; k <= count; k++) {
			delete some
			some[one] = some[order[k]] = 1
			judge(some)
			delete some
			closure(one, some)
			closure(order[k], some)
			judge(some)
		}
	}'
}

refuses 2 "--device and --plot exclude|--plot and --device exclude" gpc-replay /dev/null --plot x --device none
refuses 2 "--fetch: give --payload and --device, too" gpc-replay /dev/null --fetch --payload 4k --device none
refuses 2 "--disk-blocks: give --payload, --device and --ram-blocks, too" gpc-replay /dev/null --disk-blocks 9 \
	--ram-blocks 0
refuses 1 "no requests" gpc-replay /dev/null --kill 0 --restart 0 --disk-blocks 0

# gpc-replay names the options of --help and of no more
is "$(gpc-replay --help | grep -o '^ *--[a-z-]*' | tr -d ' -' | sort | paste -sd' ' -)" \
	"$(echo "$table" | awk '{ print $1 }' | tr -d - | sort | paste -sd' ' -)" "the table has all options"

tab=$(printf '\t')
options=$(echo "$table" | awk '{ print $1 }')
for one in $options; do
	lines "$one" | sort -u >"$tmp/lines"
	while IFS=$tab read -r want args; do
		run gpc-replay /dev/null $args
		test "$status" -eq "${want%% *}" && head -n 1 "$tmp/err" | grep -q -e "^gpc-replay: ${want#* }" ||
			echo "gpc-replay $args: $status, $(head -n 1 "$tmp/err")"
	done <"$tmp/lines" >"$tmp/wrong"
	test "$(wc -l <"$tmp/lines")" -gt 20 && test ! -s "$tmp/wrong"
	ok $? "--$one: $(wc -l <"$tmp/lines") command lines" "$tmp/wrong"
done

done_testing
