#include <gpc.h>
#include <stdio.h>

int main(void)
{
	static const uint32_t prompt[1024] = { 1, 2, 3 };       /* tokens */
	struct gpc_field model = { .tag = 1, .len = 5, .data = "llama" };
	gpc_key key[65];                        /* key[0]: what all prompts begin with */
	gpc_block blk[64];
	int n, hit;
	gpc *c;

	if (gpc_attach("demo", NULL, 0, &c) < 0)
		return fprintf(stderr, "%s\n", gpc_last_error()), 1;
	gpc_root(c, &model, 1, key);
	n = gpc_hash(c, key, prompt, 1024, NULL, 0, 0, key + 1);
	hit = gpc_acquire(c, 0, key + 1, n, blk, 0);            /* cached; ours to read now */
	if (gpc_reserve(c, 0, n - hit, 0, blk + hit, NULL, 0, 1000) < 0)
		n = hit;                                        /* full of blocks in use */
	/* ... the prefill writes blk[hit .. n - 1] ... */
	if (n > hit)
		gpc_publish(c, key + hit, key + hit + 1, blk + hit, n - hit, 0, NULL, 0, NULL);
	printf("%d of %d blocks were cached\n", hit, n);
	gpc_unref(c, blk, n);                   /* they stay cached until others need the room */
	return gpc_close(c);
}
