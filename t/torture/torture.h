/* SPDX-License-Identifier: Apache-2.0 */
/* torture.h - what the torture programs share: options, a page of all members, who is
 * alive, who owns which block, and the blocks' bytes.
 *
 * A member has a place; each process that fills it has a life of its own there.  The
 * boss ends a life first and kills then: a mark that a dead life left on a block counts
 * for nothing, any other one is a second owner. */
#ifndef GPC_T_TORTURE_H
#define GPC_T_TORTURE_H

#include "t/lib/crew.h"
#include "t/lib/options.h"

#define PLACES 32
#define POOLS  16
#define SLOTS  320
#define COUNTS 48

/* ---- options ---- */

struct options {
	uint64_t seed, kills;
	uint32_t seconds, workers;
	bool is_long; /* seconds or kills were given */
};

static struct options opt;

static const char options_help[] = "  --seconds N   how long\n"
				   "  --kills N     end after so many kills\n"
				   "  --seed S      what is drawn\n"
				   "  --workers N   1 to 8\n"
				   "  -h, --help\n"
				   "Without --seconds and --kills: the short form of make check.\n";

/* Options of the command line over those that `opt` has. */
TAP_FN void options_read(int argc, char **argv)
{
	static const struct option known[] = {
		{ "seconds", required_argument, NULL, 't' },
		{ "kills", required_argument, NULL, 'k' },
		{ "seed", required_argument, NULL, 's' },
		{ "workers", required_argument, NULL, 'w' },
		OPTION_HELP,
		{ NULL, 0, NULL, 0 },
	};
	struct timespec now;
	int o;

	clock_gettime(CLOCK_REALTIME, &now);
	opt.seed = (uint64_t)now.tv_sec * 1000003 ^ (uint64_t)now.tv_nsec;
	while ((o = option_next(argc, argv, known, options_help)) != -1) {
		switch (o) {
		case 't':
			opt.seconds = (uint32_t)option_number(optarg, "seconds", 1, MOST_SECONDS);
			opt.kills = opt.is_long ? opt.kills : UINT64_MAX;
			opt.is_long = true;
			break;
		case 'k':
			opt.kills = option_number(optarg, "kills", 1, UINT64_MAX);
			opt.seconds = opt.is_long ? opt.seconds : MOST_SECONDS;
			opt.is_long = true;
			break;
		case 's':
			opt.seed = option_number(optarg, "seed", 0, UINT64_MAX);
			break;
		default:
			opt.workers = (uint32_t)option_number(optarg, "workers", 1, 8);
		}
	}
}

static uint32_t stretch = 1; /* of rounds, and of what is between two kills */

/* Is there another round?  Where a busy machine has not come to all that the short form is about, there
 * are more of them, in which kills come as much later as the machine is slower.  The watchdog counts
 * processor time. */
TAP_FN bool short_goes_on(uint64_t *until, uint64_t kills, bool all_done)
{
	if (clock_ns() < *until && kills < opt.kills)
		return true;
	if (opt.is_long || all_done)
		return false;
	stretch = (uint32_t)MIN(patience_stretch(), 32.0);
	*until = clock_ns() + stretch * opt.seconds * 1000 * NS_PER_MS;
	opt.kills = opt.kills == UINT64_MAX ? UINT64_MAX : MAX(opt.kills, kills + 100);
	return true;
}

/* ---- the page ---- */

struct torture_block {
	uint32_t owner; /* the name of the life that may write */
	uint32_t pad;
	uint64_t word[7]; /* its key, again and again */
};

struct torture {
	uint32_t stop;    /* round in which workers come to rest */
	uint32_t resting; /* how many have */
	uint32_t leave;   /* round in which they close */
	uint32_t life[PLACES];
	uint64_t count[COUNTS];
	struct torture_block block[POOLS][SLOTS];
};

static struct torture *page;
static uint32_t my_place, my_name;

TAP_FN void torture_begin(void)
{
	crew_begin();
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		bail("no shared page");
}

TAP_FN void count(int what, uint64_t n)
{
	__atomic_fetch_add(&page->count[what], n, __ATOMIC_RELAXED);
}

/* ---- lives ---- */

TAP_FN void life_begin(int place)
{
	my_place = (uint32_t)place;
	my_name = load_acquire(&page->life[place]) << 8 | (my_place + 1);
}

TAP_FN void life_end(uint32_t place)
{
	__atomic_fetch_add(&page->life[place], 1, __ATOMIC_SEQ_CST);
}

static inline bool is_alive(uint32_t name)
{
	return (load_acquire(&page->life[(name & 0xff) - 1]) & 0xffffff) == name >> 8;
}

/* ---- blocks ---- */

TAP_FN struct torture_block *at(gpc_block b)
{
	need(b >= 0 && GPC_POOL(b) < POOLS && GPC_SLOT(b) < SLOTS,
	     "block 0x%x is none of the test's", (unsigned)b);
	return &page->block[GPC_POOL(b)][GPC_SLOT(b)];
}

/* What else a program wants to know of a reservation that came. */
static void (*owned)(gpc_block b);

/* It is ours again, or still. */
TAP_FN void own_again(gpc_block b, const char *how)
{
	uint32_t was = __atomic_exchange_n(&at(b)->owner, my_name, __ATOMIC_SEQ_CST);

	need(!was || !is_alive(was), "%s: block 0x%x came to place %u, place %u has it", how,
	     (unsigned)b, my_place, (was & 0xff) - 1);
}

/* A reservation came: nobody else who lives may have it. */
TAP_FN void own(gpc_block b, const char *how)
{
	own_again(b, how);
	if (owned)
		owned(b);
}

/* Before it is published or given back. */
TAP_FN void disown(gpc_block b)
{
	uint32_t was = __atomic_exchange_n(&at(b)->owner, 0, __ATOMIC_SEQ_CST);

	need(was == my_name, "place %u took block 0x%x of place %u", (was & 0xff) - 1, (unsigned)b,
	     my_place);
}

TAP_FN void put(gpc_block b, gpc_key key)
{
	int i;

	for (i = 0; i < 7; i++)
		store_relaxed(&at(b)->word[i], key.w[i & 1]);
}

TAP_FN bool holds(gpc_block b, gpc_key key)
{
	const struct torture_block *p = at(b);
	int i;

	for (i = 0; i < 7; i++)
		if (load_relaxed(&p->word[i]) != key.w[i & 1])
			return false;
	return true;
}

TAP_FN void copy(gpc_block from, gpc_block to)
{
	struct torture_block *a = at(from), *b = at(to);
	int i;

	for (i = 0; i < 7; i++)
		store_relaxed(&b->word[i], load_relaxed(&a->word[i]));
}

/* ---- keys: chains that everybody works on, and those of the survivor ---- */

#define CHAINS 40
#define DEEP   6
#define VAULT  24 /* keys, in chains as deep */
#define PINNED 12

static inline gpc_key key_of(int chain, int depth)
{
	return depth < 0 ? crew_no_key : crew_key((uint64_t)chain * 16 + (uint64_t)depth);
}

static inline gpc_key vault_key(int i)
{
	return crew_key(100000 + (uint64_t)i);
}

static inline gpc_key pinned_key(int i)
{
	return crew_key(200000 + (uint64_t)i);
}

TAP_FN void nap(uint32_t us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&ts, NULL);
}

#endif
