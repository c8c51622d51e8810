/* SPDX-License-Identifier: Apache-2.0 */
/* Notes outlive who published them, and who wrote the index then.
 * Tests: lib/index/segment/note.c lib/look/note.c */
#include "t/lib/notes.h"

#include "index/peer/handle.h"
#include "index/segment/note.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(void)
{
	kill(getpid(), SIGKILL);
}

static void killed(pid_t pid, const char *what)
{
	int status = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		bail("no process");
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s", what);
}

static gpc *fresh(void)
{
	struct gpc_config cfg = cache_config(2, 2);

	cfg.quarantine_ms = 1;
	return notes_cache(cfg, true, true);
}

/* ---- publishers ---- */

/* The note is stored, and the command is not: it is nobody's. */
static void dies_before(gpc *w)
{
	struct shm_note note = { .group = 99, .digest_bytes = 4, .has_tokens = 1 };
	uint32_t tokens[16] = { 5 };
	gpc_key key = key_of(w, 1);
	struct gpc_entry e;
	gpc_block b, got[2];
	int p[2], i;
	pid_t pid;

	note.key[0] = key.w[0];
	note.key[1] = key.w[1];
	if (pipe(p))
		bail("no pipe");
	serve_begin(w);
	pid = fork();
	if (!pid) {
		gpc *c = cache_attach(0, 0);

		must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
		note_store(&c->seg, pool_record(&c->seg, b), &note, tokens);
		if (write(p[1], &b, sizeof(b)) != sizeof(b))
			bail("no word");
		die();
	}
	killed(pid, "killed after the note was stored");
	serve_end();
	if (read(p[0], &b, sizeof(b)) != sizeof(b))
		bail("no word");
	close(p[0]);
	close(p[1]);
	is_int(notes_entry(w, 1).block, -1, "the key is not live");
	refused(gpc_tokens_get(w, &key, b, tokens, 16), ESTALE, "its note is nobody's");
	for (i = 0; i < 3000 && gpc_reserve(w, 0, 2, got, NULL, 0, 0) < 0; i++)
		must(gpc_writer_serve(w, 1));
	is_int(pool_record(&w->seg, got[0]) + pool_record(&w->seg, got[1]), 1,
	       "both blocks can be had again");
	must(gpc_release(w, got, 2));
	done(w);
	chain_make(w, 0, 1, 1, &b);
	e = notes_entry(w, 1);
	ok(e.block == b && is_unsaid(e.group, e.digest_bytes, e.digest),
	   "nor its successor's, under the same key");
	must(gpc_drop(w, &b, 1, NULL, 0, -1));
	settle(w);
}

/* The command is there, and no writer has looked at it so far. */
static void dies_after(gpc *w)
{
	pid_t pid;
	int p[2];
	gpc_block b;

	if (pipe(p))
		bail("no pipe");
	serve_begin(w);
	pid = fork();
	if (!pid) {
		gpc *c = cache_attach(0, 0);

		must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
		if (write(p[1], &b, sizeof(b)) != sizeof(b))
			bail("no word");
		must(say_note(c, 1, b, NULL, 0));
		die();
	}
	killed(pid, "killed after its publish was sent");
	serve_end();
	if (read(p[0], &b, sizeof(b)) != sizeof(b))
		bail("no word");
	close(p[0]);
	close(p[1]);
	settle(w);
	must(gpc_writer_serve(w, 5));
	must(gpc_writer_serve(w, 5));
	ok(walk_says(w, 1), "the key is live, with its digest");
	ok(tokens_say(w, 1, b), "and its tokens");
}

static void test_publisher(void)
{
	gpc *w = fresh();

	dies_before(w);
	dies_after(w);
	clean(w, "publishers that died");
	cache_end(w);
}

/* ---- writers ---- */

/* One writer publishes and moves, and is killed; another one takes over. */
static void test_writer(void)
{
	gpc *c = NULL;
	struct gpc_event ev;
	struct gpc_config cfg = cache_config(2, 2);
	gpc_block b[2] = { GPC_BLOCK(0, 0), GPC_BLOCK(0, 1) };
	uint64_t cursor = 0;
	int stored = 0, moved = 0, removed = 0;
	pid_t pid;

	c = notes_cache(cfg, true, true);
	must(gpc_writer_drop(c));
	pid = fork();
	if (!pid) {
		gpc *w = cache_attach(0, 0);
		struct gpc_move m;

		must(gpc_writer_take(w, 0, 0));
		b[0] = say_new(w, 0, 1);
		b[1] = say_new(w, 0, 2);
		must(gpc_release(w, b, 2));
		must(gpc_demote(w, 0, 1, &b[0], 1, &m, 0, 60000));
		must(gpc_commit(w, &m, 1, NULL, 0, -1));
		die();
	}
	killed(pid, "a writer is killed");
	must(gpc_writer_take(c, 0, 2000));
	ok(walk_says(c, 1) && walk_says(c, 2), "the next one finds both notes");
	ok(tokens_say(c, 1, notes_entry(c, 1).block), "and the tokens of what had moved");
	b[0] = notes_entry(c, 1).block;
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	while (must(gpc_event_read(c, &cursor, &ev, 1)) == 1) {
		uint64_t n = ev.group - 0x10000u;

		if (!is_said(ev.group, ev.digest_bytes, ev.digest, n) ||
		    !key_is(ev.key, key_of(c, n)))
			continue;
		stored += ev.what == GPC_STORED;
		moved += ev.what == GPC_MOVED;
		removed += ev.what == GPC_REMOVED;
	}
	ok(stored == 2 && moved == 1 && removed == 1, "the feed has those of both writers");
	settle(c);
	clean(c, "another writer");
	cache_end(c);
}

/* The command waits in the ring of who lives; its writer died before it. */
static void test_sent_before(void)
{
	gpc *c = fresh(), *w = cache_attach(0, 0);
	gpc_block b;

	serve_begin(c);
	must(gpc_reserve(w, 0, 1, &b, NULL, 0, 60000));
	serve_end();
	must(gpc_writer_drop(c));
	is_int(say_note(w, 1, b, NULL, 0), 0, "sent without a writer");
	must(gpc_writer_take(w, 0, 0));
	done(w);
	ok(walk_says(w, 1) && tokens_say(w, 1, b), "the one that comes finds the notes");
	must(gpc_release(w, &b, 1));
	must(gpc_close(w));
	must(gpc_writer_take(c, 0, 0));
	settle(c);
	clean(c, "notes sent before");
	cache_end(c);
}

static int body(void)
{
	test_publisher();
	test_writer();
	test_sent_before();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
