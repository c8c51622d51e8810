/* SPDX-License-Identifier: Apache-2.0 */
/* Handles that are closed with ranks outstanding: that of the transfer, and that of a rank, whose
 * processes go on, exit, or copy still.  And an owner whose process nobody can see: what its
 * devices may write to waits for a time, whose beginning each next writer finds, or begins anew
 * where nobody knows whose it was.
 * Tests: lib/index/writer/transfer_end.c lib/index/takeover/others.c lib/bytes/payload/transfer.c */
#include <sys/mman.h>
#include <sys/wait.h>

#include "t/lib/fetch.h"

enum { RAM = 0, VRAM = 1, BLOCKS = 16, N = 4 };

static struct {
	uint32_t step, go, nmoves;
	int32_t peer, rank, got;
	gpc_transfer t;
	gpc_block b[N];
	struct gpc_move m[N];
} * sh;

static gpc *c;      /* the writer */
static pid_t other; /* the other process */

static void begin(uint32_t quarantine_ms)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block r[N];

	cfg.max_blocks = 256;
	cfg.quarantine_ms = quarantine_ms;
	c = cache_make(&cfg, NULL);
	bytes_ram(c, BLOCKS, 0, 0);
	bytes_vram(c, BLOCKS, 0, RAM, 0);
	bytes_chain(c, RAM, 1, N, r, false);
	memset(sh, 0, sizeof(*sh));
}

static void come_to(uint32_t step)
{
	int i;

	for (i = 0; i < 10000 && load_acquire(&sh->step) < step; i++)
		must(gpc_writer_serve(c, 1));
	if (load_acquire(&sh->step) < step)
		bail("the other process does not get to step %u", step);
}

static void start(void (*run)(gpc *d))
{
	other = fork();
	if (other < 0)
		bail("no process");
	if (!other) {
		gpc *d = cache_attach(0, 0);

		sh->peer = info_of(d).peer;
		run(d);
		_exit(0);
	}
}

static void step(uint32_t n)
{
	store_release(&sh->step, n);
}

static void wait_go(uint32_t n)
{
	while (load_acquire(&sh->go) < n)
		usleep(500);
}

static void buried(void)
{
	while (waitpid(other, NULL, 0) < 0)
		;
}

static void end_other(void)
{
	kill(other, SIGKILL);
	buried();
}

static uint32_t seat(void)
{
	return load_acquire(&seg_seat(&c->seg, (uint32_t)sh->peer)->state);
}

static bool comes(bool (*what)(void))
{
	int i;

	for (i = 0; i < 5000 && !what(); i++)
		must(gpc_writer_serve(c, 1));
	return what();
}

static void serve_some(void)
{
	int i;

	for (i = 0; i < 20; i++)
		must(gpc_writer_serve(c, 1));
}

static bool seat_is_free(void)
{
	return seat() == SEAT_FREE;
}

static bool is_quiet(void)
{
	struct gpc_stats s = stats_of(c, -1);

	return !(s.refs + s.reserved + s.dying + s.transfers);
}

static bool is_over(void)
{
	return !stats_of(c, -1).transfers;
}

static void successor(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serve_some();
}

static void finish(const char *what)
{
	ok(comes(seat_is_free), "%s: its seat is free", what);
	ok(comes(is_quiet), "%s: nothing is held", what);
	fetch_end(c, what);
}

static uint32_t target_state(int i)
{
	uint32_t record = pool_record(&c->seg, sh->b[i]);

	return WORD_STATE(load_acquire(&seg_record(&c->seg, record)->word));
}

/* ---- whose transfer it is ---- */

static void lead(gpc *d, bool releases)
{
	struct gpc_fetch_options o = { .size = sizeof(o),
				       .nranks = 1,
				       .ranks = &sh->rank,
				       .moves = sh->m,
				       .nmoves = &sh->nmoves };
	gpc_key k[N + 1];

	chain_keys(d, 1, N, k);
	if (gpc_fetch(d, VRAM, k + 1, N, sh->b, &o, 0, NULL, 5000, &sh->t) != N)
		_exit(2);
	if (releases)
		must(gpc_release(d, sh->b, N));
	step(1);
	wait_go(1);
	must(gpc_close(d));
	step(2);
	wait_go(2);
}

static void leads(gpc *d)
{
	lead(d, false);
}

static void leads_and_releases(gpc *d)
{
	lead(d, true);
}

static void copy_and_mark(void)
{
	int i;

	for (i = 0; i < N; i++)
		bytes_write(c, sh->m[i].to, (uint64_t)i + 1, BYTES_IMAGE);
	is_int(gpc_transfer_mark(c, sh->peer, sh->t, NULL), 0, "the rank copies, and says so");
}

static void begin_led(void (*run)(gpc *d))
{
	begin(3600000); /* exits are seen, or nothing comes back */
	sh->rank = info_of(c).peer;
	start(run);
	come_to(1);
	store_release(&sh->go, 1);
	come_to(2);
	serve_some();
}

/* Its process is there: the rank's word counts as ever. */
static void test_closed(void (*run)(gpc *d), bool dies)
{
	begin_led(run);
	is_int((int)seat(), SEAT_TAKEN,
	       "a handle is closed whose transfer others copy: its seat stays");
	is_int((int)stats_of(c, -1).transfers, 1, "so does the transfer");
	is_int((int)target_state(0), RESERVED, "and its targets");
	is_int(fetch_live(c, 1, N, RAM), N, "the keys are where they were");
	if (dies)
		successor();
	copy_and_mark();
	ok(comes(is_over), "then it is over");
	is_int(fetch_live(c, 1, N, VRAM), N, "and committed, every byte");
	is_int((int)seat(), SEAT_TAKEN, "the seat stays as long as the process");
	store_release(&sh->go, 2);
	buried();
	finish("closed");
}

/* Its process has exited before the rank says anything. */
static void test_exited(void (*run)(gpc *d), bool dies)
{
	gpc_block all[BLOCKS];
	int got;

	begin_led(run);
	store_release(&sh->go, 2);
	buried();
	serve_some();
	if (dies)
		successor();
	is_int((int)seat(), SEAT_TAKEN, "closed, and exited: the seat stays for the rank");
	is_int((int)target_state(0), RESERVED, "and the targets do");
	got = must(gpc_reserve(c, VRAM, BLOCKS, all, NULL, GPC_PARTIAL, 100));
	is_int(got, BLOCKS - N, "nobody gets what the rank copies to");
	must(gpc_release(c, all, (uint32_t)got));
	copy_and_mark();
	ok(comes(is_over), "then it is over");
	is_int(fetch_live(c, 1, N, RAM), N,
	       "and nothing is committed: nobody was there to want it");
	finish("closed, and exited");
}

/* ---- a rank ---- */

static void *endless(void)
{
	static struct stream_job *job;
	void *stream = host_stream_open();

	job = calloc(1, sizeof(*job));
	job->delay_us = 3600u * 1000000;
	job->run = (void (*)(struct stream_job *))free;
	must(stream_submit_to(stream, job));
	return stream;
}

static void mark_and_close(gpc *d, void *stream)
{
	int i;

	step(1);
	wait_go(1);
	for (i = 0; i < N; i++)
		bytes_write(d, sh->m[i].to, (uint64_t)i + 1, BYTES_IMAGE);
	must(gpc_transfer_mark(d, sh->rank, sh->t, stream));
	step(2);
	sh->got = gpc_close(d);
	step(3);
	wait_go(2);
}

static void marks_slowly(gpc *d)
{
	device_host_delay_us = 200000;
	mark_and_close(d, NULL);
}

static void marks_never(gpc *d)
{
	mark_and_close(d, endless());
}

/* The other process is the rank, this handle leads. */
static void begin_ranked(void (*run)(gpc *d))
{
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = 1, .moves = sh->m, .nmoves = &sh->nmoves
	};
	gpc_key k[N + 1];

	begin(3600000);
	start(run);
	come_to(1);
	sh->rank = info_of(c).peer;
	o.ranks = &sh->peer;
	chain_keys(c, 1, N, k);
	is_int(gpc_fetch(c, VRAM, k + 1, N, sh->b, &o, 0, NULL, 1000, &sh->t), N,
	       "four, by another process");
	store_release(&sh->go, 1);
}

static void test_rank_closes(void)
{
	uint64_t *word;

	begin_ranked(marks_slowly);
	word = &seg_transfer(&c->seg, c->peer)->rank[sh->t % SHM_TRANSFERS][0];
	while (load_acquire(&sh->step) < 3)
		usleep(500);
	is_int(sh->got, 0, "a rank is closed whose stream still copies");
	is_int((long long)load_acquire(word), (long long)(sh->t / SHM_TRANSFERS),
	       "it has waited for that");
	is_int(gpc_transfer_wait(c, sh->t, 5000), 0, "so the transfer is done");
	is_int(fetch_live(c, 1, N, VRAM), N, "every byte");
	ok(comes(seat_is_free), "and its seat is free, though its process is there");
	must(gpc_release(c, sh->b, N));
	store_release(&sh->go, 2);
	buried();
	finish("a rank closes");
}

static void test_rank_never(bool dies)
{
	int results[N] = { 0 };

	begin_ranked(marks_never);
	come_to(2);
	serve_some();
	is_int((int)load_acquire(&sh->step), 2, "a rank whose stream never ends is not closed");
	is_int(gpc_transfer_wait(c, sh->t, 20), -ETIMEDOUT, "and its transfer does not end");
	end_other();
	if (dies)
		successor();
	is_int(gpc_transfer_wait(c, sh->t, 5000), 0, "it is killed: then the transfer ends");
	is_int(gpc_transfer_results(c, sh->t, results, N), N, "of each block");
	ok(results[0] == -ESTALE && results[N - 1] == -ESTALE, "it is told that it is refused");
	is_int(fetch_live(c, 1, N, RAM), N, "the keys are where they were");
	must(gpc_release(c, sh->b, N));
	finish("a rank that never ends");
}

/* ---- an owner that nobody can see ---- */

static void fetches(gpc *d)
{
	gpc_key k[N + 1];

	chain_keys(d, 1, N, k);
	if (gpc_fetch(d, VRAM, k + 1, N, sh->b, NULL, 0, endless(), 5000, &sh->t) != N)
		_exit(2);
	step(1);
	wait_go(9);
}

static bool is_lost(void)
{
	return load_acquire(&seg_seat(&c->seg, (uint32_t)sh->peer)->lost_ns);
}

static bool is_free(void)
{
	return target_state(0) == FREE && target_state(N - 1) == FREE;
}

static void test_unseen(void)
{
	const uint64_t wait_ms = 600;
	struct shm_seat *s;
	gpc_block all[BLOCKS];
	uint64_t lost, from;
	int got;

	begin((uint32_t)wait_ms);
	start(fetches);
	come_to(1);
	s = seg_seat(&c->seg, (uint32_t)sh->peer);
	must(gpc_writer_drop(c));
	s->namespaces = 4711; /* as of another container */
	must(gpc_writer_take(c, 0, 0));
	end_other();
	ok(comes(is_lost), "an owner that nobody can see has lost its lock");
	lost = load_acquire(&s->lost_ns);
	is_int((int)target_state(0), RESERVED, "its targets are reserved");
	successor();
	is_int((long long)load_acquire(&s->lost_ns), (long long)lost,
	       "a next writer does not begin anew");
	ok(comes(seat_is_free), "then its seat is free");
	ok(clock_ns() - lost >= wait_ms * NS_PER_MS, "not before its time");
	is_int((int)target_state(0), DYING, "what it may write to is nobody's");
	is_int(fetch_live(c, 1, N, RAM), N, "the keys are where they were");
	from = clock_ns();
	successor();
	is_int((int)target_state(0), DYING,
	       "nor is it to a next writer, who does not know whose it was");
	got = must(gpc_reserve(c, VRAM, BLOCKS, all, NULL, GPC_PARTIAL, 100));
	is_int(got, BLOCKS - N, "which gives it to nobody");
	must(gpc_release(c, all, (uint32_t)got));
	ok(comes(is_free), "then it is free");
	ok(clock_ns() - from >= wait_ms * NS_PER_MS, "not before its time");
	finish("unseen");
}

static int body(void)
{
	cache_thread = false;
	sh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		bail("no shared page");
	test_closed(leads, false);
	test_closed(leads_and_releases, true);
	test_exited(leads, false);
	test_exited(leads_and_releases, true);
	test_rank_closes();
	test_rank_never(false);
	test_rank_never(true);
	test_unseen();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
