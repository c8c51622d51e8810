/* SPDX-License-Identifier: Apache-2.0 */
/* LMDB: a B+ tree in a file that processes share, readers without locks.
 *
 * The file is in memory (/dev/shm), writes go straight to the map, and nothing waits for a disk.
 * Keys are words that LMDB compares as such (MDB_INTEGERKEY), which beats 16 bytes by a fifth to
 * a third.  A batch of lookups is one transaction, renewed and not made anew; a batch of
 * insertions is one transaction, in the order of the keys, and an empty table is filled by
 * appending.  The file has no name once it is open, so nobody can leave it behind.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"

#include <errno.h>
#include <limits.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct item {
	uint64_t key, value;
};

struct lmdb {
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *reader;
	MDB_cursor *cursor;
	struct item *item; /* a batch, sorted */
	uint32_t room;
};

static void lmdb_close(void *table)
{
	struct lmdb *l = table;

	if (l->cursor)
		mdb_cursor_close(l->cursor);
	mdb_txn_abort(l->reader);
	if (l->env)
		mdb_env_close(l->env);
	free(l->item);
	free(l);
}

/* Leaves are half full at worst, and each transaction copies the pages that it changes. */
static size_t map_size(uint32_t entries)
{
	return (size_t)entries * 160 + (64u << 20);
}

/* A map without memory behind it would end in SIGBUS. */
static int has_room(const char *dir, size_t bytes)
{
	struct statvfs fs;

	return !statvfs(dir, &fs) && fs.f_bavail * (unsigned long long)fs.f_frsize >= bytes;
}

static void forget(const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

static int open_files(struct lmdb *l)
{
	char dir[48];
	int r;

	snprintf(dir, sizeof(dir), "/dev/shm/gpc-bench-%d.XXXXXX", (int)getpid());
	if (!mkdtemp(dir))
		return errno;
	r = mdb_env_open(l->env, dir,
			 MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMETASYNC | MDB_NORDAHEAD | MDB_NOMEMINIT,
			 0600);
	forget(dir, "data.mdb");
	forget(dir, "lock.mdb");
	rmdir(dir);
	return r;
}

static int open_table(struct lmdb *l)
{
	MDB_txn *txn;
	int r = mdb_txn_begin(l->env, NULL, 0, &txn);

	if (r)
		return r;
	r = mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &l->dbi);
	if (r) {
		mdb_txn_abort(txn);
		return r;
	}
	if ((r = mdb_txn_commit(txn)) ||
	    (r = mdb_txn_begin(l->env, NULL, MDB_RDONLY, &l->reader)) ||
	    (r = mdb_cursor_open(l->reader, l->dbi, &l->cursor)))
		return r;
	mdb_txn_reset(l->reader);
	return 0;
}

static void *lmdb_open(uint32_t entries, const char **why)
{
	struct lmdb *l = calloc(1, sizeof(*l));
	size_t size = map_size(entries);
	sigset_t held;
	int r;

	if (!l)
		return bench_why(why, "no memory");
	if (!has_room("/dev/shm", size)) {
		free(l);
		return bench_why(why, "/dev/shm has no %zu MiB free", size >> 20);
	}
	bench_hold_signals(&held);
	if (!(r = mdb_env_create(&l->env)) && !(r = mdb_env_set_mapsize(l->env, size)) &&
	    !(r = open_files(l)))
		r = open_table(l);
	bench_release_signals(&held);
	if (!r)
		return l;
	lmdb_close(l);
	return bench_why(why, "LMDB: %s", mdb_strerror(r));
}

/* ---- changes ---- */

static int by_key(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return (x->key > y->key) - (x->key < y->key);
}

static struct item *sorted(struct lmdb *l, const struct bench_key *keys, const int32_t *values,
			   uint32_t n)
{
	if (l->room < n) {
		struct item *more = realloc(l->item, n * sizeof(*more));

		if (!more)
			return NULL;
		l->item = more;
		l->room = n;
	}
	for (uint32_t i = 0; i < n; i++)
		l->item[i] =
			(struct item){ keys[i].w[0],
				       keys[i].w[1] << 32 | (uint32_t)(values ? values[i] : 0) };
	qsort(l->item, n, sizeof(*l->item), by_key);
	return l->item;
}

static int put_all(struct lmdb *l, MDB_txn *txn, const struct bench_key *keys,
		   const int32_t *values, uint32_t n)
{
	struct item *item = sorted(l, keys, values, n);
	MDB_stat stat;
	unsigned flags;
	int r = item ? mdb_stat(txn, l->dbi, &stat) : -1;

	if (r)
		return r;
	flags = stat.ms_entries ? MDB_NOOVERWRITE : MDB_APPEND;
	for (uint32_t i = 0; i < n && !r; i++) {
		MDB_val key = { sizeof(item[i].key), &item[i].key };
		MDB_val value = { sizeof(item[i].value), &item[i].value };

		r = mdb_put(txn, l->dbi, &key, &value, flags);
	}
	return r;
}

static int delete_all(struct lmdb *l, MDB_txn *txn, const struct bench_key *keys, uint32_t n)
{
	struct item *item = sorted(l, keys, NULL, n);
	int r = item ? 0 : -1;

	for (uint32_t i = 0; i < n && !r; i++) {
		MDB_val key = { sizeof(item[i].key), &item[i].key };

		r = mdb_del(txn, l->dbi, &key, NULL);
	}
	return r;
}

static int lmdb_turn(void *table, const struct bench_key *in, const int32_t *values,
		     const struct bench_key *out, uint32_t n)
{
	struct lmdb *l = table;
	MDB_txn *txn;

	if (!n)
		return 0;
	if (mdb_txn_begin(l->env, NULL, 0, &txn))
		return -1;
	if ((!out || !delete_all(l, txn, out, n)) && !put_all(l, txn, in, values, n))
		return mdb_txn_commit(txn) ? -1 : 0;
	mdb_txn_abort(txn);
	return -1;
}

static int lmdb_insert(void *table, const struct bench_key *keys, const int32_t *values, uint32_t n)
{
	return lmdb_turn(table, keys, values, NULL, n);
}

/* ---- lookup ---- */

static int32_t value_of(struct lmdb *l, const struct bench_key *key)
{
	MDB_val k = { sizeof(key->w[0]), (void *)&key->w[0] }, v;
	uint64_t found;

	if (mdb_cursor_get(l->cursor, &k, &v, MDB_SET))
		return -1;
	memcpy(&found, v.mv_data, sizeof(found));
	return found >> 32 == (uint32_t)key->w[1] ? (int32_t)found : -1;
}

static int lmdb_lookup(void *table, const struct bench_key *keys, uint32_t n, int32_t *values)
{
	struct lmdb *l = table;

	if (mdb_txn_renew(l->reader) || mdb_cursor_renew(l->reader, l->cursor))
		return -1;
	for (uint32_t i = 0; i < n; i++)
		values[i] = value_of(l, &keys[i]);
	mdb_txn_reset(l->reader);
	return 0;
}

const struct bench_peer bench_peer_lmdb = {
	.name = "LMDB",
	.what = MDB_VERSION_STRING ", no sync, 64-bit keys",
	.open = lmdb_open,
	.insert = lmdb_insert,
	.lookup = lmdb_lookup,
	.turn = lmdb_turn,
	.close = lmdb_close,
};
