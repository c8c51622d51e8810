#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes small.jsonl to standard output: chats of several turns, a dozen at a time, that begin
# with one of four system prompts.  Each turn sends the whole conversation again; some are
# retried from an earlier point, some chats come back after a long pause.  An id names a whole
# prefix, ids count from 0 in the order of their first use.  The same output everywhere: the
# random numbers are made here, in integers that any awk holds exactly.
#
#	t/data/make-trace.sh >t/data/small.jsonl
exec awk -v requests="${1:-400}" '
function random(n) {                     # 0 .. n - 1
	seed = (seed * 16807) % 2147483647
	return int(seed / 8) % n
}
function grow(s, n) {                    # n new blocks behind the chat
	while (n-- > 0 && length_of[s] < 60)
		chain[s, length_of[s]++] = blocks++
}
function begin(s,    p, i) {
	p = random(10)                   # one prompt is most popular
	p = p < 5 ? 0 : p < 8 ? 1 : p < 9 ? 2 : 3
	if (!(p in prompt_length)) {
		prompt_length[p] = 5 + 3 * p
		for (i = 0; i < prompt_length[p]; i++)
			prompt[p, i] = blocks++
	}
	for (i = 0; i < prompt_length[p]; i++)
		chain[s, i] = prompt[p, i]
	length_of[s] = prompt_length[p]
	turns[s] = 2 + random(9)
	name[s] = sessions++
}
function id_of(block) {
	if (!(block in ids))
		ids[block] = known++
	return ids[block]
}
function send(s,    i, out) {
	out = 20 + random(200)
	printf "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": %d, ", now,
		16 * length_of[s] + random(16), out
	printf "\"session\": %d, \"hash_ids\": [", name[s]
	for (i = 0; i < length_of[s]; i++)
		printf "%s%d", i ? ", " : "", id_of(chain[s, i])
	print "]}"
}
BEGIN {
	seed = 20240607
	for (slot = 0; slot < 12; slot++)
		turns[slot] = 0
	for (r = 0; r < requests; r++) {
		now += 20 + random(400)
		if (r % 100 == 50) {             # shorter than a block
			printf "{\"timestamp\": %d, \"input_length\": 9, ", now
			print "\"output_length\": 3, \"session\": " sessions++ ", \"hash_ids\": []}"
			continue
		}
		slot = random(3) ? random(4) : random(12)        # some speak more often
		if (turns[slot] <= 0)
			begin(slot)
		else if (random(8) == 0 && length_of[slot] > 20)
			length_of[slot] -= 1 + random(4)         # another answer
		grow(slot, 1 + random(5))
		send(slot)
		grow(slot, random(4))            # the answer
		turns[slot]--
	}
}' </dev/null
