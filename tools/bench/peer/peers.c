/* SPDX-License-Identifier: Apache-2.0 */
/* The peers that this build has.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct bench_peer *const bench_peers[] = {
#ifdef HAVE_CK
	&bench_peer_ck,
#endif
#ifdef HAVE_LFHT
	&bench_peer_lfht,
#endif
#ifdef HAVE_LMDB
	&bench_peer_lmdb,
#endif
#ifdef HAVE_CXX_PEERS
	&bench_peer_unordered,
#endif
#ifdef HAVE_BOOST_FLAT_MAP
	&bench_peer_flat_map,
#endif
	&bench_peer_memcached, &bench_peer_redis, NULL,
};

const char *const bench_peers_absent[] = {
#ifndef HAVE_CK
	"ck_ht",
#endif
#ifndef HAVE_LFHT
	"rculfhash",
#endif
#ifndef HAVE_LMDB
	"LMDB",
#endif
#ifndef HAVE_CXX_PEERS
	"unordered_map",
#endif
#ifndef HAVE_BOOST_FLAT_MAP
	"flat_map",
#endif
	NULL,
};

void *bench_why(const char **why, const char *fmt, ...)
{
	static char sentence[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	*why = sentence;
	return NULL;
}

bool bench_in_path(const char *program)
{
	const char *dir = getenv("PATH");
	char path[PATH_MAX];

	for (; dir && *dir; dir += strspn(dir, ":")) {
		int length = (int)strcspn(dir, ":");

		if (snprintf(path, sizeof(path), "%.*s/%s", length, dir, program) <
			    (int)sizeof(path) &&
		    !access(path, X_OK))
			return true;
		dir += length;
	}
	return false;
}

void bench_hold_signals(sigset_t *ret_held)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, ret_held);
}

void bench_release_signals(const sigset_t *held)
{
	pthread_sigmask(SIG_SETMASK, held, NULL);
}
