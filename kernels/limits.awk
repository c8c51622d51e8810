# SPDX-License-Identifier: Apache-2.0
# limits.awk LIMITS LOG...: does each function of the logs (nvcc -Xptxas -v) keep to the table?  A line
# for each number that is beyond it; exit status 1 if there is one.

function complain(text)
{
	print text > "/dev/stderr"
	failed = 1
}

# _Z12match_kernelILb0EEv5match is match_kernel<0>; other names, as of functions in a namespace, stay
function plain(name,   length_, rest, ret, list)
{
	if (name !~ /^_Z[0-9]/)
		return name
	rest = substr(name, 3)
	length_ = rest + 0
	sub(/^[0-9]+/, "", rest)
	ret = substr(rest, 1, length_)
	rest = substr(rest, length_ + 1)
	if (rest !~ /^I(L[a-z][0-9]+E)+E/)
		return rest ~ /^I/ ? name : ret
	while (match(rest, /^I?L[a-z][0-9]+E/)) {
		list = list "," substr(rest, 1, RLENGTH - 1)
		rest = substr(rest, RLENGTH + 1)
	}
	gsub(/I?L[a-z]/, "", list)
	return ret "<" substr(list, 2) ">"
}

# the number before these words in the line; 0: it has none
function bytes(words)
{
	return match($0, "[0-9]+ " words) ? substr($0, RSTART, RLENGTH) + 0 : 0
}

function check(column, got, what,   row)
{
	row = (name, arch) in table ? name SUBSEP arch : name SUBSEP "all"
	if (got > limit[row, column])
		complain(FILENAME ": " name " for " arch " has " got " " what ", and " limits \
			" allows " limit[row, column])
}

BEGIN { split("registers,stack,stores,loads,local", columns, ",") }

NR == FNR {
	limits = FILENAME
	if (/^#/ || NF == 0)
		next
	if (NF != 7 || $2 !~ /^(all|sm_[0-9a-z]+)$/ || ($1, $2) in table) {
		complain(limits ":" FNR ": kernel, architecture and five numbers, once each, are wanted: " $0)
		next
	}
	table[$1, $2]
	for (i = 1; i <= 5; i++) {
		if ($(i + 2) !~ /^[0-9]+$/)
			complain(limits ":" FNR ": " columns[i] " is a number, not " $(i + 2))
		limit[$1, $2, columns[i]] = $(i + 2) + 0
	}
	next
}

FNR == 1 { arch = name = "" }

/Compiling entry function/ {
	split($0, quoted, "'")
	arch = quoted[4]
	next
}

/Function properties for/ {
	name = plain($NF)
	known = (name, arch) in table || (name, "all") in table
	if (!known)
		complain(FILENAME ": " name " for " arch ": there is no row for it in " limits)
	next
}

name != "" && known && /bytes stack frame/ {
	check("stack", bytes("bytes stack frame"), "bytes of stack")
	check("stores", bytes("bytes spill stores"), "bytes of spill stores")
	check("loads", bytes("bytes spill loads"), "bytes of spill loads")
}

name != "" && /Used [0-9]+ registers/ {
	seen[FILENAME]++
	if (known) {
		check("registers", bytes("registers"), "registers")
		check("stack", bytes("bytes cumulative stack size"), "bytes of stack with what it calls")
		check("local", bytes("bytes lmem"), "bytes of local memory")
	}
	name = ""
}

END {
	for (i = 2; i < ARGC; i++)
		if (!seen[ARGV[i]])
			complain(ARGV[i] ": ptxas says nothing of any kernel")
	exit failed
}
