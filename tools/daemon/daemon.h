/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h - what the files of gpcd share.
 *
 *   main.c      from start to end
 *   options.c   the command line
 *   config.c    the file that --config names
 *   serve.c     the cache and the writer's seat
 *   keep.c      a pool of VRAM, without that seat
 *   ahead.c     what that pool spills ahead of need
 *   tiers.c     the tiers below RAM, by a thread of their own
 *   key.c       the file of the secret of the keys
 *   events/     KV events for routers, by a thread of their own
 *   http.c      scrapes of metrics, by a thread of their own
 *   own.c       memory and descriptors of this process, with their bounds
 *   health.c    whether it lives, and whether the cache is ready
 *   endpoint.c  where both are to be had
 *   state.c     the line that SIGUSR1 asks for
 *   name.c      whether the cache still has its name
 *   patience.c  a wait for what another process makes
 *   process.c   signals, the background, the pid file, readiness
 *   reload.c    what SIGHUP asks for
 *   manager.c   what a service manager hears before and after readiness
 *   say.c       messages, and the datagrams to a service manager
 *
 * Each calls those below it and none above.
 * Tests: t/daemon/life.t */
#ifndef GPC_TOOLS_DAEMON_H
#define GPC_TOOLS_DAEMON_H

#include "tools/common/cli.h"
#include "gpc.h"
#include "gpc_serve.h"

#include <limits.h>
#include <signal.h>
#include <syslog.h>

enum {
	EXIT_SEAT_TAKEN = 3,
	EXIT_STOPPED = -2,       /* by a signal, before there was anything to serve */
	EXIT_PIDFILE_TAKEN = -1, /* no status yet: which it is depends on the cache */
};

enum { OPTIONS_MOST = 80 };

enum option_place { NOWHERE, ON_LINE, IN_FILE };

/* An option, and what the command line or the file says of it; NULL: neither does. */
struct option_said {
	const char *option, *text;
	enum option_place place;    /* also of --device, which has no text here */
	bool at_run_time, of_tiers; /* SIGHUP changes it; so that the tiers are opened anew */
	bool of_cache;              /* a cache that exists keeps it, whoever is restarted */
};

struct daemon {
	const char *name;
	int argc;
	char **argv;
	struct option_said said[OPTIONS_MOST]; /* in the order of the options; behind the last one
	                                        * `option` is NULL */
	char status[128];                      /* as process_ready was told last */
	struct gpc_config cfg;
	struct gpc_memory memory; /* of the RAM pool; block_bytes 0: it has none */
	char huge_dir[PATH_MAX];
	uint64_t next_told; /* when the next line on the way there is due */
	char devices[64];
	char pidfile[PATH_MAX], dir[PATH_MAX];
	int level;                 /* what the library says up to it is passed on */
	int log_level;             /* --log-level, or -1 */
	int made_level, made_most; /* by options and environment */
	int set_level;             /* that counts in its place, or -1 */
	uint64_t next_level;       /* when the next look for that is due */
	uint64_t next_slow;        /* the same for slow calls */
	uint64_t slow_ns;          /* those that ended until then were told */
	bool create;               /* a geometry was given: make it if it is absent */
	char unused[256]; /* options of its file that count for nothing, as there is none */
	bool standby, background, foreground, quiet, unlink_at_end;
	bool keep;              /* own a pool of VRAM, and do not serve */
	uint32_t pieces, space; /* --keep: of its pool ... */
	bool space_given;
	int32_t demote_to;              /* ... and where its victims go, or -1 ... */
	uint32_t spill_ahead;           /* ... so many of them ahead of need */
	bool ram_given;                 /* --ram-space or --unchained was */
	struct gpc_tiers_options tiers; /* disk NULL: none */
	char disk[PATH_MAX], key_file[PATH_MAX];
	uint64_t disk_bytes;
	bool max_blocks_computed; /* --max-blocks was not given, and tiers have a share in it */
	uint8_t secret[16];
	enum { KEY_THERE, KEY_ABSENT, KEY_OF_DISK, KEY_DRAWN } key; /* where that is from: key.c */
	struct tiers_thread *tiers_thread;  /* NULL: we do not keep them ... */
	int32_t tiers_of;                   /* ... and this process does, as was said ... */
	char tiers_why[1280];               /* ... or why nobody does */
	uint64_t tiers_next;                /* when to look again */
	const char *events, *events_replay; /* endpoints; NULL: none */
	const char *topic;                  /* of the events; NULL: empty */
	uint64_t events_memory;             /* bytes that wait for subscribers */
	const char *metrics;                /* [ADDR:]PORT; NULL: none */
	bool events_public, metrics_public; /* an endpoint may be one of all networks */
	int ready_fd;                       /* --daemonize: the parent waits for one byte here */
	bool ready, waits, served;          /* waits: for the seat, or did */
	bool waited;                        /* for the cache that it has joined */
	struct http *http;                  /* NULL: nothing is scraped, or not yet */
	bool made;                          /* the cache was not there before us */
	int pidfile_fd;                     /* locked; -1: none */
	bool made_pidfile;                  /* it was not there before us */
	pid_t pidfile_owner;                /* who else has it */
	bool nameless;                      /* as of the last look */
	uint64_t next_look;                 /* ... and when the next one is due */
	uint64_t turned_ns;                 /* the last turn of the loop; 0: none yet */
	bool serving;                       /* as the writer, its tiers open */
};

/* http.c looks, by another thread. */
static inline void turn(struct daemon *d)
{
	__atomic_store_n(&d->turned_ns, cli_now_ns(), __ATOMIC_RELAXED);
}

/* ---- gpcd-say.c ---- */

/* To stderr, or to syslog once say_to_syslog was called; level as in syslog(3). */
void say(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void say_to_syslog(void);
/* Whatever the level is: somebody has asked for it. */
void say_asked(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A level by its name, or 0 to 7; -1: there is no such level. */
int say_level_named(const char *word);
/* Which messages are wanted, of ours and of the library; takes GPC_LOG over from it. */
void say_level(struct daemon *d);
/* Once a second at most: the level that gpc-inspect set has set, or that of the options. */
void say_level_of(struct daemon *d, gpc *c);

/* A line for each call that took long and ended since the last look, which is a second ago or more. */
void say_slow(struct daemon *d, gpc *c);
/* The library's log; arg is a struct daemon. */
void say_library(void *arg, int level, const char *text);
/* The reason that keeps a file from being opened, or made where `makes` says so; err: of open(2). */
const char *say_file(int err, bool makes);
/* One datagram to the service manager that started us; nobody there is fine. */
void say_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- gpcd-process.c ---- */

extern volatile sig_atomic_t process_stopping; /* the signal that ends it */
extern volatile sig_atomic_t process_asked;  /* SIGUSR1 has come, and state_tell has not answered */
extern volatile sig_atomic_t process_reload; /* SIGHUP has, and reload_look has not read anything */
extern gpc *volatile process_served;         /* its wait ends with a signal; NULL: none */

enum { DESCRIPTORS_MOST = 65536 };

/* As many descriptors as the system lets it have, up to that: systemd gives 1024 at first, and a
 * Redis Cluster of 128 nodes alone takes 2304. */
void process_raise_descriptors(void);
void process_catch_signals(void);
const char *process_end(void); /* the name of that signal */
/* In the parent: wait for the daemon's byte, return the exit status.  -1 in the child. */
int process_detach(struct daemon *d);
/* Before there is a cache: open and lock it.  What is in it stays until we are ready.  0, the
 * exit status, or EXIT_PIDFILE_TAKEN without a message: another process has it. */
int process_take_pidfile(struct daemon *d);
/* Says who; returns the exit status. */
int process_pidfile_taken(const struct daemon *d);
/* Ours, or the empty one that we made; never one that has come to its place. */
void process_remove_pidfile(const struct daemon *d);
/* Serving, or waiting for the seat: 0, or the exit status. */
int process_ready(struct daemon *d, const char *status);

/* ---- patience.c ---- */

struct patience {
	const char *who;   /* this process is, as the log names it */
	uint64_t until_ns; /* 0: it has no end */
	int most_ms, said; /* said: for what it waits, by error */
};

struct patience patience_for(const char *who, int most_ms); /* 0: without an end */
/* What there is not yet: text, and behind it the remedy, are said once for each err.  True after a pause: look again;
 * false: a signal has come, or it has lasted too long. */
bool patience_lasts(const struct daemon *d, struct patience *p, int err, const char *text,
		    const char *remedy, int pause_ms);
/* Less where a signal that somebody waits for comes, or has come. */
void patience_pause(int ms);

/* ---- manager.c ---- */

void manager_start(void);
/* Not ready yet, and at work: the manager waits a minute more. */
void manager_busy(const struct daemon *d, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Between two turns of the loop that does the process's work, which are no longer than this. */
void manager_alive(void);
int manager_turn(int most_ms);
void manager_reloading(void);

/* ---- reload.c ---- */

/* If SIGHUP has come. */
void reload_look(struct daemon *d, gpc *c);

/* ---- gpcd-state.c ---- */

/* If SIGUSR1 has come. */
void state_tell(const struct daemon *d, gpc *c, const char *role);

/* ---- gpcd-name.c ---- */

/* While the cache is open: does its name stand for it still? */
bool name_is_ours(const struct daemon *d);
/* The opposite, looked at once a second at most. */
bool name_is_lost(struct daemon *d);

/* ---- gpcd-serve.c: each returns 0, or the exit status after a message ---- */

/* The library's sentence with options in place of its configuration's fields, in ret. */
const char *serve_option_words(const char *text, char *ret, size_t room);

int serve_open(struct daemon *d, gpc **ret);
/* Is the writer another process than a gpcd? */
bool serve_has_engine(gpc *c);
/* Has the cache, if there is one, a writer?  Then that is said. */
int serve_find_writer(struct daemon *d);
/* 0: this process is the writer, or process_stopping is set.  A standby gets a new
 * handle, in *c, and fails when the cache has lost its name. */
int serve_take_seat(struct daemon *d, gpc **c);
/* Until a signal comes, or the name is lost and nobody else is attached. */
int serve_run(struct daemon *d, gpc *c);
int serve_remove(struct daemon *d);

/* ---- gpcd-keep.c ---- */

/* Own a pool of VRAM until a signal comes; returns the exit status. */
int keep(struct daemon *d);

/* ---- gpcd-ahead.c ---- */

struct ahead {
	int pool, told;        /* told: the error that was said last */
	int pause_ms;          /* the last one; 0: something has come of the last step */
	bool vain;             /* nothing has come of the last transfer */
	gpc_transfer transfer; /* of the last step; 0: it has ended */
};

/* A step of the pool's policy; returns how many milliseconds the next one has time. */
int ahead_step(struct ahead *a, const struct daemon *d, gpc *c);

/* ---- gpcd-key.c ---- */

/* Each returns 0, or the exit status after a message. */

/* d->secret from --key-file; or there is none: KEY_ABSENT. */
int key_look(struct daemon *d);
/* What an absent one is to be: made now, made later (KEY_OF_DISK, KEY_DRAWN), or refused.  disk: what the file of --disk
 * says of itself, no blocks: there is none. */
struct gpc_tiers_file;
int key_plan(struct daemon *d, const struct gpc_tiers_file *disk,
	     bool (*is_absent)(const struct daemon *d));
/* A secret for a cache that is there, or comes; no file. */
int key_draw(struct daemon *d);
/* With d->secret, or a new one; another process's, if that is faster. */
int key_make(struct daemon *d);
/* One that was there, behind the cache: mode and group as its files have. */
int key_dress(struct daemon *d);

/* ---- gpcd-tiers.c ---- */

/* One of these options: false, after a message. */
bool tiers_option(struct daemon *d, int number, const char *arg);
bool tiers_option_is_path(int number);
bool tiers_option_is_key(int number);
/* Their numbers, from `first` on. */
#define TIERS_OPTIONS(first)                                                  \
	{ "disk", required_argument, NULL, (first) + 0 },                     \
		{ "disk-bytes", required_argument, NULL, (first) + 1 },       \
		{ "disk-exclusive", no_argument, NULL, (first) + 2 },         \
		{ "disk-resize", no_argument, NULL, (first) + 3 },            \
		{ "disk-buffered", no_argument, NULL, (first) + 4 },          \
		{ "disk-ahead", required_argument, NULL, (first) + 5 },       \
		{ "disk-min-uses", required_argument, NULL, (first) + 6 },    \
		{ "disk-max-age", required_argument, NULL, (first) + 7 },     \
		{ "disk-write-rate", required_argument, NULL, (first) + 8 },  \
		{ "key-file", required_argument, NULL, (first) + 9 },         \
		{ "disk-blocks", required_argument, NULL, (first) + 10 },     \
		{ "remote", required_argument, NULL, (first) + 11 },          \
		{ "remote-tag", required_argument, NULL, (first) + 12 },      \
		{ "remote-blocks", required_argument, NULL, (first) + 13 },   \
		{ "remote-min-uses", required_argument, NULL, (first) + 14 }, \
		{ "remote-deadline", required_argument, NULL, (first) + 15 }, \
	{                                                                     \
		"disk-strict", no_argument, NULL, (first) + 16                \
	}
/* -1: go on; or EXIT_USAGE after a message. */
int tiers_check(struct daemon *d);
/* Before there is a cache: the secret that it is made with, and room for the blocks; 0, or the exit
 * status. */
int tiers_prepare(struct daemon *d);
/* The writer's own thread serves meanwhile.  0: they are open, or another process keeps the same
 * ones; or the exit status after a message. */
int tiers_start(struct daemon *d, gpc *c);
/* The same without the seat, beside an engine that has it. */
int tiers_join(struct daemon *d, gpc *c);
/* Again and again: opens them when nobody keeps them any more. */
void tiers_look(struct daemon *d, gpc *c);
bool tiers_wait(const struct daemon *d); /* for that */
void tiers_stop(struct daemon *d, gpc *c);
/* Closes them, if this process keeps them, and opens those of n, which ends with that.  False after
 * a message: the new ones are refused, and it has the old ones again. */
bool tiers_change(struct daemon *d, struct daemon *n, gpc *c);

/* Absolute; false after a message. */
bool options_path(char ret[PATH_MAX], const char *option, const char *path);

/* ---- gpcd-events ---- */

#define EVENTS_MEMORY (UINT64_C(256) << 20) /* without --events-memory */

struct events;

/* A thread that publishes what happens in the cache; 0, or the exit status after a message.  `c` is
 * open until events_stop, which tells what has happened until then; NULL is fine. */
int events_start(struct daemon *d, gpc *c, struct events **ret);
void events_stop(struct events *e);
/* From any thread; zeros while none is published. */
struct metrics_events;
void events_tell(struct metrics_events *ret);

/* ---- own.c ---- */

struct metrics_process;
/* The numbers of this process, but those of --metrics. */
void own_tell(struct metrics_process *ret);

/* ---- gpcd-http.c ---- */

struct http;

/* A thread that answers scrapes until http_stop, also of a standby; 0, or the exit status after a
 * message. */
int http_start(const struct daemon *d, struct http **ret);
void http_stop(struct http *h);

/* ---- gpcd-health.c ---- */

/* Is the loop alive, is the cache ready?  What is wrong, a line each, or that nothing is, in ret. */
bool health_live(const struct daemon *d, char *ret, size_t room);
bool health_ready(const struct daemon *d, char *ret, size_t room);

/* ---- gpcd-endpoint.c ---- */

#define METRICS_HOST "127.0.0.1" /* of a port without an address */

/* What endpoint_check has let through, in its parts. */
void metrics_endpoint(const char *text, char *host, size_t host_room, char *port, size_t port_room);

/* -1: go on, there may be no endpoints at all; or EXIT_USAGE after a message. */
int endpoint_check(const struct daemon *d);

/* ---- config.c ---- */

struct config_key {
	char *section, *key, *value;
	unsigned line;
	bool is_kept; /* config.c: the value lives on */
};
/* take() gets each key of [gpc] and [gpcd], whose value lives as long as the process, and says what is
 * wrong with it by cli_usage.  shown: the file as messages name it.  0, or the exit status after a
 * message. */
int config_read(const char *shown, const char *path,
		bool (*take)(void *arg, const struct config_key *k), void *arg);
/* Of values that live on; any thread. */
size_t config_bytes(void);

/* ---- gpcd-options.c ---- */

/* A struct daemon before its options are read. */
void options_begin(struct daemon *d);
/* -1: go on; otherwise the exit status. */
int options_parse(struct daemon *d, int argc, char **argv);
/* What the process is to do, by --block-size and --keep, and which options it has for that: -1, or the
 * exit status. */
int options_check_role(struct daemon *d);
/* Of a cache, and of memory in it: 0, or the exit status.  Of a keeper: -1, or the exit status. */
int options_check_cache(struct daemon *d);
int options_check_keep(struct daemon *d);

#endif
