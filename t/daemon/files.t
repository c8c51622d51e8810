#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each file that gpcd opens, and whatever may be there instead of it: a sentence that says what it is.
# Tests: tools/daemon/say.c tools/daemon/tiers.c tools/daemon/tiers_options.c tools/daemon/key.c tools/daemon/process.c
#   tools/daemon/events/publish.c lib/tiers/steward/plan.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

at=$tmp/at
umask 077

make_all()
{
	rm -rf "$at"
	mkdir -p "$at/folder"
	: >"$at/empty"
	ln -s nothing "$at/link"
	mkfifo "$at/fifo"
	echo "of another program" >"$at/other"
	: >"$at/locked"
	chmod 0 "$at/locked"
}

refuses_file()	# REGEX OPTION FILE
{
	make_all
	case $2 in
	events) grep -q '^#define HAVE_EVENTS 1' "$builddir/config.h" || return 0 ;;
	esac
	case $2 in
	disk) set -- "$1" "$2" "$3" --ram-blocks 8 --block-bytes 4k --disk-blocks 4 ;;
	sized) set -- "$1" disk "$3" --ram-blocks 8 --block-bytes 4k ;;
	events) set -- "$1" "$2" "ipc://$3" --vram-blocks 4 ;;
	*) set -- "$1" "$2" "$3" --vram-blocks 4 ;;
	esac
	why=$1 option=$2 file=$3
	shift 3
	refuses 1 "--$option.*$why" gpcd "$cache" --dir "$shm" --block-size 4 "$@" "--$option" "$file"
	is "$(ls "$shm")" '' "and no cache is left"
}

refuses_file 'are 0, and there is nothing in the file .*/empty: one of them must say' sized "$at/empty"
refuses_file 'are 0, and there is no file .*/none: one of them must say' sized "$at/none"
refuses_file 'it has 0 of the 32 hex digits' key-file "$at/empty"
refuses_file 'what is there is no socket' events "$at/empty"

for option in disk key-file pidfile; do
	refuses_file 'is no regular file|it is a folder' $option "$at/folder"
	refuses_file 'is no regular file' $option "$at/fifo"
	refuses_file 'is no regular file' $option /dev/null
	refuses_file 'is a symbolic link: name the file itself' $option "$at/link"
	refuses_file 'cannot be made: its folder does not exist' $option "$at/none/file"
	refuses_file 'is no folder' $option "$at/empty/file"
	test "$(id -u)" = 0 || refuses_file 'cannot be opened: Permission denied' $option "$at/locked"
done
for file in folder fifo link other; do
	refuses_file 'what is there is no socket' events "$at/$file"
done
refuses_file 'cannot be made: its folder does not exist' events "$at/none/file"
refuses_file 'is no folder' events "$at/empty/file"
refuses_file 'no disk file of gpc' disk "$at/other"
refuses_file 'has not the 32 hex digits' key-file "$at/other"

# an empty file is one that is to be made
make_all
start made gpcd "$cache" --dir "$shm" --block-size 4 --ram-blocks 8 --block-bytes 4k --unlink \
	--disk "$at/empty" --disk-blocks 4
until_ok grep -q 'serving as process' "$tmp/made.err"
kill "$pid"
finish "$pid"
is "$status" 0 "an empty file is made"
test -s "$at/empty" && test ! -e "$at/empty.bad"
ok $? "at its name, and nothing is set aside"

done_testing
