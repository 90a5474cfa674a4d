/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The topology reader: nodes and links are noted first, for a link may name a node that comes
 * later, then checked against each other and built. */
#include "vswitch/text/scan.h"
#include "vswitch/text/text.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* First GUIDs that ibsim gives out. */
#define FIRST_CA_GUID     0x100000
#define FIRST_SWITCH_GUID 0x200000
#define LMC_ERROR         "lmc must be 0 to %d"

struct node {
	struct span name, desc;
	uint64_t guid;
	unsigned line;
	uint32_t first_wire, wires;
	uint32_t record; /* in the fabric, of a switch */
	uint16_t lid;    /* LID of a switch, and so is the LMC */
	uint8_t lmc;
	uint8_t ports;
	bool is_switch;
};

/* An end of a link, as its node states it. */
struct wire {
	struct span peer;
	uint64_t guid; /* GUID of a CA port; 0: not said */
	unsigned line;
	uint32_t node, peer_node, end;
	uint16_t lid, peer_lid; /* 0: not said */
	uint8_t port, peer_port, lmc;
};

struct topo {
	struct scan scan;
	struct node *node; /* owned */
	struct wire *wire; /* owned */
	uint32_t nodes, nodes_room, wires, wires_room;
	uint32_t *name; /* owned; hash of node numbers */
	uint32_t names;
	uint64_t next_ca, next_switch;
	bool open; /* the lines are still those of the last node */
};

static int no_memory(struct topo *t)
{
	return fabric_fail(t->scan.e, -ENOMEM, "no memory");
}

static int make_room(void **array, uint32_t used, uint32_t *room, size_t size)
{
	uint32_t more = *room ? *room * 2 : 64;
	void *grown;

	if (used < *room)
		return 0;
	grown = realloc(*array, more * size);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = more;
	return 0;
}

/* " lid N" and " lmc N" from here on, where they are. */
static int read_lid(struct scan *s, uint16_t *ret_lid, uint8_t *ret_lmc)
{
	uint64_t v;

	*ret_lid = 0;
	if (!scan_find(s, "lid "))
		return 0;
	if (!scan_number(s, 10, IB_LID_UCAST_MAX, &v))
		return scan_fail(s, "lid must be a number from 0 to %u", IB_LID_UCAST_MAX);
	*ret_lid = (uint16_t)v;
	scan_blanks(s);
	if (!ret_lmc || !scan_word(s, "lmc "))
		return 0;
	if (!scan_number(s, 10, FABRIC_LMC_MAX, &v))
		return scan_fail(s, LMC_ERROR, FABRIC_LMC_MAX);
	*ret_lmc = (uint8_t)v;
	return 0;
}

/* switchguid=0x2c902(2c902): the next node of this kind has it, later ones count on. */
static int read_guid(struct topo *t, uint64_t *guid)
{
	if (!scan_number(&t->scan, 16, UINT64_MAX - 1, guid) || !*guid)
		return scan_fail(&t->scan, "a GUID must be a number from 1 to 0xfffffffffffffffe");
	return 0;
}

static int read_node(struct topo *t, bool is_switch)
{
	struct scan *s = &t->scan;
	uint64_t *next = is_switch ? &t->next_switch : &t->next_ca, ports;
	struct node n = {.line = s->line, .is_switch = is_switch, .first_wire = t->wires};
	int rc;

	scan_blanks(s);
	if (!scan_number(s, 10, FABRIC_PORTS_MAX, &ports) || !ports)
		return scan_fail(s, "the number of ports must be 1 to %d", FABRIC_PORTS_MAX);
	scan_blanks(s);
	if (!scan_quoted(s, false, &n.name) || !n.name.bytes)
		return scan_fail(s, "a node's name in quotes is missing");
	n.ports = (uint8_t)ports;
	n.guid = *next;
	*next += is_switch ? 1 : ports + 1;
	n.desc = n.name;
	scan_blanks(s);
	if (scan_word(s, "#")) {
		scan_blanks(s);
		scan_quoted(s, true, &n.desc);
		if (is_switch && (rc = read_lid(s, &n.lid, &n.lmc)))
			return rc;
	} else if (!scan_done(s))
		return scan_strange(s);
	if (make_room((void **)&t->node, t->nodes, &t->nodes_room, sizeof *t->node))
		return no_memory(t);
	t->node[t->nodes++] = n;
	t->open = true;
	return 0;
}

/* "[1](2c903) "peer"[13](2c904) w=4 # ...". */
static int read_wire_ends(struct topo *t, struct wire *w)
{
	struct node *n = &t->node[t->nodes - 1];
	struct scan *s = &t->scan;
	uint64_t v, guid;

	if (!scan_number(s, 10, 255, &v) || !scan_word(s, "]"))
		return scan_fail(s, "a port number in brackets is missing");
	if (!v || v > n->ports)
		return scan_fail(s, "port %" PRIu64 " is beyond the %u of the node", v, n->ports);
	w->port = (uint8_t)v;
	if (scan_word(s, "(") &&
	    (!scan_number(s, 16, UINT64_MAX - 1, &w->guid) || !w->guid || !scan_word(s, ")")))
		return scan_fail(s, "a port GUID in parentheses is wrong");
	scan_blanks(s);
	if (!scan_quoted(s, false, &w->peer))
		return scan_fail(s, "the peer's name in quotes is missing");
	v = 1;
	if (scan_word(s, "[") &&
	    (!scan_number(s, 10, FABRIC_PORTS_MAX, &v) || !v || !scan_word(s, "]")))
		return scan_fail(s, "the peer's port must be 1 to %d", FABRIC_PORTS_MAX);
	w->peer_port = (uint8_t)v;
	if (scan_word(s, "(") && (!scan_number(s, 16, UINT64_MAX - 1, &guid) || !scan_word(s, ")")))
		return scan_fail(s, "the peer's GUID in parentheses is wrong");
	return 0;
}

static int read_wire(struct topo *t)
{
	struct scan *s = &t->scan;
	struct wire w = {.line = s->line, .node = t->nodes - 1};
	struct span ignored;
	int rc;

	if (!t->open)
		return scan_fail(s, "a port without a node above it");
	if ((rc = read_wire_ends(t, &w)))
		return rc;
	if (scan_find(s, "#")) {
		if (!t->node[w.node].is_switch && (rc = read_lid(s, &w.lid, &w.lmc)))
			return rc;
		scan_blanks(s);
		if (scan_quoted(s, true, &ignored) && (rc = read_lid(s, &w.peer_lid, NULL)))
			return rc;
	}
	for (uint32_t i = t->node[w.node].first_wire; i < t->wires; i++)
		if (t->wire[i].port == w.port)
			return scan_fail(s, "port %u is stated twice, first in line %u", w.port,
					 t->wire[i].line);
	if (make_room((void **)&t->wire, t->wires, &t->wires_room, sizeof *t->wire))
		return no_memory(t);
	t->wire[t->wires++] = w;
	t->node[w.node].wires++;
	return 0;
}

static int read_line(struct topo *t)
{
	static const char *const ignored[] = {
		"vendid=", "devid=", "sysimgguid=", "width=", "speed=", "pdebug="};
	struct scan *s = &t->scan;

	if (scan_done(s)) {
		t->open = false;
		return 0;
	}
	if (scan_word(s, "#"))
		return 0;
	if (scan_word(s, "["))
		return read_wire(t);
	t->open = false;
	if (scan_word(s, "Switch"))
		return read_node(t, true);
	if (scan_word(s, "Hca") || scan_word(s, "Ca") || scan_word(s, "Rt"))
		return read_node(t, false);
	if (scan_word(s, "switchguid="))
		return read_guid(t, &t->next_switch);
	if (scan_word(s, "caguid=") || scan_word(s, "hcaguids=") || scan_word(s, "rtguid="))
		return read_guid(t, &t->next_ca);
	for (unsigned i = 0; i < ARRAY_SIZE(ignored); i++)
		if (scan_word(s, ignored[i]))
			return 0;
	return scan_strange(s);
}

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
		if (t->node[*slot].name.bytes == n.bytes &&
		    !memcmp(t->node[*slot].name.at, n.at, n.bytes))
			return slot;
	}
}

static int fail_at(struct topo *t, unsigned line, const char *what, struct span name)
{
	t->scan.line = line;
	return scan_fail(&t->scan, "%s \"%.*s\"", what, (int)(name.bytes > 64 ? 64 : name.bytes),
			 name.at);
}

static int index_names(struct topo *t)
{
	t->names = t->nodes * 2 + 1;
	t->name = malloc(t->names * sizeof *t->name);
	if (!t->name)
		return no_memory(t);
	memset(t->name, 0xff, t->names * sizeof *t->name);
	for (uint32_t i = 0; i < t->nodes; i++) {
		uint32_t *slot = name_slot(t, t->node[i].name);

		if (*slot != FABRIC_NONE)
			return fail_at(t, t->node[i].line, "a second node", t->node[i].name);
		*slot = i;
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

	if (!sorted)
		return no_memory(t);
	for (uint32_t i = 0; i < t->nodes; i++)
		sorted[i] = &t->node[i];
	qsort(sorted, t->nodes, sizeof *sorted, by_guid);
	for (uint32_t i = 1; i < t->nodes; i++)
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

/* The other end of each link states the same link, and the same LIDs. */
static int match_wires(struct topo *t)
{
	for (uint32_t i = 0; i < t->wires; i++) {
		struct wire *w = &t->wire[i];
		const struct wire *back;
		uint16_t lid;

		w->peer_node = *name_slot(t, w->peer);
		if (w->peer_node == FABRIC_NONE)
			return fail_at(t, w->line, "a link to a node that is not there:", w->peer);
		back = wire_at(t, w->peer_node, w->peer_port);
		if (!back || back->peer_port != w->port || *name_slot(t, back->peer) != w->node ||
		    back == w)
			return fail_at(t, w->line,
				       "a link that its other end does not state:", w->peer);
		lid = t->node[w->peer_node].is_switch ? t->node[w->peer_node].lid : back->lid;
		if (w->peer_lid && w->peer_lid != lid)
			return fail_at(t, w->line, "a LID that is not that of", w->peer);
		if (!t->node[w->node].is_switch && !t->node[w->peer_node].is_switch)
			return fail_at(t, w->line, "a link between two CAs, to", w->peer);
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

static int build_node(struct topo *t, struct fabric *f, struct node *n)
{
	char desc[FABRIC_DESC_MAX];
	int rc;

	snprintf(desc, sizeof desc, "%.*s", (int)n->desc.bytes, n->desc.at);
	for (char *c = desc; *c; c++)
		*c = *c < ' ' || *c == 127 || *c == '"' ? '?' : *c; /* shown to people */
	if (n->is_switch) {
		if ((rc = check_lid(t, f, NULL, n, n->line)))
			return rc;
		n->record = f->switches;
		rc = fabric_add_switch(f, n->guid, n->lid, n->ports, desc);
		rc = rc ? rc : fabric_set_switch_lmc(f, n->record, n->lmc);
		return rc ? name_error(t, rc, n->line, n->name) : 0;
	}
	if (!n->wires)
		return fail_at(t, n->line, "a CA without a link:", n->name);
	for (uint32_t i = n->first_wire; i < n->first_wire + n->wires; i++) {
		struct wire *w = &t->wire[i];
		struct fabric_end end = {.node_guid = n->guid,
					 .port_guid = w->guid ? w->guid : n->guid + w->port,
					 .lid = w->lid,
					 .lmc = w->lmc,
					 .port = w->port};

		if ((rc = check_lid(t, f, w, n, w->line)))
			return rc;
		memcpy(end.desc, desc, sizeof desc);
		w->end = f->ends;
		rc = fabric_add_end(f, &end);
		if (rc)
			return name_error(t, rc, w->line, n->name);
	}
	return 0;
}

static int build(struct topo *t, struct fabric *f)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < t->nodes; i++)
		rc = build_node(t, f, &t->node[i]);
	for (uint32_t i = 0; !rc && i < t->wires; i++) {
		const struct wire *w = &t->wire[i];
		const struct node *a = &t->node[w->node], *b = &t->node[w->peer_node];

		if (!a->is_switch)
			rc = fabric_attach(f, w->end, b->guid, w->peer_port);
		else if (b->is_switch && (w->node < w->peer_node ||
					  (w->node == w->peer_node && w->port < w->peer_port)))
			rc = fabric_link(f, a->guid, w->port, b->guid, w->peer_port);
		if (rc)
			return fail_at(t, w->line, "a link that cannot be, to", w->peer);
	}
	return rc;
}

int topo_read(const char *text, size_t bytes, struct fabric *ret_fabric, struct fabric_error *e)
{
	struct topo t = {.scan = {.text = text, .end = text + bytes, .e = e},
			 .next_ca = FIRST_CA_GUID,
			 .next_switch = FIRST_SWITCH_GUID};
	struct fabric f = {0};
	int rc = bytes > TEXT_BYTES_MAX ? scan_fail(&t.scan, "more than 1 GiB") : 0, more = 1;

	while (!rc && (more = scan_line(&t.scan)) > 0)
		rc = read_line(&t);
	rc = rc ? rc : more;
	if (!rc && !t.nodes)
		rc = scan_fail(&t.scan, "no node in the whole text");
	rc = rc ? rc : index_names(&t);
	rc = rc ? rc : check_guids(&t);
	rc = rc ? rc : match_wires(&t);
	rc = rc ? rc : build(&t, &f);
	free(t.node);
	free(t.wire);
	free(t.name);
	if (rc) {
		fabric_clear(&f);
		return rc;
	}
	fabric_find_vswitches(&f);
	*ret_fabric = f;
	return 0;
}
