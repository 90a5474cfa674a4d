/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/partitions/pkeys.h"
#include "sm-helper/plugin/smps.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <opensm/osm_log.h>
#include <opensm/osm_node.h>
#include <opensm/osm_pkey.h>
#include <opensm/osm_switch.h>

#define BLOCK       IB_NUM_PKEY_ELEMENTS_IN_BLOCK
#define BLOCKS_MAX  32 /* 1,024 P_Keys: more are left as they are */
#define ROUNDS      2  /* a table that is not what OpenSM took it for is written once more */
#define NEED_UPDATE 2  /* of osm_physp_t: OpenSM's next heavy sweep reads the port's tables */

/* ---- tables ---- */

static void free_table(struct pkeys_table *t)
{
	free(t->before);
	free(t->after);
	free(t->unknown);
}

void pkeys_free(struct pkeys *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		free_table(&c->port[i].own);
		free_table(&c->port[i].peer);
	}
	c->count = 0;
}

/* How many P_Keys the port has room for. Port 0 of a switch is an end port as that of a CA is. */
static unsigned room_of(const osm_physp_t *physp)
{
	const osm_node_t *node = physp->p_node;

	return node->sw && physp->port_num ? cl_ntoh16(node->sw->switch_info.enforce_cap)
					   : cl_ntoh16(node->node_info.partition_cap);
}

static int open_table(struct pkeys_table *t, osm_physp_t *physp)
{
	unsigned blocks = (room_of(physp) + BLOCK - 1) / BLOCK;

	t->blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
	t->before = calloc(t->blocks + 1, sizeof *t->before);
	t->after = calloc(t->blocks + 1, sizeof *t->after);
	t->unknown = calloc(t->blocks + 1, sizeof *t->unknown);
	if (!t->before || !t->after || !t->unknown)
		return -ENOMEM;
	t->physp = physp;
	for (unsigned i = 0; i < t->blocks; i++) {
		const ib_pkey_table_t *known = i < cl_ptr_vector_get_size(&physp->pkeys.blocks)
						       ? cl_ptr_vector_get(&physp->pkeys.blocks, i)
						       : NULL;

		t->unknown[i] = !known;
		if (known)
			t->before[i] = *known;
	}
	return 0;
}

static ib_net16_t *entry(ib_pkey_table_t *blocks, unsigned i)
{
	return &blocks[i / BLOCK].pkey_entry[i % BLOCK];
}

static bool same_base(uint16_t a, uint16_t b)
{
	return !((a ^ b) & ~POLICY_FULL);
}

/* The key that is at index 0: OpenSM moves any other away from there. */
static bool is_index0(const struct plugin *p, const struct policy_pkeys *keys, uint16_t key)
{
	bool both = p->osm->subn.opt.allow_both_pkeys;

	if (keys->index0)
		return both ? key == keys->index0 : same_base(key, keys->index0);
	return both ? key == (POLICY_DEFAULT | POLICY_FULL) : same_base(key, POLICY_DEFAULT);
}

/* The index of the key in the table of the port that has shown the GUID so far; `room`: none. */
static unsigned index_before(const struct plugin *p, const osm_physp_t *like, uint16_t key,
			     unsigned room)
{
	bool both = p->osm->subn.opt.allow_both_pkeys;
	const cl_ptr_vector_t *blocks = &like->pkeys.blocks;

	for (unsigned i = 0; i < room && i / BLOCK < cl_ptr_vector_get_size(blocks); i++) {
		const ib_pkey_table_t *b = cl_ptr_vector_get(blocks, i / BLOCK);
		uint16_t was = b ? cl_ntoh16(b->pkey_entry[i % BLOCK]) : 0;

		if (both ? was == key : was && same_base(was, key))
			return i;
	}
	return room;
}

static unsigned next_free(struct pkeys_table *t, unsigned room)
{
	unsigned i = 1;

	while (i < room && *entry(t->after, i))
		i++;
	return i;
}

/* Puts the keys where they were, and then the others where there is room. Without OpenSM's
 * keep_pkey_indexes all are in order, from the first on. */
static int fill_own(struct plugin *p, struct pkeys_table *t, const struct policy_pkeys *keys,
		    const osm_physp_t *like)
{
	unsigned room = room_of(t->physp);
	bool put[SM_PKEYS_MAX] = {false};

	if (room > t->blocks * BLOCK)
		room = t->blocks * BLOCK;
	if (keys->count > SM_PKEYS_MAX || keys->count > room)
		return -ENOSPC;
	for (unsigned i = 0; i < keys->count; i++) {
		unsigned at = p->osm->subn.opt.keep_pkey_indexes
				      ? index_before(p, like, keys->pkey[i], room)
				      : room;

		if (is_index0(p, keys, keys->pkey[i]))
			at = 0;
		else if (!at)
			at = room;
		if (at == room || *entry(t->after, at))
			continue;
		*entry(t->after, at) = cl_hton16(keys->pkey[i]);
		put[i] = true;
	}
	for (unsigned i = 0; i < keys->count; i++) {
		unsigned at = next_free(t, room);

		if (put[i])
			continue;
		if (at == room)
			return -ENOSPC;
		*entry(t->after, at) = cl_hton16(keys->pkey[i]);
	}
	return 0;
}

static bool has_full(struct pkeys_table *t, ib_net16_t key)
{
	for (unsigned i = 0; i < t->blocks * BLOCK; i++)
		if (*entry(t->after, i) == (key | cl_hton16(POLICY_FULL)))
			return true;
	return false;
}

/* The switch port lets through what the port has, in the same order; full members also as limited.
 */
static int fill_peer(struct pkeys_table *t, struct pkeys_table *own)
{
	unsigned n = 0, room = room_of(t->physp);

	for (unsigned i = 0; i < own->blocks * BLOCK; i++) {
		ib_net16_t key = *entry(own->after, i);

		if (!key || (!(key & cl_hton16(POLICY_FULL)) && has_full(own, key)))
			continue;
		if (n == room || n == t->blocks * BLOCK)
			return -ENOSPC;
		*entry(t->after, n++) = key;
	}
	return 0;
}

static bool enforces(const struct plugin *p, const osm_physp_t *peer)
{
	return peer && peer->p_node->sw && peer->p_node->sw->switch_info.enforce_cap &&
	       p->osm->subn.opt.part_enforce_enum != OSM_PARTITION_ENFORCE_TYPE_OFF;
}

static bool to_write(const struct pkeys_table *t, unsigned block)
{
	return t->unknown[block] ||
	       memcmp(&t->before[block], &t->after[block], sizeof t->after[block]) != 0;
}

static bool differs(const struct pkeys_table *t)
{
	for (unsigned i = 0; t->physp && i < t->blocks; i++)
		if (to_write(t, i))
			return true;
	return false;
}

static int refuse_full(struct sm_reply_head *h, const osm_physp_t *physp, unsigned keys)
{
	return plugin_refuse(h, -ENOSPC, "%s, port %u: room for %u P_Keys, the policy gives %u",
			     physp->p_node->print_desc, physp->port_num, room_of(physp), keys);
}

int pkeys_add(struct pkeys *c, osm_physp_t *physp, const struct policy_pkeys *keys,
	      const osm_physp_t *like, struct sm_reply_head *h)
{
	struct pkeys_port *x = &c->port[c->count];
	osm_physp_t *peer = physp->p_remote_physp;
	int rc;

	*x = (struct pkeys_port){0};
	c->count++;
	if ((rc = open_table(&x->own, physp)) ||
	    (enforces(c->p, peer) && (rc = open_table(&x->peer, peer))))
		return plugin_refuse(h, rc, "no memory for P_Key tables");
	if (fill_own(c->p, &x->own, keys, like))
		return refuse_full(h, physp, keys->count);
	if (x->peer.physp && fill_peer(&x->peer, &x->own))
		return refuse_full(h, peer, keys->count);
	c->differ = c->differ || differs(&x->own) || differs(&x->peer);
	return 0;
}

/* ---- OpenSM's records ---- */

static void doubt_table(struct pkeys_table *t)
{
	if (t->physp)
		t->physp->need_update = NEED_UPDATE;
}

/* A block that nobody has read yet was not written either. */
static void leave_to_sweep(struct plugin *p, struct pkeys_table *t)
{
	doubt_table(t);
	plugin_want_sweep(p);
}

static void apply_table(struct plugin *p, struct pkeys_table *t, bool back)
{
	for (unsigned i = 0; t->physp && i < t->blocks; i++)
		if (back && t->unknown[i])
			leave_to_sweep(p, t);
		else if (to_write(t, i))
			osm_pkey_tbl_set(&t->physp->pkeys, (uint16_t)i,
					 back ? &t->before[i] : &t->after[i],
					 p->osm->subn.opt.allow_both_pkeys);
}

/* OpenSM remembers at which index each P_Key has ever been, to give it again. Those of another GUID
 * must not come back over what is there now. */
static void remember_indices(struct pkeys_table *t, bool back)
{
	osm_pkey_tbl_t *tbl = &t->physp->pkeys;

	cl_map_remove_all(&tbl->accum_pkeys);
	tbl->last_pkey_idx = 0;
	for (unsigned i = 0; i < t->blocks * BLOCK; i++) {
		ib_net16_t key = *entry(back ? t->before : t->after, i);

		if (key)
			osm_pkey_tbl_set_accum_pkeys(tbl, key, (uint16_t)i);
	}
}

void pkeys_apply(struct pkeys *c, bool back)
{
	for (unsigned i = 0; i < c->count; i++) {
		struct pkeys_port *x = &c->port[i];

		if (differs(&x->own))
			remember_indices(&x->own, back);
		apply_table(c->p, &x->own, back);
		apply_table(c->p, &x->peer, back);
	}
}

void pkeys_doubt(struct pkeys *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		doubt_table(&c->port[i].own);
		doubt_table(&c->port[i].peer);
	}
}

/* ---- the ports ---- */

struct block {
	struct pkeys_table *table;
	unsigned block;
};

/* Which blocks of a table; of those that OpenSM knows, but for UNKNOWN. */
enum blocks {
	UNKNOWN,
	WRITTEN,
	HELD, /* also those that hold something: to be read */
};

static bool is_listed(const struct pkeys_table *t, unsigned block, enum blocks which)
{
	static const ib_pkey_table_t nothing;

	if (which == UNKNOWN || t->unknown[block])
		return which == UNKNOWN && t->unknown[block];
	return to_write(t, block) || (which == HELD && (!block || memcmp(&t->after[block], &nothing,
									 sizeof nothing) != 0));
}

static unsigned list_table(struct pkeys_table *t, enum blocks which, struct block *list)
{
	unsigned n = 0;

	for (unsigned i = 0; t->physp && i < t->blocks; i++)
		if (is_listed(t, i, which))
			list[n++] = (struct block){t, i};
	return n;
}

static unsigned list_blocks(struct pkeys *c, enum blocks which, struct block *list)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->count; i++) {
		n += list_table(&c->port[i].own, which, list + n);
		n += list_table(&c->port[i].peer, which, list + n);
	}
	return n;
}

static const ib_pkey_table_t *wanted(const struct block *b, bool back)
{
	return back ? &b->table->before[b->block] : &b->table->after[b->block];
}

static void fill_smps(const struct block *list, unsigned n, bool set, bool back, struct smp *smp)
{
	for (unsigned i = 0; i < n; i++) {
		smp[i] = (struct smp){.physp = list[i].table->physp,
				      .attr = IB_MAD_ATTR_P_KEY_TABLE,
				      .block = (uint16_t)list[i].block,
				      .set = set};
		if (set)
			smp[i].data.pkeys = *wanted(&list[i], back);
	}
}

static int refuse_smp(struct sm_reply_head *h, const struct smp *smp, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!smp[i].taken)
			return plugin_refuse(h, -EIO, "%s, port %u, %s",
					     smp[i].physp->p_node->print_desc,
					     smp[i].physp->port_num,
					     smp[i].set ? "did not take its P_Keys"
							: "does not tell its P_Keys");
	return plugin_refuse(h, -EIO, "OpenSM could not send P_Keys");
}

/* Reads the listed blocks, and keeps in the list those that are not as they shall be. */
static int read_blocks(struct pkeys *c, bool back, struct block *list, unsigned *n, struct smp *smp,
		       uint64_t deadline_us, struct sm_reply_head *h)
{
	unsigned wrong = 0;

	fill_smps(list, *n, false, back, smp);
	if (*n && smps_send(c->p, smp, *n, deadline_us))
		return refuse_smp(h, smp, *n);
	for (unsigned i = 0; i < *n; i++)
		if (memcmp(&smp[i].data.pkeys, wanted(&list[i], back), sizeof smp[i].data.pkeys))
			list[wrong++] = list[i];
	*n = wrong;
	return 0;
}

static int write_blocks(struct pkeys *c, bool back, const struct block *list, unsigned n,
			struct smp *smp, uint64_t deadline_us, struct sm_reply_head *h)
{
	fill_smps(list, n, true, back, smp);
	c->sent += n;
	return n && smps_send(c->p, smp, n, deadline_us) ? refuse_smp(h, smp, n) : 0;
}

static size_t room_for(const struct pkeys *c)
{
	size_t blocks = 0;

	for (unsigned i = 0; i < c->count; i++)
		blocks += c->port[i].own.blocks + c->port[i].peer.blocks;
	return blocks + 1;
}

/* Reads what OpenSM has never heard of, before it is written: undo must know it. */
static int learn(struct pkeys *c, struct block *list, struct smp *smp, uint64_t deadline_us,
		 struct sm_reply_head *h)
{
	unsigned n = list_blocks(c, UNKNOWN, list);
	int rc;

	if (!n)
		return 0;
	fill_smps(list, n, false, false, smp);
	rc = smps_send(c->p, smp, n, deadline_us) ? refuse_smp(h, smp, n) : 0;
	for (unsigned i = 0; i < n; i++) {
		struct pkeys_table *t = list[i].table;

		if (!smp[i].taken)
			continue;
		t->before[list[i].block] = smp[i].data.pkeys;
		t->unknown[list[i].block] = false;
	}
	return rc;
}

static int exchange(struct pkeys *c, bool back, unsigned limit, uint64_t deadline_us,
		    struct sm_reply_head *h)
{
	struct block *list AUTO_FREE = calloc(room_for(c), sizeof *list);
	struct smp *smp AUTO_FREE = calloc(room_for(c), sizeof *smp);
	unsigned n;
	int rc;

	if (!list || !smp)
		return plugin_refuse(h, -EIO, "no memory for P_Key tables");
	if (!back && (rc = learn(c, list, smp, deadline_us, h)))
		return rc;
	n = list_blocks(c, WRITTEN, list);
	if (limit < n)
		return write_blocks(c, back, list, limit, smp, deadline_us, h);
	rc = write_blocks(c, back, list, n, smp, deadline_us, h);
	n = list_blocks(c, HELD, list);
	for (unsigned round = 1; !rc; round++) {
		rc = read_blocks(c, back, list, &n, smp, deadline_us, h);
		if (rc || !n)
			break;
		if (round == ROUNDS)
			return plugin_refuse(h, -EIO, "%s, port %u, does not keep its P_Keys",
					     list[0].table->physp->p_node->print_desc,
					     list[0].table->physp->port_num);
		rc = write_blocks(c, back, list, n, smp, deadline_us, h);
	}
	return rc;
}

int pkeys_send(struct pkeys *c, bool back, unsigned limit, uint64_t deadline_us,
	       struct sm_reply_head *h)
{
	uint64_t start_us = now_us();
	int rc = exchange(c, back, limit, deadline_us, h);

	c->us += now_us() - start_us;
	return rc;
}
