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
/* LID that ibnetdiscover prints for a port that the subnet manager has not configured. */
#define LID_PERMISSIVE 65535

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
	bool left_out; /* with its wires */
};

/* An end of a link, as its node states it. */
struct wire {
	struct span peer;
	uint64_t guid; /* GUID of a CA port; 0: not said */
	unsigned line;
	uint32_t node, peer_node, end;
	uint16_t lid, peer_lid; /* 0: not said */
	uint8_t port, peer_port, lmc;
	bool left_out;
};

struct topo {
	struct scan scan;
	struct node *node; /* owned */
	struct wire *wire; /* owned */
	uint32_t nodes, nodes_room, wires, wires_room;
	uint32_t *name; /* owned; hash of node numbers */
	uint32_t names;
	uint64_t next_ca, next_switch;
	uint64_t second_guid; /* in parentheses behind the last GUID; 0: none */
	bool open;            /* the lines are still those of the last node */
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

/* "N" and " lmc N" behind "lid". */
static int read_lid(struct scan *s, uint16_t *ret_lid, uint8_t *ret_lmc)
{
	uint64_t v;

	scan_blanks(s);
	if (!scan_number(s, 10, LID_PERMISSIVE, &v) ||
	    (v > IB_LID_UCAST_MAX && v != LID_PERMISSIVE))
		return scan_fail(s, "lid must be a number from 0 to %u", IB_LID_UCAST_MAX);
	if (v == LID_PERMISSIVE) {
		notes_add(s->notes, s->line,
			  "lid %d: the subnet manager has not configured the port: taken as none",
			  LID_PERMISSIVE);
		v = 0;
	}
	*ret_lid = (uint16_t)v;
	scan_blanks(s);
	if (!ret_lmc || !scan_word(s, "lmc "))
		return 0;
	scan_blanks(s);
	if (!scan_number(s, 10, FABRIC_LMC_MAX, &v))
		return scan_fail(s, LMC_ERROR, FABRIC_LMC_MAX);
	*ret_lmc = v && !*ret_lid ? 0 : (uint8_t)v;
	return 0;
}

/* switchguid=0x2c902(2c902): the next node of this kind has it, later ones count on. */
static int read_guid(struct topo *t, uint64_t *guid)
{
	struct scan *s = &t->scan;

	t->open = false;
	scan_blanks(s);
	if (!scan_number(s, 16, UINT64_MAX - 1, guid) || !*guid)
		return scan_fail(s, "a GUID must be a number from 1 to 0xfffffffffffffffe");
	t->second_guid = 0;
	if (scan_word(s, "(") && !scan_number(s, 16, UINT64_MAX - 1, &t->second_guid))
		t->second_guid = 0;
	return 0;
}

/* Of a chip in a director, ibdiagnet says switchguid=SYSTEM(NODE). The name, "S-" and the GUID,
 * tells which of the two is the node's. */
static uint64_t node_guid(struct topo *t, uint64_t guid, struct span name)
{
	struct scan in_name = {.at = name.at + 2, .stop = name.at + name.bytes};
	uint64_t named;

	if (!t->second_guid || t->second_guid == guid || name.bytes != 18 || name.at[1] != '-' ||
	    !scan_number(&in_name, 16, UINT64_MAX, &named) || in_name.at != in_name.stop ||
	    named != t->second_guid)
		return guid;
	notes_add(t->scan.notes, t->scan.line,
		  "GUID 0x%016" PRIx64 " is of a system, the one in parentheses of node \"%.*s\": "
		  "that is taken",
		  guid, (int)name.bytes, name.at);
	return named;
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
	n.guid = node_guid(t, *next, n.name);
	*next = n.guid + (is_switch ? 1 : ports + 1);
	t->second_guid = 0;
	n.desc = n.name;
	scan_blanks(s);
	if (scan_word(s, "#")) {
		scan_blanks(s);
		scan_quoted(s, true, &n.desc);
		if (is_switch && scan_find(s, "lid ") && (rc = read_lid(s, &n.lid, &n.lmc)))
			return rc;
	} else if (!scan_done(s))
		return scan_strange(s);
	if (make_room((void **)&t->node, t->nodes, &t->nodes_room, sizeof *t->node))
		return no_memory(t);
	t->node[t->nodes++] = n;
	t->open = true;
	return 0;
}

/* Groups behind a port: a label "(1/1/1)" or "[ext 3]", a GUID "(2c903)", or both, label first. */
static int read_groups(struct scan *s, bool guid, const char *what, uint64_t *ret_guid)
{
	const char *last = NULL;
	uint64_t v;

	for (;;) {
		const char *at = s->at;

		if (scan_group(s, "(", ')'))
			last = at;
		else if (!scan_group(s, "[", ']'))
			break;
		scan_blanks(s);
	}
	if (last && guid) {
		struct scan in = {.at = last + 1, .stop = s->stop};

		if (!scan_number(&in, 16, UINT64_MAX - 1, &v) || !v || !scan_word(&in, ")"))
			return scan_fail(s, "%s GUID in parentheses is wrong", what);
		*ret_guid = v;
	}
	if (s->at < s->stop && *s->at == '(')
		return scan_fail(s, "%s GUID in parentheses is wrong", what);
	return 0;
}

/* "[1](2c903) "peer"[13](2c904) w=4 # ...". */
static int read_wire_ends(struct topo *t, struct wire *w)
{
	struct node *n = &t->node[t->nodes - 1];
	struct scan *s = &t->scan;
	uint64_t v, guid;
	int rc;

	if (!scan_number(s, 10, 255, &v) || !scan_word(s, "]"))
		return scan_fail(s, "a port number in brackets is missing");
	if (!v || v > n->ports)
		return scan_fail(s, "port %" PRIu64 " is beyond the %u of the node", v, n->ports);
	w->port = (uint8_t)v;
	scan_blanks(s);
	if ((rc = read_groups(s, !n->is_switch, "a port", &w->guid)))
		return rc;
	if (scan_done(s) || *s->at == '#')
		return 0; /* no link */
	if (!scan_quoted(s, false, &w->peer))
		return scan_fail(s, "the peer's name in quotes is missing");
	v = 1;
	if (scan_word(s, "[") &&
	    (!scan_number(s, 10, FABRIC_PORTS_MAX, &v) || !v || !scan_word(s, "]")))
		return scan_fail(s, "the peer's port must be 1 to %d", FABRIC_PORTS_MAX);
	w->peer_port = (uint8_t)v;
	scan_blanks(s);
	return read_groups(s, false, "the peer's", &guid);
}

/* The LIDs in the remark of a wire: the CA port's own come first, the peer's behind its name. */
static int read_wire_lids(struct topo *t, struct wire *w)
{
	struct scan *s = &t->scan;
	struct span ignored;
	int rc;

	if (!scan_find(s, "#"))
		return 0;
	scan_blanks(s);
	if (!t->node[w->node].is_switch && scan_word(s, "lid ") &&
	    (rc = read_lid(s, &w->lid, &w->lmc)))
		return rc;
	scan_blanks(s);
	if (scan_quoted(s, true, &ignored) && scan_find(s, "lid "))
		return read_lid(s, &w->peer_lid, NULL);
	return 0;
}

static bool same_span(struct span a, struct span b)
{
	return a.bytes == b.bytes && !memcmp(a.at, b.at, a.bytes);
}

static bool same_wire(const struct wire *a, const struct wire *b)
{
	return a->port == b->port && same_span(a->peer, b->peer) && a->peer_port == b->peer_port &&
	       a->guid == b->guid && a->lid == b->lid && a->lmc == b->lmc &&
	       a->peer_lid == b->peer_lid;
}

static int keep_wire(struct topo *t, const struct wire *w)
{
	struct scan *s = &t->scan;

	for (uint32_t i = t->node[w->node].first_wire; i < t->wires; i++) {
		if (t->wire[i].port != w->port)
			continue;
		if (!same_wire(&t->wire[i], w))
			return scan_fail(s, "port %u is stated twice, first in line %u", w->port,
					 t->wire[i].line);
		notes_add(s->notes, s->line, "port %u is stated again, as in line %u: left out",
			  w->port, t->wire[i].line);
		return 0;
	}
	if (make_room((void **)&t->wire, t->wires, &t->wires_room, sizeof *t->wire))
		return no_memory(t);
	t->wire[t->wires++] = *w;
	t->node[w->node].wires++;
	return 0;
}

static int read_wire(struct topo *t)
{
	struct scan *s = &t->scan;
	struct wire w = {.line = s->line, .node = t->nodes - 1};
	int rc;

	if (!t->open)
		return scan_fail(s, "a port without a node above it");
	if ((rc = read_wire_ends(t, &w)))
		return rc;
	if (!w.peer.at) {
		notes_add(s->notes, s->line, "port %u has no link: left out", w.port);
		return 0;
	}
	rc = read_wire_lids(t, &w);
	return rc ? rc : keep_wire(t, &w);
}

/* A word of its own: a blank comes behind it. */
static bool scan_kind(struct scan *s, const char *word)
{
	struct scan before = *s;

	if (scan_word(s, word) && s->at < s->stop && (*s->at == ' ' || *s->at == '\t'))
		return true;
	*s = before;
	return false;
}

/* Lines of ibnetdiscover (-g too) and ibsim that say nothing about links. */
static bool is_remark(struct scan *s)
{
	static const char *const known[] = {
		"vendid=", "devid=",   "sysimgguid=", "width=",   "speed=",
		"pdebug=", "Chassis ", "Non-Chassis", "Hostname:"};

	for (unsigned i = 0; i < ARRAY_SIZE(known); i++)
		if (scan_word(s, known[i]))
			return true;
	return false;
}

static int read_line(struct topo *t)
{
	struct scan *s = &t->scan;

	if (scan_done(s)) {
		t->open = false;
		return 0;
	}
	if (scan_word(s, "#"))
		return 0;
	if (s->stop - s->at > 1 && *s->at == '[' && s->at[1] >= '0' && s->at[1] <= '9') {
		s->at++;
		return read_wire(t);
	}
	if (scan_kind(s, "Switch"))
		return read_node(t, true);
	if (scan_kind(s, "Hca") || scan_kind(s, "Ca") || scan_kind(s, "Rt"))
		return read_node(t, false);
	if (scan_word(s, "switchguid="))
		return read_guid(t, &t->next_switch);
	if (scan_word(s, "caguid=") || scan_word(s, "hcaguids=") || scan_word(s, "rtguid="))
		return read_guid(t, &t->next_ca);
	if (is_remark(s))
		t->open = false;
	else
		scan_skip(s);
	return 0;
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

static int build(struct topo *t, struct fabric *f)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < t->nodes; i++)
		if (!t->node[i].left_out)
			rc = build_node(t, f, &t->node[i]);
	for (uint32_t i = 0; !rc && i < t->wires; i++)
		if (!t->wire[i].left_out)
			rc = build_link(t, f, &t->wire[i]);
	return rc;
}

int topo_read(const char *text, size_t bytes, struct fabric *ret_fabric, struct text_notes *notes,
	      struct fabric_error *e)
{
	struct topo t = {.scan = {.text = text, .end = text + bytes, .notes = notes, .e = e},
			 .next_ca = FIRST_CA_GUID,
			 .next_switch = FIRST_SWITCH_GUID};
	struct fabric f = {0};
	int rc = bytes > TEXT_BYTES_MAX ? scan_fail(&t.scan, "more than 1 GiB") : 0, more = 1;

	while (!rc && (more = scan_line(&t.scan)) > 0)
		rc = read_line(&t);
	rc = rc ? rc : more;
	if (!rc && !t.nodes)
		rc = scan_fail(&t.scan, "no node in the whole text: topologies of "
					"ibnetdiscover, ibdiagnet and ibsim are read");
	rc = rc ? rc : index_names(&t);
	rc = rc ? rc : check_guids(&t);
	rc = rc ? rc : match_wires(&t);
	rc = rc ? rc : build(&t, &f);
	if (!rc && !f.switches)
		rc = scan_fail(&t.scan, "no switch in the whole text: there is nothing to plan");
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
