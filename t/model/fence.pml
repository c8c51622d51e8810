/* SPDX-License-Identifier: Apache-2.0 */
/* fence.pml - puts that were given up, and keys that are unlinked from a store.
 *
 * One key in a store that two machines share.  The first machine has it in RAM with bad bytes, puts them there, and may give a
 * put up: what was sent is on its way, and the server takes it as long as the server has the connection.  The block is dropped,
 * and the steward unlinks the key.  A worker computes it again, and it is put once more.  The steward may be killed at
 * any moment, as often as DEATHS; the next one keeps the same store.  The server may be started again, once: it has no
 * connection of before, and numbers new ones from 1.  The other machine has a connection of its own.
 *
 * A fence of a connection ends the one that the server lists by its name, which no other connection has ever had.  A steward that
 * begins ends each connection that bears the name of its machine and an older life, until none is listed.
 *
 * Stands for
 *
 * 	connect        plugins/redis/conn.c say_name, conn_greeted; `named`: the server's answer to CLIENT SETNAME
 * 	put            plugins/redis/batch.c write_chain, which sends none while an answer to hello is awaited
 * 	given up       close_conn with c->puts, fence.c fence_lost: doubts() grows, for all nodes
 * 	fence()        fence_node, kill_listed, is_due: CLIENT LIST, and CLIENT KILL of those listed that are due
 * 	listed         the same, of names with a lower life: each node begins in doubt (node.looked is 0)
 * 	unlink         batch.c fence_chain before UNLINK is sent; lib/tiers/remote/batch.c remove_batch; lib/tiers/steward/remote.c
 * 	               remove_gone, whose keys are put by nobody meanwhile (pass_gone, is_writing)
 *
 * It has one connection where the code has one for each lane and node, and the unlink waits for all of them.  What a store
 * without fences does is not here: that waits for an hour (lib/tiers/steward/remote.c pass_hour).
 *
 * Proves: once the key was unlinked for a drop, bad bytes never stand in the store again; no connection of another machine is
 * ended.
 *
 * SHORT whole -DDEATHS=0
 * RUN passes
 * RUN passes -DDEATHS=2
 * RUN fails -DNO_FENCE         a put that was given up is forgotten
 * RUN fails -DUNLINK_FIRST     the key is unlinked before the fence
 * RUN fails -DBY_NUMBER        a KILL names the server's number of a connection, which may be another one's by now
 * RUN fails -DNOT_LISTED       a steward that begins does not look for connections of the one before it
 * RUN fails -DLISTED_ONCE -DDEATHS=2   ... or ends one of them alone
 * RUN fails -DNAME_LATE        a connection puts before the server has said that it has its name */
#ifndef DEATHS
#define DEATHS  1
#endif
#define CONNS   (DEATHS + 3)    /* the last one is the other machine's; a steward may need two */
#define OTHER   (CONNS - 1)
#define NONE    CONNS

#define NOTHING 0
#define BAD     1
#define GOOD    2

/* the server */
byte store;
bool open[CONNS], named[CONNS];
byte sent[CONNS];               /* bytes that are on their way there */
bool naming[CONNS];             /* so is the name, before them */
byte number[CONNS];             /* the server's, of a connection */
byte next_number = 1;
bool restarted;

/* machine 1, in shared memory: lives as long as the index */
byte ram = BAD;
bool dropped;                   /* the writer has removed it, and an unlink is due */
bool final;                     /* it was unlinked */
byte deaths;
bool gone;                      /* the steward was killed, and the next one has not begun */

/* the steward's */
byte conn = NONE;               /* the one it puts by */
bool told[CONNS];               /* the server's answer to a put */
bool in_doubt;                  /* a put was given up on `conn` */
bool putting, listed;
byte life[CONNS];

inline end_connection(c)
{
	assert(c != OTHER);
	open[c] = false; sent[c] = NOTHING; naming[c] = false
}

/* ---- the server, and the network ---- */

proctype server()
{
	byte c;

end:	do
	:: atomic {
		c = 0;
		do
		:: c < OTHER -> c++
		:: break
		od;
		if
		:: open[c] && naming[c] -> naming[c] = false; named[c] = true
		:: open[c] && !naming[c] && sent[c] ->
			store = sent[c]; told[c] = true;
			assert(!(final && store == BAD));
			sent[c] = NOTHING
		:: else
		fi;
		c = 0
	   }
	:: atomic {
		!restarted -> restarted = true;
		for (c : 0 .. OTHER) {
			open[c] = false; sent[c] = NOTHING; naming[c] = false; named[c] = false
		}
		next_number = 1;
		c = 0
	   }
	:: atomic { !open[OTHER] && number[OTHER] == 0 -> open[OTHER] = true; named[OTHER] = true; number[OTHER] = next_number; next_number++ }
	:: atomic { restarted && !open[OTHER] -> open[OTHER] = true; named[OTHER] = true; number[OTHER] = next_number; next_number++ }
	od
}

/* ---- the writer, an engine ---- */

proctype engine()
{
	atomic { ram = NOTHING; dropped = true }
	ram = GOOD                      /* at once: an unlink that comes behind it takes good bytes along */
}

/* ---- the steward ---- */

/* By name, at the server that is there now. */
inline fence()
{
	atomic {
		for (c : 0 .. OTHER) {
			if
#ifdef BY_NUMBER
			:: open[c] && number[c] == number[conn] -> end_connection(c)
#else
			:: open[c] && named[c] && c == conn -> end_connection(c)
#endif
			:: else
			fi
		}
		c = 0; in_doubt = false; conn = NONE
	}
}

proctype steward()
{
	byte c, k;

end:	do
	:: atomic {                     /* the first, or the next one */
		gone -> gone = false; conn = NONE; in_doubt = false; putting = false; listed = false }
	:: atomic { !gone && deaths < DEATHS -> deaths++; gone = true }
	:: atomic {
		!gone && !listed ->
		k = NONE;
#ifndef NOT_LISTED
		for (c : 0 .. OTHER - 1) {
			if
			:: open[c] && named[c] && life[c] < deaths && k == NONE -> k = c
			:: else
			fi
		}
#endif
		if
		:: k == NONE -> listed = true
		:: else -> end_connection(k)
#ifdef LISTED_ONCE
			; listed = true
#endif
		fi;
		c = 0; k = 0
	   }
	:: atomic {                     /* connect: HELLO, and the name, whose answer it waits for */
		!gone && listed && conn == NONE && !putting ->
		k = NONE;
		for (c : 0 .. OTHER - 1) {
			if
			:: !number[c] && k == NONE -> k = c
			:: else
			fi
		}
		if
		:: k == NONE -> skip
		:: else ->
			conn = k; number[k] = next_number; next_number++;
			open[k] = true; naming[k] = true; life[k] = deaths
		fi;
		c = 0; k = 0
	   }
	:: atomic {
		!gone && conn != NONE && !putting && !in_doubt && ram != NOTHING && open[conn] &&
#ifndef NAME_LATE
		named[conn] &&
#endif
		1 ->
		sent[conn] = ram; told[conn] = false; putting = true
	   }
	:: atomic { !gone && putting && told[conn] -> putting = false }
	:: atomic { !gone && putting && !told[conn] -> putting = false; in_doubt = true
#ifdef NO_FENCE
		; in_doubt = false; conn = NONE
#endif
	   }
	:: atomic { !gone && conn != NONE && !putting && !in_doubt && !open[conn] -> conn = NONE }
	:: !gone && in_doubt ->
		atomic {
			if
			:: !gone && in_doubt -> fence()
			:: else
			fi
		}
	:: atomic {
		!gone && listed && dropped && !final && !putting &&
#ifndef UNLINK_FIRST
		!in_doubt &&
#endif
		1 ->
		store = NOTHING; final = true
	   }
	od
}

init
{
	atomic { run server(); run engine(); run steward() }
}
