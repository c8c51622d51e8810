/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of KV events are byte for byte those of engines: t/data/kv_events_golden.txt, where each
 * line has a name, what it is, its bytes and themselves in hex.
 * Tests: tools/daemon/events/wire.c tools/daemon/events/words.c t/data/kv_events_golden.txt */
#include "config.h"

#include "t/lib/tap.h"

#ifdef HAVE_EVENTS
#include "tools/daemon/events/wire.h"

static struct wire w;

static const char *golden(const char *name)
{
	static char line[2048];
	const char *dir = getenv("top_srcdir");
	char path[1024];
	FILE *f;
	char *hex = NULL;

	snprintf(path, sizeof(path), "%s/t/data/kv_events_golden.txt", dir ? dir : TOP_SRCDIR);
	f = fopen(path, "r");
	while (f && !hex && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
			hex = strrchr(line, ' ') + 1;
	if (f)
		fclose(f);
	if (!hex)
		bail("%s: no %s", path, name);
	hex[strcspn(hex, "\n")] = 0;
	return hex;
}

static void is_golden(const char *name)
{
	static char hex[4096];

	for (size_t i = 0; i < w.bytes.size && i < 2000; i++)
		snprintf(hex + 2 * i, 3, "%02x", (uint8_t)w.bytes.data[i]);
	is_str(hex, golden(name), "%s", name);
}

static const uint64_t h0 = 0x1122334455667788, h1 = 0xfedcba9876543210, h2 = 42;

static void test_stored(void)
{
	const uint64_t both[] = { h0, h1 };
	const uint32_t tokens[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, large[] = { 1, 2, 70000, 128 };

	wire_begin(&w, 1.5, 1);
	wire_stored(&w, &(struct wire_stored){ .hashes = both,
					       .n = 2,
					       .tokens = tokens,
					       .ntokens = 8,
					       .block_tokens = 4,
					       .medium = "GPU" });
	wire_end(&w, 0);
	is_golden("M1");
	wire_begin(&w, 1.5, 1);
	wire_stored(&w, &(struct wire_stored){ .hashes = &h2,
					       .n = 1,
					       .has_parent = true,
					       .parent = h1,
					       .tokens = large,
					       .ntokens = 4,
					       .block_tokens = 4,
					       .medium = "CPU" });
	wire_end(&w, 1);
	is_golden("M2");
}

static struct text text(const char *s)
{
	return (struct text){ s, (uint32_t)strlen(s) };
}

/* Engines of one kind have the salt beside a first block's other keys, engines of another kind have
 * a field. */
static void test_namespaces(void)
{
	static const char field[] = "\xaa"
				    "cache_salt"
				    "\xa8"
				    "tenant-a";
	const uint32_t tokens[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	const uint64_t both[] = { h0, h1 };
	size_t n = sizeof(field) - 1, all;

	wire_begin(&w, 1.5, 1);
	wire_stored(&w, &(struct wire_stored){ .hashes = &h2,
					       .n = 1,
					       .tokens = tokens,
					       .ntokens = 4,
					       .block_tokens = 4,
					       .medium = "GPU",
					       .salt = text("tenant-a") });
	wire_end(&w, 0);
	all = w.bytes.size;
	ok(all > n && !memcmp(w.bytes.data + all - 1 - n, field, n) &&
		   w.bytes.data[11] == (char)0x8a,
	   "a salt is a field, the tenth and last");
	w.bytes.data[11] = (char)0x89;
	w.bytes.data[all - 1 - n] = w.bytes.data[all - 1];
	w.bytes.size = all - n;
	is_golden("M4");
	wire_begin(&w, 1.5, 1);
	wire_stored(&w, &(struct wire_stored){ .hashes = both,
					       .n = 2,
					       .tokens = tokens,
					       .ntokens = 8,
					       .block_tokens = 4,
					       .medium = "GPU",
					       .group = 7,
					       .adapter = text("fr"),
					       .salt = text("s") });
	wire_end(&w, 0);
	ok(memmem(w.bytes.data, w.bytes.size,
		  "lora_name\xa2"
		  "fr\xaa"
		  "extra_keys\x92\x92\xa2"
		  "fr\xa1s\x91\xa2"
		  "fr"
		  "\xa9group_idx\x07\xaa"
		  "cache_salt\xa1s",
		  56),
	   "an adapter is in every block, a salt in the first one");
	wire_begin(&w, 1.5, 1);
	wire_stored(&w, &(struct wire_stored){ .hashes = both,
					       .n = 2,
					       .has_parent = true,
					       .parent = h2,
					       .block_tokens = 4,
					       .medium = "GPU",
					       .salt = text("s") });
	wire_end(&w, 0);
	ok(!memmem(w.bytes.data, w.bytes.size, "extra_keys", 10) &&
		   memmem(w.bytes.data, w.bytes.size, "cache_salt", 10),
	   "behind the first block a salt is no key");
}

static void test_texts(void)
{
	static const char *const good[] = { "",
					    "a",
					    "\xc3\xa9",
					    "\xe2\x82\xac",
					    "\xf0\x9f\x98\x80",
					    "\xf4\x8f\xbf\xbf",
					    "\xed\x9f\xbf" };
	static const char *const bad[] = {
		"\x80", "\xc0\x80",  "\xc1\xbf",     "\xe0\x80\x80",     "\xf0\x80\x80\x80",
		"\xc3", "a\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80",
		"\xff", "\xc3("
	};
	int wrong = 0;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		wrong += !words_is_text(good[i], (uint32_t)strlen(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		wrong += words_is_text(bad[i], (uint32_t)strlen(bad[i]));
	is_int(wrong, 0, "what is text and what is not");
}

static void test_others(void)
{
	wire_begin(&w, 1.5, 1);
	wire_removed(&w, &h0, 1, "GPU", 0);
	wire_end(&w, 0);
	is_golden("M5");
	wire_begin(&w, 1.5, 1);
	wire_cleared(&w);
	wire_end(&w, 0);
	is_golden("M6");
	wire_begin(&w, 1.5, 2);
	wire_stored(&w, &(struct wire_stored){
				.hashes = &h2, .n = 1, .block_tokens = 4, .medium = "CPU" });
	wire_removed(&w, &h2, 1, "GPU", 0);
	wire_end(&w, 0);
	is_golden("M7");
}

static void test_names(void)
{
	uint8_t digest[32];

	for (uint8_t i = 0; i < sizeof(digest); i++)
		digest[i] = i;
	is_int(wire_hash(digest + 1, 1), 1, "a name of one byte");
	is_int(wire_hash(digest + 1, 8), 0x0102030405060708, "of eight: the highest first");
	is_int(wire_hash(digest, 32), 0x18191a1b1c1d1e1f,
	       "of 32: its last eight, as engines have it");
}

static int body(void)
{
	wire_init(&w);
	test_stored();
	test_namespaces();
	test_texts();
	test_others();
	test_names();
	wire_free(&w);
	return done_testing();
}

int main(void)
{
	return tap_guard(10, body, NULL);
}
#else
int main(void)
{
	plan_skip_all("gpcd is built without libzmq and msgpack-c");
}
#endif
