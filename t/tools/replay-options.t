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

column()	# OPTION NUMBER: its words
{
	echo "$table" | awk -v option="$1" -v n="$2" '$1 == option && $n != "-" { gsub(",", " ", $n); print $n }'
}

closure()	# OPTION...: they and all that they need
{
	for option; do
		echo "$option"
		closure $(column "$option" 3)
	done | sort -u
}

excluded()	# OPTION...: do two of them exclude each other?
{
	for option; do
		for other in $(column "$option" 4); do
			case " $* " in
			*" $other "*) return 0 ;;
			esac
		done
	done
	return 1
}

complete()	# OPTION...: is all there that they need?
{
	for option; do
		for other in $(column "$option" 3); do
			case " $* " in
			*" $other "*) ;;
			*) return 1 ;;
			esac
		done
	done
}

judge()	# OPTION...: into $wrong
{
	args=
	for option; do
		args="$args --$option $(column "$option" 2)"
	done
	run gpc-replay /dev/null $args
	if excluded "$@"; then
		want='2 --[a-z-]* and --[a-z-]* exclude each other: .'
	elif complete "$@"; then
		want='1 /dev/null: there are no requests'
	else
		want='2 --[a-z-]*: give --[a-z-]*.*, too$'
	fi
	tried=$((tried + 1))
	test "$status" -eq "${want%% *}" && head -n 1 "$tmp/err" | grep -q -e "^gpc-replay: ${want#* }" && return
	wrong="$wrong
gpc-replay$args: $status, $(head -n 1 "$tmp/err")"
}

refuses 2 "--device and --plot exclude|--plot and --device exclude" gpc-replay /dev/null --plot x --device none
refuses 2 "--fetch: give --payload and --device, too" gpc-replay /dev/null --fetch --payload 4k --device none
refuses 2 "--disk-blocks: give --payload, --device and --ram-blocks, too" gpc-replay /dev/null --disk-blocks 9 \
	--ram-blocks 0
refuses 1 "no requests" gpc-replay /dev/null --kill 0 --restart 0 --disk-blocks 0

# gpc-replay names the options of --help and of no more
is "$(gpc-replay --help | grep -o '^ *--[a-z-]*' | tr -d ' -' | sort | paste -sd' ' -)" \
	"$(echo "$table" | awk '{ print $1 }' | tr -d - | sort | paste -sd' ' -)" "the table has all options"

options=$(echo "$table" | awk '{ print $1 }')
for one in $options; do
	tried=0
	wrong=
	all=$(closure "$one")
	judge $all
	for other in $all; do
		judge $(echo "$all" | grep -v -x -e "$other")
	done
	for other in $options; do
		judge "$one" "$other"
		judge $(closure "$one" "$other")
	done
	test -z "$wrong"
	ok $? "--$one: $tried command lines" || diag "$wrong"
done

done_testing
