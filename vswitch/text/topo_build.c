/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The nodes and links of a topology file, checked against each other and built. */
#include "vswitch/text/topo.h"
#include "common/util.h"

#include <inttypes.h>
#include <stdlib.h>

static uint32_t name_hash(struct span n)
{
	uint64_t h = 14695981039346656037ull;

	for (uint32_t i = 0; i < n.bytes; i++)
		h = (h ^ (uint8_t)n.at[i]) * 1099511628211ull;
	return (uint32_t)(h >> 32 ^ h);
}

/* The slot of a name: that of its node, or a free one. */
static uint32_t *name_slot(const struct topo *t, struct span n)
{
	for (uint32_t i = name_hash(n) % t->names;; i = (i + 1) % t->names) {
		uint32_t *slot = &t->name[i];

		if (*slot == FABRIC_NONE)
			return slot;
		if (same_span(t->node[*slot].name, n))
			return slot;
	}
}

static int fail_at(struct topo *t, unsigned line, const char *what, struct span name)
{
	t->scan.line = line;
	return scan_fail(&t->scan, "%s \"%.*s\"", what, (int)(name.bytes > 64 ? 64 : name.bytes),
			 name.at);
}

static void leave_out(struct topo *t, struct node *n)
{
	n->left_out = true;
	for (uint32_t i = n->first_wire; i < n->first_wire + n->wires; i++)
		t->wire[i].left_out = true;
}

static bool same_node(const struct topo *t, const struct node *a, const struct node *b)
{
	if (a->is_switch != b->is_switch || a->guid != b->guid || a->ports != b->ports ||
	    a->lid != b->lid || a->lmc != b->lmc || a->wires != b->wires)
		return false;
	for (uint32_t i = 0; i < a->wires; i++)
		if (!same_wire(&t->wire[a->first_wire + i], &t->wire[b->first_wire + i]))
			return false;
	return true;
}

/* With -g, ibnetdiscover prints the switches of a chassis twice. */
static int index_names(struct topo *t)
{
	t->names = t->nodes * 2 + 1;
	t->name = malloc(t->names * sizeof *t->name);
	if (!t->name)
		return no_memory(t);
	memset(t->name, 0xff, t->names * sizeof *t->name);
	for (uint32_t i = 0; i < t->nodes; i++) {
		struct node *n = &t->node[i];
		uint32_t *slot = name_slot(t, n->name);

		if (*slot == FABRIC_NONE) {
			*slot = i;
			continue;
		}
		if (!same_node(t, &t->node[*slot], n))
			return fail_at(t, n->line, "a second node", n->name);
		notes_add(t->scan.notes, n->line, "node \"%.*s\" again, as in line %u: left out",
			  (int)(n->name.bytes > 64 ? 64 : n->name.bytes), n->name.at,
			  t->node[*slot].line);
		leave_out(t, n);
	}
	return 0;
}

static int by_guid(const void *a, const void *b)
{
	const struct node *x = *(const struct node *const *)a, *y = *(const struct node *const *)b;

	return x->guid != y->guid ? (x->guid < y->guid ? -1 : 1) : (x->line < y->line ? -1 : 1);
}

static int check_guids(struct topo *t)
{
	const struct node **sorted AUTO_FREE = malloc(t->nodes * sizeof *sorted);
	uint32_t count = 0;

	if (!sorted)
		return no_memory(t);
	for (uint32_t i = 0; i < t->nodes; i++)
		if (!t->node[i].left_out)
			sorted[count++] = &t->node[i];
	qsort(sorted, count, sizeof *sorted, by_guid);
	for (uint32_t i = 1; i < count; i++)
		if (sorted[i]->guid == sorted[i - 1]->guid)
			return fail_at(t, sorted[i]->line,
				       "the GUID is that of another node:", sorted[i]->name);
	return 0;
}

static const struct wire *wire_at(const struct topo *t, uint32_t node, unsigned port)
{
	const struct node *n = &t->node[node];

	for (uint32_t i = n->first_wire; i < n->first_wire + n->wires; i++)
		if (t->wire[i].port == port)
			return &t->wire[i];
	return NULL;
}

static int match_wire(struct topo *t, struct wire *w)
{
	const struct wire *back;
	uint16_t lid;

	w->peer_node = *name_slot(t, w->peer);
	if (w->peer_node == FABRIC_NONE)
		return fail_at(t, w->line, "a link to a node that is not there:", w->peer);
	back = wire_at(t, w->peer_node, w->peer_port);
	if (!back || back->peer_port != w->port || *name_slot(t, back->peer) != w->node ||
	    back == w)
		return fail_at(t, w->line, "a link that its other end does not state:", w->peer);
	lid = t->node[w->peer_node].is_switch ? t->node[w->peer_node].lid : back->lid;
	if (w->peer_lid && w->peer_lid != lid)
		return fail_at(t, w->line, "a LID that is not that of", w->peer);
	return 0;
}

/* The other end of each link states the same link, and the same LIDs. Links between two CAs lead
 * through no switch. */
static int match_wires(struct topo *t)
{
	for (uint32_t i = 0; i < t->wires; i++) {
		struct wire *w = &t->wire[i];
		int rc = w->left_out ? 0 : match_wire(t, w);

		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < t->wires; i++) {
		struct wire *w = &t->wire[i];

		if (w->left_out || t->node[w->node].is_switch || t->node[w->peer_node].is_switch)
			continue;
		notes_add(t->scan.notes, w->line, "a link between two CAs, to \"%.*s\": left out",
			  (int)(w->peer.bytes > 64 ? 64 : w->peer.bytes), w->peer.at);
		w->left_out = true;
	}
	return 0;
}

static int name_error(struct topo *t, int rc, unsigned line, struct span name)
{
	if (rc == -ENOMEM)
		return no_memory(t);
	return fail_at(t, line,
		       rc == -EEXIST ? "the GUID is that of another node:"
				     : "the GUID or the LID is out of range:",
		       name);
}

/* No LID twice; those of an LMC begin at a multiple of their number. */
static int check_lid(struct topo *t, const struct fabric *f, const struct wire *w,
		     const struct node *n, unsigned line)
{
	unsigned lid = w ? w->lid : n->lid, count = 1u << (w ? w->lmc : n->lmc);

	if (lid % count)
		return fail_at(t, line, "the LID is no multiple of 2^LMC:", n->name);
	for (unsigned i = lid; lid && i < lid + count; i++) {
		struct fabric_owner o = fabric_find_lid(f, i);

		if (o.sw != FABRIC_NONE || o.end != FABRIC_NONE)
			return fail_at(t, line, "the LID is that of another port:", n->name);
	}
	return 0;
}

static int build_switch(struct topo *t, struct fabric *f, struct node *n, const char *desc)
{
	int rc = check_lid(t, f, NULL, n, n->line);

	if (rc)
		return rc;
	n->record = f->switches;
	rc = fabric_add_switch(f, n->guid, n->lid, n->ports, desc);
	rc = rc ? rc : fabric_set_switch_lmc(f, n->record, n->lmc);
	return rc ? name_error(t, rc, n->line, n->name) : 0;
}

static int build_end(struct topo *t, struct fabric *f, const struct node *n, struct wire *w,
		     const char *desc)
{
	struct fabric_end end = {.node_guid = n->guid,
				 .port_guid = w->guid ? w->guid : n->guid + w->port,
				 .lid = w->lid,
				 .lmc = w->lmc,
				 .port = w->port};
	int rc = check_lid(t, f, w, n, w->line);

	if (rc)
		return rc;
	snprintf(end.desc, sizeof end.desc, "%s", desc);
	w->end = f->ends;
	rc = fabric_add_end(f, &end);
	return rc ? name_error(t, rc, w->line, n->name) : 0;
}

static int build_node(struct topo *t, struct fabric *f, struct node *n)
{
	char desc[FABRIC_DESC_MAX];
	int rc = 0;

	snprintf(desc, sizeof desc, "%.*s", (int)n->desc.bytes, n->desc.at);
	for (char *c = desc; *c; c++)
		*c = (*c >= 0 && *c < ' ') || *c == 127 || *c == '"' ? '?' : *c; /* for people */
	if (n->is_switch)
		return build_switch(t, f, n, desc);
	if (!n->wires)
		notes_add(t->scan.notes, n->line, "a CA without a link, \"%s\": left out", desc);
	for (uint32_t i = n->first_wire; !rc && i < n->first_wire + n->wires; i++)
		if (!t->wire[i].left_out)
			rc = build_end(t, f, n, &t->wire[i], desc);
	return rc;
}

static int build_link(struct topo *t, struct fabric *f, const struct wire *w)
{
	const struct node *a = &t->node[w->node], *b = &t->node[w->peer_node];
	int rc = 0;

	if (!a->is_switch)
		rc = fabric_attach(f, w->end, b->guid, w->peer_port);
	else if (b->is_switch &&
		 (w->node < w->peer_node || (w->node == w->peer_node && w->port < w->peer_port)))
		rc = fabric_link(f, a->guid, w->port, b->guid, w->peer_port);
	return rc ? fail_at(t, w->line, "a link that cannot be, to", w->peer) : 0;
}

int topo_build(struct topo *t, struct fabric *f)
{
	int rc = index_names(t);

	rc = rc ? rc : check_guids(t);
	rc = rc ? rc : match_wires(t);
	for (uint32_t i = 0; !rc && i < t->nodes; i++)
		if (!t->node[i].left_out)
			rc = build_node(t, f, &t->node[i]);
	for (uint32_t i = 0; !rc && i < t->wires; i++)
		if (!t->wire[i].left_out)
			rc = build_link(t, f, &t->wire[i]);
	if (!rc && !f->switches)
		rc = scan_fail(&t->scan, "no switch in the whole text: there is nothing to plan");
	return rc;
}
