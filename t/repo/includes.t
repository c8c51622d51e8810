#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes go one way.  The table of lib/README.md has a row for each
# folder of lib/, from the top to the ground: a file includes headers of its own folder and of
# those that its row names, which all stand below it.  A public function, which a header declares for
# all, is called along the same arrows, and public headers are of halls, too.
# Inside writer/ and table/ the table of its files is such an order, of calls.
# Beside that: who may hold atomics and shared structs, and what stands alone.
# Tests: lib/README.md lib/index/writer/README.md

srcdir=${top_srcdir:-$(dirname "$0")/../..}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-913-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

n=0
empty()	# NAME FILE: nothing in it, else it is the diagnosis
{
	n=$((n + 1))
	if test -s "$2"; then
		echo "not ok $n - $1"
		sed 's/^/# /' "$2"
	else
		echo "ok $n - $1"
	fi
}

# "row folder" and "row folder may" of each row, FILE as lib/README.md
rows()
{
	awk -F'|' -v may="$2" '
	$2 ~ /^ `[a-z]+[\/.]/ {
		gsub(/[` ]|\/`/, "", $2)
		gsub(/\/`|[`,]/, "", $3)
		row++
		if (!may)
			print row, $2
		count = split($3, names, " ")
		for (i = 1; may && i <= count; i++)
			print row, $2, names[i]
	}' "$1"
}

files_here()
{
	find lib kernels -name '*.[ch]' | sort
}

files()
{
	(cd "$srcdir" && files_here)
}

# "path folder header folder-of-header" for each include of ours
includes()
{
	(cd "$srcdir" && files_here | xargs grep '^#[ 	]*include "') |
		sed 's|^\([^:]*\):#[ 	]*include "\(.*\)"|\1 \2|' | awk '$2 != "config.h" {
		from = $1; to = $2
		sub(/^lib\//, "", from)
		if (from !~ /\//) sub(/^.*\//, "", from); else sub(/\/[^\/]*$/, "", from)
		if (to ~ /\//)
			sub(/\/[^\/]*$/, "", to)
		else if (from == "kernels")     # which are compiled alone
			to = from
		print $1, from, $2, to
	}'
}

rows "$srcdir/lib/README.md" "" >"$tmp/rows"
rows "$srcdir/lib/README.md" yes >"$tmp/may"
includes >"$tmp/includes"

# folders, and files beside them, as rows name them: attach.c, serve.c with serve.h
sed 's/\.[ch]$//' "$tmp/rows" | cut -d' ' -f2 | sort >"$tmp/named"
files | sed 's|^lib/||; s|/[^/]*$||; s/\.[ch]$//' | sort -u | grep -v '^gpc\(_[a-z]*\)*$' >"$tmp/present"
diff "$tmp/present" "$tmp/named" | grep '^[<>]' |
	sed 's/^</has no row:/; s/^>/has a row twice, or is not there:/' >"$tmp/out"
empty "every folder of lib/ has a row" "$tmp/out"

awk 'NR == FNR { row[$2] = $1; sub(/\.[ch]$/, "", $2); row[$2] = $1; next }
!($3 in row) { print $2 " may include " $3 ", which has no row" ; next }
row[$3] <= $1 { print $2 " may include " $3 ", which stands above it" }' \
	"$tmp/rows" "$tmp/may" >"$tmp/out"
empty "rows name what stands below them" "$tmp/out"

awk 'BEGIN { split("index bytes tiers look hooks.c", halls, " "); for (i in halls) floor[halls[i]] = i }
{ from = $2; to = $3; sub(/\/.*/, "", from); sub(/\/.*/, "", to) }
to != "kernels" && floor[to] > floor[from] { print $2 " may include " $3 ", of a hall above it" }' \
	"$tmp/may" >"$tmp/out"
empty "arrows between halls go down" "$tmp/out"

cat >"$tmp/allowed.awk" <<'AWK'
function plain(name) { sub(/\.[ch]$/, "", name); return name }
NR == FNR { may[plain($2) " " plain($3)] = 1; next }
plain($2) != plain($4) && $4 !~ /^gpc(_[a-z]*)?\.h$/ && !((plain($2) " " plain($4)) in may) {
	print $1 " has " $3 ": no arrow goes from " $2 " to " $4
}
AWK
awk -f "$tmp/allowed.awk" "$tmp/may" "$tmp/includes" >"$tmp/out"
empty "includes go along the arrows" "$tmp/out"

# ---- public headers ----

# A hall has its own public headers and those of the halls below it.
may="index:gpc.h index:gpc_serve.h
bytes:gpc.h bytes:gpc_serve.h bytes:gpc_bytes.h bytes:gpc_device.h
tiers:gpc.h tiers:gpc_serve.h tiers:gpc_bytes.h tiers:gpc_device.h tiers:gpc_tiers.h tiers:gpc_remote.h
look:gpc.h look:gpc_serve.h look:gpc_bytes.h look:gpc_device.h look:gpc_tiers.h look:gpc_look.h"
# "file header reason": t/repo/exports.t has the functions that are meant
cat >"$tmp/apart" <<'end'
lib/index/claim/claim_here.h gpc_bytes.h has gpc_claim, and fills in struct gpc_claim
lib/index/base/crc.c gpc_bytes.h has gpc_crc32c
lib/index/peer/refuse.c gpc_bytes.h says why a move was refused: struct gpc_move
lib/index/request/pool.c gpc_bytes.h has gpc_pool_make
lib/index/request/move.c gpc_bytes.h has gpc_demote, gpc_promote and gpc_commit
lib/index/request/reserve.c gpc_bytes.h fills in struct gpc_move for them
lib/index/peer/epoch.h gpc_device.h has the sections of gpc_section_enter: how many there are
lib/index/request/durable.c gpc_tiers.h has gpc_tiers_sync
lib/index/request/root.c gpc_look.h has gpc_root_keep
lib/index/reader/events.c gpc_look.h has gpc_event_read
lib/index/table/events.h gpc_look.h writes the kinds of events: GPC_STORED and the others
lib/index/request/returned.c gpc_look.h reads them: GPC_RETURNED
lib/bytes/payload/ask.c gpc_tiers.h has gpc_prefetch
lib/tiers/steward/feed.c gpc_look.h follows the feed: gpc_event_read
end
cat >"$tmp/public.awk" <<'AWK'
BEGIN { count = split(may, pair, /[ \n]+/); for (i = 1; i <= count; i++) { split(pair[i], word, ":"); ok[word[1], word[2]] = 1 } }
FILENAME ~ /apart$/ { if (NF < 4) print $1 " has no reason"; apart[$1, $2] = $1 " needs no " $2; next }
$3 !~ /^gpc(_[a-z]*)?\.h$/ || $1 ~ /^lib\/hooks\.c$/ { next }
($1, $3) in apart { used[$1, $3] = 1; next }
{ split($1, word, "/"); if (!((word[2], $3) in ok)) print $1 " has " $3 ", of a hall above it" }
END { for (i in apart) if (!(i in used) && !one) print apart[i] }
AWK
grep -v '^lib/gpc_' "$tmp/includes" >"$tmp/inside"
awk -v may="$may" -f "$tmp/public.awk" "$tmp/apart" "$tmp/inside" >"$tmp/out"
test "$(grep -c ' gpc[a-z_]*\.h ' "$tmp/inside")" -ge 30 || echo "few were found" >>"$tmp/out"
empty "public headers go along the arrows" "$tmp/out"

for arrow in "index/reader/x.c gpc_bytes.h" "index/base/err.c gpc_look.h" "bytes/payload/x.c gpc_tiers.h" \
		"bytes/mirror/x.h gpc_look.h" "tiers/disk/x.c gpc_look.h" "index/door/x.c gpc_remote.h"; do
	set -- $arrow
	echo "lib/$1 ${1%/*} $2 $2" >"$tmp/one"
	awk -v may="$may" -v one=1 -f "$tmp/public.awk" "$tmp/apart" "$tmp/one" | grep -q . || echo "$1 may have $2"
done >"$tmp/out"
empty "a public header of a hall above is refused" "$tmp/out"

# they include those of halls below, and gpc.h nothing of them
awk '$1 ~ /^lib\/gpc_/ { print $1, $3 }' "$tmp/includes" | sed 's|^lib/||' | sort >"$tmp/one"
cat >"$tmp/two" <<'end'
gpc_bytes.h gpc.h
gpc_device.h gpc.h
gpc_look.h gpc_bytes.h
gpc_look.h gpc_tiers.h
gpc_serve.h gpc.h
gpc_tiers.h gpc.h
end
diff "$tmp/one" "$tmp/two" >"$tmp/out"
empty "public headers include those of halls below" "$tmp/out"

# A public function is declared in its header, but lives in a folder.
(cd "$srcdir" && files_here | grep '\.c$' | xargs grep '^GPC_EXPORT ') |
	sed -n 's/^\([^:]*\):GPC_EXPORT .*[ *]\(gpc_[a-z0-9_]*\)(.*/\2 \1/p' |
	sed 's| lib/| |; s|/[^/ ]*$||' >"$tmp/public"
(cd "$srcdir" && files_here | grep '\.c$' | xargs awk '
FNR == 1 { inside = 0 }
inside { inside = !/\*\//; next }
{
	sub(/\/\*.*\*\//, "")
	gsub(/"[^"]*"/, "")
}
/\/\*/ { inside = 1; next }
/^GPC_EXPORT/ { next }
{
	rest = " " $0
	while (match(rest, /[^A-Za-z0-9_]gpc_[a-z0-9_]*\(/)) {
		print substr(rest, RSTART + 1, RLENGTH - 2), FILENAME
		rest = substr(rest, RSTART + RLENGTH - 1)
	}
}') | sort -u | awk 'NR == FNR { home[$1] = $2; next }
$1 in home {
	from = $2
	sub(/^lib\//, "", from)
	sub(/\/[^\/]*$/, "", from)
	print $2, from, $1 "()", home[$1]
}' "$tmp/public" - >"$tmp/calls"
awk -f "$tmp/allowed.awk" "$tmp/may" "$tmp/calls" >"$tmp/out"
test -s "$tmp/calls" || echo "no public call was found" >>"$tmp/out"
empty "public calls go along the arrows" "$tmp/out"

# ---- inside the writer ----

# "row file" of each row of the table of its files, as lib/index/writer/ has them, without .c and .h
awk -F'|' '
$2 ~ /^ `/ {
	row++
	count = split($2 $3, words, "`")
	for (i = 2; i <= count; i += 2)
		if (words[i] ~ /^(table\/)?[a-z_]+\.[ch]$/) {
			sub(/\.[ch]$/, "", words[i])
			print row, words[i]
		}
}' "$srcdir/lib/index/writer/README.md" >"$tmp/order"
cut -d' ' -f2 "$tmp/order" | sort >"$tmp/named"
files | sed -n 's|^lib/index/writer/\(.*\)\.[ch]$|\1|p; s|^lib/index/\(table/.*\)\.[ch]$|\1|p' |
	sort -u >"$tmp/present"
diff "$tmp/present" "$tmp/named" | grep '^[<>]' |
	sed 's/^</has no row:/; s/^>/has a row twice, or is not there:/' >"$tmp/out"
empty "every file of the writer has a row" "$tmp/out"

# "file function" for each function that is defined here and not static, or in a header, then
# "file function" for each one that is called: FILE... in $1 is lib/index/writer/...
functions()	# define or call
{
	(cd "$srcdir" && files_here | grep '^lib/index/\(writer\|table\)/' | xargs awk -v what="$1" '
		FNR == 1 {
			inside = 0
			text = ""
			header = substr(FILENAME, length(FILENAME))
			file = FILENAME
			sub(/^lib\/index\/(writer\/)?/, "", file)
			sub(/\.[ch]$/, "", file)
		}
		/^#/ { next }
		{
			gsub(/"[^"]*"/, "\"\"")
			gsub(/\/\*([^*]|\*[^\/])*\*\//, "")
			if (inside && !sub(/^.*\*\//, ""))
				next
			inside = sub(/\/\*.*/, "")
		}
		what == "call" {
			rest = $0
			while (match(rest, /[a-z_][a-z_0-9]*\(/)) {
				print file, substr(rest, RSTART, RLENGTH - 1)
				rest = substr(rest, RSTART + RLENGTH)
			}
			next
		}
		/^[a-z]/ { text = "" }
		{ text = text " " $0 }
		/;$/ { text = "" }
		/^{/ {
			if (header == "h" || text !~ /^ static/)
				if (match(text, /[a-z_][a-z_0-9]*\([^(]/)) {
					name = substr(text, RSTART, RLENGTH)
					while (name ~ /^__attribute__/ || name ~ /^always_inline/ || name ~ /^noreturn/) {
						text = substr(text, RSTART + RLENGTH)
						if (!match(text, /[a-z_][a-z_0-9]*\([^(]/))
							break
						name = substr(text, RSTART, RLENGTH)
					}
					sub(/\(.*/, "", name)
					print file, name
				}
			text = ""
		}') | grep -v ' __attribute__$' | sort -u
}
functions define >"$tmp/defined"
functions call >"$tmp/called"

cat >"$tmp/down.awk" <<'AWK'
FILENAME ~ /order$/ { row[$2] = $1; next }
FILENAME ~ /defined$/ { home[$2] = $1; next }
$2 in home && row[home[$2]] < row[$1] {
	print "lib/index/" ($1 ~ /\// ? "" : "writer/") $1 " calls " $2 "() of " home[$2] ", which stands above it"
}
AWK
awk -f "$tmp/down.awk" "$tmp/order" "$tmp/defined" "$tmp/called" >"$tmp/out"
test "$(awk 'NR == FNR { home[$2] = $1; next } $2 in home && home[$2] != $1' \
	"$tmp/defined" "$tmp/called" | wc -l)" -ge 300 || echo "few calls were found" >>"$tmp/out"
empty "calls inside the writer go down" "$tmp/out"

# the test itself: the three that made a circle once
for call in "table/lru retire_block" "table/record claim_key" "table/meter transfer_start"; do
	echo "$call" >"$tmp/one"
	awk -f "$tmp/down.awk" "$tmp/order" "$tmp/defined" "$tmp/one" | grep -q . ||
		echo "$call() is allowed"
done >"$tmp/out"
empty "a call that goes up is refused" "$tmp/out"

# A header of the floor could declare what stands above it, past the includes.
(cd "$srcdir" && grep '^[a-z]' lib/index/table/*.h) |
	sed -n 's/^\([^:]*\):[a-z].*[ *]\([a-z_0-9]*\)(.*/\1 \2/p' | awk 'NR == FNR { home[$2] = $1; next }
$2 in home && home[$2] !~ /^table\// { print $1 " declares " $2 "() of " home[$2] }' \
	"$tmp/defined" - >"$tmp/out"
empty "headers of table/ declare what is defined there" "$tmp/out"

# An arrow that is forbidden is refused: the test would tell.
for arrow in "index/peer index/writer" "index/peer index/door" "index/request index/writer" \
		"index/writer index/request" "index/reader index/request" "index/reader index/writer" \
		"index/writer index/takeover" "index/writer index/reader" "index/table index/writer" \
		"index/table index/takeover" "index/reader index/table" "index/takeover index/reader" \
		"index/segment bytes/device" "index/reader look" "index/door bytes/payload" \
		"bytes/device index/peer" "bytes/payload tiers/steward" "tiers/steward look" \
		"index/base index/segment"; do
	set -- $arrow
	echo "lib/$1/x.c $1 $2/y.h $2" >"$tmp/one"
	awk -f "$tmp/allowed.awk" "$tmp/may" "$tmp/one" | grep -q . || echo "$1 -> $2 is allowed"
done >"$tmp/out"
empty "arrows that must never be are refused" "$tmp/out"

# in one folder headers include no header that includes them
awk '$1 ~ /\.h$/ && $2 == $4 { sub(/^lib\//, "", $1); print $3, $1 }' "$tmp/includes" |
	tsort >/dev/null 2>"$tmp/out"
empty "headers of a folder make no circle" "$tmp/out"

# what is declared outside a header goes round this test
grep -nE '^extern |^	extern ' $(files | sed "s|^|$srcdir/|" | grep '\.c$') >"$tmp/out"
empty "sources declare nothing of other files" "$tmp/out"

(cd "$srcdir" && files_here | grep '\.c$' | xargs awk '
FNR == 1 { n = 0 }
/^#include/ { n++ }
/^#include/ && /config\.h/ && n > 1 { print FILENAME " includes config.h after something else" }') >"$tmp/out"
# or a header that it includes does
(cd "$srcdir" && files_here) | awk 'NR == FNR { has[$1 " " $3] = 1; next }
{ there[$1] = 1; path[++n] = $1 }
END {
	for (i = 1; i <= n; i++) {
		own = path[i]
		if (sub(/\.c$/, ".h", own) && own in there && !(path[i] " " substr(own, 5) in has))
			print path[i], own
	}
}' "$tmp/includes" - | while read -r path own; do
	grep -q "\"${own#lib/}\"" "$srcdir/$path" ||
		grep -qr "\"${own#lib/}\"" $(sed -n "s|^#include \"\(.*\)\"|$srcdir/lib/\1|p" \
			"$srcdir/$path") 2>/dev/null || echo "$path does not include $own"
done >>"$tmp/out"
empty "config.h comes first, and the own header is included" "$tmp/out"

(cd "$srcdir" && files_here | grep '\.h$' >"$tmp/headers"
	xargs grep -L '^#ifndef GPC_[A-Z_]*H$' <"$tmp/headers"
	xargs sed -n 's/^#ifndef \(GPC_[A-Z_]*H\)$/\1/p' <"$tmp/headers" | sort | uniq -d) >"$tmp/out"
empty "headers have guards of their own" "$tmp/out"

files | sed "s|^|$srcdir/|" | grep -v '/lib/index/base/order\.h$' |
	xargs grep -n '__atomic_\|__sync_\|atomic_thread_fence\|_Atomic' >"$tmp/out"
empty "index/base/order.h alone has atomics" "$tmp/out"

files | sed "s|^|$srcdir/|" | grep -v '/lib/index/segment/shm\(_command\|_memo\|_memory\|_meter\|_tiers\)*\.h$' |
	xargs grep -n '^struct shm_[a-z_]* {' >"$tmp/out"
empty "index/segment/shm.h and its parts alone declare shared structs" "$tmp/out"

# not even system headers of a kind: any language, any device can read these
{
	grep -n '^#include' "$srcdir/lib/gpc.h" | grep -v '<stddef\.h>\|<stdint\.h>'
	grep -n '^#include' "$srcdir"/lib/index/segment/shm*.h "$srcdir/kernels/probe.h" |
		grep -v '<stdint\.h>\|/shm\.h:[0-9]*:#include "index/segment/shm_[a-z]*\.h"$'
} >"$tmp/out"
empty "gpc.h, shm.h with its parts, and probe.h stand alone" "$tmp/out"

# a tool has public headers, what tools share, and its own folder
own()	# FOLDER PATTERN [NEVER]: its files include what matches the first, and their own folder
{
	(cd "$srcdir" && find "$1" -name '*.[ch]' -exec grep '^#[ 	]*include "' /dev/null {} +) |
		sed 's|^\([^:]*\):#[ 	]*include "\(.*\)"|\1 \2|' | awk -v may="$2" -v never="${3:-^$}" '{
		split($1, at, "/")
		folder = at[1] "/" at[2] "/"
		if ($2 ~ never || $2 !~ may && substr($2, 1, length(folder)) != folder)
			print $1 " includes " $2
	}'
}
own tools '^gpc(_[a-z]*)?[.]h$|^config[.]h$|^tools/common/' '^gpc_remote[.]h$' >"$tmp/out"
empty "tools use the public headers, and each its own files" "$tmp/out"

# a plugin has gpc_remote.h, its own folder and the library of its store, as those of others do
own plugins '^gpc_remote[.]h$' >"$tmp/out"
empty "plugins use gpc_remote.h, and each its own files" "$tmp/out"

# the Python module has public headers and its own, and no atomics but those that count who is inside
(cd "$srcdir" && grep -n '^#[ 	]*include "' python/src/*.[ch] | grep -v '"gpcpy\.h"\|"part\.h"\|"pages\.h"'
	grep -n '__sync_\|atomic_thread_fence\|_Atomic' python/src/*.[ch]) >"$tmp/out"
empty "the Python module uses the public headers" "$tmp/out"

# A function fits a screen; the labels of a switch are counted for nothing.
(cd "$srcdir" && find lib plugins kernels tools python \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) \
	! -type d -exec awk '
	/^\{/ { from = FNR; cases = 0 }
	/^[ \t]+case / { cases++ }
	/^\}/ {
		if (from && FNR - from - 1 - cases > 60)
			print FILENAME ":" from " has a function of " FNR - from - 1 - cases " lines"
		from = 0
	}' {} +) >"$tmp/out"
empty "no function is longer than 60 lines" "$tmp/out"

echo "1..$n"
