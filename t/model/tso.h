/* SPDX-License-Identifier: Apache-2.0 */
/* tso.h - stores as x86-64 makes them, for the models that need it.
 *
 * A CPU's stores go through a queue of its own, in order, and reach memory at any later
 * moment; its loads do not wait for them.  A locked instruction and a fence wait until the
 * queue is empty.  A model defines CPUS, DEPTH and CELLS first, each of its processes has a
 * byte `me`, and none loads a cell that its own queue may still hold: forwarding is left
 * out.  A killed process's stores reach memory like any others. */
byte mem[CELLS];
chan queue[CPUS] = [DEPTH] of { byte, byte };

#define STORE(cell, value)      queue[me]!cell,value
#define FENCE()                 empty(queue[me])
#define LOCKED(what)            atomic { empty(queue[me]); what }

proctype cpu(byte number)
{
	byte cell, value;
end:	do
	:: atomic { queue[number]?cell,value; mem[cell] = value; cell = 0; value = 0 }
	od
}
