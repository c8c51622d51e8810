/* SPDX-License-Identifier: Apache-2.0 */
/* stock-owned.pml - a stock of a pool of CALLER blocks: index/request/stock.c, index/writer/grant.c, recall.c,
 * index/takeover/others.c.
 *
 * One block and the peer that owns its pool.  The library has it evicted ahead of demand as often as TIMES; when
 * the program takes it out of the stock, the cell says nothing, since the record alone says whose it is.
 * The program publishes it, and it is evicted again.  At the end the pool goes, whoever has the block.
 * The writer may be killed between any two stores, as often as DEATHS, and a successor runs the refill again
 * that was not answered.
 *
 * Both sides swap the cell by locked instructions, and each side's stores are in order: no store buffers.
 *
 * Proves: the block is not in stock while the program has it, no stock has a block that its peer does not know
 * of, and of a pool that has gone no cell is left.
 *
 * SHORT whole
 * SHORT mutants
 * RUN passes
 * RUN fails -DTOLD_LATE                the cell says STOCK after the answer
 * RUN fails -DLIST_STAYS               the peer's list names a block that it has given to the program
 * RUN fails -DLEAVES_STOCK             a successor frees what a pool had that goes, and not its cell
 * RUN fails -DANY_OP                   a successor counts what another refill has brought */
#ifndef TIMES
#define TIMES 3
#endif
#ifndef DEATHS
#define DEATHS 3
#endif

#define NONE  0
#define STOCK 1

byte cell;
bool live = true, reserved;     /* the record: LIVE; RESERVED by the owner; neither: it has gone with the pool */
byte op;                        /* the refill that it was evicted for */
byte refill;                    /* the number of the last one ... */
bool answered = true, brings;   /* ... and its answer: it brings the block */
bool asked;                     /* the peer has not taken that answer */
bool publish;                   /* a command, not answered */
bool listed;                    /* the peer's list names the block */
bool going, draining, gone;     /* the pool: is to go, is going, has gone */
/* what is so, apart from all memory: */
bool has;                       /* the program */
byte deaths;

#define DIES if :: deaths < DEATHS -> deaths++; goto takeover :: skip fi

proctype peer()
{
	byte n;

	do
	:: n < TIMES && answered && !asked ->
		n++;
		atomic { refill = n; asked = true; answered = false; brings = false }
	:: answered && asked -> atomic { listed = listed || brings; asked = false }
	:: listed ->
		atomic {
#ifndef LIST_STAYS
			listed = false;
#endif
			if
			:: cell == STOCK -> assert(!has); cell = NONE; has = true
			:: else
			fi
		};
		if
		:: has -> atomic { has = false; publish = true }; !publish
		:: else
		fi
	:: n == TIMES && answered && !asked ->
		assert(cell == NONE || listed);
		going = true;
		break
	od
}

/* CAS from NONE; nobody else stores STOCK. */
inline put_in_stock()
{
	atomic { if :: cell == NONE -> assert(!has); cell = STOCK :: else fi }
}

proctype writer()
{
serve:	do
	:: !answered && live && !publish ->
		op = refill;
		live = false;           /* DYING */
		reserved = true;
		DIES;
#ifndef TOLD_LATE
		put_in_stock();
		DIES;
#endif
		atomic { answered = true; brings = true };
		DIES;
#ifdef TOLD_LATE
		put_in_stock();
		DIES
#endif
#ifdef ANY_OP
	:: !answered && reserved ->
#else
	:: !answered && reserved && op == refill ->
#endif
		/* a writer had evicted it for this refill, and died */
		put_in_stock();
		DIES;
		atomic { answered = true; brings = true };
		DIES
	:: !answered && reserved && op != refill && !publish -> answered = true     /* none is live */
	:: publish ->
		reserved = false;
		live = true;
		DIES;
		publish = false;
		DIES
	:: going && !gone && !publish -> draining = true; DIES; goto ends
	:: gone -> assert(cell == NONE); goto end
	od;

ends:	/* recall_pool(), free_reservations_of(), clear_pool() */
	atomic { if :: cell == STOCK -> cell = NONE :: else fi };
	DIES;
	reserved = false;
	DIES;
	live = false;
	DIES;
	gone = true;
	goto serve;

takeover:
	if
	:: draining && !gone ->
		if
		:: reserved ->
#ifndef LEAVES_STOCK
			atomic { if :: cell == STOCK -> cell = NONE :: else fi };
			DIES;
#endif
			reserved = false;
			DIES
		:: else
		fi;
		live = false;
		DIES;
		gone = true
	:: else
	fi;
	if
	:: publish && live -> publish = false   /* it was done */
	:: else
	fi;
	goto serve;
end:	skip
}

init
{
	atomic {
		run peer();
		run writer()
	}
}
