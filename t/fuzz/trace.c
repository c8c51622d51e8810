/* SPDX-License-Identifier: Apache-2.0 */
/* The trace reader of gpc-replay on anything: a trace is taken, and what it became is sound, or it
 * is refused in one message that names the line.  The prompts of rows of turns are longer than their
 * text: they stay below the limits of trace.h.
 * Tests: tools/replay/trace.c tools/replay/turns.c tools/replay/row.c tools/replay/session.c
 *   tools/replay/known.c */
#include "config.h"

#include "fuzz.h"

#include "tools/replay/replay.h"

enum { N_TAKEN, N_REQUESTS, N_REFUSED, N_JSON, N_CHAIN, N_EMPTY, N_TURNS, N_LONG, N_MIXED };
static const char *const fuzz_counts[FUZZ_COUNTS + 1] = { "taken",
							  "requests",
							  "refused",
							  "refused as JSON",
							  "refused for a predecessor",
							  "refused as empty",
							  "turns taken",
							  "refused for a size",
							  "refused as mixed" };

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
	else if (strstr(said, "with it") || strstr(said, "makes"))
		fuzz_count(N_LONG);
	else if (strstr(said, "this row has"))
		fuzz_count(N_MIXED);
	else if (strstr(said, "no JSON"))
		fuzz_count(N_JSON);
}

static void judge_taken(const struct trace *t, size_t size)
{
	uint64_t sum = 0, n;
	uint32_t i, longest = 0;

	fuzz_count(N_TAKEN);
	fuzz_must(!times, "taken with a message: %s", said);
	fuzz_must(t->requests && t->requests <= size, "%u requests", t->requests);
	fuzz_must(t->refs <= (t->turns ? REFS_MOST : size), "%llu references",
		  (unsigned long long)t->refs);
	fuzz_must(t->sessions <= t->requests && t->named <= t->requests, "%u sessions",
		  t->sessions);
	if (t->turns)
		fuzz_count(N_TURNS);
	for (i = 0; i < t->requests; i++) {
		fuzz_must(t->start[i] == sum && t->start[i + 1] >= sum, "start %u", i);
		n = t->start[i + 1] - sum;
		fuzz_must(t->session[i] < t->sessions, "session %u", t->session[i]);
		longest = n > longest ? (uint32_t)n : longest;
		for (; sum < t->start[i + 1]; sum++)
			fuzz_must(t->ids[sum] <= INT64_MAX, "an id");
		fuzz_count(N_REQUESTS);
	}
	fuzz_must(sum == t->refs && longest == t->longest, "sums");
}

/* Each request goes to somebody, those of a session to one. */
static void judge_deal(const struct trace *t)
{
	struct deal d;

	for (int how = STICKY_NONE; how <= STICKY_HASH; how++) {
		fuzz_must(!deal_make(t, 3, (enum sticky)how, CHANGE_NONE, &d), "deal");
		for (uint32_t i = 0; i < t->requests; i++) {
			fuzz_must(d.to[i] < 3, "worker %u", d.to[i]);
			if (how != STICKY_NONE && i && t->session[i] == t->session[i - 1])
				fuzz_must(d.to[i] == d.to[i - 1], "a session of two workers");
		}
		deal_free(&d);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *real = stdin, *f = size ? fmemopen((void *)data, size, "r") : NULL;
	const struct trace_options o = { .tokens = size % 3 ? 512 : 64 };
	struct trace t = { 0 };
	size_t i, lines = 1;

	if (!f)
		return 0;
	for (i = 0; i < size; i++)
		lines += data[i] == '\n';
	said[0] = 0;
	times = 0;
	stdin = f;
	if (trace_load("-", &o, &t)) {
		judge_refused(lines);
	} else {
		judge_taken(&t, size);
		judge_deal(&t);
	}
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

static void add_field(struct text *t, const char *name, bool is_odd, const char *value)
{
	if (!fuzz_draw(&t->random, 6))
		return;
	add(t, "\"");
	add(t, name);
	add(t, "\": ");
	add(t, is_odd && !fuzz_draw(&t->random, 4) ? odd(t) : value);
	add(t, ", ");
}

/* Of three sessions; as many blocks as the tokens make, with any luck. */
static void add_turn(struct text *t, bool is_odd)
{
	static const char *const sessions[] = { "\"a\"", "\"b\"", "\"longer\"" };
	static const char *const answers[] = { "0", "511", "3000", "2147483647" };
	uint32_t n = fuzz_draw(&t->random, 5), family = fuzz_draw(&t->random, 3);

	add(t, "{\"session_id\": ");
	add(t, is_odd && !fuzz_draw(&t->random, 8) ? odd(t) : sessions[fuzz_draw(&t->random, 3)]);
	add(t, ", ");
	add_field(t, "delay", is_odd, "12.5");
	add_field(t, "timestamp", is_odd, "4000.0");
	add_field(t, "output_length", is_odd, answers[fuzz_draw(&t->random, is_odd ? 4 : 3)]);
	if (!fuzz_draw(&t->random, 8))
		add_field(t, "is_restart", is_odd, "true");
	add(t, "\"input_length\": ");
	add_number(t, 512 * n - (n ? fuzz_draw(&t->random, 3) : 0));
	add(t, ", \"hash_ids\": [");
	for (uint32_t i = 0; i < n; i++) {
		add(t, i ? ", " : "");
		if (is_odd && !fuzz_draw(&t->random, 8))
			add(t, odd(t));
		else
			add_number(t, family * 2 + fuzz_draw(&t->random, 3));
	}
	add(t, "]}\n");
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
	bool turns = fuzz_draw(&t.random, 2), mixed = !fuzz_draw(&t.random, 16);

	if (!fuzz_draw(&t.random, 64))
		add(&t, "\n \t\r\n");
	else
		while (n--)
			(turns != (mixed && n == 1) ? add_turn : add_request)(&t, bad == n);
	return room - t.left;
}

#ifndef FUZZ_LIBFUZZER
FUZZ_MAIN("trace", 78000)
#endif
