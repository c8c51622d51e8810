/* SPDX-License-Identifier: Apache-2.0 */
/* sentences.h - what a refused call says, returns, and leaves alone. */
#ifndef GPC_T_SENTENCES_H
#define GPC_T_SENTENCES_H

#include "cache.h"
#include "gpc_device.h"

static struct out { /* every place that a call may write to */
	gpc_block blocks[4], resident[4];
	gpc_key keys[4], root;
	struct gpc_move moves[4];
	uint32_t len[4];
	int results[4];
	gpc_ticket t;
	uint64_t cursor;
	struct gpc_entry entry;
	struct gpc_event change;
	struct gpc_info info;
	struct gpc_stats stats;
	struct gpc_mirror mirror;
	struct gpc_pool pool;
	gpc *handle;
	gpc_dev *dev;
} out;

TAP_FN void out_fill(void)
{
	memset(&out, 0x5a, sizeof(out));
	out.info.size = sizeof(out.info);
	out.stats.size = sizeof(out.stats);
	out.mirror.size = sizeof(out.mirror);
	out.pool.size = sizeof(out.pool);
}

/* words: separated by |, each in the sentence. */
TAP_FN bool has_words(const char *text, const char *words)
{
	char list[256], *rest = list, *word;

	snprintf(list, sizeof(list), "%s", words);
	while ((word = strsep(&rest, "|")) != NULL)
		if (!strstr(text, word))
			return false;
	return true;
}

TAP_FN void told(int got, int err, bool same, const char *call, const char *words)
{
	const char *text = gpc_last_error();
	bool good = got == -err && has_words(text, words) && !strstr(text, "gpc_last_error") &&
		    strlen(text) < 400;

	ok(good && same, "%.100s", call);
	if (!good)
		diag("got %d, want %d; \"%s\" without %s", got, -err, text, words);
	if (!same)
		diag("something was written");
}

/* Compares what the call found with what it left. */
#define bad(err, words, call)                                                    \
	do {                                                                     \
		struct out was;                                                  \
		int got_;                                                        \
                                                                                 \
		cache_spoil();                                                   \
		memcpy(&was, &out, sizeof(was));                                 \
		got_ = (call);                                                   \
		told(got_, err, !memcmp(&was, &out, sizeof(was)), #call, words); \
	} while (0)

/* A call that does what it can, and leaves a sentence about what it could not; or an empty one. */
#define item(want, words, call)                                            \
	do {                                                               \
		int got_;                                                  \
                                                                           \
		strcpy((char *)gpc_last_error(), "of an older call");      \
		got_ = (call);                                             \
		ok(got_ == (want) && has_words(gpc_last_error(), words) && \
			   (*(words) ? 1 : !*gpc_last_error()),            \
		   "%.90s: %s", #call, *(words) ? words : "no refusal");   \
		diag("%d \"%s\"", got_, gpc_last_error());                 \
	} while (0)

/* With a device, and two pools of 8 blocks. */
TAP_FN gpc *sentences_cache(void)
{
	struct gpc_config cfg = cache_config(8, 8);

	cache_thread = true;
	cfg.devices = "host";
	cfg.max_blocks = 256;
	return cache_make(&cfg, NULL);
}

#endif
