/* SPDX-License-Identifier: Apache-2.0 */
/* json FILE [PATH]... - is it JSON, and what is in it?
 *
 * A PATH names a value by keys and indices with slashes between them: pools/0/kind.  "*"
 * stands for each key or index; with one in it the path of each value is printed, too.
 * Strings come as they are, {3} is an object of three, [3] an array.  Exit status: 1 not
 * JSON, or a PATH that names nothing. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print(const char *where, const json_t *v)
{
	if (where)
		printf("%s ", where);
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		printf("{%zu}\n", json_object_size(v));
		break;
	case JSON_ARRAY:
		printf("[%zu]\n", json_array_size(v));
		break;
	case JSON_STRING:
		puts(json_string_value(v));
		break;
	case JSON_INTEGER:
		printf("%lld\n", (long long)json_integer_value(v));
		break;
	case JSON_REAL:
		printf("%.17g\n", json_real_value(v));
		break;
	case JSON_TRUE:
		puts("true");
		break;
	case JSON_FALSE:
		puts("false");
		break;
	default:
		puts("null");
	}
}

static int walk(const json_t *v, const char *path, const char *where, int named);

static int step(const json_t *child, const char *key, const char *rest, const char *where,
		int named)
{
	char longer[1024];

	snprintf(longer, sizeof(longer), "%s%s%s", where, *where ? "/" : "", key);
	return walk(child, rest, longer, named);
}

static int each(const json_t *v, const char *rest, const char *where)
{
	const char *key;
	const json_t *child;
	char index[24];
	size_t i;
	int found = 0;

	json_object_foreach((json_t *)v, key, child) found += step(child, key, rest, where, 1);
	json_array_foreach((json_t *)v, i, child)
	{
		snprintf(index, sizeof(index), "%zu", i);
		found += step(child, index, rest, where, 1);
	}
	return found;
}

static const json_t *item(const json_t *array, const char *index)
{
	char *end;
	unsigned long i = strtoul(index, &end, 10);

	return *index && !*end ? json_array_get(array, i) : NULL;
}

/* How many values the path names. */
static int walk(const json_t *v, const char *path, const char *where, int named)
{
	size_t len = strcspn(path, "/");
	const char *rest = path + len + (path[len] == '/');
	char key[256];

	if (!v)
		return 0;
	if (!*path) {
		print(named ? where : NULL, v);
		return 1;
	}
	snprintf(key, sizeof(key), "%.*s", (int)len, path);
	if (!strcmp(key, "*"))
		return each(v, rest, where);
	return step(json_is_array(v) ? item(v, key) : json_object_get(v, key), key, rest, where,
		    named);
}

int main(int argc, char **argv)
{
	json_error_t error;
	json_t *v = argc < 2 ? NULL
			     : json_load_file(argv[1], JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
					      &error);
	int missing = 0;

	if (!v) {
		fprintf(stderr, "json: %s\n", argc < 2 ? "FILE?" : error.text);
		return 1;
	}
	for (int i = 2; i < argc; i++) {
		if (walk(v, argv[i], "", 0))
			continue;
		fprintf(stderr, "json: %s names nothing\n", argv[i]);
		missing = 1;
	}
	json_decref(v);
	return missing;
}
