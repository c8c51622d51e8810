/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal: it shows lines, and reads keys until it is time to look again.
 * Tests: t/tools/inspect-top.t */
#include "config.h"

#include "tools/inspect/top/top.h"

#include <curses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MOST = 300, SECONDS_MOST = 3600 };

static volatile sig_atomic_t ended;

static void on_signal(int sig)
{
	ended = sig;
}

static attr_t attributes[LOOKS];

static void choose_colours(void)
{
	static const struct {
		enum look look;
		short colour;
		attr_t attr;
	} table[] = {
		{ LOOK_PLAIN, -1, A_NORMAL },
		{ LOOK_TITLE, -1, A_BOLD },
		{ LOOK_HEAD, COLOR_CYAN, A_NORMAL },
		{ LOOK_SORTED, COLOR_CYAN, A_REVERSE },
		{ LOOK_GOOD, COLOR_GREEN, A_NORMAL },
		{ LOOK_WARN, COLOR_YELLOW, A_BOLD },
		{ LOOK_BAD, COLOR_RED, A_BOLD },
		{ LOOK_DIM, -1, A_DIM },
		{ LOOK_HELD, COLOR_GREEN, A_NORMAL },
		{ LOOK_CACHED, COLOR_BLUE, A_NORMAL },
		{ LOOK_RESERVED, COLOR_YELLOW, A_NORMAL },
		{ LOOK_DYING, COLOR_MAGENTA, A_NORMAL },
	};
	bool colours = has_colors() && start_color() == OK && use_default_colors() == OK;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		attributes[table[i].look] = table[i].attr;
		if (colours && table[i].colour >= 0 &&
		    init_pair((short)(i + 1), table[i].colour, -1) == OK)
			attributes[table[i].look] |= (attr_t)COLOR_PAIR((int)i + 1);
	}
}

static void draw(const struct top *t)
{
	struct line *lines = calloc(t->rows, sizeof(*lines));
	unsigned n = lines ? top_layout(t, lines) : 0;

	erase();
	for (unsigned i = 0; i < n; i++) {
		const struct line *l = &lines[i];

		move((int)i, 0);
		for (size_t j = 0; j < l->nspans; j++) {
			size_t to = j + 1 < l->nspans ? l->span[j + 1].from : l->used;

			attrset(attributes[l->span[j].look]);
			addnstr(l->text + l->span[j].from, (int)(to - l->span[j].from));
		}
	}
	attrset(A_NORMAL);
	refresh();
	free(lines);
}

static void measure(struct top *t)
{
	t->columns = (unsigned)(COLS > 0 ? COLS : 1);
	t->rows = (unsigned)(LINES > 0 ? LINES : 1);
	if (t->rows > ROWS_MOST)
		t->rows = ROWS_MOST;
}

static void sort_by(struct top *t, int key)
{
	static const char keys[SORTS + 1] = "lhrvcbopn";
	const char *at = key > 0 && key < 128 ? strchr(keys, key) : NULL;

	if (at && *at)
		t->sort = (enum sort)(at - keys);
}

/* false: the user has ended it. */
static bool take_key(struct top *t, int key)
{
	unsigned peers = t->now->there ? t->now->npeers : 0;

	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case KEY_RESIZE:
		measure(t);
		clear();
		break;
	case 'L' & 0x1f:
		clear();
		break;
	case KEY_DOWN:
		t->first += t->first + 1 < peers;
		break;
	case KEY_UP:
		t->first -= t->first > 0;
		break;
	case KEY_NPAGE:
		t->first = t->first + 10 < peers ? t->first + 10 : t->first;
		break;
	case KEY_PPAGE:
		t->first = t->first > 10 ? t->first - 10 : 0;
		break;
	case KEY_HOME:
		t->first = 0;
		break;
	case '+':
		t->seconds += t->seconds < SECONDS_MOST;
		break;
	case '-':
		t->seconds -= t->seconds > 1;
		break;
	case ' ':
		t->paused = !t->paused;
		break;
	default:
		sort_by(t, key);
	}
	return true;
}

/* ---- looks ---- */

/* The last look stays for a cache that has gone, so three samples are in use at most. */
static void look(const struct inspect *in, struct top *t, struct sample *at[3])
{
	struct sample *s = NULL;

	t->then = t->now;
	if (t->then && t->then->there)
		t->last = t->then;
	for (int i = 0; i < 3; i++)
		if (at[i] != t->then && at[i] != t->last)
			s = at[i];
	sample_take(in, t->name, s);
	t->now = s;
	if (s->there && t->last && t->last->info.created_ns != s->info.created_ns)
		t->replaced_ns = 0;
	if (sample_same_cache(t->then, s) && s->info.writer_pid &&
	    t->then->info.writer_generation != s->info.writer_generation)
		t->replaced_ns = s->at_ns;
}

/* Takes keys until then. */
static bool wait_until(struct top *t, uint64_t next)
{
	for (;;) {
		uint64_t now = cli_now_ns();
		int key;

		if (ended)
			return false;
		if (now >= next && !t->paused)
			return true;
		timeout(t->paused || next - now > 500000000 ? 500
							    : (int)((next - now) / 1000000) + 1);
		key = getch();
		if (key == ERR)
			continue;
		if (!take_key(t, key))
			return false;
		draw(t);
	}
}

static void run(const struct inspect *in, struct top *t, struct sample *at[3])
{
	uint64_t pause = 500000000; /* rates need a second look, so the first pause is short */
	uint64_t started;

	do {
		started = cli_now_ns();
		look(in, t, at);
		measure(t);
		draw(t);
		if (!wait_until(t, started + pause))
			break;
		pause = t->seconds * UINT64_C(1000000000);
	} while (!ended);
}

int top_screen(const struct inspect *in)
{
	struct top t = { .name = in->name, .seconds = in->watch ? (unsigned)in->watch : 2 };
	struct sigaction end = { .sa_handler = on_signal };
	struct sample *samples = calloc(3, sizeof(*samples));
	struct sample *at[] = { samples, samples + 1, samples + 2 };
	SCREEN *screen;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		cli_error("top wants a terminal; 'gpc-inspect stat --watch SECONDS' writes lines");
		return EXIT_RUNTIME;
	}
	if (!samples) {
		cli_error("out of memory");
		return EXIT_RUNTIME;
	}
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGHUP, &end, NULL);
	screen = newterm(NULL, stdout, stdin);
	if (!screen) {
		free(samples);
		cli_error("the terminal '%s' is unknown here: set TERM",
			  getenv("TERM") ? getenv("TERM") : "");
		return EXIT_RUNTIME;
	}
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	choose_colours();
	run(in, &t, at);
	endwin();
	delscreen(screen);
	free(samples);
	return 0;
}
