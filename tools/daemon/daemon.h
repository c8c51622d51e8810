/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h - what the files of gpcd share.
 *
 *   main.c      from start to end
 *   options.c   the command line
 *   config.c    the file that --config names
 *   serve.c     the cache and the writer's seat
 *   keep.c      a pool of VRAM, without that seat
 *   ahead.c     the spills of that pool ahead of need
 *   tiers.c     the tiers below RAM, by a thread of their own
 *   key.c       the file of the secret of the keys
 *   events/     KV events for routers, by a thread of their own
 *   http.c      scrapes of metrics, by a thread of their own
 *   own.c       memory and descriptors of this process, with their bounds
 *   health.c    whether gpcd lives, and whether the cache is ready
 *   endpoint.c  the endpoints of events and metrics
 *   state.c     the line that SIGUSR1 asks for
 *   name.c      whether the cache still has its name
 *   patience.c  a wait for another process's work
 *   process.c   signals, the background, the pid file, readiness
 *   reload.c    options that are read again at SIGHUP
 *   manager.c   messages to a service manager before and after readiness
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
	EXIT_STOPPED = -2,       /* a signal came before there was anything to serve */
	EXIT_PIDFILE_TAKEN = -1, /* no status yet: the cache decides which one it becomes */
};

enum { OPTIONS_MOST = 80 };

enum option_place { NOWHERE, ON_LINE, IN_FILE };

/* An option, and its value on the command line or in the file; NULL where neither has it. */
struct option_said {
	const char *option, *text;
	enum option_place place;    /* set for --device, too, which has no text here */
	unsigned line;              /* IN_FILE: its line there */
	bool at_run_time, of_tiers; /* SIGHUP changes it, of_tiers: by opening the tiers anew */
	/* a cache that exists keeps it, whichever process is restarted */
	bool of_cache;
};

struct daemon {
	const char *name;
	int argc;
	char **argv;
	/* in the order of the options; after the last one `option` is NULL */
	struct option_said said[OPTIONS_MOST];
	char status[128]; /* the status that process_ready was given last */
	struct gpc_config cfg;
	struct gpc_memory memory; /* of the RAM pool; block_bytes 0 means that there is none */
	char huge_dir[PATH_MAX];
	uint64_t next_told; /* when the next line about progress is due */
	char devices[64];
	char pidfile[PATH_MAX], dir[PATH_MAX];
	int level;                 /* messages of the library up to this level are passed on */
	int log_level;             /* --log-level, or -1 */
	int made_level, made_most; /* from options and environment */
	int set_level;             /* a level that counts in their place, or -1 */
	uint64_t next_level;       /* when to look for such a level next */
	uint64_t next_slow;        /* the same for slow calls */
	uint64_t slow_ns;          /* calls that ended by then were logged */
	const char *config;        /* the file of --config as it was named; NULL: none */
	bool create;               /* a geometry was given: make the cache if it is absent */
	char unused[256];          /* options of the file that this process does not use */
	bool standby, background, foreground, quiet, unlink_at_end;
	bool keep;              /* own a pool of VRAM, and do not serve */
	uint32_t pieces, space; /* --keep: of its pool ... */
	bool space_given;
	int32_t demote_to;              /* ... and where its victims go, or -1 ... */
	uint32_t spill_ahead;           /* ... so many of them ahead of need */
	bool ram_given;                 /* --ram-space or --unchained was given */
	struct gpc_tiers_options tiers; /* disk NULL means that there is none */
	char disk[PATH_MAX], key_file[PATH_MAX];
	uint64_t disk_bytes;
	bool max_blocks_computed; /* --max-blocks was not given, and tiers have a share in it */
	uint8_t secret[16];
	/* where the secret comes from: key.c */
	enum { KEY_THERE, KEY_ABSENT, KEY_OF_DISK, KEY_DRAWN } key;
	struct tiers_thread *tiers_thread; /* NULL: this process does not keep them ... */
	/* ... and the process of this number does, as was logged ... */
	int32_t tiers_of;
	char tiers_why[1280];               /* ... or this is the reason why no process does */
	uint64_t tiers_next;                /* when to look again */
	const char *events, *events_replay; /* endpoints; NULL: none */
	const char *topic;                  /* of the events; NULL: empty */
	uint64_t events_memory;             /* bytes that wait for subscribers */
	const char *metrics;                /* [ADDR:]PORT; NULL: none */
	bool events_public, metrics_public; /* an endpoint may be one of all networks */
	int ready_fd;                       /* --daemonize: the parent waits for one byte here */
	bool ready, waits, served;          /* waits: it waits for the seat, or did */
	bool waited;                        /* it has waited for the cache that it joined */
	bool outside;                       /* it waits for that, or has not looked at it yet */
	bool opened;         /* serve_open has ended; the thread of http.c reads it */
	struct http *http;   /* NULL: there are no scrapes, or not yet */
	bool made;           /* the cache was not there before this process */
	int pidfile_fd;      /* locked; -1: none */
	bool made_pidfile;   /* the file was not there before this process */
	pid_t pidfile_owner; /* the other process that has it */
	bool nameless;       /* as of the last look */
	uint64_t next_look;  /* ... and when the next one is due */
	uint64_t turned_ns;  /* the last turn of the loop; 0: none yet */
	bool serving;        /* it is the writer, and its tiers are open */
};

/* The thread of http.c reads the time. */
static inline void turn(struct daemon *d)
{
	__atomic_store_n(&d->turned_ns, cli_now_ns(), __ATOMIC_RELAXED);
}

/* ---- say.c ---- */

/* To stderr, or to syslog once say_to_syslog was called; level as in syslog(3). */
void say(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void say_to_syslog(void);
/* The same at any level, since the message was asked for. */
void say_asked(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A level by its name, or 0 to 7; -1 means that there is no such level. */
int say_level_named(const char *word);
/* Sets which messages of gpcd and of the library are wanted; gpcd reads GPC_LOG in place of the
 * library. */
void say_level(struct daemon *d);
/* Takes the level that gpc-inspect set has set, or else that of the options; it looks once a
 * second at most. */
void say_level_of(struct daemon *d, gpc *c);

/* Logs each call that took long and ended since the last look; it looks once a second at most. */
void say_slow(struct daemon *d, gpc *c);
/* The library's log; arg is a struct daemon. */
void say_library(void *arg, int level, const char *text);
/* The reason that keeps a file from being opened, or made where `makes` says so; err: of open(2). */
const char *say_file(int err, bool makes);
/* One datagram to the service manager that started gpcd; it is no error if there is none. */
void say_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- process.c ---- */

extern volatile sig_atomic_t process_stopping; /* the signal that ends the process */
/* SIGUSR1 has come, and state_tell has not answered yet */
extern volatile sig_atomic_t process_asked;
/* SIGHUP has come, and reload_look has not read anything yet */
extern volatile sig_atomic_t process_reload;
extern gpc *volatile process_served; /* a signal ends the wait of this handle; NULL: none */

enum { DESCRIPTORS_MOST = 65536 };

/* Raises the number of descriptors as far as the system lets it, up to the given one: systemd
 * gives 1024 at first, and a Redis Cluster of 128 nodes alone takes 2304. */
void process_raise_descriptors(void);
void process_catch_signals(void);
const char *process_end(void); /* the name of the signal that ended the process */
/* In the parent: waits for the daemon's byte and returns the exit status.  In the child: -1. */
int process_detach(struct daemon *d);
/* Called before there is a cache: opens and locks the pid file.  Its text stays until gpcd is
 * ready.  Returns 0 or the exit status; or EXIT_PIDFILE_TAKEN without a message, if another
 * process has the file. */
int process_take_pidfile(struct daemon *d);
/* Logs which process has it; returns the exit status. */
int process_pidfile_taken(const struct daemon *d);
/* Removes the pid file that is ours, or the empty one that we made; never a file that has come to
 * its place. */
void process_remove_pidfile(const struct daemon *d);
/* Called when gpcd serves or waits for the seat; returns 0 or the exit status. */
int process_ready(struct daemon *d, const char *status);

/* ---- patience.c ---- */

struct patience {
	const char *who;   /* the name of this process in the log */
	uint64_t until_ns; /* 0: the wait has no end */
	int most_ms, said; /* said: the error of the wait that was logged last */
};

struct patience patience_for(const char *who, int most_ms); /* 0: the wait has no end */
/* The missing thing is `text`, followed by the remedy; both are logged once for each err.  True
 * after a pause: look again.  False: a signal has come, or the wait has lasted too long. */
bool patience_lasts(const struct daemon *d, struct patience *p, int err, const char *text,
		    const char *remedy, int pause_ms);
/* Pauses for ms, or until a signal comes that a caller waits for. */
void patience_pause(int ms);

/* ---- manager.c ---- */

void manager_start(void);
/* gpcd is at work, and not ready yet: the manager waits a minute more. */
void manager_busy(const struct daemon *d, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Called between two turns of the loop that does the process's work; a turn takes no longer than
 * that minute. */
void manager_alive(void);
int manager_turn(int most_ms);
void manager_reloading(void);

/* ---- reload.c ---- */

/* Reads the options again if SIGHUP has come. */
void reload_look(struct daemon *d, gpc *c);

/* ---- state.c ---- */

/* Logs the line if SIGUSR1 has come. */
void state_tell(const struct daemon *d, gpc *c, const char *role);

/* ---- name.c ---- */

/* Called while the cache is open: does the name still stand for it? */
bool name_is_ours(const struct daemon *d);
/* Is the name lost?  It looks once a second at most. */
bool name_is_lost(struct daemon *d);

/* ---- serve.c: each returns 0, or the exit status after a message ---- */

/* The library's sentence in ret, with options in place of the fields of its configuration. */
const char *serve_option_words(const char *text, char *ret, size_t room);

int serve_open(struct daemon *d, gpc **ret);
/* Is the writer another process than a gpcd? */
bool serve_has_engine(gpc *c);
/* Logs the writer if there is a cache that has one. */
int serve_find_writer(struct daemon *d);
/* 0: this process is the writer, or process_stopping is set.  A standby gets a new handle in *c;
 * it fails when the cache has lost its name. */
int serve_take_seat(struct daemon *d, gpc **c);
/* Serves until a signal comes, or until the name is lost and no other process is attached. */
int serve_run(struct daemon *d, gpc *c);
int serve_remove(struct daemon *d);

/* ---- keep.c ---- */

/* Owns a pool of VRAM until a signal comes; returns the exit status. */
int keep(struct daemon *d);

/* ---- ahead.c ---- */

struct ahead {
	int pool, told;        /* told: the error that was logged last */
	int pause_ms;          /* the last pause; 0: the last step moved a block */
	bool vain;             /* the last transfer has moved nothing */
	gpc_transfer transfer; /* the transfer of the last step; 0: it has ended */
};

/* One step of the pool's policy; returns the milliseconds until the next step. */
int ahead_step(struct ahead *a, const struct daemon *d, gpc *c);

/* ---- key.c ---- */

/* Each returns 0, or the exit status after a message. */

/* Sets d->secret from --key-file, or KEY_ABSENT if there is no such file. */
int key_look(struct daemon *d);
/* Decides about an absent file: it is made now, made later (KEY_OF_DISK, KEY_DRAWN), or refused.
 * disk: the entries of the head of --disk; no blocks: there is no such file. */
struct gpc_tiers_file;
int key_plan(struct daemon *d, const struct gpc_tiers_file *disk,
	     bool (*is_absent)(const struct daemon *d));
/* Draws a secret for a cache that is there, or is about to come; makes no file. */
int key_draw(struct daemon *d);
/* Makes the file with d->secret, or with a new one; takes another process's file, if that is
 * faster. */
int key_make(struct daemon *d);
/* Called once there is a cache: a file that was there gets the mode and group of the cache's
 * files. */
int key_dress(struct daemon *d);

/* ---- tiers_options.c ---- */

/* Takes one of the options below; false after a message. */
bool tiers_option(struct daemon *d, int number, const char *arg);
bool tiers_option_is_path(int number);
bool tiers_option_is_key(int number);
/* The numbers of these options, from `first` on. */
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
/* Called before there is a cache, for the secret that it is made with and for room for the blocks;
 * returns 0 or the exit status. */
int tiers_prepare(struct daemon *d);
/* Is this process configured with tiers? */
bool tiers_wanted(const struct daemon *d);

/* ---- tiers.c ---- */

/* Compares key, disk and room with the cache that c is attached to, and changes nothing.  Room is that
 * which the cache has now.  Returns 0, or the exit status after a message. */
int tiers_fit(struct daemon *d, gpc *c);
/* Opens the tiers, while the writer's own thread serves.  0 means that they are open, or that
 * another process keeps the same ones; else the exit status after a message. */
int tiers_start(struct daemon *d, gpc *c);
/* The same for a process without the seat, beside an engine that has it. */
int tiers_join(struct daemon *d, gpc *c);
/* Called again and again: opens the tiers when no process keeps them any more. */
void tiers_look(struct daemon *d, gpc *c);
bool tiers_wait(const struct daemon *d); /* Are there tiers that this process has not opened yet? */
void tiers_stop(struct daemon *d, gpc *c);
/* Closes the tiers, if this process keeps them, and opens those of n, which is of no use
 * afterwards.  False after a message: the new ones are refused, and this process has the old ones
 * again. */
bool tiers_change(struct daemon *d, struct daemon *n, gpc *c);

/* Makes the path absolute; false after a message. */
bool options_path(char ret[PATH_MAX], const char *option, const char *path);

/* ---- events/ ---- */

#define EVENTS_MEMORY (UINT64_C(256) << 20) /* the default of --events-memory */

struct events;

/* Starts the thread that publishes the events of the cache; returns 0, or the exit status after a
 * message.  `c` stays open until events_stop, which publishes the last events.  events_stop takes
 * NULL, too. */
int events_start(struct daemon *d, gpc *c, struct events **ret);
void events_stop(struct events *e);
/* May be called by any thread; all zeros while nothing is published. */
struct metrics_events;
void events_tell(struct metrics_events *ret);

/* ---- own.c ---- */

struct metrics_process;
/* The numbers of this process, without those of --metrics. */
void own_tell(struct metrics_process *ret);

/* ---- http.c ---- */

struct http;

/* Starts the thread that answers scrapes until http_stop, in a standby as well; returns 0, or the
 * exit status after a message. */
int http_start(const struct daemon *d, struct http **ret);
void http_stop(struct http *h);

/* ---- health.c ---- */

/* Is the loop alive?  ret gets one line for each thing that is wrong, or a line that says that
 * nothing is. */
bool health_live(const struct daemon *d, char *ret, size_t room);
bool health_ready(const struct daemon *d, char *ret, size_t room);

/* ---- endpoint.c ---- */

#define METRICS_HOST "127.0.0.1" /* of a port without an address */

/* Splits an endpoint that endpoint_check has accepted into its parts. */
void metrics_endpoint(const char *text, char *host, size_t host_room, char *port, size_t port_room);

/* -1 means: go on, though there may be no endpoints at all; EXIT_USAGE after a message. */
int endpoint_check(const struct daemon *d);

/* ---- config.c ---- */

struct config_key {
	char *section, *key, *value;
	unsigned line;
	bool is_kept; /* config.c: the value lives on */
};
/* Gives take() each key of [gpc] and [gpcd]; the values live as long as the process.  take()
 * reports mistakes by cli_usage.  shown: the name of the file in messages.  Returns 0, or the exit
 * status after a message. */
int config_read(const char *shown, const char *path,
		bool (*take)(void *arg, const struct config_key *k), void *arg);
/* Bytes of values that live on; any thread may ask. */
size_t config_bytes(void);

/* ---- options.c ---- */

/* Prepares a struct daemon before its options are read. */
void options_begin(struct daemon *d);
/* -1 means: go on; any other value is the exit status. */
int options_parse(struct daemon *d, int argc, char **argv);
/* Mistakes are about these values from now on (cli_values), as after options_parse. */
void options_values(const struct daemon *d);
/* Checks the role of the process, given by --block-size and --keep, and its options for that
 * role.  Returns -1 or the exit status. */
int options_check_role(struct daemon *d);
/* Checks the options of a cache and of memory in it; returns 0 or the exit status.  For a keeper
 * it returns -1 or the exit status. */
int options_check_cache(struct daemon *d);
int options_check_keep(struct daemon *d);

#endif
