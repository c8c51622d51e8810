#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names of files, labels, devices and traces from elsewhere: in JSON they are what they are, a
# terminal gets them with escapes, and what gpc makes itself has no such names.
# Tests: lib/index/base/text.c tools/common/output.c tools/common/shown.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

esc=$(printf '\033')
clear="a$esc[2Jb"                       # would clear the screen
latin=$(printf 'caf\351')               # no UTF-8
utf8=$(printf 'caf\303\251')
c1=$(printf 'c1\302\2332J')             # a control character of two bytes
bidi=$(printf 'x\342\200\256y')         # turns what follows round

ascii()	# NAME: the last command has printed nothing but ASCII that prints
{
	! cat "$tmp/out" "$tmp/err" | tr -d '\n' | LC_ALL=C grep -q '[^ -~]'
	ok $? "$1" "$tmp/out"
}

# ---- what is not taken ----

for name in "$clear" "$latin" "$c1"; do
	run gpcd "$name" --dir "$shm" --block-size 16 --vram-blocks 8
	exits 2 "gpcd does not make a cache with such a name"
	says '^gpcd: .*name .*\\x(1b|e9|c2).* byte [0-9]' "and says which byte of it"
	ascii "in plain text"
done
is "$(ls "$shm")" '' "nothing was made"
run "$helpers/hold" "$shm" nobody "lab${esc}el" 0 0 0
exits 1 "nor is a label with a control character taken"
says 'label .*byte 4' "which is said"
ascii "in plain text"

# ---- a name in UTF-8 ----

serve "$utf8" --block-size 16 --vram-blocks 8 --device host
inspect list
prints '^caf\\u00e9 ' "a terminal of ASCII gets the number of a character"
ascii "and no other byte"
run env LC_ALL=C.UTF-8 gpc-inspect --dir "$shm" list
if locale -a 2>/dev/null | grep -qi '^C\.utf-\?8$'; then
	prints "^$utf8 " "one of UTF-8 gets the character"
	is "$(awk '{ print index($0, "TOKENS") }' "$tmp/out" | head -n 1)" 7 \
		"which takes one column"
else
	skip 2 "there is no locale C.UTF-8"
fi
inspect --json list
is "$(value 0/name)" "$utf8" "in JSON it is what it is"
ascii "written in ASCII"

# ---- files of others in the folder ----

for name in "$clear" "$latin" "$c1" "$bidi" 'back\slash'; do
	: >"$shm/gpc.$name.idx"
done
inspect list
exits 0 "list"
ascii "shows them in plain text"
for text in 'a\\x1b\[2Jb' 'caf\\xe9' 'c1\\u009b2J' 'x\\u202ey' 'back\\slash'; do
	prints "^$text " "with the bytes to be seen: $text"
done
inspect --json list
exits 0 "list --json"
ascii "is ASCII"
is "$(value '*/name' | sed 's/^[^ ]* //' | grep -cxF -e "$clear" -e "$c1" -e "$bidi" \
	-e 'back\slash' -e 'caf\xe9')" 5 "and has the names; what is no UTF-8 as \\xNN"
run env LC_ALL=C.UTF-8 gpc-inspect --dir "$shm" list
! tr -d '\n' <"$tmp/out" | grep -q "$esc" && ! grep -qF "$bidi" "$tmp/out"
ok $? "a terminal of UTF-8 gets no control character, and none that hides"
inspect stat "$clear"
exits 1 "stat of such a file"
ascii "names it in plain text"
inspect rm "$latin"
exits 0 "what is no UTF-8 can be removed"
prints 'removed caf\\xe9' "and is named"
ascii "in plain text"
rm -f "$shm"/gpc.*.idx.tmp "$shm/gpc.$clear.idx" "$shm/gpc.$c1.idx" "$shm/gpc.$bidi.idx" \
	"$shm/gpc.back"*

# ---- what a process writes into the segment ----

serve crew --block-size 16 --vram-blocks 8 --device host
server=$pid
start holder "$helpers/hold" "$shm" crew evil_label 0 1 0
until_ok grep -q holding "$tmp/holder.out" || bail "hold: $(cat "$tmp/holder.err")"
relabel crew evil_label 'e\033[2J\302\233l\351\n'
at=$(grep -abo -F host "$shm/gpc.crew.idx" | sed -n '2s/:.*//p')
printf 'h\033[m' | dd of="$shm/gpc.crew.idx" bs=1 seek="$at" conv=notrunc 2>/dev/null
for command in peers stat check; do
	inspect $command crew
	! cat "$tmp/out" "$tmp/err" | grep -q "$esc"
	ok $? "$command: no escape sequence" "$tmp/out"
	ascii "$command: plain text"
	inspect --json $command crew
	ascii "$command --json: ASCII"
	value '' >"$tmp/value"
	ok $? "$command --json: JSON"
done
inspect peers crew
prints 'e\\x1b\[2J\\u009bl\\xe9\\x0a' "the label, byte by byte"
prints '^h\\x1b\[m ' "the device of a mirror"

# ---- a trace, and what is said of it ----

cp "$small_trace" "$tmp/$clear"
run gpc-replay "$tmp/$clear" --dir "$shm"
exits 0 "a trace with such a name"
prints "a\\\\x1b\[2Jb: 1 worker" "is named in plain text"
ascii "all through"
run gpc-replay "$tmp/$clear" --dir "$shm" --json
is "$(value trace)" "$tmp/$clear" "and in JSON as it is"
run gpc-replay "$tmp/no$latin" --dir "$shm"
exits 1 "one that is not there"
says 'nocaf\\xe9' "has its bytes shown, too"

# ---- a log ----

kill -9 "$pid" "$server"
until_ok is_gone "$server"
until_ok is_gone "$pid"
start logged gpcd crew --dir "$shm"
logger=$pid
until_ok grep -q serving "$tmp/logged.err" || bail "gpcd: $(cat "$tmp/logged.err")"
kill "$logger"
finish "$logger"
grep -q 'e\\x1b\[2J' "$tmp/logged.err" && ! tr -d '\n' <"$tmp/logged.err" | LC_ALL=C grep -q '[^ -~]'
ok $? "a log of the label of a dead peer is plain" "$tmp/logged.err"

done_testing
