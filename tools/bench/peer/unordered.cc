/* SPDX-License-Identifier: Apache-2.0 */
/* std::unordered_map, and boost::unordered_flat_map where it is installed: tables of one
 * process, not safe beside a writer.
 *
 * Room for all entries is reserved beforehand.  The hash is the key, and boost is told that its
 * bits are well mixed, so that it does not mix them again.  What goes in and out in a turn is
 * told, so neither pays for a list of recency.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

extern "C" {
#include "tools/bench/peer/peer.h"
}

#include <cstddef>
#include <cstdint>
#include <exception>
#include <unordered_map>
#ifdef HAVE_BOOST_FLAT_MAP
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/version.hpp>
#endif

namespace
{

struct identity {
	using is_avalanching = void;
	std::size_t operator()(std::uint64_t key) const noexcept
	{
		return key;
	}
};

/* The rest of the key beside the value: 16 bytes an entry. */
struct rest {
	std::uint32_t tag;
	std::int32_t value;
};

template <class Map> void *map_open(std::uint32_t entries, const char **why)
{
	Map *map = nullptr;

	try {
		map = new Map;
		map->reserve(entries);
		return map;
	} catch (const std::exception &) {
		delete map;
		return bench_why(why, "no memory for %u entries", entries);
	}
}

template <class Map> void map_close(void *table)
{
	delete static_cast<Map *>(table);
}

template <class Map>
int map_insert(void *table, const bench_key *keys, const std::int32_t *values, std::uint32_t n)
{
	Map &map = *static_cast<Map *>(table);

	try {
		for (std::uint32_t i = 0; i < n; i++)
			map.emplace(keys[i].w[0], rest{ std::uint32_t(keys[i].w[1]), values[i] });
	} catch (const std::exception &) {
		return -1;
	}
	return 0;
}

template <class Map>
int map_lookup(void *table, const bench_key *keys, std::uint32_t n, std::int32_t *values)
{
	const Map &map = *static_cast<const Map *>(table);
	const auto end = map.end();

	for (std::uint32_t i = 0; i < n; i++) {
		const auto at = map.find(keys[i].w[0]);

		values[i] = at != end && at->second.tag == std::uint32_t(keys[i].w[1])
				    ? at->second.value
				    : -1;
	}
	return 0;
}

template <class Map>
int map_turn(void *table, const bench_key *in, const std::int32_t *values, const bench_key *out,
	     std::uint32_t n)
{
	Map &map = *static_cast<Map *>(table);

	for (std::uint32_t i = 0; i < n; i++)
		if (!map.erase(out[i].w[0]))
			return -1;
	return map_insert<Map>(table, in, values, n);
}

template <class Map> constexpr bench_peer peer(const char *name, const char *what)
{
	bench_peer p{};

	p.name = name;
	p.what = what;
	p.open = map_open<Map>;
	p.insert = map_insert<Map>;
	p.lookup = map_lookup<Map>;
	p.turn = map_turn<Map>;
	p.close = map_close<Map>;
	return p;
}

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

using std_map = std::unordered_map<std::uint64_t, rest, identity>;
#ifdef __GLIBCXX__
#define STD_WHAT "libstdc++ " STRING(_GLIBCXX_RELEASE)
#else
#define STD_WHAT "C++ library"
#endif

} /* namespace */

extern "C" {

extern const bench_peer bench_peer_unordered;
constexpr bench_peer bench_peer_unordered =
	peer<std_map>("unordered_map", STD_WHAT ", of one process");

#ifdef HAVE_BOOST_FLAT_MAP
extern const bench_peer bench_peer_flat_map;
constexpr bench_peer bench_peer_flat_map =
	peer<boost::unordered_flat_map<std::uint64_t, rest, identity>>(
		"flat_map", "boost " BOOST_LIB_VERSION ", of one process");
#endif
}
