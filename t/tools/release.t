#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect release: the process of a seat is killed, and no other one, whatever the seat says; what it held is free.
# Tests: tools/inspect/release.c lib/look/stats.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

PYTHON=$(command -v python3) || skip_all "there is no python3"

holds()	# LABEL [FIRST]: a worker, $worker, on seat $peer
{
	start "$1" "$helpers/hold" "$shm" one "$1" 3 2 0 "${2:-1}"
	worker=$pid
	until_ok grep -q holding "$tmp/$1.out" || bail "hold: $(cat "$tmp/$1.err")"
	peer=$(gpc-inspect --dir "$shm" peers one | awk -v pid="$worker" '$2 == pid { print $1 }')
}

held()	# references and reserved blocks of all
{
	gpc-inspect --dir "$shm" --json stat one >"$tmp/out"
	value stats/refs stats/reserved | paste -sd' '
}

lives()	# PID NAME
{
	! is_gone "$1"
	ok $? "$2"
}

lie()	# LABEL OFFSET FORMAT VALUE: that field of the seat, counted from the label
{
	"$PYTHON" -c '
import struct, sys
path, label, offset, form, value = sys.argv[1:]
with open(path, "r+b") as f:
    at = f.read().index(label.encode() + bytes(32 - len(label))) + int(offset)
    f.seek(at)
    print(struct.unpack(form, f.read(struct.calcsize(form)))[0])
    f.seek(at)
    f.write(struct.pack(form, int(value)))' "$shm/gpc.one.ctl" "$@"
}

# ---- mistakes ----

refuses 2 'release: NAME is missing' gpc-inspect --dir "$shm" release --peer 1
refuses 2 "release: --peer is missing: 'gpc-inspect peers one' shows which" gpc-inspect --dir "$shm" release one
refuses 2 '--peer: 250 is out of range \(0 to 249\)' gpc-inspect --dir "$shm" release one --peer 250
refuses 2 '--yes is an option of release' gpc-inspect --dir "$shm" rm one --yes
refuses 1 'absent' gpc-inspect --dir "$shm" release absent --peer 1
serve one --block-size 16 --vram-blocks 64 --max-peers 8
writer=$pid
refuses 1 'peer is 7: nobody has that seat' gpc-inspect --dir "$shm" release one --peer 7 --yes
refuses 1 'peer is 8: it must be' gpc-inspect --dir "$shm" release one --peer 8 --yes

# ---- one that hangs ----

holds hung
is "$(held)" '3 2' "it holds five blocks"
stop_process "$worker"
refuses 2 "process $worker is killed by --yes, or by an answer on a terminal" \
	gpc-inspect --dir "$shm" release one --peer "$peer" </dev/null
lives "$worker" "it lives"
inspect release one --peer "$peer" --yes --deadline 60000
is "$status $(cat "$tmp/out")" "0 one: process $worker (hung) has exited, and seat $peer is clear" "--yes"
finish "$worker"
is "$status" 137 "it was killed"
is "$(held)" '0 0' "and holds nothing"
refuses 1 'nobody has that seat' gpc-inspect --dir "$shm" release one --peer "$peer" --yes
holds json 11
inspect --json release one --peer "$peer" --yes --deadline 60000
is "$status $(values name peer pid label refs reserved)" "0 one $peer $worker json 3 2" "as JSON"
finish "$worker"

# ---- the question ----

holds asked 21
mkfifo "$tmp/keys"
answer()	# TEXT: $status, and what stands on the terminal in $tmp/terminal
{
	GPC_T_KEYS=$tmp/keys "$helpers/pty" 200 gpc-inspect --dir "$shm" release one --peer "$peer" --deadline 60000 \
		>"$tmp/terminal" 2>&1 &
	pty=$!
	exec 9>"$tmp/keys"
	until_ok grep -q 'y/N' "$tmp/terminal"
	printf '%s\n' "$1" >&9
	finish "$pty"
	exec 9>&-
}
answer n
is "$status" 1 "n"
lives "$worker" "it lives"
grep -q "process $worker (asked) has seat $peer; it holds 3 references and 2 reserved blocks, and all its work is lost" "$tmp/terminal"
ok $? "the question says what is lost" "$tmp/terminal"
answer ''
is "$status" 1 "nothing is no"
lives "$worker" "it lives"
answer yes
is "$status" 0 "yes"
finish "$worker"
is "$status" 137 "it was killed"

# ---- seats that lie ----

holds liar 31
before=$(lie liar -16 Q 1)
refuses 1 "process $worker has another start time than that of the seat: it is another one; nothing was done" \
	gpc-inspect --dir "$shm" release one --peer "$peer" --yes
lie liar -16 Q "$before" >"$tmp/unused"
start other sleep 100
other=$pid
lie liar -24 i "$other" >"$tmp/unused"
refuses 1 "process $other has another start time" gpc-inspect --dir "$shm" release one --peer "$peer" --yes
lie liar -16 Q "$(sed 's/.*) //' "/proc/$other/stat" | cut -d' ' -f20)" >"$tmp/unused"
refuses 1 "process $other has not this cache open, whatever its seat says; nothing was done" \
	gpc-inspect --dir "$shm" release one --peer "$peer" --yes
lives "$other" "another process lives"
lie liar -16 Q "$before" >"$tmp/unused"
lie liar -24 i "$worker" >"$tmp/unused"
namespaces=$(lie liar -8 I 1)
refuses 1 "process $worker is in another PID namespace: run gpc-inspect there; nothing was done" \
	gpc-inspect --dir "$shm" release one --peer "$peer" --yes
lie liar -8 I "$namespaces" >"$tmp/unused"
lives "$worker" "the liar lives"
kill "$other"
finish "$other"

# ---- nobody who clears its seat ----

stop_process "$writer"
refuses 1 "process $worker has exited, and seat $peer is not clear yet; its writer may be stopped" \
	gpc-inspect --dir "$shm" release one --peer "$peer" --yes --deadline 5000
refuses 1 "process $worker is dead or has left; 'gpc-inspect reap one' clears its seat" \
	gpc-inspect --dir "$shm" release one --peer "$peer" --yes
finish "$worker"
kill -CONT "$writer"
GPC_T_LIFE=yes
export GPC_T_LIFE
holds leader 41
leader=$worker leads=$peer
GPC_T_LEADER=$(sed -n 's/^life //p' "$tmp/leader.out")
export GPC_T_LEADER
holds companion 51
unset GPC_T_LEADER GPC_T_LIFE
refuses 1 "process $leader has exited, and seat $leads is kept until its companions end" \
	gpc-inspect --dir "$shm" release one --peer "$leads" --yes --deadline 5000
finish "$leader"
kill -9 "$writer"
until_ok is_gone "$writer"
refuses 1 "process $worker has exited, and seat $peer is not clear, as there is no writer" \
	gpc-inspect --dir "$shm" release one --peer "$peer" --yes --deadline 5000
finish "$worker"
inspect reap one
exits 0 "which reap does"
inspect check one
exits 0 "the cache is sound"

done_testing
