/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - what the commands of gpc-inspect share.
 *
 * A command is a function and a row in the table of main.c.  Commands that look attach read-only:
 * they take no seat and have no effect on recency, and they can look at a dead or damaged cache as
 * well as at a live one.  ping attaches as a peer.  Only ping --put, reap, release, set, clear,
 * drop and rm act.
 * Tests: t/tools/inspect.t */
#ifndef GPC_TOOLS_INSPECT_H
#define GPC_TOOLS_INSPECT_H

#include "tools/common/cli.h"
#include "gpc.h"

#include <jansson.h>

/* options, as bits */
enum {
	OPT_POOL = 1 << 0,
	OPT_LIMIT = 1 << 1,
	OPT_FORCE = 1 << 2,
	OPT_STALE = 1 << 3,
	OPT_CSV = 1 << 4,
	OPT_TAG = 1 << 5,
	OPT_IDLE = 1 << 6,
	OPT_SINCE = 1 << 7,
	OPT_WATCH = 1 << 8,
	OPT_LIST = 1 << 9,
	OPT_DRY = 1 << 10,
	OPT_PUT = 1 << 11,
	OPT_DEADLINE = 1 << 12,
	OPT_PEER = 1 << 13,
	OPT_YES = 1 << 14,
	OPT_CONFIG = 1 << 15,
	OPT_LOOKS = 1 << 16,
};

/* exit status of `check`; elsewhere 1 */
enum {
	CHECK_VIOLATIONS = 1,
	CHECK_CANNOT_OPEN = 3,
};

struct inspect {
	const char *command;
	const char *dir;  /* --dir, or NULL: the library's default */
	const char *name; /* name of the cache; see inspect_name */
	const char *key;  /* key of lookup and drop */
	char **words;     /* set: the words KEY=VALUE */
	int nwords;
	bool json, csv, force, stale, if_idle, list, dry_run, put, yes, config;
	uint32_t tag;      /* --tag, or 0 */
	int pool;          /* --pool, or -1 */
	int peer;          /* --peer, or -1 */
	uint64_t limit;    /* --limit, or UINT64_MAX */
	uint64_t since;    /* --since, or UINT64_MAX */
	uint64_t watch;    /* --watch, in seconds, or 0 */
	uint64_t deadline; /* --deadline, in ms, or 0 */
	uint64_t looks;    /* --looks, or 0 */
	int cannot_open;   /* exit status when the cache cannot be opened */
};

/* Each prints its result and returns the exit status. */
int inspect_list(struct inspect *in);
int inspect_stat(struct inspect *in);
int inspect_stat_watch(struct inspect *in); /* rates.c: stat with --watch */
int inspect_top(struct inspect *in);
int inspect_peers(struct inspect *in);
int inspect_ls(struct inspect *in);
int inspect_lookup(struct inspect *in);
int inspect_hot(struct inspect *in);
int inspect_slow(struct inspect *in);
int inspect_check(struct inspect *in);
int inspect_watch(struct inspect *in);
int inspect_metrics(struct inspect *in);
int inspect_command(struct inspect *in);
int inspect_ping(struct inspect *in);
int inspect_env(struct inspect *in);
int inspect_reap(struct inspect *in);
int inspect_release(struct inspect *in);
int inspect_set(struct inspect *in);
int inspect_clear(struct inspect *in);
int inspect_drop(struct inspect *in);
int inspect_rm(struct inspect *in);

/* Checks that the pool of --pool exists: 0, or the exit status after a message. */
int inspect_check_pool(const struct inspect *in, gpc *c);
/* Reads a key in the form in which it is shown. */
bool inspect_key(const char *text, gpc_key *ret);

/* The directory of the segments. */
const char *inspect_dir(const struct inspect *in);

/* Can the name of a file of memory end like that?  gpc_segment(5) has the names. */
bool inspect_is_memory(const char *suffix);
/* Names of caches in the directory, sorted, each once: those with a segment of that
 * suffix ("idx"), or of any (NULL).  Returns how many, or -1 after a message.  Free
 * with inspect_free_names. */
int inspect_scan(const struct inspect *in, const char *suffix, char ***ret_names);
void inspect_free_names(char **names, int n);

/* If the command line has no name, takes the only cache that there is.  0, or the exit status. */
int inspect_name(struct inspect *in);

/* inspect_name, then attach with these flags; 0, or the exit status after a message. */
int inspect_open(struct inspect *in, uint32_t flags, gpc **ret);
/* Attaches by name, without a message. */
int inspect_attach(const struct inspect *in, const char *name, uint32_t flags, gpc **ret);

/* ---- remains.c ---- */

struct inspect_remains {
	uint32_t files;
	uint64_t bytes; /* that they take */
};
/* Has that name files, and none of them is an index? */
bool inspect_remains(const struct inspect *in, const char *name, struct inspect_remains *ret);
/* 1 = a process uses, makes or removes the cache of that name; 0 = none does; or -errno. */
int inspect_is_used(const struct inspect *in, const char *name);
/* Calls look() with the path of each file gpc.NAME.suffix whose suffix is wanted, until it answers
 * other than 0. */
int inspect_each_file(const struct inspect *in, const char *name,
		      bool (*wanted)(const char *suffix), int (*look)(const char *path, void *arg),
		      void *arg);

/* ---- inspect-state.c ---- */

struct inspect_look {
	struct gpc_info info;
	int alive; /* processes, the writer's included */
	/* seats that no writer has cleared: of processes that are dead or have left */
	int dead;
	int writer_stopped; /* as cli_stopped says */
	/* served, writer stopped, no writer, unused, also with ", closed to this user"; or
	 * inspect_refusal() */
	char state[64];
};
/* 0, or a negative errno. */
int inspect_look(const struct inspect *in, const char *name, gpc *c, struct inspect_look *ret);
/* Does `refused` of gpc_info say only that the cache belongs to another user, or that this place
 * is read-only? */
bool inspect_is_closed(const struct inspect *in, const char *name, int refused);
/* A word for a cache that no process could attach to for that. */
const char *inspect_refusal(int err);
/* The fields of JSON that list and stat share. */
void inspect_put_state(json_t *o, const struct inspect_look *l);

/* The pools, as `stat` and `env` show them. */
json_t *inspect_pools(gpc *c);
/* Copies of the table on devices, as `stat` and `peers` show them, and the devices that should
 * have one. */
json_t *inspect_mirrors(gpc *c);
json_t *inspect_tiers(gpc *c);
void inspect_show_tiers(const json_t *rows);
void inspect_show_mirrors(const json_t *rows); /* shows nothing when there is none */
/* Transfers and claims, as `stat` and `peers` show them: an object with the arrays under_way and
 * claimed.  The arguments are the numbers of all peers together; a number of 0 spares the look. */
json_t *inspect_waits(gpc *c, uint64_t transfers, uint64_t claims);
/* The rows of one of these arrays that belong to that peer. */
json_t *inspect_waits_of(const json_t *waits, const char *list, int peer);
/* The age of the oldest row of an array; null if there is none. */
json_t *inspect_oldest(const json_t *rows);
/* Shows the tables, each after an empty line, the first one only if `apart`; false if there is
 * none. */
bool inspect_show_waits(const json_t *waits, bool apart);
/* The peer that eviction waits for, with a line that gives the remedy; null if there is none. */
json_t *inspect_behind(gpc *c, const struct gpc_info *info);
bool inspect_show_behind(const json_t *behind); /* that line, if there is one */
/* One summary line of every cache, as `list` shows them; NULL after a message. */
json_t *inspect_caches(const struct inspect *in);
void inspect_show_caches(const json_t *rows);

#endif
