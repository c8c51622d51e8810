#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No kernel spills, has a stack or takes more registers than kernels/limits.table allows: the build compares, and
# names kernel, architecture, number and limit.  Each row of the table is of a kernel that is there.
# Tests: kernels/limited kernels/limits.table kernels/limits.awk

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

AWK=${AWK:-awk}
limits=$srcdir/kernels/limits.table
compare()
{
	run "$AWK" -f "$srcdir/kernels/limits.awk" "$@"
}

# ---- the comparison, of logs by hand ----

cat >"$tmp/table" <<'end'
# a comment
some_kernel<0,12>	all	32	0	0	0	0
some_kernel<0,12>	sm_80	40	16	8	4	24
plain_kernel	all	16	0	0	0	0
end
said()	# REGISTERS STACK STORES LOADS [MORE [ARCHITECTURE [FUNCTION]]]
{
	name=${7:-_Z11some_kernelILb0ELi12EEv6lookup}
	cat >"$tmp/log" <<-end
	ptxas info    : 0 bytes gmem
	ptxas info    : Compiling entry function '$name' for '${6:-sm_90}'
	ptxas info    : Function properties for $name
	    $2 bytes stack frame, $3 bytes spill stores, $4 bytes spill loads
	ptxas info    : Used $1 registers, used 1 barriers, 8 bytes smem${5}, 400 bytes cmem[0]
	ptxas info    : Compile time = 1.000 ms
	end
	compare "$tmp/table" "$tmp/log"
}
refused()	# SENTENCE NAME
{
	test "$status" = 1 && grep -qF "$1" "$tmp/err" && test "$(wc -l <"$tmp/err")" = 1
	ok $? "$2" "$tmp/err"
}
said 32 0 0 0
exits 0 "a kernel that keeps to its row"
said 33 0 0 0
refused "$tmp/log: some_kernel<0,12> for sm_90 has 33 registers, and $tmp/table allows 32" "a register too many"
said 32 8 0 0
refused "some_kernel<0,12> for sm_90 has 8 bytes of stack, and $tmp/table allows 0" "a stack"
said 32 0 4 0
refused "has 4 bytes of spill stores, and $tmp/table allows 0" "spills"
said 32 0 0 12
refused "has 12 bytes of spill loads, and $tmp/table allows 0" "loads of them"
said 32 0 0 0 ", 48 bytes lmem"
refused "has 48 bytes of local memory, and $tmp/table allows 0" "local memory"
said 32 0 0 0 ", 64 bytes cumulative stack size"
refused "has 64 bytes of stack with what it calls, and $tmp/table allows 0" "the stack of what it calls"
said 40 16 8 4 ", 24 bytes lmem" sm_80
exits 0 "a row of the architecture goes before the one of all"
said 41 16 8 4 ", 24 bytes lmem" sm_80
refused "some_kernel<0,12> for sm_80 has 41 registers, and $tmp/table allows 40" "and has its own limits"
said 17 0 0 0 "" sm_80 _Z12plain_kernelPmm
refused "plain_kernel for sm_80 has 17 registers, and $tmp/table allows 16" "a kernel that is no template"
for name in _Z11some_kernelILb1ELi12EEv6lookup _Z11some_kernelv _Z5otherPm _ZN2in11some_kernelILb0ELi12EEEv; do
	said 1 0 0 0 "" sm_90 $name
	refused " for sm_90: there is no row for it in $tmp/table" "a kernel without a row: $name"
done
{
	said 32 0 0 0
	cat "$tmp/log"
	said 50 0 0 0
	cat "$tmp/log"
} >"$tmp/both"
compare "$tmp/table" "$tmp/both"
refused "has 50 registers" "the second kernel of a file"
# a function that is not inlined has no registers of its own
said 32 0 0 0
sed -e '/Function properties/i\
ptxas info    : Function properties for _Z4helpi\
    24 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$tmp/log" >"$tmp/helped"
compare "$tmp/table" "$tmp/helped"
refused "help for sm_90: there is no row for it in $tmp/table" "a function that is not inlined"
echo 'help all 0 0 0 0 0' | cat "$tmp/table" - >"$tmp/table-helped"
compare "$tmp/table-helped" "$tmp/helped"
refused "help for sm_90 has 24 bytes of stack" "and its stack"
echo 'ptxas info    : 0 bytes gmem' >"$tmp/none"
compare "$tmp/table" "$tmp/none"
refused "$tmp/none: ptxas says nothing of any kernel" "a log without a kernel"
: >"$tmp/empty"
compare "$tmp/table" "$tmp/empty"
refused "$tmp/empty: ptxas says nothing of any kernel" "an empty log"
for row in 'k all 1 2 3 4' 'k all 1 2 3 4 5 6' 'k 80 1 2 3 4 5' 'plain_kernel all 1 2 3 4 5' 'k all 1 2 x 4 5'; do
	echo "$row" | cat "$tmp/table" - >"$tmp/wrong"
	said 32 0 0 0
	compare "$tmp/wrong" "$tmp/log"
	refused "$tmp/wrong:5: " "a row that is wrong: $row"
done

# ---- the build ----

value()	# of a variable of the Makefile
{
	sed -n "s/^$1 = //p" "$builddir/Makefile" 2>/dev/null
}
nvcc=$(value NVCC)
cuda=no
grep -q '^#define HAVE_CUDA 1' "$builddir/config.h" 2>/dev/null && cuda=yes
if test $cuda = no || ! command -v "${nvcc%% *}" >/dev/null 2>&1; then
	skip 1 "the build has no nvcc"
	done_testing
	exit
fi

logs=
for source in "$srcdir"/kernels/*.cu; do
	logs="$logs $builddir/kernels/$(basename "$source" .cu).ptxas"
done
ls $logs >"$tmp/out" 2>&1
ok $? "the build keeps what ptxas says of each file" "$tmp/out"
compare "$limits" $logs
exits 0 "each kernel keeps to the table"

# kernels and architectures, as the comparison names them: with limits of nothing all of them are named
sed 's/^\([^#	 ]*\)	.*/\1 all 0 0 0 0 0/' "$limits" | awk '!seen[$0]++' >"$tmp/nothing"
compare "$tmp/nothing" $logs
sed -n 's/^[^ ]*: \([^ ]*\) for \([^ ]*\) has .* registers.*/\1 \2/p' "$tmp/err" | sort -u >"$tmp/compiled"
sed -n 's/^\([^#	 ]*\)	.*/\1/p' "$limits" | sort -u >"$tmp/rows"
cut -d' ' -f1 "$tmp/compiled" | sort -u >"$tmp/kernels"
diff "$tmp/rows" "$tmp/kernels" >"$tmp/diff"
ok $? "each row is of a kernel that is there" "$tmp/diff"
for arch in $(value NVCC_ARCHES | grep -o 'code=sm_[0-9a-z]*' | sed 's/code=//'); do
	sed -n "s/ $arch\$//p" "$tmp/compiled" | diff "$tmp/rows" - >"$tmp/diff"
	ok $? "each kernel is compiled, and compared, for $arch" "$tmp/diff"
done

# ---- kernels that are refused, by nvcc itself ----

arch=$(value NVCC_ARCHES | sed 's/.*\(-gencode arch=[^ ]*,code=sm_[0-9a-z]*\).*/\1/')
sm=${arch##*code=}
cat >"$tmp/bad.cu" <<'end'
static __device__ int sum_of(const int *a, int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++)
		sum += a[i];
	return sum;
}
__global__ void greedy(int *p, int n)
{
#ifdef LOCAL
	int a[64];
	for (int i = 0; i < 64; i++)
		a[(i * n) & 63] = p[i];
	p[0] = sum_of(a, n) + a[n & 63];
#else
	int a[48];
#pragma unroll
	for (int i = 0; i < 48; i++)
		a[i] = p[i * n];
	__syncthreads();
#pragma unroll
	for (int i = 0; i < 48; i++)
		p[i * n + 1] = a[i] * a[47 - i] + sum_of(p, i & n);
#endif
}
end
echo 'greedy all 255 0 0 0 0' >"$tmp/greedy"
limited()	# OPTION...
{
	run sh "$srcdir/kernels/limited" "$AWK" "$tmp/greedy" "$tmp/bad.ptxas" $nvcc -O3 -std=c++17 $arch "$@" \
		-c -o "$tmp/bad.o" "$tmp/bad.cu"
}
limited
exits 0 "a kernel that keeps its values in registers"
test ! -s "$tmp/err"
ok $? "without a word" "$tmp/err"
limited -maxrregcount=24
exits 1 "the same kernel in 24 registers is refused"
grep -q "make KERNEL_LIMITS= compiles" "$tmp/err"
ok $? "with the way to do without the table"
for what in "stack" "spill stores" "spill loads"; do
	grep -Eq "bad.ptxas: greedy for $sm has [1-9][0-9]* bytes of $what, and $tmp/greedy allows 0\$" "$tmp/err"
	ok $? "for its $what" "$tmp/err"
done
limited -DLOCAL
exits 1 "one with an array in local memory, too"
grep -Eq "greedy for $sm has 256 bytes of stack" "$tmp/err"
ok $? "for its 256 bytes" "$tmp/err"
echo 'greedy all 255 256 0 0 0' >"$tmp/greedy"
limited -DLOCAL
exits 0 "unless its row allows them"
echo 'greedy all 8 256 0 0 0' >"$tmp/greedy"
limited -DLOCAL
exits 1 "more registers than its row has are refused"
echo 'this is no C' >"$tmp/bad.cu"
limited
test "$status" != 0 && grep -q 'bad.cu(1)' "$tmp/err"
ok $? "what nvcc itself refuses stays refused, with its own words" "$tmp/err"
done_testing
