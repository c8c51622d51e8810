# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# An exact LRU: each request looks up its longest prefix, then uses all of its blocks, leaf first.

lru()	# CAPACITY TRACE: requests, blocks asked for, hits
{
	awk -v capacity="$1" '
	function evict() {           # used[] is in order of use; entries go stale
		while (last[used[++tail]] != tail)
			;
		present[used[tail]] = 0
	}
	function use(id) {
		if (!present[id] && ++count > capacity)
			evict()
		present[id] = 1
		last[id] = ++now
		used[now] = id
	}
	{
		sub(/.*"hash_ids": *\[/, "")
		sub(/\].*/, "")
		n = split($0, ids, /, */)
		for (i = 1; i <= n && present[ids[i]]; i++)
			hits++
		for (i = n; i; i--)
			use(ids[i])
		asked += n
	}
	END { print NR, asked + 0, hits + 0 }' "$2"
}
