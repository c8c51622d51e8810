/* SPDX-License-Identifier: Apache-2.0 */
/* list: every cache of the directory in one line.  env: the machine that they run on.
 * Tests: t/tools/inspect-cost.t t/tools/inspect-rm.t t/tools/inspect.t */
#include "config.h"

#include "tools/inspect/inspect.h"
#include "tools/common/output.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

static const struct column columns[] = {
	{ "NAME", "name", SHOW_TEXT },         { "TOKENS", "block_tokens", SHOW_TEXT },
	{ "BLOCKS", "max_blocks", SHOW_TEXT }, { "LIVE", "live", SHOW_TEXT },
	{ "POOLS", "pools", SHOW_TEXT },       { "PEERS", "peers", SHOW_TEXT },
	{ "DEAD", "dead", SHOW_TEXT },         { "WRITER", "writer_pid", SHOW_TEXT },
	{ "SIZE", "bytes", SHOW_BYTES },       { "MEMORY", "pool_bytes", SHOW_BYTES },
	{ "STATE", "state", SHOW_TEXT },
};

static void set_count(json_t *row, const char *field, uint64_t v)
{
	json_object_set_new(row, field, out_need(json_integer((json_int_t)v)));
}

/* Bytes of all pools whose memory gpc knows. */
static uint64_t pool_bytes(gpc *c, const struct gpc_info *info)
{
	uint64_t sum = 0;

	for (int i = 0; i < (int)info->max_pools; i++) {
		struct gpc_pool p = { .size = sizeof(p) };

		if (gpc_pool_get(c, i, &p) >= 0)
			sum += (uint64_t)(p.blocks + p.transit) * p.block_bytes;
	}
	return sum;
}

static void refuse(json_t *row, int err)
{
	json_object_set_new(row, "state", out_need(json_string(inspect_refusal(err))));
	json_object_set_new(row, "refused", out_string(cli_gpc_text(err), 400));
}

static void describe(const struct inspect *in, const char *name, json_t *row, gpc *c)
{
	struct gpc_stats st = { .size = sizeof(st) };
	struct inspect_look look;
	int r = inspect_look(in, name, c, &look);

	if (r < 0) {
		refuse(row, r);
		return;
	}
	set_count(row, "block_tokens", look.info.block_tokens);
	set_count(row, "max_blocks", look.info.max_blocks);
	if (gpc_stats_get(c, -1, &st) >= 0)
		set_count(row, "live", st.live);
	set_count(row, "pools", look.info.pools);
	set_count(row, "bytes", look.info.bytes);
	set_count(row, "pool_bytes", pool_bytes(c, &look.info));
	inspect_put_state(row, &look);
}

/* Files without an index. */
static void describe_remains(const struct inspect *in, const char *name, json_t *row)
{
	struct inspect_remains rest;
	int used = inspect_is_used(in, name);
	char why[400];

	if (!inspect_remains(in, name, &rest)) {
		refuse(row, -ENOENT);
		return;
	}
	set_count(row, "pool_bytes", rest.bytes);
	if (used < 0)
		snprintf(why, sizeof(why), "its lock cannot be seen: %s", strerror(-used));
	else if (used)
		snprintf(why, sizeof(why), "another process makes or removes it");
	else
		snprintf(why, sizeof(why),
			 "its maker or remover was killed, and left files; 'gpc-inspect rm %s' "
			 "removes them",
			 name);
	json_object_set_new(row, "state",
			    out_need(json_string(used ? inspect_refusal(used < 0 ? used : -ENOENT)
						      : "remains")));
	json_object_set_new(row, "refused", out_string(why, sizeof(why)));
}

json_t *inspect_caches(const struct inspect *in)
{
	json_t *rows = out_need(json_array());
	char **names;
	int n = inspect_scan(in, NULL, &names);

	if (n < 0) {
		json_decref(rows);
		return NULL;
	}
	for (int i = 0; i < n; i++) {
		json_t *row = out_need(json_object());
		gpc *c;
		int r = inspect_attach(in, names[i], GPC_READONLY, &c);

		json_object_set_new(row, "name", out_string(names[i], GPC_MAX_NAME));
		if (r == -ENOENT) {
			describe_remains(in, names[i], row);
		} else if (r < 0) {
			refuse(row, r);
		} else {
			describe(in, names[i], row, c);
			gpc_close(c);
		}
		json_array_append_new(rows, row);
	}
	inspect_free_names(names, n);
	return rows;
}

/* The table has a word for each cache; why a process cannot attach stands after it, on standard
 * error. */
void inspect_show_caches(const json_t *rows)
{
	size_t i;
	json_t *row;

	out_table(columns, ARRAY_SIZE(columns), rows);
	fflush(stdout);
	json_array_foreach(rows, i, row)
	{
		const char *why = json_string_value(json_object_get(row, "refused"));
		const char *state = json_string_value(json_object_get(row, "state"));

		/* if other users can use the cache, the state says enough */
		if (why && !strstr(state, "closed to this user"))
			cli_error("%s: %s", json_string_value(json_object_get(row, "name")), why);
	}
}

int inspect_list(struct inspect *in)
{
	json_t *rows = inspect_caches(in);

	if (!rows)
		return EXIT_RUNTIME;
	if (in->json) {
		out_json(rows);
		return 0;
	}
	if (json_array_size(rows))
		inspect_show_caches(rows);
	else
		cli_error("there is no cache in %s; --dir looks elsewhere", inspect_dir(in));
	json_decref(rows);
	return 0;
}

/* ---- env ---- */

static const struct column env_columns[] = {
	{ "gpc", "version", SHOW_TEXT },
	{ "library", "library", SHOW_TEXT },
	{ "compiler", "compiler", SHOW_TEXT },
	{ "kernel", "kernel", SHOW_TEXT },
	{ "machine", "machine", SHOW_TEXT },
	{ "cpu", "cpu", SHOW_TEXT },
	{ "cpus online", "cpus", SHOW_TEXT },
	{ "cache L1d", "cache_l1d", SHOW_BYTES },
	{ "cache L2", "cache_l2", SHOW_BYTES },
	{ "cache L3", "cache_l3", SHOW_BYTES },
	{ "16-byte loads", "vector_loads", SHOW_TEXT },
	{ "NVIDIA driver", "nvidia_driver", SHOW_TEXT },
	{ "memory", "memory", SHOW_BYTES },
	{ "directory", "dir", SHOW_TEXT },
	{ "  size", "dir_bytes", SHOW_BYTES },
	{ "  free", "dir_free", SHOW_BYTES },
	{ "  huge pages (shmem)", "thp_shmem", SHOW_TEXT },
	{ "transparent huge pages", "thp", SHOW_TEXT },
	{ "reserved huge pages", "hugepages", SHOW_TEXT },
	{ "  free", "hugepages_free", SHOW_TEXT },
	{ "  size", "hugepage_bytes", SHOW_BYTES },
	{ "open files, limit", "limit_nofile", SHOW_TEXT },
	{ "file size, limit", "limit_fsize", SHOW_TEXT },
	{ "address space, limit", "limit_as", SHOW_TEXT },
	{ "locked memory, limit", "limit_memlock", SHOW_TEXT },
};

/* First line of a small file, without its newline. */
static bool first_line(const char *path, char *ret, int room)
{
	FILE *f = fopen(path, "re");
	bool got = f && fgets(ret, room, f);

	if (f)
		fclose(f);
	if (got)
		ret[strcspn(ret, "\n")] = 0;
	return got;
}

/* The text after "field<blanks>:" in a file of such lines, such as /proc/meminfo. */
static bool line_value(const char *path, const char *field, char *ret, size_t room)
{
	char text[1024];
	size_t len = strlen(field);
	FILE *f = fopen(path, "re");
	bool found = false;

	while (f && !found && fgets(text, sizeof(text), f)) {
		const char *s = text + len;

		if (strncmp(text, field, len))
			continue;
		s += strspn(s, " \t");
		if (*s++ != ':')
			continue;
		s += strspn(s, " \t");
		snprintf(ret, room, "%.*s", (int)strcspn(s, "\n"), s);
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

static void add_line(json_t *o, const char *field, const char *path)
{
	char text[256];

	if (first_line(path, text, sizeof(text)))
		json_object_set_new(o, field, out_string(text, sizeof(text)));
}

static void add_value(json_t *o, const char *field, const char *path, const char *name)
{
	char text[256];

	if (line_value(path, name, text, sizeof(text)))
		json_object_set_new(o, field, out_string(text, sizeof(text)));
}

/* "123 kB" or "123" */
static void add_meminfo(json_t *o, const char *field, const char *name)
{
	unsigned long long v;
	char text[64], unit[8] = "";

	if (line_value("/proc/meminfo", name, text, sizeof(text)) &&
	    sscanf(text, "%llu %7s", &v, unit) >= 1)
		set_count(o, field, strcmp(unit, "kB") ? v : v * 1024);
}

static void add_sysconf(json_t *o, const char *field, int name)
{
	long v = sysconf(name);

	if (v > 0)
		set_count(o, field, (uint64_t)v);
}

static void add_limit(json_t *o, const char *field, int which)
{
	struct rlimit limit;

	if (getrlimit(which, &limit))
		return;
	if (limit.rlim_cur == RLIM_INFINITY)
		json_object_set_new(o, field, out_need(json_string("unlimited")));
	else
		set_count(o, field, limit.rlim_cur);
}

static const char *vector_loads(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx") ? "atomic (AVX)" : "not atomic (no AVX)";
#elif defined(__aarch64__)
	return "aarch64";
#else
	return "unknown";
#endif
}

static void add_build(json_t *o)
{
	uint32_t v = gpc_version();
	char text[32];

	snprintf(text, sizeof(text), "%u.%u", v >> 16, v & 0xffff);
	json_object_set_new(o, "version", out_need(json_string(PACKAGE_VERSION)));
	json_object_set_new(o, "library", out_need(json_string(text)));
	json_object_set_new(o, "compiler", out_string(__VERSION__, 100));
}

static void add_machine(json_t *o)
{
	struct utsname u;

	if (uname(&u) == 0) {
		json_object_set_new(o, "kernel", out_string(u.release, sizeof(u.release)));
		json_object_set_new(o, "machine", out_string(u.machine, sizeof(u.machine)));
	}
	add_value(o, "cpu", "/proc/cpuinfo", "model name");
	add_sysconf(o, "cpus", _SC_NPROCESSORS_ONLN);
	add_sysconf(o, "cache_l1d", _SC_LEVEL1_DCACHE_SIZE);
	add_sysconf(o, "cache_l2", _SC_LEVEL2_CACHE_SIZE);
	add_sysconf(o, "cache_l3", _SC_LEVEL3_CACHE_SIZE);
	json_object_set_new(o, "vector_loads", out_need(json_string(vector_loads())));
	add_line(o, "nvidia_driver", "/proc/driver/nvidia/version");
	add_meminfo(o, "memory", "MemTotal");
}

static void add_shared_memory(json_t *o, const struct inspect *in)
{
	struct statvfs fs;

	json_object_set_new(o, "dir", out_string(inspect_dir(in), 256));
	if (statvfs(inspect_dir(in), &fs) == 0) {
		set_count(o, "dir_bytes", (uint64_t)fs.f_blocks * fs.f_frsize);
		set_count(o, "dir_free", (uint64_t)fs.f_bavail * fs.f_frsize);
	}
	add_line(o, "thp", "/sys/kernel/mm/transparent_hugepage/enabled");
	add_line(o, "thp_shmem", "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
	add_meminfo(o, "hugepages", "HugePages_Total");
	add_meminfo(o, "hugepages_free", "HugePages_Free");
	add_meminfo(o, "hugepage_bytes", "Hugepagesize");
}

int inspect_env(struct inspect *in)
{
	json_t *o = out_need(json_object()), *caches = inspect_caches(in);

	if (!caches) {
		json_decref(o);
		return EXIT_RUNTIME;
	}
	add_build(o);
	add_machine(o);
	add_shared_memory(o, in);
	add_limit(o, "limit_nofile", RLIMIT_NOFILE);
	add_limit(o, "limit_fsize", RLIMIT_FSIZE);
	add_limit(o, "limit_as", RLIMIT_AS);
	add_limit(o, "limit_memlock", RLIMIT_MEMLOCK);
	json_object_set_new(o, "caches", caches);
	if (in->json) {
		out_json(o);
		return 0;
	}
	out_fields(env_columns, ARRAY_SIZE(env_columns), o);
	if (json_array_size(caches)) {
		putchar('\n');
		inspect_show_caches(caches);
	}
	json_decref(o);
	return 0;
}
