/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - recorded requests, as arrays, and the reader of the two formats that they come in.
 *
 *   trace.c     lines; which format it is; rows of whole prompts
 *   row.c       the fields of one row, each checked
 *   known.c     pairs of numbers that the reader has seen
 *   session.c   names of sessions, as numbers
 *   turns.c     rows of one turn of a session each: its prompt, and when it is sent
 *   deal.c      which worker gets which request
 *
 *   first row       is                    hash_ids                    order of the requests
 *   no session_id   a whole prompt        each names a whole prefix   that of the lines
 *   session_id      a turn of a session   what is new in this turn    that of the times
 *
 * A row of the other kind than the first one is refused.
 * Tests: t/tools/replay-trace.t t/tools/replay-turns.t t/fuzz/trace.t */
#ifndef GPC_TOOLS_REPLAY_TRACE_H
#define GPC_TOOLS_REPLAY_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* in a block of a turn, where no option gives it: as AIPerf has it */
	TURN_TOKENS = 512,
	TURN_CONCURRENCY = 64, /* sessions at a time, where all sessions begin at one time */
	CONCURRENCY_MOST = 1 << 20,
	LENGTH_MOST = INT32_MAX, /* tokens */
	SESSION_MOST = 256,      /* bytes of a name */
	PROMPT_MOST = 1 << 20,   /* blocks of one turn's prompt, and ... */
	/* ... blocks of all prompts: a short row may ask for a long prompt */
	REFS_MOST = 1 << 28,
	MS_MOST_EXPONENT = 15, /* timestamp, delay: at most 1e15 ms */
};

struct trace {
	uint64_t *ids;   /* ids of all requests, one request after the other */
	uint64_t *start; /* requests + 1 */
	uint32_t requests, longest;
	uint64_t refs; /* start[requests] */

	uint32_t *session;        /* for each request: one of `sessions` */
	uint64_t *hash;           /* for each session: the hash of its name */
	uint32_t sessions, named; /* named: requests whose row names a session */
	bool turns;
	uint32_t concurrency; /* for turns: sessions at a time; 0: as the times say */
};

struct trace_options {
	uint64_t tokens;      /* tokens in a block of a turn; 0: TURN_TOKENS */
	uint64_t concurrency; /* 0: as the trace says */
};

/* 0, or -1 after a message that names the line. */
int trace_load(const char *path, const struct trace_options *o, struct trace *ret);
void trace_free(struct trace *t);

/* ---- the worker of each request ---- */

enum sticky {
	STICKY_NONE, /* worker i of N gets the requests i, i + N, ... */
	/* a session's first request goes to the least loaded worker, and the others follow it */
	STICKY_SESSION,
	STICKY_HASH, /* the session's name decides: rendezvous hashing */
};

/* The fate of the first worker in the middle of the trace. */
enum change {
	CHANGE_NONE,
	CHANGE_DIES,    /* it is back at once, with an empty cache */
	CHANGE_ADDED,   /* it stays, and there is one worker more */
	CHANGE_REMOVED, /* its sessions go to others */
	CHANGES,
};

struct deal {
	uint32_t *to;    /* for each request: one of `caches` */
	uint32_t caches; /* workers, and one more where a cache begins in the middle */
};

/* 0, or -1 after a message. */
int deal_make(const struct trace *t, uint32_t workers, enum sticky how, enum change change,
	      struct deal *ret);
void deal_free(struct deal *d);

/* ---- inside of the reader ---- */

#define NO_ID UINT64_MAX /* predecessor of a first block; ids stay below it */

struct known_pair {
	uint64_t id, under, value;
	uint32_t line;
}; /* line 0: an empty place */

struct known {
	struct known_pair *pairs; /* hash table, at most half full */
	size_t places, n;
};

/* The entry of the id, with `value` and `line` if it was not known; NULL after a message. */
struct known_pair *known_add(struct known *k, uint64_t id, uint64_t under, uint64_t value,
			     uint32_t line);

struct names {
	/* the key is a hash and a number among the names of that hash; the value is the session */
	struct known known;
	char **text; /* for each session; NULL: it has no name */
	size_t text_room, hash_room;
};

struct turns;

struct loader {
	const char *path;
	const struct trace_options *o;
	uint32_t line, first; /* first: number of the line with the first row */
	struct trace t;
	size_t ids_room, start_room, session_room;
	struct known parents; /* the key is an id and 0; the value is the id before it */
	struct names names;
	struct turns *turns;
};

/* Makes room for one item more than n in *array; 0, or -1 after a message. */
int trace_room(void **array, size_t *room, size_t n, size_t item);
/* A message with the number of the line; returns -1. */
int trace_complain(const struct loader *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The message that a field is absent (v NULL), or is not of the wanted kind; returns -1. */
int trace_bad(const struct loader *l, const char *field, const json_t *v, const char *wanted);

struct row {
	const json_t *ids; /* an array of n whole numbers, all checked */
	uint32_t n;
	char session[SESSION_MOST + 1];
	bool named, turn, restart;
	uint64_t input, output;      /* tokens */
	uint64_t start_us, delay_us; /* of a turn alone */
};

int row_take(const struct loader *l, const json_t *o, struct row *ret);

/* The number of that session; a new number for a new name, and for a row without a name. */
int names_add(struct loader *l, const struct row *r, uint32_t *ret);
void names_free(struct names *n);

int turns_take(struct loader *l, const struct row *r, uint32_t session);
/* Called after the last line: puts the requests in the order of their times. */
int turns_end(struct loader *l);
void turns_free(struct turns *t);

#endif
