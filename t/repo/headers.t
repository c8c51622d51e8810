#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program includes the public headers with warnings of its own: each compiles alone, in C and C++, without one.
# gpc.h is what an engine reads: it is short, and its worker runs.
# GPC_OPTIONS works in C++, and gpc(7) has a program that does; a plugin may be written in C++.
# Tests: lib/gpc.h lib/gpc_bytes.h lib/gpc_device.h lib/gpc_look.h lib/gpc_serve.h lib/gpc_tiers.h
#   lib/gpc_remote.h man/gpc.7 man/gpc_remote.7

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

other_caches=$cache-worker
CC=${CC:-cc}
CXX=${CXX:-g++}
has()
{
	command -v "${1%% *}" >/dev/null 2>&1
}
sanitized=
! grep -q '__[atu]b*san_' "$libs/libgpc.so" 2>/dev/null || sanitized=yes

# -I, since -isystem hides warnings
compiles()	# COMPILER STANDARD FILE [OPTION...]
{
	compiler=$1 standard=$2 file=$3
	shift 3
	$compiler -std=$standard -pedantic-errors -Wall -Wextra -Wshadow -Werror -O1 \
		-I"$srcdir/lib" "$file" "$@" >"$tmp/log" 2>&1
}

# ---- each header alone, and twice ----

headers=$(sed -n '/^include_HEADERS = /,/[^\\]$/p' "$srcdir/lib/local.mk" | sed 's/.*= //; s/\\$//; s|%reldir%/||g')
test "$(echo $headers | tr ' ' '\n' | sort)" = "$(cd "$srcdir/lib" && ls gpc.h gpc_*.h)"
ok $? "lib/local.mk installs each header"

# Headers ask for no standard but C++11, so each is alone in the oldest one of a compiler.
is "$(cd "$srcdir/lib" && grep -h '__STDC_VERSION__\|__cplusplus *[<>=]' $headers)" \
	'#if defined(__cplusplus) && __cplusplus >= 201103L' "headers ask for no standard but C++11"

# twice, for the guards
alone()	# COMPILER STANDARD SUFFIX
{
	for header in $headers; do
		printf '#include <%s>\n#include <%s>\nint alone(void);\nint alone(void) { return 0; }\n' \
			"$header" "$header" >"$tmp/alone.$3"
		compiles "$1" "$2" "$tmp/alone.$3" -fsyntax-only
		ok $? "$header alone with ${1##*/} -std=$2" "$tmp/log"
	done
}

# Warnings of the optimizer, too.
whole()	# COMPILER STANDARD SUFFIX
{
	for header in $headers; do
		printf '#include <%s>\n' "$header"
	done >"$tmp/alone.$3"
	compiles "$1" "$2" "$tmp/alone.$3" -fsyntax-only -DHAVE_CONFIG_H -I"$builddir" -include config.h
	ok $? "all of them behind config.h" "$tmp/log"
	cp "$tmp/alone.$3" "$tmp/whole.$3"
	printf 'int whole(void);\nint whole(void) { return 0; }\n' >>"$tmp/whole.$3"
	compiles "$1" "$2" "$tmp/whole.$3" -c -o "$tmp/whole.o"
	ok $? "all of them compiled with ${1##*/} -std=$2" "$tmp/log"
}

for compiler in "$CC" clang; do
	if ! has "$compiler"; then
		skip 1 "there is no $compiler"
		continue
	fi
	alone "$compiler" c99 c
	for standard in c99 c11; do
		whole "$compiler" $standard c
	done
done

# ---- gpc.h ----

test "$(grep '^#[ 	]*include' "$srcdir/lib/gpc.h" | tr '\n' ' ')" = "#include <stddef.h> #include <stdint.h> "
ok $? "gpc.h includes none of the others"
for header in $headers; do
	case $header in
	gpc.h | gpc_remote.h) continue ;; # which is for those who write no program of gpc
	esac
	printf '#include <%s>\ngpc_key alone;\n' "$header" >"$tmp/whole.c"
	compiles "$CC" c99 "$tmp/whole.c" -fsyntax-only
	ok $? "$header brings gpc.h" "$tmp/log"
done
lines=$(wc -l <"$srcdir/lib/gpc.h")
test "$lines" -le 450
ok $? "gpc.h has at most 450 lines: $lines"
calls=$(${CC:-cc} -E -P "$srcdir/lib/gpc.h" | tr '\n' ' ' | tr ';' '\n' | grep -c '^[^({]*[ *]gpc_[a-z0-9_]*(')
test "$calls" -le 30 && test "$calls" -ge 20
ok $? "and at most 30 calls: $calls"

# The worker of its head, between what it says is given.
sed -n '/^#ifndef/q; s/^ \*	//p' "$srcdir/lib/gpc.h" >"$tmp/worker"
test "$(wc -l <"$tmp/worker")" = 12
ok $? "its worker has 12 lines" "$tmp/worker"
{
	cat <<'end'
#include <gpc.h>
#include <stdio.h>
static const struct gpc_field model = { .tag = 1, .len = 5, .data = "llama" };
static void prefill(const gpc_block *blk, int hit, int got)
{
	printf("%d hit, %d to fill, the first in pool %d\n", hit, got, hit + got ? GPC_POOL(blk[0]) : -1);
}
int main(void)
{
	static const uint32_t tok[1009] = { 1, 2, 3 };
	const size_t ntok = 1009;
	gpc_key key[64];
	gpc_block blk[63];
	gpc *c;

end
	sed 's/^/	/; s|//.*||' "$tmp/worker"
	printf '	return 0;\n}\n'
} >"$tmp/worker.c"
compiles "$CC" c99 "$tmp/worker.c" -fsyntax-only
ok $? "which compiles" "$tmp/log"
if test -n "$sanitized" || ! test -e "$libs/libgpc.so"; then
	skip 8 "no shared library, or one whose sanitizer wants its own programs"
else
	sed "s/\"demo\"/\"$cache-worker\"/" "$tmp/worker.c" >"$tmp/named.c"
	compiles "$CC" c99 "$tmp/named.c" -o "$tmp/worker.run" -L"$libs" -lgpc
	ok $? "and links" "$tmp/log"
	run gpcd "$cache-worker" --block-size 16 --vram-blocks 100 --daemonize --quiet --pidfile "$tmp/pid"
	exits 0 "a cache for it"
	for said in "0 hit, 63 to fill" "63 hit, 0 to fill"; do
		run env LD_LIBRARY_PATH="$libs" "$tmp/worker.run"
		prints "^$said, the first in pool 0\$" "it runs: $said"
	done
	kill "$(cat "$tmp/pid")"
	until_ok gpc-inspect rm "$cache-worker"
	ok $? "and leaves nothing"
fi

cxx=
for compiler in "$CXX" clang++; do
	has "$compiler" && echo 'int x;' >"$tmp/x.cc" && compiles "$compiler" c++17 "$tmp/x.cc" -fsyntax-only ||
		continue
	cxx="$cxx $(echo "$compiler" | tr ' ' ':')"
done
if test -z "$cxx"; then
	skip 1 "there is no C++ compiler"
	done_testing
	exit
fi

# ---- C++ ----

# the code of a section: roff's \e \& \- undone
shown()	# PAGE SECTION
{
	awk -v section="$2" '
	/^\.S[hs] / { line = $0; gsub(/\\&/, "", line); on = line == section }
	on && /^\.Bd -literal$/ { code = 1; next }
	/^\.Ed/ { code = 0 }
	code { gsub(/\\&/, ""); gsub(/\\-/, "-"); gsub(/\\e/, "\\"); print }' "$1"
}
shown "$srcdir/man/gpc.7" ".Ss In C++" >"$tmp/shown.cc"
grep -q GPC_OPTIONS "$tmp/shown.cc"
ok $? "gpc(7) has a program in C++"
grep -q '^g++ -std=c++17 -o in-c++ in-c++.cc -lgpc$' "$srcdir/man/gpc.7"
ok $? "and a command that compiles it"

# A temporary in the options, options in options, an array, a function, a call among others.
cat >"$tmp/options.cc" <<'end'
extern "C" {
#include <gpc_bytes.h>
#include <gpc_serve.h>
}
#include <cstdio>
#include <cstring>
#include <string>
static int sum(const struct gpc_config *cfg, const struct gpc_attach_options *opt)
{
	return cfg->size == sizeof(gpc_config) && cfg->ram_memory->size == sizeof(gpc_memory) &&
	       cfg->ram_memory->block_bytes == 4096 && !cfg->ram_memory->runs && !cfg->secret &&
	       std::strlen(cfg->dir) == 100 && cfg->layout[1] == 2 && !cfg->layout[2] &&
	       opt->size == sizeof(gpc_attach_options) && opt->label[99] == 'b' && opt->log;
}
template <typename T> static T *same(T *options)
{
	return options;
}
static int in_a_template(uint32_t tag)
{
	return static_cast<int>(GPC_OPTIONS(gpc_publish_options, .tag = tag)->tag);
}
int main()
{
	struct gpc_claim claim = {};
	int (*call)(gpc *, const gpc_key *, const gpc_block *, uint32_t, struct gpc_claim *, uint32_t,
		    int) = gpc_claim;
	const gpc_publish_options *last = nullptr;
	gpc_pool pool;
	pool = *GPC_OPTIONS(gpc_pool, .kind = GPC_RAM, .demote_to = GPC_NONE);
	bool right =
		sum(GPC_OPTIONS(gpc_config, .dir = std::string(100, 'a').c_str(), .layout = { 1, 2 },
				.ram_memory = GPC_OPTIONS(gpc_memory, .block_bytes = 4096)),
		    same(GPC_OPTIONS(gpc_attach_options, .label = std::string(100, 'b').c_str(),
				     .log = [](void *, int, const char *) {}))) &&
		(last = GPC_OPTIONS(gpc_publish_options, .tag = 7))->tag == 7 &&
		in_a_template(9) == 9 && pool.size == sizeof(pool) && pool.demote_to == -1 &&
		call(nullptr, nullptr, nullptr, 0, &claim, 0, 0) < 0;
	std::printf("%s\n", right ? "right" : "wrong");
	return 0;
}
end

# a plugin whose functions are members of a class
cat >"$tmp/plugin.cc" <<'end'
#include <gpc_remote.h>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <string>
namespace {
class store {
	std::map<std::string, std::string> values;

	int one(const gpc_remote_item &item, bool put)
	{
		if (put) {
			std::string bytes(static_cast<char *>(item.header), GPC_REMOTE_HEADER);
			for (uint32_t i = 0; i < item.npieces; i++)
				bytes.append(static_cast<char *>(item.image[i].iov_base),
					     item.image[i].iov_len);
			values[item.key] = bytes;
			return 0;
		}
		auto found = values.find(item.key);
		if (found == values.end())
			return -ENOENT;
		const char *at = found->second.data();
		std::memcpy(item.header, at, GPC_REMOTE_HEADER);
		at += GPC_REMOTE_HEADER;
		for (uint32_t i = 0; i < item.npieces; at += item.image[i++].iov_len)
			std::memcpy(item.image[i].iov_base, at, item.image[i].iov_len);
		return 0;
	}

public:
	static int open(const gpc_remote_setup *, void **ret, char *, size_t)
	{
		*ret = new (std::nothrow) store;
		return *ret ? 0 : -ENOMEM;
	}
	static void close(void *s)
	{
		delete static_cast<store *>(s);
	}
	static void exists(void *s, const gpc_remote_call *, gpc_remote_item *items, uint32_t n)
	{
		for (uint32_t i = 0; i < n; i++)
			items[i].result = static_cast<store *>(s)->values.count(items[i].key) ? 0 : -ENOENT;
	}
	static void get(void *s, const gpc_remote_call *, gpc_remote_item *items, uint32_t n)
	{
		for (uint32_t i = 0; i < n; i++)
			items[i].result = static_cast<store *>(s)->one(items[i], false);
	}
	static void put(void *s, const gpc_remote_call *, gpc_remote_item *items, uint32_t n)
	{
		for (uint32_t i = 0; i < n; i++)
			items[i].result = static_cast<store *>(s)->one(items[i], true);
	}
	static void remove(void *s, const gpc_remote_call *, gpc_remote_item *items, uint32_t n)
	{
		for (uint32_t i = 0; i < n; i++)
			items[i].result = (static_cast<store *>(s)->values.erase(items[i].key), 0);
	}
};
} // namespace

const struct gpc_remote_plugin gpc_remote_plugin = { sizeof(struct gpc_remote_plugin),
						     GPC_REMOTE_ABI,
						     "cxx",
						     "a map",
						     nullptr,
						     store::open,
						     store::close,
						     store::exists,
						     store::get,
						     store::put,
						     store::remove,
						     nullptr,
						     nullptr,
						     nullptr,
						     nullptr,
						     nullptr };
end
chmod 755 "$tmp"

linked=yes
test -z "$sanitized" && test -e "$libs/libgpc.so" || linked=
for word in $cxx; do
	compiler=$(echo "$word" | tr ':' ' ')
	alone "$compiler" c++11 cc
	for standard in c++11 c++17 c++20; do
		whole "$compiler" $standard cc
		for program in shown options; do
			case $standard$program$linked in
			c++17*yes | c++20optionsyes) continue ;; # compiled as a whole below
			esac
			compiles "$compiler" $standard "$tmp/$program.cc" -fsyntax-only
			ok $? "GPC_OPTIONS with ${compiler##*/} -std=$standard: $program" "$tmp/log"
		done
	done
	if test -z "$linked"; then
		skip 3 "no shared library, or one whose sanitizer wants its own programs"
		continue
	fi
	for standard in c++17 c++20; do
		compiles "$compiler" $standard "$tmp/options.cc" -o "$tmp/options" -L"$libs" -lgpc
		ok $? "... links" "$tmp/log"
		run env LD_LIBRARY_PATH="$libs" "$tmp/options"
		prints '^right$' "the structures are what was asked for: $standard"
	done
	compiles "$compiler" c++17 "$tmp/shown.cc" -o "$tmp/shown" -L"$libs" -lgpc
	ok $? "the program of gpc(7) links" "$tmp/log"
	run env LD_LIBRARY_PATH="$libs" "$tmp/shown" "$cache"
	exits 0 "and runs"
	prints '^found: 1$' "and finds its block"
	compiles "$compiler" c++17 "$tmp/plugin.cc" -shared -fPIC -o "$tmp/gpc_remote_cxx.so"
	ok $? "a plugin in C++ compiles" "$tmp/log"
	chmod 644 "$tmp/gpc_remote_cxx.so"
	run "$helpers/store" "$tmp/gpc_remote_cxx.so" both 1 100
	prints '^100$' "and stores, and gives back, 100 images"
done

# ---- the test itself ----

set -- $cxx
compiler=$(echo "$1" | tr ':' ' ')
printf 'struct twice { int a; };\nint twice(struct twice *t);\nint twice(struct twice *t) { int t = 0; return t; }\n' \
	>"$tmp/wrong.cc"
! compiles "$compiler" c++17 "$tmp/wrong.cc" -fsyntax-only
ok $? "a header that warns is refused"
done_testing
