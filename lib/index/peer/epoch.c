/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.c - read-side sections and grace periods between processes.
 *
 * A scan cannot miss a section, for this reason.  A reader stores two words: the epoch of its
 * place among the seat's and, if the place lies above it, the seat's high-water mark `sections`.
 * Only then, after the full barrier of its compare-and-swap, does it read the table.  A writer
 * unpublishes an entry, then raises the epoch, then passes a full barrier, and then scans.  Take
 * either word.  If the scanner reads it without the reader's store, the scanner's barrier came
 * before the reader's, so the reader finds the table without the entry.  So a mark that is too low
 * for a place is as harmless as a place that still reads idle: both say that the section began too
 * late to matter.
 *
 * Only the mark bounds the scan; the state of the seat does not.  A seat becomes TAKEN and
 * FREE at moments of its own.  Only the holder of the seat's lock byte lowers the mark, after it
 * has found all places idle.
 *
 * A place's epoch is the current one or an older one, since the reader may be held up between
 * reading it and storing it.  An older epoch only delays the grace period.  Epochs of 0 mean
 * idle, so the first epoch is 1.
 * Tests: t/index/stopped.t t/index/epoch.t t/torture/grace.t */
#include "config.h"

#include "index/peer/epoch.h"

/* Threads of one process raise the mark, each to cover its own place. */
static void raise_mark(struct shm_seat *seat, uint32_t to)
{
	uint32_t mark = load_relaxed(&seat->sections);

	while (mark < to && !order_cas32(&seat->sections, mark, to))
		mark = load_relaxed(&seat->sections);
}

/* The current epoch, never 0: a fresh control segment is all zero. */
static uint64_t current(struct shm_shared *shared)
{
	uint64_t epoch = load_relaxed(&shared->epoch);

	if (__builtin_expect(!epoch, 0)) {
		order_cas64(&shared->epoch, 0, 1);
		epoch = load_relaxed(&shared->epoch);
	}
	return epoch;
}

bool epoch_enter(const struct segment *s, uint32_t peer, uint32_t i)
{
	struct shm_section *sec = seg_section(s, peer, i);
	struct shm_shared *shared = seg_shared(s);

	if (load_relaxed(&sec->epoch))
		return false;
	/* done < ticket holds in every idle place that was ever used.  The ticket is raised from 0
	 * only: a thread that comes here late must leave a ticket alone that a device has been
	 * given. */
	if (__builtin_expect(!load_relaxed(&sec->ticket), 0))
		order_cas64(&sec->ticket, 0, 1);
	if (__builtin_expect(load_relaxed(&seg_seat(s, peer)->sections) <= i, 0))
		raise_mark(seg_seat(s, peer), i + 1);
	/* before the epoch, so that an open place never shows the age of its last use; two
	 * threads that compete store nearly the same */
	store_relaxed(&sec->since_ns, clock_coarse_ns());
	/* (E) a full barrier: other processes can see the place before we read anything of the
	 * table.  Pairs with (F); t/model/grace.pml.  If we die from here on, the place stays open
	 * until the seat is reaped. */
	return order_cas64(&sec->epoch, 0, current(shared));
}

void epoch_leave(const struct segment *s, uint32_t peer, uint32_t i)
{
	struct shm_section *sec = seg_section(s, peer, i);

	if (load_relaxed(&sec->kind))
		store_relaxed(&sec->kind, 0);
	/* (G) the section's loads are done before the place is idle; pairs with the loads of
	 * epoch_is_open.  If we die before it, the section lasts until the seat is reaped. */
	store_release(&sec->epoch, 0);
}

void epoch_end(struct shm_section *sec)
{
	uint64_t last = MAX(load_relaxed(&sec->ticket), load_relaxed(&sec->done));

	if (last >> 62) { /* scribbled over; a later ticket would wrap */
		last = 1ull << 62;
		store_relaxed(&sec->done, 0);
	}
	store_relaxed(&sec->ticket, last + 1);
	store_release(&sec->epoch, 0);
}

bool epoch_is_open(const struct shm_section *sec)
{
	/* acquire: pairs with (G), and with the device's signal */
	return load_acquire(&sec->epoch) && load_acquire(&sec->done) < load_relaxed(&sec->ticket);
}

bool epoch_sweep(const struct segment *s, uint32_t peer, uint32_t i)
{
	struct shm_section *sec = seg_section(s, peer, i);
	uint64_t ticket = load_relaxed(&sec->ticket), done = load_acquire(&sec->done);

	if (load_relaxed(&sec->kind) != 1 || !load_relaxed(&sec->epoch) || done < ticket)
		return false;
	/* The ticket comes first.  The place counts as open again for a moment, and then is idle
	 * with done < ticket; t/model/section.pml.  If we die between the two, the seat is reaped
	 * with it. */
	store_relaxed(&sec->ticket, MAX(done, ticket) + 1);
	epoch_leave(s, peer, i);
	return true;
}

uint64_t epoch_start(const struct segment *s)
{
	/* (F) a full barrier: the caller's unpublishing is seen by every section that
	 * a scan for this cookie does not see.  Pairs with (E).  If we die here,
	 * nobody waits for the cookie, and nothing was freed. */
	current(seg_shared(s));
	return order_add64(&seg_shared(s)->epoch, 1) + 1;
}

/* The oldest open epoch among the sections of all seats, at most `oldest`.  A place whose word
 * somebody has scribbled over tells no age, so it counts as the oldest. */
static uint64_t scan_sections(const struct segment *s, uint64_t oldest)
{
	uint32_t peer, i, mark, peers = s->header.geometry.max_peers;
	const uint64_t *word = &seg_shared(s)->epoch;
	uint64_t now = load_relaxed(word);

	for (peer = 0; peer < peers; peer++) {
		mark = load_relaxed(&seg_seat(s, peer)->sections);
		mark = MIN(mark, SHM_SECTIONS);
		for (i = 0; i < mark; i++) {
			const struct shm_section *sec = seg_section(s, peer, i);
			uint64_t epoch = load_acquire(&sec->epoch);

			if (epoch > now && epoch > (now = load_relaxed(word)))
				epoch = 1;
			if (epoch && epoch < oldest && epoch_is_open(sec))
				oldest = epoch;
		}
	}
	return oldest;
}

/* For the writer, which does not believe words that a peer might have scribbled over. */
bool epoch_over(const struct segment *s, uint64_t cookie)
{
	order_fence(); /* after (F), as in epoch_done */
	return scan_sections(s, cookie) >= cookie;
}

/* `completed` keeps the result of a scan, so that one of many pollers scans.  A scan proves
 * nothing about grace periods that began after it, so the epoch is read before the scan. */
bool epoch_done(const struct segment *s, uint64_t cookie)
{
	struct shm_shared *shared = seg_shared(s);
	uint64_t proved, known;
	int tries;

	/* acquire: pairs with (B) */
	known = load_acquire(&shared->completed);
	proved = load_relaxed(&shared->epoch);
	if (known >= cookie && known <= proved)
		return true;
	/* after (F) of every grace period up to `proved`: the thread that raised the epoch to the
	 * value read did it with a full barrier, which this one follows */
	order_fence();
	proved = scan_sections(s, proved);
	for (tries = 3; known < proved && tries; tries--) {
		/* (B) a full barrier: the sections that were found idle are over for each reader
		 * of the result.  If we die before it, the next poller scans for itself. */
		if (order_cas64(&shared->completed, known, proved))
			break;
		known = load_relaxed(&shared->completed);
	}
	return proved >= cookie;
}
