/* SPDX-License-Identifier: Apache-2.0 */
/* tracee.h - a forked process that is led one instruction at a time.
 *
 * It asks to be traced, makes itself ready, and stops.  From the moment at which it says
 * that the operation begins, instructions are counted; it is let go on by none but the
 * tracer, who kills it whenever it likes, by SIGKILL. */
#ifndef GPC_T_TRACEE_H
#define GPC_T_TRACEE_H

#include <elf.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "t/lib/crew.h"

extern const char __executable_start[], etext[];

struct tracee_page {           /* shared with the tracee */
	uint32_t begun, ended; /* the operation */
	char why[300];         /* what it did not find as it must be */
};

static struct tracee_page *tracee_page;
static pid_t tracee;

/* The registers, and what comes next; it stands still until somebody lets it go on. */
static struct {
	bool known;
	struct user_regs_struct regs;
	unsigned long word;
} tracee_next;

TAP_FN void tracee_pages(void)
{
	tracee_page = mmap(NULL, sizeof(*tracee_page), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tracee_page == MAP_FAILED)
		bail("no shared page");
}

/* ---- what the tracee calls ---- */

/* Nothing is counted yet. */
TAP_FN void tracee_is_ready(void)
{
	raise(SIGSTOP);
	store_release(&tracee_page->begun, 1);
}

TAP_FN __attribute__((noreturn)) void tracee_is_done(void)
{
	store_release(&tracee_page->ended, 1);
	for (;;)
		raise(SIGSTOP);
}

/* ---- what the tracer calls ---- */

/* False: it is not stopped; it ended, or died. */
static inline bool tracee_stopped(int *ret_signal)
{
	int status = 0;

	while (waitpid(tracee, &status, 0) < 0)
		if (errno != EINTR)
			bail("waitpid: %s", strerror(errno));
	*ret_signal = WIFSTOPPED(status) ? WSTOPSIG(status) : -status;
	return WIFSTOPPED(status);
}

TAP_FN void tracee_fork(void (*run)(void))
{
	store_relaxed(&tracee_page->begun, 0);
	store_relaxed(&tracee_page->ended, 0);
	tracee_next.known = false;
	fflush(stdout);
	tracee = fork();
	if (tracee < 0)
		bail("fork: %s", strerror(errno));
	if (tracee)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	crew_me = 1;
	crew_is_member = true;
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(2);
	run();
	tracee_is_done();
}

/* Is it stopped before its operation?  `wait`: or tell when it is. */
TAP_FN bool tracee_waits(bool wait)
{
	int status = 0, got = (int)waitpid(tracee, &status, wait ? 0 : WNOHANG);

	if (got <= 0)
		return false;
	need(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP,
	     "it ended with 0x%x before its operation: %s", (unsigned)status, crew->why);
	return true;
}

/* ---- where it is, and where it shall be ---- */

#if defined(__x86_64__)
#define TRACEE_PC   rip
#define BREAK(word) (((word) & ~0xfful) | 0xcc)
#else
#define TRACEE_PC   pc
#define BREAK(word) (((word) & ~0xfffffffful) | 0xd4200000u)
#endif

static inline void registers(int request, struct user_regs_struct *regs)
{
	struct iovec io = { regs, sizeof(*regs) };

	if (ptrace((enum __ptrace_request)request, tracee, (void *)NT_PRSTATUS, &io))
		bail("registers: %s", strerror(errno));
}

static inline void look(void)
{
	if (tracee_next.known)
		return;
	registers(PTRACE_GETREGSET, &tracee_next.regs);
	tracee_next.word = (unsigned long)ptrace(PTRACE_PEEKTEXT, tracee,
						 (void *)tracee_next.regs.TRACEE_PC, NULL);
	tracee_next.known = true;
}

/* Of the instruction that comes next. */
TAP_FN uint64_t tracee_pc(void)
{
	look();
	return tracee_next.regs.TRACEE_PC;
}

static inline void poke(uint64_t pc, unsigned long word)
{
	if (ptrace(PTRACE_POKETEXT, tracee, (void *)pc, (void *)word))
		bail("a breakpoint: %s", strerror(errno));
}

/* To where the next instruction is that one; false: the operation is over, or it has ended. */
static inline bool go_to(uint64_t pc)
{
	unsigned long word = (unsigned long)ptrace(PTRACE_PEEKTEXT, tracee, (void *)pc, NULL);
	struct user_regs_struct regs;
	int sig;

	poke(pc, BREAK(word));
	tracee_next.known = false;
	if (ptrace(PTRACE_CONT, tracee, NULL, NULL))
		bail("continue: %s", strerror(errno));
	need(tracee_stopped(&sig) && (sig == SIGTRAP || sig == SIGSTOP),
	     "on the way it ended with %d (below zero: a status): %s", sig, crew->why);
	poke(pc, word);
	if (sig == SIGSTOP)
		return false;
	registers(PTRACE_GETREGSET, &regs);
	regs.TRACEE_PC = pc;
	registers(PTRACE_SETREGSET, &regs);
	return true;
}

#if defined(__x86_64__)
/* Bytes of a rep movs or rep stos; 0: it is something else. */
static inline uint32_t string_length(unsigned long word)
{
	const uint8_t *at = (const uint8_t *)&word;
	uint32_t rex = (at[1] & 0xf0) == 0x40;

	if (at[0] != 0xf3 || ((at[1 + rex] & 0xfe) != 0xa4 && (at[1 + rex] & 0xfe) != 0xaa))
		return 0;
	return 2 + rex;
}

/* Do others see what the tracee stores there? */
static inline bool is_shared(uint64_t at)
{
	unsigned long from, to;
	char path[40], line[512], mode[5] = "";
	bool shared = true; /* unless it is found */
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)tracee);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) == 3 && from <= at && at < to)
			shared = mode[3] == 's';
	if (f)
		fclose(f);
	return shared;
}

/* A string instruction traps once for each of its stores.  Those to memory of the tracee's own are
 * made in one step: nobody else sees any of them. */
static inline bool step_string(void)
{
	uint32_t length;

	look();
	length = string_length(tracee_next.word);
	return length && tracee_next.regs.rcx > 16 && !is_shared(tracee_next.regs.rdi) &&
	       go_to(tracee_next.regs.rip + length);
}
#else
static inline bool step_string(void)
{
	return false;
}
#endif

/* One instruction; false: the operation is over. */
TAP_FN bool tracee_step(void)
{
	int sig;

	if (load_relaxed(&tracee_page->ended))
		return false;
	if (step_string())
		return true;
	tracee_next.known = false;
	if (ptrace(PTRACE_SINGLESTEP, tracee, NULL, NULL))
		bail("single step: %s", strerror(errno));
	need(tracee_stopped(&sig) && sig == SIGTRAP,
	     "a step ended with %d (below zero: a status): %s", sig, crew->why);
	return true;
}

/* To the operation's first instruction. */
TAP_FN void tracee_begin(void)
{
	while (!load_relaxed(&tracee_page->begun))
		tracee_step();
}

TAP_FN void tracee_kill(void)
{
	int status;

	kill(tracee, SIGKILL);
	while (waitpid(tracee, &status, 0) == tracee && WIFSTOPPED(status))
		;
	tracee = 0;
}

/* At full speed, to the n-th time that this instruction comes next; false: the operation was
 * over before. */
TAP_FN bool tracee_run_to(uint64_t pc, uint32_t n)
{
	while (go_to(pc)) {
		if (--n == 0)
			return true;
		tracee_step();
	}
	return false;
}

/* Is the next instruction a system call? */
TAP_FN bool tracee_calls_system(void)
{
	look();
#if defined(__x86_64__)
	return (tracee_next.word & 0xffff) == 0x050f;
#elif defined(__aarch64__)
	return (uint32_t)tracee_next.word == 0xd4000001u;
#else
	return tracee_next.word == ~0ul;
#endif
}

#if defined(__x86_64__)
/* Instructions that load, compare, jump, or compute in registers; pushes and calls store to the stack
 * alone, which is the tracee's own.  True: not known to be one of these. */
static inline bool may_store(unsigned long word)
{
	const uint8_t *at = (const uint8_t *)&word;
	bool in_register;

	at += at[0] == 0x66;
	at += (at[0] & 0xf0) == 0x40; /* rex */
	in_register = at[1] >= 0xc0;
	switch (at[0]) {
	case 0x0f: /* jcc, cmov, movzx, movsx */
		return (at[1] & 0xf0) != 0x80 && (at[1] & 0xf0) != 0x40 && (at[1] & 0xf6) != 0xb6;
	case 0x03: /* add, or, and, sub, xor, cmp, movsxd, test, mov: to a register */
	case 0x0b:
	case 0x23:
	case 0x2b:
	case 0x33:
	case 0x38 ... 0x3d:
	case 0x63:
	case 0x84:
	case 0x85:
	case 0x8a:
	case 0x8b:
	case 0x8d:
	case 0x50 ... 0x5f: /* push, pop */
	case 0x70 ... 0x7f: /* jcc */
	case 0xb8 ... 0xbf: /* mov */
	case 0xc3:          /* ret */
	case 0xe8:          /* call */
	case 0xe9:          /* jmp */
	case 0xeb:
		return false;
	case 0x01: /* the same to a register or to memory, and shifts */
	case 0x09:
	case 0x21:
	case 0x29:
	case 0x31:
	case 0x81:
	case 0x83:
	case 0x88:
	case 0x89:
	case 0xc1:
	case 0xd1:
	case 0xf7:
		return !in_register;
	default:
		return true;
	}
}
#else
static inline bool may_store(unsigned long word)
{
	(void)word;
	return true;
}
#endif

/* Can others notice the next instruction? */
TAP_FN bool tracee_may_store(void)
{
	look();
	return may_store(tracee_next.word);
}

/* ---- may we? ---- */

static inline void tracee_probe(void)
{
	tracee_is_ready();
}

/* Why it cannot be done here, or NULL. */
TAP_FN const char *tracee_forbidden(void)
{
	static char why[100];
	int sig, i;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return "a sanitizer makes each instruction many";
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
	return "no single steps known for this machine";
#endif
#if defined(__aarch64__) && defined(HWCAP_ATOMICS)
	/* a single step clears the monitor: load-exclusive loops never end */
	if (!(getauxval(AT_HWCAP) & HWCAP_ATOMICS))
		return "no atomics but load-exclusive loops, which single steps break";
#endif
	tracee_fork(tracee_probe);
	if (!tracee_stopped(&sig))
		return "ptrace is forbidden here";
	for (i = 0; i < 100; i++) {
		if (ptrace(PTRACE_SINGLESTEP, tracee, NULL, NULL)) {
			snprintf(why, sizeof(why), "no single steps: %s", strerror(errno));
			tracee_kill();
			return why;
		}
		if (!tracee_stopped(&sig) || sig != SIGTRAP)
			return "single steps do not work here";
		if (load_relaxed(&tracee_page->ended))
			break;
	}
	tracee_kill();
	return NULL;
}

#endif
