/* SPDX-License-Identifier: Apache-2.0 */
/* One process publishes blocks anew without rest, each under the next key, and another one reads
 * their notes: it never reads another key's, nor half of one.  A block is dropped when the next one
 * is there, so a reader finds one at any time, also when the publisher does not run.
 * Tests: lib/look/note.c lib/index/segment/note.c */
#include "t/lib/notes.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 2, ROUNDS = 1500, READ = 200, WALKED = 20 };

struct shared {                  /* between the two */
	uint64_t number[BLOCKS]; /* of the key that was published last */
	gpc_block block[BLOCKS];
	uint64_t rounds;
	bool stop;
};

static struct shared *sh;

static void publisher(void)
{
	gpc *c = cache_attach(0, 0);
	gpc_block last = -1;
	uint64_t n;

	for (n = 1; !__atomic_load_n(&sh->stop, __ATOMIC_ACQUIRE); n++) {
		gpc_block b = say_new(c, 0, n);

		sh->block[n % BLOCKS] = b;
		__atomic_store_n(&sh->number[n % BLOCKS], n, __ATOMIC_RELEASE);
		must(gpc_release(c, &b, 1));
		if (last >= 0)
			must(gpc_drop(c, &last, 1, NULL, 0, -1));
		last = b;
		__atomic_store_n(&sh->rounds, n, __ATOMIC_RELEASE);
	}
	must(gpc_close(c));
}

/* That key, and the one that may take its place. */
static void read_one(gpc *c, uint64_t n, gpc_block block, uint64_t *good, uint64_t *bad)
{
	static uint32_t got[NOTES_TOKENS];
	gpc_key key = key_of(c, n);
	int r = gpc_tokens_get(c, &key, block, got, NOTES_TOKENS);

	if (r == -ESTALE)
		return;
	if (must(r) == NOTES_TOKENS && !memcmp(got, tokens_of(n), sizeof(got)))
		++*good;
	else
		++*bad;
}

/* A read-only handle walks a copy: a block that changed while that was made is there without a
 * note. */
static void walk_all(gpc *c, bool readonly, uint64_t *good, uint64_t *bad)
{
	struct gpc_entry e[4];
	uint64_t cursor = 0, n;
	int got, i;

	while ((got = must(gpc_walk(c, &cursor, e, 4))) > 0)
		for (i = 0; i < got; i++) {
			n = e[i].group - 0x10000u;
			if (is_said(e[i].group, e[i].digest_bytes, e[i].digest, n) &&
			    key_is(e[i].key, key_of(c, n)))
				++*good;
			else if (!readonly ||
				 !is_unsaid(e[i].group, e[i].digest_bytes, e[i].digest))
				++*bad;
		}
}

static void race(bool readonly)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	uint64_t good = 0, bad = 0, walked = 0, torn = 0, i;
	const char *who = readonly ? "a read-only handle" : "a peer";
	gpc *c = NULL, *r;
	bool gone = false; /* the publisher failed */
	int status = -1;
	pid_t pid;

	r = notes_cache(cache_config(BLOCKS, 0), true, true);
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid) {
		publisher();
		_exit(0);
	}
	must(gpc_attach(cache_name, &opt, readonly ? GPC_READONLY : 0, &c));
	while ((__atomic_load_n(&sh->rounds, __ATOMIC_ACQUIRE) < ROUNDS || good < READ ||
		walked < WALKED) &&
	       !gone) {
		for (i = 0; i < 32; i++) {
			uint64_t n = __atomic_load_n(&sh->number[i % BLOCKS], __ATOMIC_ACQUIRE);

			if (n)
				read_one(c, n, sh->block[i % BLOCKS], &good, &bad);
		}
		walk_all(c, readonly, &walked, &torn);
		gone = waitpid(pid, &status, WNOHANG) == pid;
	}
	__atomic_store_n(&sh->stop, true, __ATOMIC_RELEASE);
	if (!gone && waitpid(pid, &status, 0) != pid)
		bail("no end of the publisher");
	is_int(status, 0, "%s: %llu blocks were published", who, (unsigned long long)sh->rounds);
	diag("%llu times the tokens were read", (unsigned long long)good);
	is_int(bad, 0, "%s: never another key's", who);
	diag("%llu entries walked", (unsigned long long)walked);
	is_int(torn, 0, "%s: no walk has another key's digest", who);
	must(gpc_close(c));
	clean(r, who);
	cache_end(r);
	memset(sh, 0, sizeof(*sh));
}

static int body(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		bail("no shared page");
	cache_thread = true;
	notes_block_tokens = NOTES_TOKENS; /* a note takes long to copy, and to store */
	race(false);
	race(true);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
