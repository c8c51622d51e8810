/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the changes of t/torture/mutants/table.
 *
 *   apply TABLE SRCDIR              tries each line, and names the mutants that do not apply
 *   apply TABLE SRCDIR NAME OUTDIR  writes the files that NAME changes to OUTDIR/FILE, and lists them
 *
 * Texts are compared token by token, as a compiler reads them: blanks, ends of lines and comments
 * between two tokens do not count, so a reformat breaks no mutant.  The old text is looked for in
 * one place: the definition of a function or of a variable (NAME), `struct NAME`, `enum NAME`,
 * `#define NAME`, or the whole file (`-`).  It must be there once in the file as it is; all changes
 * of a mutant are made at the same time, so none meets the text of another.
 *
 * Exit status: 0 all apply, 1 some do not, 2 wrong usage. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The columns of the table. */
enum { NAME, RULES, FILE_, PLACE, OLD, NEW, TESTS, WRONG, COLUMNS };

enum { LINES = 64 }; /* changes of one mutant, at most */

struct token {
	const char *at;
	uint32_t n;
	uint32_t directive; /* which preprocessor line it belongs to, or 0 */
};

struct text {
	char *bytes;
	struct token *token;
	uint32_t n, ndirectives;
};

struct change {
	char *column[COLUMNS];
	const char *from, *to; /* in the file's text */
	bool done;
};

struct mutant {
	struct change change[LINES];
	uint32_t n;
	bool broken;
};

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "Bail out! ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(2);
}

/* One line on the standard output for each change that cannot be made. */
static void complain(struct mutant *m, const struct change *c, const char *why)
{
	m->broken = true;
	printf("%s: %s: %s %s\n", c->column[NAME], c->column[FILE_],
	       strcmp(c->column[PLACE], "-") ? c->column[PLACE] : "the file", why);
}

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	size_t n = 0, most = 1 << 16;
	char *bytes = malloc(most);

	if (!f || !bytes) {
		free(bytes);
		if (f)
			fclose(f);
		return NULL;
	}
	while (n += fread(bytes + n, 1, most - 1 - n, f), n == most - 1) {
		bytes = realloc(bytes, most *= 2);
		if (!bytes)
			die("no memory for %s", path);
	}
	fclose(f);
	bytes[n] = '\0';
	return bytes;
}

/* ---- tokens ---- */

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Past blanks, comments and ends of lines.  `*directive` is left where a line ends that no
 * backslash joins with the next. */
static const char *skip(const char *p, bool *directive)
{
	for (;;) {
		if (p[0] == '\\' && p[1] == '\n') {
			p += 2;
		} else if (p[0] == '/' && p[1] == '*') {
			const char *end = strstr(p + 2, "*/");

			p = end ? end + 2 : p + strlen(p);
		} else if (p[0] == '/' && p[1] == '/') {
			p += strcspn(p, "\n");
		} else if (isspace((unsigned char)*p)) {
			if (*p++ == '\n')
				*directive = false;
		} else {
			return p;
		}
	}
}

/* A string or a character: a quote that its line does not end is a token of its own. */
static uint32_t length_quoted(const char *p)
{
	uint32_t n = 1;

	while (p[n] != p[0]) {
		if (!p[n] || p[n] == '\n')
			return 1;
		n += p[n] == '\\' && p[n + 1] ? 2 : 1;
	}
	return n + 1;
}

static uint32_t length_of(const char *p)
{
	static const char *const longer[] = { "<<=", ">>=", "...", "->", "++", "--", "<<", ">>",
					      "<=",  ">=",  "==",  "!=", "&&", "||", "+=", "-=",
					      "*=",  "/=",  "%=",  "&=", "|=", "^=", "##" };
	uint32_t n = 0, i;

	if (*p == '"' || *p == '\'')
		return length_quoted(p);
	while (is_word(p[n]) || (n && isdigit((unsigned char)*p) && p[n] == '.'))
		n++;
	if (n)
		return n;
	for (i = 0; i < sizeof(longer) / sizeof(*longer); i++)
		if (!strncmp(p, longer[i], strlen(longer[i])))
			return (uint32_t)strlen(longer[i]);
	return 1;
}

static bool is(const struct token *t, const char *word)
{
	return t->n == strlen(word) && !memcmp(t->at, word, t->n);
}

static bool same(const struct token *a, const struct token *b)
{
	return a->n == b->n && !memcmp(a->at, b->at, a->n);
}

/* Takes the bytes. */
static struct text split(char *bytes)
{
	struct text t = { .bytes = bytes };
	bool directive = false;
	const char *p = bytes;

	t.token = calloc(strlen(bytes) + 1, sizeof(*t.token));
	if (!t.token)
		die("no memory");
	while (*(p = skip(p, &directive))) {
		uint32_t n = length_of(p);

		if (!directive && *p == '#') {
			directive = true;
			t.ndirectives++;
		}
		t.token[t.n++] = (struct token){ p, n, directive ? t.ndirectives : 0 };
		p += n;
	}
	return t;
}

static void done_with(struct text *t)
{
	free(t->bytes);
	free(t->token);
}

/* ---- places ---- */

/* A definition or a declaration at the top of a file, or a directive: tokens [from, to). */
struct item {
	uint32_t from, to;
	bool found, body; /* it is the place that is looked for; it has braces or a value */
};

/* Is token i, outside all braces and parentheses, the name of its item?  `kind` is its first word
 * if there are two. */
static bool names(const struct text *t, uint32_t i, const char *kind, const char *name)
{
	const struct token *at = &t->token[i];

	if (i + 1 == t->n || !is(at, name))
		return false;
	if (*kind)
		return i && is(&at[-1], kind) && is(&at[1], "{");
	return is(&at[1], "(") || is(&at[1], "[") || is(&at[1], "=");
}

static struct item directive(const struct text *t, uint32_t i, const char *kind, const char *name)
{
	struct item it = { .from = i, .to = i, .body = true };

	while (it.to < t->n && t->token[it.to].directive == t->token[i].directive)
		it.to++;
	it.found = it.to - i > 2 && !strcmp(kind, "#define") && is(&t->token[i + 1], "define") &&
		   is(&t->token[i + 2], name);
	return it;
}

/* The item that begins with token i.  A function ends with its brace, all others with a
 * semicolon. */
static struct item item_at(const struct text *t, uint32_t i, const char *kind, const char *name)
{
	struct item it = { .from = i };
	uint32_t braces = 0, parens = 0;
	bool function = false;

	if (t->token[i].directive)
		return directive(t, i, kind, name);
	for (; i < t->n; i++) {
		const struct token *at = &t->token[i];

		if (at->directive)
			continue;
		if (!braces && !parens) {
			it.found |= names(t, i, kind, name);
			if (is(at, "{") && !it.body)
				function = i && is(&at[-1], ")");
			it.body |= is(at, "{") || is(at, "=");
		}
		parens += is(at, "(");
		parens -= parens && is(at, ")");
		braces += is(at, "{");
		braces -= braces && is(at, "}");
		if (!braces && !parens && (is(at, ";") || (function && is(at, "}"))))
			break;
	}
	it.to = i < t->n ? i + 1 : i;
	return it;
}

/* ---- changes ---- */

static uint32_t look_in(const struct text *t, uint32_t from, uint32_t to, const struct text *old,
			struct change *c)
{
	uint32_t found = 0, i, j;

	for (i = from; i + old->n <= to; i++) {
		for (j = 0; j < old->n && same(&t->token[i + j], &old->token[j]); j++)
			;
		if (j < old->n)
			continue;
		found++;
		c->from = t->token[i].at;
		c->to = t->token[i + j - 1].at + t->token[i + j - 1].n;
	}
	return found;
}

/* Sets from and to, or says why not. */
static void find(struct mutant *m, struct change *c, const struct text *t)
{
	struct text old = split(strdup(c->column[OLD]));
	char kind[16] = "", *name = c->column[PLACE], *blank = strchr(name, ' ');
	uint32_t places = 0, found = 0, i;

	if (blank && blank - name < (int)sizeof(kind)) {
		memcpy(kind, name, (size_t)(blank - name));
		name = blank + 1;
	}
	if (!old.n) {
		complain(m, c, "has no old text in the table");
	} else if (!strcmp(name, "-")) {
		places = 1;
		found = look_in(t, 0, t->n, &old, c);
	}
	for (i = 0; i < t->n && old.n && strcmp(name, "-");) {
		struct item it = item_at(t, i, kind, name);

		if (it.found && it.body) {
			places++;
			found += look_in(t, it.from, it.to, &old, c);
		}
		i = it.to;
	}
	if (old.n && !places)
		complain(m, c, "is not in it");
	else if (old.n && !found)
		complain(m, c, "has no longer the old text");
	else if (found > 1)
		complain(m, c, "has the old text more than once");
	done_with(&old);
}

static int by_place(const void *a, const void *b)
{
	const char *x = (*(struct change *const *)a)->from, *y = (*(struct change *const *)b)->from;

	return x < y ? -1 : x > y;
}

static void make_folders(char *path)
{
	char *p;

	for (p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			die("cannot make %s: %s", path, strerror(errno));
		*p = '/';
	}
}

static void write_file(const char *outdir, const char *file, const char *bytes,
		       struct change *const *c, uint32_t n)
{
	char path[4096];
	uint32_t i;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", outdir, file);
	make_folders(path);
	f = fopen(path, "w");
	if (!f)
		die("cannot write %s: %s", path, strerror(errno));
	for (i = 0; i < n; i++) {
		fwrite(bytes, 1, (size_t)(c[i]->from - bytes), f);
		fputs(c[i]->column[NEW], f);
		bytes = c[i]->to;
	}
	fputs(bytes, f);
	if (fclose(f))
		die("cannot write %s: %s", path, strerror(errno));
	puts(file);
}

/* The changes of one file, of which `first` is the first. */
static void change_file(struct mutant *m, struct change *first, const char *srcdir,
			const char *outdir)
{
	const char *file = first->column[FILE_];
	struct change *c[LINES];
	uint32_t n = 0, i;
	struct text t;
	char path[4096], *bytes;

	snprintf(path, sizeof(path), "%s/%s", srcdir, file);
	bytes = read_file(path);
	t = split(bytes ? bytes : strdup(""));
	for (i = 0; i < m->n; i++) {
		if (strcmp(m->change[i].column[FILE_], file))
			continue;
		c[n++] = &m->change[i];
		m->change[i].done = true;
		if (bytes)
			find(m, &m->change[i], &t);
		else
			complain(m, &m->change[i], "cannot be looked for, the file is not there");
	}
	qsort(c, m->broken ? 0 : n, sizeof(*c), by_place);
	for (i = 1; i < n && !m->broken; i++)
		if (c[i]->from < c[i - 1]->to)
			complain(m, c[i], "is changed twice in the same place");
	if (outdir && !m->broken)
		write_file(outdir, file, t.bytes, c, n);
	done_with(&t);
}

static void change_all(struct mutant *m, const char *srcdir, const char *outdir)
{
	uint32_t i;

	for (i = 0; i < m->n; i++)
		if (!m->change[i].done)
			change_file(m, &m->change[i], srcdir, outdir);
}

/* ---- the table ---- */

/* Changes the line: tabs end columns. */
static void columns(char *line, uint32_t number, char **column)
{
	uint32_t n = 0;

	for (;;) {
		column[n++] = line;
		line = strchr(line, '\t');
		if (!line || n == COLUMNS)
			break;
		*line++ = '\0';
	}
	if (n != COLUMNS || line)
		die("line %u of the table has %s than %d columns", number, line ? "more" : "less",
		    COLUMNS);
}

/* Lines of the same mutant stand together.  Returns what follows them. */
static char *next_mutant(char *p, uint32_t *number, struct mutant *m)
{
	char *name = NULL, *end;

	memset(m, 0, sizeof(*m));
	for (; *p; p = end + 1) {
		end = p + strcspn(p, "\n");
		if (name && (strncmp(p, name, strlen(name)) || p[strlen(name)] != '\t'))
			break;
		++*number;
		if (*p == '#')
			continue;
		if (!*end)
			die("the last line of the table has no end");
		*end = '\0';
		if (m->n == LINES)
			die("%s has more than %d changes", name, LINES);
		columns(p, *number, m->change[m->n++].column);
		name = p;
	}
	return p;
}

int main(int argc, char **argv)
{
	const char *only = argc == 5 ? argv[3] : NULL, *outdir = argc == 5 ? argv[4] : NULL;
	static struct mutant m;
	bool broken = false, found = false;
	uint32_t number = 0;
	char *table, *p;

	if (argc != 3 && argc != 5)
		die("usage: apply TABLE SRCDIR [NAME OUTDIR]");
	table = read_file(argv[1]);
	if (!table)
		die("cannot read %s: %s", argv[1], strerror(errno));
	for (p = table; *p;) {
		p = next_mutant(p, &number, &m);
		if (!m.n || (only && strcmp(m.change[0].column[NAME], only)))
			continue;
		found = true;
		change_all(&m, argv[2], outdir);
		broken |= m.broken;
	}
	free(table);
	if (only && !found)
		die("there is no mutant %s", only);
	return broken;
}
