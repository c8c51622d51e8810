/* SPDX-License-Identifier: Apache-2.0 */
/* The trace reader of gpc-replay on anything: a trace is taken, and what it became is sound, or it
 * is refused in one message that names the line.  Memory stays below what the text can hold.
 * Tests: tools/replay/trace.c */
#include "config.h"

#include "fuzz.h"

#include "tools/replay/replay.h"

enum { N_TAKEN, N_REQUESTS, N_REFUSED, N_JSON, N_CHAIN, N_EMPTY };
static const char *const fuzz_counts[FUZZ_COUNTS + 1] = {
	"taken",           "requests", "refused", "refused as JSON", "refused for a predecessor",
	"refused as empty"
};

static char said[512];
static int times;

/* Of cli.c; what trace_load says. */
void cli_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
	times++;
}

static void fuzz_begin(void)
{
}

static void fuzz_end(void)
{
}

static void judge_refused(size_t lines)
{
	unsigned line;

	fuzz_count(N_REFUSED);
	fuzz_must(times == 1, "%d messages: %s", times, said);
	if (strstr(said, "there are no requests")) {
		fuzz_count(N_EMPTY);
		return;
	}
	fuzz_must(sscanf(said, "-:%u: ", &line) == 1 && line >= 1 && line <= lines, "no line: %s",
		  said);
	if (strstr(said, "predecessor"))
		fuzz_count(N_CHAIN);
	else if (!strstr(said, "hash_ids") && !strstr(said, "length") && !strstr(said, "object"))
		fuzz_count(N_JSON);
}

static void judge_taken(const struct trace *t, size_t size)
{
	uint64_t sum = 0, n;
	uint32_t i, longest = 0;

	fuzz_count(N_TAKEN);
	fuzz_must(!times, "taken with a message: %s", said);
	fuzz_must(t->requests && t->requests <= size && t->refs <= size, "%u requests",
		  t->requests);
	for (i = 0; i < t->requests; i++) {
		fuzz_must(t->start[i] == sum && t->start[i + 1] >= sum, "start %u", i);
		n = t->start[i + 1] - sum;
		longest = n > longest ? (uint32_t)n : longest;
		for (; sum < t->start[i + 1]; sum++)
			fuzz_must(t->ids[sum] <= INT64_MAX, "an id");
		fuzz_count(N_REQUESTS);
	}
	fuzz_must(sum == t->refs && longest == t->longest, "sums");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *real = stdin, *f = size ? fmemopen((void *)data, size, "r") : NULL;
	struct trace t = { 0 };
	size_t i, lines = 1;

	if (!f)
		return 0;
	for (i = 0; i < size; i++)
		lines += data[i] == '\n';
	said[0] = 0;
	times = 0;
	stdin = f;
	if (trace_load("-", &t))
		judge_refused(lines);
	else
		judge_taken(&t, size);
	stdin = real;
	fclose(f);
	trace_free(&t);
	return 0;
}

/* ---- traces, and nearly traces ---- */

struct text {
	char *at;
	size_t left;
	uint64_t random;
};

static void add(struct text *t, const char *s)
{
	size_t n = strlen(s);

	n = n < t->left ? n : t->left;
	memcpy(t->at, s, n);
	t->at += n;
	t->left -= n;
}

static void add_number(struct text *t, uint64_t n)
{
	char s[32];

	snprintf(s, sizeof(s), "%llu", (unsigned long long)n);
	add(t, s);
}

/* What a trace should not have. */
static const char *odd(struct text *t)
{
	static const char *const all[] = { "-1",
					   "1e9",
					   "1.5",
					   "18446744073709551615",
					   "9223372036854775807",
					   "null",
					   "true",
					   "[]",
					   "{}",
					   "\"7\"",
					   "",
					   "[[[[[[[[",
					   "\"\\ud800\"",
					   "\"\\u0000\"",
					   "1e999",
					   "00",
					   "99999999999999999999",
					   "\x80\xff",
					   "\"hash_ids\":[1],\"hash_ids\":[2]" };

	return all[fuzz_draw(&t->random, sizeof(all) / sizeof(*all))];
}

/* Ids as the format wants them: each names a prefix, hence its predecessors. */
static void add_ids(struct text *t, bool is_odd)
{
	uint32_t i, n = fuzz_draw(&t->random, 9), family = fuzz_draw(&t->random, 3);

	for (i = 0; i < n; i++) {
		add(t, i ? ", " : "");
		if (is_odd && !fuzz_draw(&t->random, 8))
			add(t, odd(t));
		else
			add_number(t, (uint64_t)family << 40 | i);
	}
}

static void add_request(struct text *t, bool is_odd)
{
	add(t, is_odd && !fuzz_draw(&t->random, 4) ? "[" : "{");
	add(t, "\"timestamp\": ");
	add(t, is_odd && !fuzz_draw(&t->random, 4) ? odd(t) : "27482");
	add(t, ", \"input_length\": ");
	add(t, is_odd && !fuzz_draw(&t->random, 4) ? odd(t) : "6955");
	add(t, ", \"output_length\": 52, \"hash_ids\": [");
	add_ids(t, is_odd);
	add(t, is_odd && !fuzz_draw(&t->random, 4) ? "]" : "]}");
	add(t, fuzz_draw(&t->random, 16) ? "\n" : "\r\n \n");
}

static size_t fuzz_seed(uint64_t random, uint8_t *to, size_t room)
{
	struct text t = { (char *)to, room, random };
	uint32_t n = 1 + fuzz_draw(&t.random, 5), bad = fuzz_draw(&t.random, 8);

	if (!fuzz_draw(&t.random, 64))
		add(&t, "\n \t\r\n");
	else
		while (n--)
			add_request(&t, bad == n);
	return room - t.left;
}

#ifndef FUZZ_LIBFUZZER
FUZZ_MAIN("trace", 78000)
#endif
