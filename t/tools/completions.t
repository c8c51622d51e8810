#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The completions of each tool have the options of its --help and no others, and complete commands, caches and
# pools, in real shells where there are some.
# Tests: tools/completions/generate

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

files=$builddir/tools/completions
test -f "$files/stamp" || skip_all "a cross build makes no completions"

options_of()	# FILE: the long ones
{
	grep -o -e '--[a-z][a-z-]*' "$1" | sort -u
}

for tool in gpcd gpc-inspect gpc-replay gpc-bench; do
	$tool --help >"$tmp/help"
	grep -o -e '^  \(-[a-zA-Z], \)\{0,1\}--[a-z-]*' "$tmp/help" | grep -o -e '--.*' | sort -u >"$tmp/want"
	test -s "$tmp/want" || bail "$tool has no options"
	sed -n 's/.*compgen -W "\(--[^"]*\)".*/\1/p' "$files/bash/$tool" | tr ' ' '\n' | grep -e '^--' |
		sort -u >"$tmp/got"
	diff "$tmp/want" "$tmp/got" >"$tmp/diff"
	ok $? "bash: the options of $tool" "$tmp/diff"
	sed -n "s/^	'\((-. [^)]*)'{-.,\)*\(--[a-z-]*\).*/\2/p" "$files/zsh/_$tool" | sort -u >"$tmp/got"
	diff "$tmp/want" "$tmp/got" >"$tmp/diff"
	ok $? "zsh: the options of $tool" "$tmp/diff"
	sed -n 's/^complete -c [a-z-]* -l \([a-z-]*\) .*/--\1/p' "$files/fish/$tool.fish" | sort -u >"$tmp/got"
	diff "$tmp/want" "$tmp/got" >"$tmp/diff"
	ok $? "fish: the options of $tool" "$tmp/diff"
done

serve alpha --block-size 16 --vram-blocks 8 --ram-blocks 8
serve beta --block-size 16 --vram-blocks 8

# ---- bash ----

# what bash would offer behind this line, word by word: the last one is what is being typed
in_bash()	# WORD...
{
	bash -c '. "$1/$2" && shift && COMP_WORDS=("$@") && COMP_CWORD=$(($# - 1)) &&
		$(complete -p "$1" | sed "s/.*-F \([^ ]*\).*/\1/") &&
		printf "%s\n" "${COMPREPLY[@]}" | sort | tr "\n" " "' bash "$files/bash" "$@"
}

if command -v bash >/dev/null; then
	is "$(in_bash gpc-inspect --dir "$shm" stat '')" 'alpha beta ' "bash: caches"
	is "$(in_bash gpc-inspect --dir = "$shm" stat al)" 'alpha ' "bash: with --dir="
	is "$(in_bash gpc-inspect st)" 'stat ' "bash: commands"
	is "$(in_bash gpc-inspect list '')" ' ' "bash: list takes no cache"
	is "$(in_bash gpc-inspect --dir "$shm" ls alpha --pool '')" '0 1 ' "bash: pools"
	is "$(in_bash gpc-inspect --dir "$shm" ls beta --pool = '')" '0 ' "bash: of that cache"
	is "$(in_bash gpcd --dir "$shm" b)" 'beta ' "bash: gpcd NAME"
	is "$(in_bash gpcd --log-level w)" 'warning ' "bash: values"
	is "$(in_bash gpc-bench loo)" 'lookup ' "bash: what gpc-bench measures"
	is "$(in_bash gpc-inspect --vers)" '--version ' "bash: options"
else
	skip 10 "there is no bash"
fi

# ---- zsh: its own completion, typed on a terminal of its own ----

in_zsh()	# LINE: it and a Tab; all that is shown
{
	zsh -f -c '
		zmodload zsh/zpty
		zpty z zsh -f -i
		zpty -w z "PROMPT=; unsetopt zle_bracketed_paste 2>/dev/null; fpath=($1 \$fpath); autoload -U compinit; compinit -D -u"
		zpty -w z "LISTMAX=10000; bindkey \"^I\" list-choices; echo re""ady"
		zpty -m -r z text "*ready*" >/dev/null
		zpty -w -n z "$2"$'"'\\t'"'
		until zpty -r -t z part; do sleep 0.05; done
		for i in {1..40}; do
			text+=$part; part=; sleep 0.05
			zpty -r -t z part
		done
		print -r -- "$text"
		zpty -d z' zsh "$files/zsh" "$1" 2>&1 | tr -d '\r'
}

zsh_shows()	# TEXT LINE
{
	in_zsh "$2" >"$tmp/out"
	grep -q "$1" "$tmp/out"
}

if command -v zsh >/dev/null && zsh -f -c 'zmodload zsh/zpty' 2>/dev/null; then
	for tool in gpcd gpc-inspect gpc-replay gpc-bench; do
		run zsh -n "$files/zsh/_$tool"
		exits 0 "zsh reads _$tool"
	done
	# it is read for two seconds, in which a busy machine may show nothing
	until_ok zsh_shows 'alpha' "gpc-inspect --dir $shm stat " && grep -q beta "$tmp/out"
	ok $? "zsh: caches" "$tmp/out"
	until_ok zsh_shows 'peers .*the attached processes' "gpc-inspect "
	ok $? "zsh: commands with what they do" "$tmp/out"
	until_ok zsh_shows warning "gpcd --log-level "
	ok $? "zsh: values" "$tmp/out"
else
	skip 7 "there is no zsh"
fi

# ---- fish ----

in_fish()	# LINE
{
	HOME=$tmp XDG_CONFIG_HOME=$tmp fish -N -c 'source $argv[1]; complete -C $argv[2]' -- "$files/fish/${1%% *}.fish" \
		"$1" 2>&1 | cut -f 1 | sort | tr '\n' ' '
}

if command -v fish >/dev/null; then
	is "$(in_fish "gpc-inspect --dir $shm stat ")" 'alpha beta ' "fish: caches"
	is "$(in_fish "gpc-inspect pe")" 'peers ' "fish: commands"
	is "$(in_fish "gpc-inspect --dir $shm ls alpha --pool ")" '0 1 ' "fish: pools"
	is "$(in_fish "gpcd --log-level w")" 'warning ' "fish: values"
	is "$(in_fish "gpcd --dir $shm ")" 'alpha beta ' "fish: gpcd NAME"
	is "$(in_fish "gpc-bench ri")" 'ring ' "fish: what gpc-bench measures"
else
	skip 6 "there is no fish"
fi

done_testing
