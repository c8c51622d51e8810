#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A cache of the release before, or after: it is refused with a sentence that says which of the two
# is newer, no byte of it changes, and it can be listed and removed.
# Tests: lib/index/segment/validate.c lib/index/segment/shm.h
. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

sums()
{
	(cd "$shm" && sha256sum gpc.other.* && stat -c '%n %s %Y %Z' gpc.other.*)
}

others()	# VERSION SENTENCE
{
	serve other --block-size 16 --vram-blocks 64
	kill "$pid"
	until_ok is_gone "$pid"
	"$helpers/relayout" "$shm" other "$1" || bail "no layout $1"
	sums >"$tmp/before"
	refuses 1 "$2" gpcd other --dir "$shm"
	refuses 1 "$2" gpcd other --dir "$shm" --standby
	refuses 1 "$2" gpcd other --dir "$shm" --block-size 16 --vram-blocks 64
	refuses 1 "$2" gpc-inspect --dir "$shm" stat other
	refuses 1 "$2" gpc-inspect --dir "$shm" peers other
	refuses 1 "$2" gpc-inspect --dir "$shm" reap other
	inspect check other
	exits 3 "check cannot open it"
	says "$2.*processes and remove it with gpc-inspect --dir $shm rm other$" "and says so"
	inspect list
	exits 0 "list goes on"
	prints '^other  .*  other layout$' "and shows the state in a word"
	says "^gpc-inspect: other: $2" "and why it cannot tell more, behind the table"
	is "$(grep -c . "$tmp/out")" 2 "in one line of the table"
	aligned "which has its columns"
	inspect --json list
	is "$(value 0/state)" 'other layout' "so has its JSON"
	like "$(value 0/refused)" "^$2" "with the sentence"
	sums | cmp -s - "$tmp/before"
	ok $? "layout $1: no byte has changed, nor a time"
	inspect rm other
	exits 0 "it can be removed"
	is "$(ls "$shm")" "" "altogether"
}

others 1 "cache other was made by gpc 0\.1 \(layout 1\); this library is newer \(layout 8\): end its "
others 9 "cache other was made by a newer gpc \(layout 9\); this library is older \(layout 8\): use "

# ---- in use by others ----

serve other --block-size 16 --vram-blocks 64
"$helpers/relayout" "$shm" other 1
inspect rm other
exits 1 "one that its own processes use stays"
says 'other is in use' "and is said to be in use"
kill "$pid"
until_ok is_gone "$pid"
inspect rm --stale
prints '^removed other$' "once they are gone it can be swept"

# ---- damage ----

serve other --block-size 16 --vram-blocks 64
kill "$pid"
until_ok is_gone "$pid"
"$helpers/relayout" "$shm" other 1 damaged
refuses 1 "checksum|damaged" gpc-inspect --dir "$shm" stat other
"$helpers/relayout" "$shm" other 4711
refuses 1 "header is damaged" gpc-inspect --dir "$shm" stat other

done_testing
