/* SPDX-License-Identifier: Apache-2.0 */
/* What was computed from bytes that were dropped as bad is never found again (rule B19): engines
 * compute, evict, ask for what is below RAM and drop, while stewards of the file are stopped and
 * killed, and headers of it are lost.
 *
 * Each block has in its bytes how often it or a block before it had been dropped when it was
 * computed.  A block that is found has the number of now, but for the time in which a drop of its
 * prompt is not acknowledged.  Half of the drops are of a key alone: then its own bytes are never found again, and what follows
 * it counts as before.
 *
 *   --seconds N --seed S --workers N
 * Tests: lib/tiers/steward/drops.c lib/tiers/steward/open.c */
#include "t/lib/below.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "t/lib/options.h"
#include "t/lib/crew.h"

enum { CHAINS = 12, LEN = 8, MOST = 8, STEP = 16 };

struct image {
	uint64_t magic, chain, place, drops, alone;
};

static struct chain {
	pthread_mutex_t lock;
	uint64_t drops[LEN];
	uint64_t alone[LEN]; /* of these keys, without what follows them */
	uint32_t open;       /* drops that are not acknowledged yet */
} chain[CHAINS];

static gpc *c;
static int ram, vram;
static struct gpc_tiers_options options;
static uint64_t seed, seconds, end_ns;
static uint32_t workers = 3;
static bool stops;
static uint64_t found, dropped, late, kept, wrong;

/* ---- bytes ---- */

static uint64_t drops_of(const struct chain *x, uint32_t place)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i <= place; i++)
		sum += x->drops[i];
	return sum;
}

static void compute(gpc_block b, uint32_t n, uint32_t place)
{
	struct image m = { 0x67706364726f7073ull, n, place, drops_of(&chain[n], place),
			   chain[n].alone[place] };

	memcpy(bytes_place(c, b, 0), &m, sizeof(m));
}

static bool is_right(gpc_block b, uint32_t n, uint32_t place)
{
	struct image m;

	memcpy(&m, bytes_place(c, b, 0), sizeof(m));
	if (m.magic == 0x67706364726f7073ull && m.chain == n && m.place == place &&
	    m.drops == drops_of(&chain[n], place) && m.alone == chain[n].alone[place])
		return true;
	if (!chain[n].open && !__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED))
		diag("prompt %u, block %u in pool %d: of prompt %llu, block %llu, after %llu and %llu drops, "
		     "not %llu and %llu",
		     n, place, (int)GPC_POOL(b), (unsigned long long)m.chain,
		     (unsigned long long)m.place, (unsigned long long)m.drops,
		     (unsigned long long)m.alone, (unsigned long long)drops_of(&chain[n], place),
		     (unsigned long long)chain[n].alone[place]);
	return false;
}

/* ---- engines ---- */

static void ask_and_compute(const gpc_key *k, uint32_t n, uint64_t *draw)
{
	int pool = crew_random(draw, 2) ? ram : vram, got, i, upto;
	bool right = true;
	gpc_block b[LEN];

	gpc_prefetch(c, vram, k + 1, LEN, 0, 300);
	got = must(gpc_acquire(c, 0, k + 1, LEN, b, 0));
	for (i = 0; i < got; i++)
		right &= is_right(b[i], n, (uint32_t)i);
	__atomic_fetch_add(&found, (uint64_t)got, __ATOMIC_RELAXED);
	upto = got < LEN ? got + 1 + (int)crew_random(draw, (uint32_t)(LEN - got)) : got;
	if (right && upto > got &&
	    gpc_reserve(c, pool, (uint32_t)(upto - got), b + got, NULL, 0, 200) == upto - got) {
		for (i = got; i < upto; i++)
			compute(b[i], n, (uint32_t)i);
		gpc_publish(c, k + got, k + got + 1, b + got, (uint32_t)(upto - got), NULL, 0,
			    5000);
		got = upto;
	}
	must(gpc_release(c, b, (uint32_t)got));
}

/* Was it live?  In the moment in which a reference is taken it may be evicted, and then nothing is
 * dropped. */
static bool does_drop(gpc_block b, uint32_t flags)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	gpc_ticket ticket = 0;
	uint64_t before;
	bool did;

	pthread_mutex_lock(&one);
	before = stats_of(c, info_of(c).peer).dropped;
	must(gpc_drop(c, &b, 1, &ticket, flags, 0));
	must(gpc_ticket_wait(c, ticket, -1));
	did = stats_of(c, info_of(c).peer).dropped != before;
	pthread_mutex_unlock(&one);
	return did;
}

/* Acknowledged by a steward, whichever that is by then. */
static void drop_one(const gpc_key *k, uint32_t n, uint64_t *draw)
{
	uint32_t place = (uint32_t)crew_random(draw, LEN);
	uint32_t flags = crew_random(draw, 2) ? GPC_ONLY : 0;
	uint64_t until;
	gpc_block b;
	bool did;

	if (gpc_lookup(c, 0, &k[place + 1], 1, &b, GPC_QUIET | GPC_REF) != 1)
		return;
	did = does_drop(b, flags);
	must(gpc_release(c, &b, 1));
	if (!did) {
		__atomic_fetch_add(&late, 1, __ATOMIC_RELAXED);
		return;
	}
	++*(flags ? &chain[n].alone[place] : &chain[n].drops[place]);
	chain[n].open++;
	pthread_mutex_unlock(&chain[n].lock);
	until = MAX(end_ns, clock_ns()) + 5000 * NS_PER_MS;
	while (gpc_tiers_sync(c, 20000) < 0 && clock_ns() < until)
		usleep(1000);
	pthread_mutex_lock(&chain[n].lock);
	chain[n].open--;
	__atomic_fetch_add(&dropped, 1, __ATOMIC_RELAXED);
}

static void look_behind_gaps(const gpc_key *k, uint32_t n)
{
	gpc_block b;
	uint32_t i;

	for (i = 0; i < LEN; i++)
		if (gpc_lookup(c, 0, &k[i + 1], 1, &b, GPC_QUIET | GPC_REF) == 1) {
			is_right(b, n, i);
			must(gpc_release(c, &b, 1));
		}
}

/* The short form ends when blocks were found and dropped: a busy machine takes longer for that. */
static bool goes_on(void)
{
	return clock_ns() < end_ns || (!seconds && !(__atomic_load_n(&found, __ATOMIC_RELAXED) &&
						     __atomic_load_n(&dropped, __ATOMIC_RELAXED)));
}

static void *engine(void *arg)
{
	uint64_t draw = seed * 31 + (uintptr_t)arg;
	gpc_block b[4];
	gpc_key k[LEN + 1];
	uint32_t n, act;
	int got;

	while (goes_on()) {
		n = (uint32_t)crew_random(&draw, CHAINS);
		act = (uint32_t)crew_random(&draw, 100);
		pthread_mutex_lock(&chain[n].lock);
		chain_keys(c, 1 + STEP * (uint64_t)n, LEN, k);
		if (act < 75) {
			ask_and_compute(k, n, &draw);
		} else if (act < 78) {
			drop_one(k, n, &draw);
		} else if (act < 96) {
			got = gpc_evict(c, crew_random(&draw, 2) ? vram : ram,
					1 + (uint32_t)crew_random(&draw, 4), b, GPC_TAKE, 200);
			if (got > 0)
				must(gpc_release(c, b, (uint32_t)got));
		} else {
			look_behind_gaps(k, n);
		}
		pthread_mutex_unlock(&chain[n].lock);
	}
	return NULL;
}

/* ---- stewards ---- */

static pid_t steward(void)
{
	gpc_tiers *t;
	pid_t pid = fork();
	int i;

	if (pid)
		return pid;
	for (i = 0; i < 100; i++) {
		if (!gpc_tiers_open(cache_name, &options, &t))
			for (;;)
				pause();
		usleep(20000);
	}
	fprintf(stderr, "# a steward does not start: %s\n", gpc_last_error());
	_exit(3);
}

static void lose_headers(uint64_t *draw)
{
	int i;

	for (i = 0; i < 6; i++)
		tiers_lose_header(c, 1 + STEP * crew_random(draw, CHAINS) + crew_random(draw, LEN));
}

static void *stewards(void *arg)
{
	uint64_t draw = seed * 77 + 5;
	pid_t pid = steward();

	(void)arg;
	while (!__atomic_load_n(&stops, __ATOMIC_SEQ_CST)) {
		usleep((useconds_t)(100000 + crew_random(&draw, 500000)));
		if (!crew_random(&draw, 4)) {
			stop_process(pid);
			usleep((useconds_t)crew_random(&draw, 100000));
			kill(pid, SIGCONT);
			usleep((useconds_t)crew_random(&draw, 30000));
		}
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		if (crew_random(&draw, 2))
			lose_headers(&draw);
		pid = steward();
		kept++;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return NULL;
}

/* ---- a run ---- */

static void run(uint64_t ms, uint32_t flags, uint32_t gaps, const char *what)
{
	pthread_t boss, thread[MOST];
	uintptr_t i;

	c = tiers_cache(1024);
	ram = bytes_ram(c, 16, 0, gaps);
	vram = bytes_vram(c, 64, 0, ram, 0);
	tiers_file();
	options = tiers_options(64);
	options.ahead = 8;
	options.flags = flags;
	found = dropped = late = kept = wrong = 0;
	stops = false;
	for (i = 0; i < CHAINS; i++) {
		chain[i] = (struct chain){ .open = 0 };
		pthread_mutex_init(&chain[i].lock, NULL);
	}
	end_ns = clock_ns() + ms * NS_PER_MS;
	if (pthread_create(&boss, NULL, stewards, NULL))
		bail("no thread");
	for (i = 0; i < workers; i++)
		if (pthread_create(&thread[i], NULL, engine, (void *)(i + 1)))
			bail("no thread");
	for (i = 0; i < workers; i++)
		pthread_join(thread[i], NULL);
	__atomic_store_n(&stops, true, __ATOMIC_SEQ_CST);
	pthread_join(boss, NULL);
	diag("%s: %llu blocks were found, %llu dropped, %llu evicted before that; %llu stewards killed",
	     what, (unsigned long long)found, (unsigned long long)dropped, (unsigned long long)late,
	     (unsigned long long)kept + 1);
	ok(found && dropped, "%s: blocks are found, and dropped", what);
	is_int((long long)wrong, 0, "%s: none of them was computed from what had been dropped",
	       what);
	unlink(tiers_path);
	fetch_end(c, what);
}

static int body(void)
{
	uint64_t ms = seconds ? seconds * 333 : 1000;

	diag("--seed %llu", (unsigned long long)seed);
	run(ms, 0, 0, "copies");
	run(ms, GPC_TIERS_EXCLUSIVE, 0, "exclusive");
	run(ms, 0, GPC_POOL_UNCHAINED, "copies of RAM with gaps");
	return done_testing();
}

static const char help[] = "  --seconds N   how long\n"
			   "  --seed S      what is drawn\n"
			   "  --workers N   1 to 8\n"
			   "  -h, --help\n"
			   "Without --seconds: the short form of make check.\n";

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "seconds", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 's' },
		{ "workers", required_argument, NULL, 'w' },
		OPTION_HELP,
		{ NULL, 0, NULL, 0 },
	};
	int o;

	seed = clock_ns();
	while ((o = option_next(argc, argv, known, help)) != -1)
		if (o == 't')
			seconds = option_number(optarg, "seconds", 1, MOST_SECONDS);
		else if (o == 's')
			seed = option_number(optarg, "seed", 0, UINT64_MAX);
		else
			workers = (uint32_t)option_number(optarg, "workers", 1, MOST);
	cache_dir_make();
	return tap_guard((unsigned)seconds + 60, body, cache_dir_remove);
}
