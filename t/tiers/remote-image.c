/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of images in a remote store, and NAME:word=value,... in its parts.
 * Tests: lib/tiers/remote/image.c lib/tiers/remote/options.c */
#include <errno.h>
#include <string.h>

#include "gpc.h"
#include "tiers/remote/image.h"
#include "tiers/remote/store.h"
#include "t/lib/tap.h"

static struct image_what what(void)
{
	struct image_what w = { .key = { { 1, 2 } },
				.parent = { { 3, 4 } },
				.depth = 5,
				.tag = 6,
				.sum = { 7, 0, 0x123456789abcdef0 },
				.bytes = 4096 };

	memset(w.fingerprint, 0x5a, sizeof(w.fingerprint));
	return w;
}

static void headers(void)
{
	const uint32_t seeds[2] = { 9, 0 };
	const struct image_parts none = { 0 }, half = { .n = 2, .seed = seeds };
	struct image_what w = what(), is;
	struct image_header h, bad;
	const char *why;
	uint32_t i, taken = 0;

	image_header_make(&h, &w);
	is_int(image_header_read(&h, &w, &none, &is, &why), 0, "a header is read");
	ok(is.parent.w[0] == 3 && is.parent.w[1] == 4 && is.depth == 5 && is.tag == 6 &&
		   is.sum.crc == 7 && is.sum.word == w.sum.word,
	   "and says what it was made of");
	ok(!memcmp(&h, "gpcimg 1", 8), "it begins with its name");
	for (i = 0; i < 8 * sizeof(h); i++) {
		bad = h;
		((uint8_t *)&bad)[i / 8] ^= (uint8_t)(1u << i % 8);
		taken += image_header_read(&bad, &w, &none, &is, &why) == 0;
	}
	is_int(taken, 0, "none is taken with a bit changed, of 1024");
	w.key.w[1]++;
	is_int(image_header_read(&h, &w, &none, &is, &why), -EBADMSG, "another key");
	is_str(why, "it is the image of another key", "which is said");
	w = what();
	w.bytes++;
	image_header_read(&h, &w, &none, &is, &why);
	is_str(why, "it is an image of another size", "another size");
	w = what();
	w.fingerprint[31] = 0;
	image_header_read(&h, &w, &none, &is, &why);
	is_str(why, "it is an image of another layout", "another layout");
	w = what();
	w.sum.seed = 9;
	is_int(image_header_read(&h, &w, &none, &is, &why), -ENOENT,
	       "of another structure: none for us");
	ok(!why, "and nothing is wrong with it");
	image_header_make(&h, &w);
	is_int(image_header_read(&h, &w, &none, &is, &why), 0, "of ours: it is");
	is_int(is.sum.seed, 9, "and says so");
	w.sum.seed = 0;
	is_int(image_header_read(&h, &w, &none, &is, &why), -ENOENT,
	       "nor is one with a seed for a pool that keeps none");
	is_int(image_header_read(&h, &w, &half, &is, &why), -EAGAIN,
	       "nor yet for a pool that lacks the seed of a part");
}

static void refused(const char *spec, const char *sentence)
{
	struct options o;

	is_int(options_parse(spec, &o), -EINVAL, "'%.30s' is refused", spec);
	ok(strstr(gpc_last_error(), sentence), "%s", gpc_last_error());
	ok(!o.text, "and nothing is kept");
}

static void options(void)
{
	static const struct gpc_remote_word words[] = { { "server", "" },
							{ "db", "" },
							{ NULL, NULL } };
	struct gpc_remote_plugin p = { .name = "x", .words = words };
	struct options o;
	char many[2048] = "x:";
	uint32_t i;

	is_int(options_parse("redis", &o), 0, "a name alone");
	ok(!strcmp(o.name, "redis") && o.n == 0, "has no options");
	options_free(&o);
	is_int(options_parse("/a/b.so:server=h:1,db=3,on,dir=/a\\,b\\\\c=d", &o), 0,
	       "a path and options");
	is_str(o.name, "/a/b.so", "the path");
	is_int(o.n, 4, "four options");
	is_str(o.option[0].value, "h:1", "a colon in a value");
	is_str(o.option[2].word, "on", "a word alone");
	is_str(o.option[2].value, "", "has an empty value");
	is_str(o.option[3].value, "/a,b\\c=d", "a comma, a backslash and a = in a value");
	is_int(options_check(&o, &p), -EINVAL, "options that the plugin does not take");
	is_str(gpc_last_error(), "x has no option on; it takes server, db",
	       "are named, and those that it takes");
	options_free(&o);
	refused("", "has no name");
	refused(":a=b", "has no name");
	refused("x:a=1,a=2", "option a of x stands there twice");
	refused("x:a=1,,b=2", "option 2 of x has no name");
	refused("redis://host:6379/0",
		"redis://host:6379/0 is a URL: a remote store is NAME:word=value");
	for (i = 0; i < 40; i++)
		snprintf(many + strlen(many), 16, "o%u=1,", i);
	refused(many, "more than 32 options");
	memset(many, 'n', 1000);
	many[1000] = 0;
	refused(many, "has 1000 bytes");
}

static int body(void)
{
	headers();
	options();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
