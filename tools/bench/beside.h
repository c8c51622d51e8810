/* SPDX-License-Identifier: Apache-2.0 */
/* beside.h - one table of another make, filled, and its measurements. */
#ifndef GPC_TOOLS_BESIDE_H
#define GPC_TOOLS_BESIDE_H

#include "tools/bench/bench.h"

enum {
	BESIDE_PART = 1024, /* keys of one insertion while a table is filled */
	BESIDE_KEYS = 1 << 16,
	BESIDE_KEYS_QUICK = 1 << 12, /* of a round */
};

struct beside { /* one table of another make */
	const struct bench_peer *p;
	void *table;
	gpc *c;                               /* its hash makes the keys */
	uint64_t salt, entries, oldest, next; /* numbers of its keys */
	uint32_t n, batch;                    /* of a round, and of a call */
	uint64_t *numbers;
	struct bench_key *keys, *out;
	int32_t *expect, *got;
};

/* False: the reason is in the row. */
bool beside_open(struct beside *t, const struct bench_peer *p, gpc *c, uint64_t entries,
		 struct bench_row *row);
void beside_close(struct beside *t);

void beside_keys(const struct beside *t, const uint64_t *numbers, uint32_t n,
		 struct bench_key *ret);
int32_t beside_value(uint64_t number);
/* The n keys behind the last ones. */
int beside_insert_next(struct beside *t, uint32_t n);

/* Add rows for the peers that this build does not have. */
void beside_skip_absent(const char *work, const char *unit, uint64_t entries, uint32_t batch);

#endif
