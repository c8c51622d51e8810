#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd --disk starts with a file that was cut off or damaged: it is set aside, and the log has both names.  With
# --disk-strict it is refused; so is a file of another program.
# Tests: tools/daemon/tiers.c lib/tiers/disk/aside.c lib/tiers/steward/plan.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

make='--block-size 16 --ram-blocks 64 --block-bytes 4k --max-peers 8'

once()	# LABEL OPTION...: a cache made anew, from start to end
{
	label=$1
	shift
	# shellcheck disable=SC2086
	start "$label" gpcd aside --dir "$shm" $make --unlink --disk "$tmp/file" "$@"
	until_ok grep -q 'serving as process' "$tmp/$label.err" || diag "$(cat "$tmp/$label.err")"
	kill "$pid"
	finish "$pid"
}

tells()	# LABEL REGEX NAME
{
	grep -Eq "$2" "$tmp/$1.err"
	ok $? "$3" || diag "$(cat "$tmp/$1.err")"
}

once first --disk-blocks 100
bytes=$(wc -c <"$tmp/file")
truncate -s 100000 "$tmp/file"
# shellcheck disable=SC2086
refuses 1 'was cut off' gpcd aside --dir "$shm" $make --disk "$tmp/file" --disk-strict
is "$(wc -c <"$tmp/file")" 100000 "and it is as it was"
test ! -e "$tmp/file.bad"
ok $? "and where it was"
run gpc-inspect --dir "$shm" rm aside

once cut
tells cut "aside: .*/file was cut off: it is .*/file.bad now" "a file that was cut off is set aside"
is "$(wc -c <"$tmp/file") $(wc -c <"$tmp/file.bad")" "$bytes 100000" "and the new one is as large as it was"

dd if=/dev/zero of="$tmp/file" bs=1 seek=24 count=4000 conv=notrunc status=none
dd if=/dev/zero of="$tmp/file" bs=1 seek=65560 count=4000 conv=notrunc status=none
# shellcheck disable=SC2086
{
refuses 1 'both superblocks' gpcd aside --dir "$shm" $make --disk "$tmp/file" --disk-blocks 100 --disk-strict
refuses 1 'a new one is needed for the damaged file .*/file: one of them must say how large' \
	gpcd aside --dir "$shm" $make --disk "$tmp/file"
}
once damaged --disk-blocks 100
tells damaged "/file has no superblock that is sound: it is .*/file.bad.1 now" "one without superblocks is, too"

echo "of another program" >"$tmp/file"
chmod 600 "$tmp/file"
# shellcheck disable=SC2086
refuses 1 'no disk file of gpc' gpcd aside --dir "$shm" $make --disk "$tmp/file" --disk-blocks 100
is "$(cat "$tmp/file")" "of another program" "and it is as it was"
refuses 2 '--disk-strict: --disk is missing' gpcd aside --dir "$shm" --block-size 16 --disk-strict

done_testing
