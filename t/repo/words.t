#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One word has one meaning (gpc-words(7)): words that had two are refused where they do not belong, and
# no two structs, unions or enums of lib/ have one name.
# Tests: man/gpc-words.7

srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
cd "$srcdir" || exit 99
n=0

tap()	# NAME FILE: what is wrong, a line each
{
	n=$((n + 1))
	if test -s "$2"; then
		echo "not ok $n - $1"
		head -n 20 "$2" | cut -c1-160 | sed 's/^/# /'
	else
		echo "ok $n - $1"
	fi
}

tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-words-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15

# A word, what it is called now, and where it may stay: each an ERE of file:line:text.
cat >"$tmp/table" <<'END'
keepers?|keeper_[a-z]+|[a-z_]+_keeper	the steward keeps lower tiers, a keeper owns VRAM for others	^tools/(replay|completions)/|^tools/daemon/(ahead|keep|daemon|options|options_check)\.[ch]:|keeper of VRAM|keeper-waits|^man/(gpc-replay\.1|gpc_engine\.7|gpcd\.8|gpc_pool_(make|get)\.3):|[Kk]eeper \(gpcd --keep\)|blocks that its keeper keeps free|if a keeper does it|A keeper that was started with$
stages?|staged|stage_[a-z]+|[a-z_]+_stages?	a part of an image in a fetch by layers; else a question, primed, pinned	^lib/bytes/payload/|^lib/gpc[a-z_]*\.h:[0-9]*:.*(of a fetch by layers|uint32_t stages;$|gpc_order|that stage )|^man/(gpc_order|gpc_fetch)\.3:|^man/gpc_engine\.7:.*has no stages|^man/gpc\.7:[0-9]*:\.Fa stages$|^python/(src/(transfer|module|field)\.c|gpc/_gpc\.pyi|tests/(transfers|many)\.py):|later pipeline stage
[a-z_]*_?cold_?[a-z_]*	lower: a tier below RAM	__attribute__\(\(.*cold|^tools/bench/evict\.c:
afar|[a-z]+_afar|afar_[a-z]+	the store, its lanes	^$
desk|[a-z]+_desk|desk_[a-z]+	the board: the steward's page in the index	desk calendar
(ring|grant|crew|grace|entry|map)_slot|(table|bucket)_slots?_[a-z]+	an entry of a ring or table, an item of a grant	^$
struct slot|enum slot_state	struct channel: of a transfer; a slot is in a pool	^lib/tiers/steward/
struct told|[a-z]+->told	shown, heard, bound, announced, logged	^lib/index/request/returned\.c:|^(plugins|tools)/
END

# WHERE WORD STAYS: file:line:text of each that is not where it may be
refused()
{
	find $1 -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py' -o -name '*.pyi' \
		-o -name '*.[1-8]' -o -name '*.in' -o -name '*.sh' \) ! -name gpc-words.7 |
		sort | xargs grep -nwiE -- "$2" /dev/null | grep -vE -- "$3"
}

tab=$(printf '\t')
while IFS=$tab read -r word now stays; do
	refused "lib tools python/gpc python/src python/tests man kernels plugins" "$word" "$stays" >"$tmp/out"
	tap "$now" "$tmp/out"
done <"$tmp/table"

# struct, union and enum, by name: in how many files is it defined?
defined()	# FOLDER
{
	find "$1" -name '*.[ch]' | sort | xargs awk '
		/^(struct|union|enum) [a-z_0-9]+ \{/ { print $1, $2, FILENAME }' | sort -u |
		awk '{ files[$1 " " $2] = files[$1 " " $2] " " $3; n[$1 " " $2]++ }
			END { for (name in n) if (n[name] > 1) print name ":" files[name] }' | sort
}
defined lib >"$tmp/out"
tap "a struct of lib/ has its name alone" "$tmp/out"

# the page: in order, each word once, each with the page that has more
awk '/^\.Bl/ { lists++ } lists == 1 && /^\.It / { print substr($0, 5) }' man/gpc-words.7 >"$tmp/words"
LC_ALL=C sort -uc "$tmp/words" 2>"$tmp/out"
tap "the words of gpc-words(7) are in order, each once" "$tmp/out"
awk '/^\.Bl/ { lists++ } lists != 1 { next }
	/^\.It / { if (word && !page) print word; word = $0; page = 0 } /^\.Pq Xr / { page = 1 }' \
	man/gpc-words.7 >"$tmp/out"
tap "and each names the page that has more" "$tmp/out"

# the test itself
mkdir -p "$tmp/lib"
printf '/* The keeper writes. */\nstruct cold {\n\tint desk;\n};\n' >"$tmp/lib/a.c"
printf 'struct cold {\n};\n' >"$tmp/lib/b.c"
cd "$tmp" || exit 99
: >wrong
while IFS=$tab read -r word now stays; do
	refused lib "$word" "$stays"
done <table | grep -c . >seen
test "$(cat seen)" = 4 || echo "$(cat seen) of 4 words are refused" >wrong
defined lib | grep -q '^struct cold: lib/a.c lib/b.c$' || echo "two structs of a name are not seen" >>wrong
tap "a word that came back is seen" wrong
echo "1..$n"
