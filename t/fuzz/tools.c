/* SPDX-License-Identifier: Apache-2.0 */
/* gpc-inspect on the same files as segment.c: each command that looks, in both of its forms, while
 * files may shrink under its eyes.  It ends with a status that it has, says something, JSON is
 * JSON, and nobody's rubbish reaches the terminal as anything but text.
 * Tests: tools/inspect/ tools/common/ */
#undef main /* the tool's is another one (local.mk) */
#include "edit.h"

#include <getopt.h>
#include <jansson.h>

int inspect_main(int argc, char **argv);

enum { N_GOOD, N_FAILED, N_VIOLATIONS, N_CANNOT, N_JSON, N_SHRUNK };
static const char *const fuzz_counts[FUZZ_COUNTS + 1] = {
	"commands that went well", "failed",      "found violations",
	"could not open",          "JSON values", "files that changed under a tool's eyes"
};

static void too_long(void)
{
	fuzz_fail("gpc-inspect has waited for a minute");
}

static void fuzz_begin(void)
{
	virtual_too_long = too_long;
	image_make(edit_maker);
}

/* A tool's streams are memory for as long as it runs. */
struct stream {
	FILE *file;
	char *text;
	size_t size;
};

static void begin(struct stream *s)
{
	s->file = open_memstream(&s->text, &s->size);
	fuzz_must(s->file, "no memory");
}

static void judge_text(const struct stream *s, const char *command)
{
	size_t i;

	fuzz_must(s->size < 1 << 20, "%s: says %zu bytes", command, s->size);
	for (i = 0; i < s->size; i++) {
		unsigned char c = (unsigned char)s->text[i];

		fuzz_must(c == '\n' || (c >= 0x20 && c < 0x7f), "%s: byte 0x%02x", command, c);
	}
}

static void judge_json(const struct stream *s, const char *command)
{
	json_t *v = json_loadb(s->text, s->size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);

	fuzz_must(v, "%s: this is no JSON: %.300s", command, s->text);
	json_decref(v);
	fuzz_count(N_JSON);
}

static void judge(int status, const char *command, bool json, const struct stream *out,
		  const struct stream *err)
{
	bool check = !strcmp(command, "check");

	judge_text(out, command);
	judge_text(err, command);
	fuzz_must(out->size + err->size || !strcmp(command, "list"), "%s: %d, without a word",
		  command, status);
	if (status == 0)
		fuzz_count(N_GOOD);
	else if (status == 1)
		fuzz_count(check ? N_VIOLATIONS : N_FAILED);
	else if (status == 3 && check)
		fuzz_count(N_CANNOT);
	else
		fuzz_fail("%s: status %d", command, status);
	if (json && !err->size)
		judge_json(out, command);
}

static void run(const char *command, bool json)
{
	const char *argv[9] = { "gpc-inspect", "--dir", image_dir };
	struct stream out, err;
	FILE *real_out = stdout, *real_err = stderr;
	int status, argc = 3;

	if (json)
		argv[argc++] = "--json";
	argv[argc++] = command;
	if (strcmp(command, "list"))
		argv[argc++] = IMAGE_NAME;
	if (!strcmp(command, "lookup"))
		argv[argc++] = "00000000000000010000000000000001";
	begin(&out);
	begin(&err);
	stdout = out.file;
	stderr = err.file;
	optind = 0;
	setenv("LC_ALL", "C", 1); /* a terminal of UTF-8 would get more */
	status = inspect_main(argc, (char **)argv);
	fclose(out.file);
	fclose(err.file);
	stdout = real_out;
	stderr = real_err;
	judge(status, command, json, &out, &err);
	free(out.text);
	free(err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const command[] = { "stat", "check", "peers", "ls", "list", "lookup" };
	struct fuzz_input in = { data, size };
	uint32_t flags = edit_all(&in), i = flags >> 4;
	bool shrinks = edit_shrink.reads;

	virtual_before_read = edit_while_read;
	run(command[i % 6], flags & EDIT_HOST);
	if (shrinks && !edit_shrink.reads)
		fuzz_count(N_SHRUNK);
	run(command[(i + 1 + (size & 3)) % 6], size & 4);
	return 0;
}

#ifndef FUZZ_LIBFUZZER
FUZZ_MAIN("tools", 3000)
#endif
