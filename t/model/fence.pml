/* SPDX-License-Identifier: Apache-2.0 */
/* fence.pml - puts that were given up, and keys that are unlinked from a store.
 *
 * A design: the library does not work so yet.
 *
 * One key in a store that two machines share.  The first machine has it in RAM with bad bytes, puts them there, and may give a
 * put up: what was sent is on its way, and the server takes it as long as the server has the connection.  The block is dropped,
 * and the keeper unlinks the key.  A worker computes it again, and it is put once more.  The keeper may be killed at
 * any moment, as often as DEATHS; the next one keeps the same store.  The server may be started again, once: it has no
 * connection of before, and numbers new ones from 1.  The other machine has a connection of its own.
 *
 * A fence of a connection is a KILL of its number at the server that had it.  A keeper that begins ends each connection
 * that bears the name of its machine and an older life, until none is listed.
 *
 * Proves: once the key was unlinked for a drop, bad bytes never stand in the store again; no connection of another machine is
 * ended.
 *
 * SHORT whole -DDEATHS=0
 * RUN passes
 * RUN passes -DDEATHS=2
 * RUN fails -DNO_FENCE         a put that was given up is forgotten
 * RUN fails -DUNLINK_FIRST     the key is unlinked before the fence
 * RUN fails -DANY_RUN          a KILL is sent to whatever server is there
 * RUN fails -DNOT_LISTED       a keeper that begins does not look for connections of the one before it
 * RUN fails -DLISTED_ONCE -DDEATHS=2   ... or ends one of them alone
 * RUN fails -DNAME_LATE        a connection puts before the server has said that it has its name */
#ifndef DEATHS
#define DEATHS  1
#endif
#define CONNS   (DEATHS + 3)    /* the last one is the other machine's; a keeper may need two */
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
byte run_now = 1;
bool restarted;

/* machine 1, in shared memory: lives as long as the index */
byte ram = BAD;
bool dropped;                   /* the writer has removed it, and an unlink is due */
bool final;                     /* it was unlinked */
byte deaths;
bool gone;                      /* the keeper was killed, and the next one has not begun */

/* the keeper's */
byte conn = NONE;               /* the one it puts by */
byte of_run;                    /* the server that has it */
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
		!restarted -> restarted = true; run_now++;
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

/* ---- the keeper ---- */

/* KILL by number, at the server that is there now. */
inline fence()
{
	atomic {
		if
#ifndef ANY_RUN
		:: of_run != run_now            /* that server has gone, and its connections with it */
#endif
		:: else ->
			for (c : 0 .. OTHER) {
				if
				:: open[c] && number[c] == number[conn] -> end_connection(c)
				:: else
				fi
			}
		fi;
		c = 0; in_doubt = false; conn = NONE
	}
}

proctype keeper()
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
			conn = k; of_run = run_now; number[k] = next_number; next_number++;
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
	atomic { run server(); run engine(); run keeper() }
}
