/* SPDX-License-Identifier: Apache-2.0 */
/* rculfhash of liburcu, flavour memb: readers and writers of one process without locks.
 *
 * It has as many buckets as entries from the start, in one mapping, and is not resized.  The nodes
 * lie in one array, and the hash is the key.  A batch of lookups is one read-side section.
 * Removed nodes are used again after a grace period for some thousands of them at once, so the
 * cost of that is negligible.
 * Tests: t/tools/bench-peers.t */
#include "config.h"

#include "tools/bench/peer/peer.h"

#include <urcu/urcu-memb.h>
#include <urcu/compiler.h>
#include <urcu/rculfhash.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE = 4096 };

struct node {
	struct cds_lfht_node node;
	struct bench_key key;
	int32_t value;
};

struct lfht {
	struct cds_lfht *ht;
	struct node *nodes;
	struct node **idle, *retired[SPARE];
	uint32_t idles, retireds;
};

/* Registrations do not nest, and a thread may have several tables. */
static __thread unsigned tables;

static void lfht_close(void *table)
{
	struct lfht *t = table;
	struct cds_lfht_iter iter;

	if (t->ht) {
		urcu_memb_read_lock();
		cds_lfht_first(t->ht, &iter);
		while (cds_lfht_iter_get_node(&iter)) {
			cds_lfht_del(t->ht, cds_lfht_iter_get_node(&iter));
			cds_lfht_next(t->ht, &iter);
		}
		urcu_memb_read_unlock();
		urcu_memb_synchronize_rcu();
		cds_lfht_destroy(t->ht, NULL);
		if (!--tables)
			urcu_memb_unregister_thread();
	}
	free(t->nodes);
	free(t->idle);
	free(t);
}

static void *lfht_open(uint32_t entries, const char **why)
{
	struct lfht *t = calloc(1, sizeof(*t));
	size_t nodes = (size_t)entries + SPARE;
	unsigned long buckets = 1;

	if (!t)
		return bench_why(why, "no memory");
	while (buckets < entries)
		buckets *= 2;
	t->nodes = calloc(nodes, sizeof(*t->nodes));
	t->idle = malloc(nodes * sizeof(struct node *));
	if (t->nodes && t->idle)
		t->ht = cds_lfht_new_flavor(buckets, buckets, buckets, 0, &urcu_memb_flavor, NULL);
	if (!t->ht) {
		lfht_close(t);
		return bench_why(why, "no memory for %u entries", entries);
	}
	if (!tables++)
		urcu_memb_register_thread();
	while (nodes--)
		t->idle[t->idles++] = &t->nodes[nodes];
	return t;
}

static int same_key(struct cds_lfht_node *node, const void *key)
{
	return !memcmp(&caa_container_of(node, struct node, node)->key, key,
		       sizeof(struct bench_key));
}

static struct cds_lfht_node *find(struct lfht *t, const struct bench_key *key)
{
	struct cds_lfht_iter iter;

	cds_lfht_lookup(t->ht, key->w[0], same_key, key, &iter);
	return cds_lfht_iter_get_node(&iter);
}

/* Called outside of sections. */
static void reuse(struct lfht *t)
{
	urcu_memb_synchronize_rcu();
	while (t->retireds)
		t->idle[t->idles++] = t->retired[--t->retireds];
}

static int lfht_insert(void *table, const struct bench_key *keys, const int32_t *values, uint32_t n)
{
	struct lfht *t = table;

	if (t->idles < n)
		reuse(t);
	if (t->idles < n)
		return -1;
	urcu_memb_read_lock();
	for (uint32_t i = 0; i < n; i++) {
		struct node *node = t->idle[--t->idles];

		cds_lfht_node_init(&node->node);
		node->key = keys[i];
		node->value = values[i];
		cds_lfht_add(t->ht, keys[i].w[0], &node->node);
	}
	urcu_memb_read_unlock();
	return 0;
}

static int lfht_lookup(void *table, const struct bench_key *keys, uint32_t n, int32_t *values)
{
	struct lfht *t = table;

	urcu_memb_read_lock();
	for (uint32_t i = 0; i < n; i++) {
		struct cds_lfht_node *node = find(t, &keys[i]);

		values[i] = node ? caa_container_of(node, struct node, node)->value : -1;
	}
	urcu_memb_read_unlock();
	return 0;
}

static int lfht_turn(void *table, const struct bench_key *in, const int32_t *values,
		     const struct bench_key *out, uint32_t n)
{
	struct lfht *t = table;

	for (uint32_t i = 0; i < n; i++) {
		struct cds_lfht_node *node;
		int status;

		if (t->retireds == SPARE)
			reuse(t);
		urcu_memb_read_lock();
		node = find(t, &out[i]);
		status = node ? cds_lfht_del(t->ht, node) : -1;
		urcu_memb_read_unlock();
		if (status)
			return -1;
		t->retired[t->retireds++] = caa_container_of(node, struct node, node);
	}
	return lfht_insert(t, in, values, n);
}

const struct bench_peer bench_peer_lfht = {
	.name = "rculfhash",
	.what = "liburcu " LFHT_VERSION ", flavour memb",
	.open = lfht_open,
	.insert = lfht_insert,
	.lookup = lfht_lookup,
	.turn = lfht_turn,
	.close = lfht_close,
};
