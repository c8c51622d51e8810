#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd --key-file: gpcd is killed at each step of making it, and the next one starts; several make one at a time;
# what an empty file, or a part of a key, is told; another one makes key file, cache and disk behind the look for the first.
# Tests: tools/daemon/key.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

libs=$builddir/lib/.libs
! grep -q '__[atu]b*san_' "$libs/libgpc.so" || skip_all "a sanitizer wants its own programs"

cat >"$tmp/dies.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void step(const char *path)	/* SIGKILL before step DIES_AT with a file of that name */
{
	const char *name = getenv("DIES_FILE"), *at = getenv("DIES_AT");
	static int n;

	if (name && at && !strncmp(path, name, strlen(name)) && ++n == atoi(at))
		kill(getpid(), SIGKILL);
}

static void step_fd(int fd)
{
	char at[64], path[PATH_MAX] = "";

	snprintf(at, sizeof(at), "/proc/self/fd/%d", fd);
	if (readlink(at, path, sizeof(path) - 1) > 0)
		step(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *p, size_t n)
{
	step_fd(fd);
	return REAL(write)(fd, p, n);
}

int fsync(int fd)
{
	step_fd(fd);
	return REAL(fsync)(fd);
}

int link(const char *from, const char *to)
{
	step(from);
	return REAL(link)(from, to);
}

int unlink(const char *path)
{
	step(path);
	return REAL(unlink)(path);
}
END
${CC:-cc} -shared -fPIC -o "$tmp/dies.so" "$tmp/dies.c" -ldl 2>"$tmp/log" || skip_all "no compiler"

mkdir "$tmp/keys"
key=$tmp/keys/key
make="--block-size 16 --vram-blocks 8"

# ---- killed at each step ----

starts()	# NAME: it serves, with that key
{
	start one gpcd demo --dir "$shm" $make --key-file "$key"
	until_ok grep -q 'serving as process\|--key-file.*: it' "$tmp/one.err"
	grep -q 'serving as process' "$tmp/one.err"
	ok $? "$1" "$tmp/one.err"
	kill "$pid" 2>/dev/null
	finish "$pid"
	gpc-inspect --dir "$shm" rm demo >/dev/null 2>&1
}

is_whole()	# the key, or nothing
{
	test ! -e "$key" || test "$(wc -c <"$key")" -eq 33
}

at=0 killed=yes
while test "$killed" = yes && test "$at" -lt 20; do
	at=$((at + 1))
	rm -f "$key"
	# found by the program alone: the shell of libtool is before it
	start dead env DIES_AT=$at DIES_FILE="$tmp/keys/" LD_PRELOAD="$tmp/dies.so" \
		gpcd demo --dir "$shm" $make --key-file "$key"
	dead=$pid
	until_ok sh -c "grep -q 'serving as process' '$tmp/dead.err' || ! kill -0 $dead 2>/dev/null"
	kill -0 "$dead" 2>/dev/null && kill "$dead" || :
	finish "$dead"
	gpc-inspect --dir "$shm" rm demo >/dev/null 2>&1
	test "$status" -eq 137 || killed=no
	is_whole
	ok $? "killed at step $at: a whole key, or none"
	starts "and the next one starts"
done
ok "$(test "$at" -ge 4 && test "$at" -lt 20; echo $?)" "which has some steps: $at"

# ---- several at a time ----

for round in 1 2 3; do
	rm -f "$key"
	all=
	for i in 1 2 3 4 5; do
		start "p$i" gpcd "many$i" --dir "$shm" $make --key-file "$key"
		all="$all $pid"
	done
	for i in 1 2 3 4 5; do
		until_ok grep -q 'serving as process\|--key-file.*: it' "$tmp/p$i.err"
	done
	is "$(cat "$tmp"/p?.err | grep -c 'serving as process')" 5 "five at a time: all serve"
	is "$(cat "$tmp"/p?.err | grep -c 'made, with a new secret')" 1 "one has made the key"
	kill $all
	for p in $all; do
		finish "$p"
	done
	for i in 1 2 3 4 5; do
		gpc-inspect --dir "$shm" rm "many$i" >/dev/null 2>&1
	done
done
is "$(ls "$tmp/keys" | grep -c -x key)" 1 "there is one file of that name"

# ---- another one is faster, behind the look for the file ----

cat >"$tmp/late.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { WITH_MODE = 020000100 };	/* O_CREAT, O_TMPFILE */

static int look(const char *name, const char *path, int flags, mode_t mode)	/* once, when there is none */
{
	int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
	const char *file = getenv("LATE_FILE"), *run = getenv("LATE_RUN");
	int fd = real(path, flags, mode), err = errno;
	static int done;

	if (fd < 0 && err == ENOENT && file && run && !strcmp(path, file) && !done++) {
		unsetenv("LD_PRELOAD");
		if (system(run))
			abort();
	}
	errno = err;
	return fd;
}

#define LOOK(name)                                                        \
	int name(const char *path, int flags, ...)                        \
	{                                                                 \
		va_list ap;                                               \
		mode_t mode;                                              \
                                                                          \
		va_start(ap, flags);                                      \
		mode = flags & WITH_MODE ? va_arg(ap, mode_t) : 0;        \
		va_end(ap);                                               \
		return look(#name, path, flags, mode);                    \
	}

LOOK(open)
LOOK(open64)
END
${CC:-cc} -shared -fPIC -o "$tmp/late.so" "$tmp/late.c" -ldl 2>"$tmp/log" || bail "$(cat "$tmp/log")"

later()	# NAME COMMAND OPTION...: COMMAND runs behind the look; gpcd serves with the key of that
{
	name=$1 command=$2
	shift 2
	rm -f "$key"
	start late env LATE_FILE="$key" LATE_RUN="$command" LD_PRELOAD="$tmp/late.so" gpcd demo --dir "$shm" "$@" --key-file "$key"
	late=$pid
	until_ok sh -c "grep -q 'serving as process' '$tmp/late.err' || ! kill -0 $late 2>/dev/null"
	grep -q 'serving as process' "$tmp/late.err" && ! grep -q 'key-file.*: made' "$tmp/late.err"
	ok $? "$name: its key is taken" "$tmp/late.err"
	kill "$late" 2>/dev/null
	finish "$late"
	gpc-inspect --dir "$shm" rm demo >/dev/null 2>&1
}

cat >"$tmp/other" <<END
#!/bin/sh
gpcd demo --dir "$shm" "\$@" --key-file "$key" --daemonize --pidfile "$tmp/other.pid" >"$tmp/other.log" 2>&1 || exit 1
kill "\$(cat "$tmp/other.pid")"
while test -e "$tmp/other.pid"; do sleep 0.01; done
END
chmod 755 "$tmp/other"
# shellcheck disable=SC2086
{
later "another one makes the cache" "$tmp/other $make" $make
ram="--block-size 16 --ram-blocks 8 --block-bytes 4k --max-blocks 200 --max-peers 8"
later "another one makes cache and disk" "$tmp/other $ram --disk $tmp/keys/disk --disk-blocks 9" $ram --disk "$tmp/keys/disk"
later "the disk alone is left of that" \
	"rm $tmp/keys/disk; $tmp/other $ram --disk $tmp/keys/disk --disk-blocks 9 && gpc-inspect --dir $shm rm demo" \
	$ram --disk "$tmp/keys/disk"
}
rm -f "$tmp/keys/disk"

# ---- what an earlier one left behind ----

: >"$key"
chmod 600 "$key"
refuses 1 '--key-file .*/key: it has 0 of the 32 hex digits of a key: .*remove it, and a new one is made' \
	gpcd demo --dir "$shm" $make --key-file "$key"
printf 0123456789abcdef >"$key"
refuses 1 '--key-file .*/key: it has 16 of the 32 hex digits of a key: .*remove it' \
	gpcd demo --dir "$shm" $make --key-file "$key"
rm "$key"
starts "without it a new one is made"
done_testing
