/* SPDX-License-Identifier: Apache-2.0 */
/* stock.pml - a stock that its peer takes from and the writer takes back: recall.c, index/request/reserve.c,
 * index/takeover/others.c, reap.c.
 *
 * One block and one peer that has a stock.  The library asks for the block as often as TIMES;
 * the writer answers, and takes it back whenever it likes, for another peer.  The peer's list
 * names the block from the first answer on: it is never told that the block has gone.  The
 * program releases what it got by a FREE of that life.  The writer may be killed between any two
 * stores, as often as DEATHS, and a successor goes on; with -DKILLED the peer may be killed
 * anywhere, too, and is reaped.
 *
 * Both sides swap the cell by locked instructions, and each side's stores are in order, so there
 * are no store buffers here: what is late is as if its process were slower.
 *
 * Proves: the block is never given to another while the program has it, and at the end, when
 * nobody has anything under way, it is free or in the stock.
 *
 * SHORT whole -DKILLED
 * SHORT mutants
 * RUN passes
 * RUN passes -DKILLED
 * RUN fails -DNO_FLAG                  the record does not say that it is being taken back
 * RUN fails -DFLAG_LATE                it says so after the swap
 * RUN fails -DPEER_STORES              the peer looks, and stores
 * RUN fails -DWRITER_STORES            the writer looks, and stores
 * RUN fails -DUNTOLD_IS_FREE           a successor frees what was not answered, whatever the cell says
 * RUN fails -DSTOCK_LATE               the cell says STOCK after the answer
 * RUN fails -DANY_LIFE                 FREE means whatever life the block has */
#ifndef TIMES
#define TIMES 3
#endif
#ifndef DEATHS
#define DEATHS 2
#endif

#define NONE  0
#define STOCK 1
#define MINE  2                 /* RESERVED, of the program */

byte cell;
bool reserved, flag;            /* the record: RESERVED by the peer, REC_RECALL */
byte life;
bool asked, answered = true;    /* the refill, in its ring slot */
bool sent;                      /* FREE, not answered */
byte sent_life;
bool gone, reaped;              /* the peer */
/* what is so, apart from all memory: */
bool has;                       /* the program */
byte deaths;

/* The writer may die here. */
#define DIES if :: deaths < DEATHS -> deaths++; goto takeover :: skip fi

inline give_to_another()
{
	atomic { !reserved -> assert(!has) }
}

/* The program has it, and gives it back.  BACK and the list between are left out: what matters is
 * that the cell is 0 before FREE is shown. */
inline use_and_release()
{
	has = true;
	!sent;
	atomic { has = false; life_had = life }
	cell = NONE;
	atomic { sent_life = life_had; sent = true }
}

inline lives()
{
	do
	:: n < TIMES && answered && !asked -> n++; atomic { asked = true; answered = false }
	:: answered && asked -> listed = true; asked = false    /* it takes the answer */
	:: listed && cell == STOCK ->
#ifdef PEER_STORES
		cell = MINE;
		use_and_release()
#else
		if
		:: atomic { cell == STOCK -> cell = MINE; has = true }; use_and_release()
		:: cell != STOCK -> skip
		fi
#endif
	:: n == TIMES && answered -> break
	od
}

proctype peer()
{
	byte n, life_had;
	bool listed;

#ifdef KILLED
	{ lives() } unless { gone }
#else
	lives()
#endif
}

#ifdef KILLED
proctype killer()
{
	atomic { gone = true; has = false }
}
#endif

proctype writer()
{
	bool swapped, told;

serve:	do
	:: !answered && !reserved ->            /* the refill */
		life++;
		reserved = true;
		DIES;
#ifndef STOCK_LATE
		cell = STOCK;
		DIES;
#endif
		answered = true;
		DIES;
#ifdef STOCK_LATE
		cell = STOCK;
		DIES
#endif
	:: !answered && reserved ->
		/* a writer died, and the peer, whose list was old, had the block before the answer:
		 * there is no other for it */
		answered = true;
		DIES
	:: sent ->
#ifdef ANY_LIFE
		if
		:: reserved -> reserved = false
#else
		if
		:: reserved && life == sent_life -> reserved = false
#endif
		:: else
		fi;
		DIES;
		sent = false;
		DIES
	:: answered && reserved && cell == STOCK ->     /* taken back */
#if !defined(NO_FLAG) && !defined(FLAG_LATE)
		flag = true;
		DIES;
#endif
#ifdef WRITER_STORES
		swapped = cell == STOCK;
		if :: swapped -> cell = NONE :: else fi;
#else
		atomic { swapped = cell == STOCK; if :: swapped -> cell = NONE :: else fi }
#endif
		DIES;
#ifdef FLAG_LATE
		flag = true;
		DIES;
#endif
		if
		:: swapped -> reserved = false; DIES
		:: else
		fi;
		swapped = false;
		flag = false;
		DIES
	:: !reserved -> give_to_another()
#ifdef KILLED
	:: gone && !reaped ->
		cell = NONE;
		DIES;
		reserved = false;
		DIES;
		atomic { flag = false; answered = true; asked = false; sent = false;
			 reaped = true }
#endif
	:: timeout -> assert(!reserved || has); goto end
	od;

takeover:
	swapped = false;
	if
	:: !reserved -> flag = false
	:: else ->
		told = answered;
		if
		:: !told -> atomic { if :: cell == STOCK -> cell = NONE :: else fi }
		:: else
		fi;
		DIES;
		if
		:: !told || flag ->
#ifdef UNTOLD_IS_FREE
			told = told && cell != NONE
#else
			told = cell != NONE
#endif
		:: else
		fi;
		if
		:: told -> flag = false
		:: else -> reserved = false; DIES; flag = false
		fi;
		DIES
	fi;
	told = false;
	goto serve;
end:	skip
}

init
{
	atomic {
		run peer();
#ifdef KILLED
		run killer();
#endif
		run writer()
	}
}
