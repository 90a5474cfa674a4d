/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The topology reader: nodes and links are noted first, for a link may name a node that comes
 * later, then checked against each other and built. */
#include "vswitch/text/text.h"
#include "vswitch/text/topo.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>

/* First GUIDs that ibsim gives out. */
#define FIRST_CA_GUID     0x100000
#define FIRST_SWITCH_GUID 0x200000
#define LMC_ERROR         "lmc must be 0 to %d"
/* LID that ibnetdiscover prints for a port that the subnet manager has not configured. */
#define LID_PERMISSIVE 65535

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
	rc = rc ? rc : topo_build(&t, &f);
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
