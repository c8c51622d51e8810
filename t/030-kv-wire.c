/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of KV events are byte for byte those of engines: t/data/kv_events_golden.txt, where each line has a
 * name, what it is, its bytes and themselves in hex. */
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
	wire_stored(&w, &(struct wire_stored){ .hashes = both, .n = 2, .tokens = tokens, .ntokens = 8,
					       .block_tokens = 4, .medium = "GPU" });
	wire_end(&w, 0);
	is_golden("M1");
	wire_begin(&w, 1.5, 1);
	wire_stored(&w, &(struct wire_stored){ .hashes = &h2, .n = 1, .has_parent = true, .parent = h1,
					       .tokens = large, .ntokens = 4, .block_tokens = 4,
					       .medium = "CPU" });
	wire_end(&w, 1);
	is_golden("M2");
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
	wire_stored(&w, &(struct wire_stored){ .hashes = &h2, .n = 1, .block_tokens = 4,
					       .medium = "CPU" });
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
	is_int(wire_hash(digest, 32), 0x18191a1b1c1d1e1f, "of 32: its last eight, as engines have it");
}

static int body(void)
{
	wire_init(&w);
	test_stored();
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
