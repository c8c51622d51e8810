/* SPDX-License-Identifier: Apache-2.0 */
/* redis.h - a remote store that is a Redis or Valkey server, or a cluster of them, by hiredis.
 *
 *   redis.c    the table of functions; open and close
 *   options.c  what open is told
 *   tick.c     nodes that are down are tried again; who has which slots
 *   batch.c    exists, get, put and remove: pipelined, on all nodes at the same time
 *   conn.c     one connection: opened, written to, read from
 *   fence.c    connections that were given up are ended at the server
 *   reply.c    what the server says: bytes to where they belong, errors to results
 *   node.c     nodes, and which one has a key
 *   names.c    their names become addresses
 *
 * hiredis parses and connects; it waits for nothing, as all its contexts are non-blocking.  Waits
 * are in poll(2) here, up to the deadline, with the descriptor that cancels beside the sockets.
 *
 * Who may touch what: a lane has a connection of its own to each node, so nothing of a connection
 * is locked.  The nodes and the map of slots are every lane's, under `lock`, which is held for a
 * look only.
 *
 * A node is UP or DOWN.  Calls use nodes that are UP.  Whoever finds that one does not answer makes
 * it DOWN, and only tick, on which nobody waits, makes it UP again. */
#ifndef GPC_PLUGIN_REDIS_H
#define GPC_PLUGIN_REDIS_H

#include <hiredis/hiredis.h>
#ifdef HAVE_HIREDIS_SSL
#include <hiredis/hiredis_ssl.h>
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gpc_remote.h"

enum {
	SLOTS = 16384,
	NO_NODE = 0xffff,
	NODES = 128,                 /* of a cluster, those that have gone among them */
	ROUNDS = 6,                  /* of one batch: redirections, and connections made anew */
	HEAD = GPC_REMOTE_KEY + 128, /* bytes of a command before its value */
	OUT = 32,                    /* pieces that are written at once */
	REPLY_MOST = 1 << 20,        /* of a control command, or of an error ... */
	LIST_MOST = 64 << 20,        /* ... and of CLIENT LIST */
	LOST = 1024,                 /* connections that were given up, and are known one by one */
};

struct node {
	char host[256];      /* or the path of a socket */
	char address[64];    /* of host, in numbers; "": not looked up yet */
	bool numeric, renew; /* host is an address; it is a name, and to be looked up again */
	uint32_t turn;       /* which of the addresses of a name is next */
	int port;            /* 0: host is a path */
	uint32_t life;       /* another one: another node stands here now */
	bool up, seed, in_map;
	/* kinds of batches (1 << kind) that have come to nothing here, and to nothing else since */
	uint32_t doubt;
	uint32_t slow;              /* batches in a row of which no answer was whole in time */
	bool told, told_refused;    /* the log has it: that it is down; that it refuses us */
	char why[200];              /* DOWN */
	uint64_t up_ns;             /* UP: since when */
	uint64_t pause_ns, next_ns; /* ... and when it is tried again */
	/* fence.c: what was given up so far, when none of it was left there */
	uint64_t looked;
	bool right; /* connections can be ended there; when that is tried again */
	uint64_t trial_ns;
};

struct options {
	char server[1024];
	char user[128], password[512];
	int db, expire;
	char tls_ca[512], tls_cert[512], tls_key[512], tls_name[256];
};

enum kind { EXISTS, GET, PUT, REMOVE, FENCE };

struct answer {     /* to one command */
	int result; /* as of an item */
	enum { STAYS, MOVED, ASK } where;
	int slot, port; /* ... of MOVED and ASK */
	bool pong;      /* to PING */
	char host[256];
	char text[320]; /* of an error */
};

struct conn {
	redisContext *c;                    /* NULL: none */
	redisReplyObjectFunctions *objects; /* hiredis's own ... */
	redisReplyObjectFunctions control;  /* ... for control commands */
	uint32_t life;                      /* of the node that it goes to */
	uint32_t
		hello; /* answers to AUTH, SELECT and, last, CLIENT SETNAME that are still to come */
	uint64_t number; /* in its name */
	bool named;      /* the server has it */
	uint32_t puts;   /* that were begun, and not answered */
	uint64_t most; /* bytes that a control command may have for an answer, beside REPLY_MOST */
	bool connecting, fresh, unsent;
	bool tls, spoke; /* spoke: it has answered, so the handshake is over */
	/* Of one round of a batch: items are a chain by lane.next; NONE ends it. */
	uint32_t first, last, sending, waiting;
	bool skip; /* the answer to ASKING comes first */
	/* PING behind the last item: its answer proves that the others were theirs */
	bool mark_sent, mark_due;
	bool heard, broken; /* something came; it is of no use any more */
	bool erred;         /* the last answer to an item was an error */
	bool proved; /* an item of this round was answered, with a value where one was asked for */
	char head[HEAD + 64], tail[96]; /* of the command that is being sent ... */
	/* ... with this value; NULL: all that was begun is in out ... */
	const struct gpc_remote_item *value;
	uint32_t piece; /* ... of which so many pieces are in out, or behind it */
	struct iovec out[OUT];
	int nout;
	int expected; /* type of the next answer; 0: any */
	/* whose image the next string fills; NULL: it is not kept */
	const struct gpc_remote_item *into;
	struct answer answer;
};

#define NONE UINT32_MAX

struct lane {
	struct conn conn[NODES];
	uint32_t next[GPC_REMOTE_BATCH]; /* in the chain of a connection */
	uint16_t node[GPC_REMOTE_BATCH]; /* of an item */
	bool ask[GPC_REMOTE_BATCH], done[GPC_REMOTE_BATCH];
	char *in; /* what a socket had */
};

enum { CONNECTED, RECONNECTED, REDIRECTED, ASKED, NODE_DOWN, MAPS, COUNTERS };
#define TLS_LOOK_MS 5 /* in its handshake it may have to read before it can write */

struct redis {
	struct options o;
	struct gpc_remote_setup setup;
	uint32_t nlanes;
	struct lane **lane; /* made by its first call */
#ifdef HAVE_HIREDIS_SSL
	redisSSLContext *ssl;
#endif
	uint64_t count[COUNTERS]; /* relaxed */
	bool hurry;               /* relaxed: tick asks all nodes that are UP at once */
	bool unfenced;            /* relaxed: a server does not let us end connections */
	uint64_t numbers;         /* relaxed: of connections so far */

	pthread_mutex_t lock; /* below it */
	struct node node[NODES];
	uint32_t nnodes;
	/* fence.c: the numbers of the last connections that were given up; all others up to
	 * lost_upto may have been */
	uint64_t lost[LOST], nlost, lost_upto;
	uint16_t slot[SLOTS];
	struct name *name[NODES];        /* tick's: that are being looked up */
	uint32_t turn;                   /* the node that tick looks at first */
	bool told;                       /* that we may not ask for the map */
	bool cluster, kind_known, stale; /* stale: the map of slots has been found wrong */
	uint64_t map_ns, ping_ns;        /* when it was read; when nodes that are UP were asked */
};

/* options.c: 0, or a negative errno and why. */
int options_read(const struct gpc_remote_setup *setup, struct options *ret, char *why, size_t room);

/* node.c */
uint64_t now_ns(void);
uint32_t key_slot(const char *key, uint32_t bytes);
/* "host", "host:port", "[v6]:port", "/path", "unix:/path".  false: none of these. */
bool node_parse(const char *text, size_t n, char *host, size_t room, int *port);
/* The number of this node, added if it is new; NO_NODE: there is no room.  The lock is held. */
uint16_t node_number(struct redis *r, const char *host, int port);
/* Which node has the key; NO_NODE: none that is UP. */
uint16_t node_of_key(struct redis *r, const char *key, uint32_t bytes);
/* The content of an answer MOVED or ASK. */
uint16_t node_redirected(struct redis *r, uint16_t asked, const struct answer *a);
void node_down(struct redis *r, uint16_t node, const char *why);
void node_up(struct redis *r, uint16_t node);
/* DOWN, since a batch has come to nothing there, whatever it says to PING. */
void node_mute(struct redis *r, uint16_t node, enum kind kind, const char *why);
/* A batch has ended before the first answer was whole; after some in a row the node is DOWN. */
void node_slow(struct redis *r, uint16_t node, enum kind kind);
void node_proved(struct redis *r, uint16_t node, enum kind kind); /* it has answered such a batch */
void count(struct redis *r, int which);

/* names.c: in tick's thread.  n->address, after ns at most; false and why. */
bool name_look_up(struct name **at, struct node *n, uint64_t ns, char *why, size_t room);
void name_end(struct name **at);

/* reply.c */
extern redisReplyObjectFunctions reply_flat;
/* hiredis allocates what an array is said to have: no more than a map of slots may. */
#if HIREDIS_MAJOR >= 1
void *reply_small_array(const redisReadTask *task, size_t n);
#else
void *reply_small_array(const redisReadTask *task, int n);
#endif
void reply_of_error(const char *text, size_t n, struct answer *ret);
bool reply_refuses(const char *text); /* a server that does not take us, whatever we ask */

/* conn.c: 0, or -1 and what is wrong in c->answer.text. */
int conn_open(struct redis *r, struct conn *c, const struct node *node);
void conn_close(struct conn *c);
int conn_connected(struct redis *r, struct conn *c); /* its socket is writable */
/* last: with the mark. */
int conn_begin_put(struct redis *r, struct conn *c, const struct gpc_remote_item *item, bool ask,
		   bool last);
int conn_begin(struct conn *c, enum kind kind, const struct gpc_remote_item *item, bool ask);
int conn_begin_mark(struct conn *c);
/* Writes as much as the socket takes; 1: all that was begun is written, 0: not yet. */
int conn_write(struct conn *c);
/* Reads as much as the socket has; returns 1 if that was something. */
int conn_read(struct conn *c, char *in, uint64_t longest);
bool conn_is_quiet(struct conn *c, char *in, uint64_t longest);
uint64_t conn_value_bytes(const struct conn *c);
/* c->answer is one to hello; false: the server does not take us. */
bool conn_greeted(struct conn *c);
/* In c->answer: 1 = one, 0 = not yet. */
int conn_answer(struct conn *c);
/* A control command, up to the deadline: its reply, to be freed, or NULL and c->answer.text. */
redisReply *conn_command(struct redis *r, struct conn *c, const struct gpc_remote_call *call,
			 char *in, int argc, const char **argv);
/* Nothing that was sent and has not arrived is sent again. */
void conn_cut(struct conn *c);
/* Until this socket is ready, or the deadline, or a cancellation: 1, or -ETIMEDOUT, -ECANCELED. */
int conn_wait(const struct conn *c, short events, const struct gpc_remote_call *call);

/* batch.c */
struct lane *lane_of(struct redis *r, uint32_t lane);
void lane_free(struct lane *l);
void batch_run(struct redis *r, const struct gpc_remote_call *call, enum kind kind,
	       struct gpc_remote_item *items, uint32_t n);

/* fence.c */
/* The connection is going to be closed, and a put that was sent over it has no answer. */
void fence_lost(struct redis *r, struct conn *c);
/* By lane's connection to the node, ready for a command: connections of ours that were given up,
 * and those of earlier lives, are ended, until none is left.  -EAGAIN: not yet.  -EOPNOTSUPP. */
int fence_node(struct redis *r, struct lane *l, uint16_t node, const struct gpc_remote_call *call);
/* The same in tick's lane, at once, and whether it can be done there at all. */
void fence_try(struct redis *r, struct lane *l, uint16_t node, const struct gpc_remote_call *call);

/* tick.c */
int tick(void *store, const struct gpc_remote_call *call, char *why, size_t room);

#define IN_BYTES (256u << 10)

#endif
