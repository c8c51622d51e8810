/* SPDX-License-Identifier: Apache-2.0 */
/* The path of a prompt through a scheduler in Python.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

enum {
	CACHED_BY_PYTHON = 1 << 17,
	CACHED_QUICK = 1 << 12,
	PROMPT_BLOCKS = 100, /* 1,600 tokens */
	PROMPTS = 200,
	PROMPTS_QUICK = 20,
};

struct python {
	struct bench_python got;
	struct contender *packed, *tuple;
	const char *why;
};

/* The scheduler measures itself, in a process of its own, all three ways at once. */
static double python_value(void *arg)
{
	struct python *p = arg;

	if (bench_python_path(PROMPT_BLOCKS, bench.quick ? CACHED_QUICK : CACHED_BY_PYTHON,
			      bench.quick ? PROMPTS_QUICK : PROMPTS, &p->got, &p->why))
		return -1;
	p->packed->at[p->packed->n++] = p->got.packed.us;
	p->tuple->at[p->tuple->n++] = p->got.tuple.us;
	return p->got.usual.us;
}

static void python_row(const struct contender *c, const struct contender *ours, const char *what,
		       const struct python *p, double mark)
{
	struct bench_row row = row_new("match", "us/prompt", "%s: %s", p->got.python, what);

	row.entries = bench.quick ? CACHED_QUICK : CACHED_BY_PYTHON;
	row.batch = PROMPT_BLOCKS;
	row_against(&row, c, ours);
	row_mark(&row, mark > 0 ? MARK_RATIO_LEAST : MARK_NONE, mark);
	report_add(&row);
}

/* The reference of the ratios.  It is measured anew in Python's rounds, so it is not the figure of
 * the first row. */
static void ours_row(const struct contender *c)
{
	struct bench_row row = row_new("match", "us/prompt", "%s", c->name);

	row.entries = bench.size;
	row.batch = PROMPT_BLOCKS;
	row_value(&row, c);
	report_add(&row);
}

/* Fewer blocks are cached there than here, which makes it faster, and ready sooner. */
void beside_path(const struct contender *ours)
{
	static struct contender c[2], packed, tuple;
	struct bench_row row = row_new("match", "us/prompt", "a scheduler in Python");
	struct python p = { .packed = &packed, .tuple = &tuple };

	report_progress("a scheduler in Python");
	if (bench_python_path(PROMPT_BLOCKS, PROMPT_BLOCKS, 1, &p.got, &p.why)) {
		row.batch = PROMPT_BLOCKS;
		row_skip(&row, "%s", p.why);
		report_add(&row);
		return;
	}
	packed.n = tuple.n = 0;
	c[0] = *ours;
	c[0].n = 0;
	c[0].name = "gpc: hash to release, beside Python";
	c[1] = (struct contender){ .name = "Python", .arg = &p, .value = python_value };
	rounds_run_few("match, Python", c, 2);
	ours_row(&c[0]);
	python_row(&c[1], &c[0], p.got.usual.what, &p, 25);
	python_row(&packed, &c[0], p.got.packed.what, &p, 0);
	python_row(&tuple, &c[0], p.got.tuple.what, &p, 0);
}
