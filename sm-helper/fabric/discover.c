/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/fabric/discover.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define NODES_MAX                                                                                  \
	(2u * IB_LID_UCAST_MAX) /* more cannot be addressed; a damaged fabric may claim them */
#define STATE_DOWN 1            /* PortInfo.PortState, IBA 1.4, 14.2.5.6 */

/* A switch whose ports are still to be asked for. */
struct todo {
	uint64_t guid;
	uint8_t ports;
	struct probe_route route;
};

struct walkabout {
	struct probe *m;   /* borrowed */
	struct fabric f;   /* owned */
	struct todo *todo; /* owned; taken in turn */
	size_t count, room, next;
	unsigned silent;
	char *error; /* borrowed */
};

static int fail(struct walkabout *w, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct walkabout *w, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->error, PROBE_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

static int fail_add(struct walkabout *w, int rc, const struct probe_node *n)
{
	return fail(w, rc == -EINVAL ? -EPROTO : rc,
		    "node 0x%016" PRIx64 " (port GUID 0x%016" PRIx64 "): %s", n->node_guid,
		    n->port_guid,
		    rc == -EEXIST ? "its GUID is shown by another node, too" : strerror(-rc));
}

static int add_switch(struct walkabout *w, const struct probe_node *n,
		      const struct probe_route *route)
{
	struct probe_port port;
	struct todo *grown;
	char desc[PROBE_DESC_MAX] = "";
	int rc = probe_port_info(w->m, route, 0, &port, w->error);

	if (rc)
		return rc;
	probe_node_desc(w->m, route, desc, w->error);
	if ((rc = fabric_add_switch(&w->f, n->node_guid, port.lid, n->ports, desc)) ||
	    (rc = fabric_set_switch_lmc(&w->f, w->f.switches - 1, port.lmc)))
		return fail_add(w, rc, n);
	if (w->count == w->room) {
		w->room = w->room ? 2 * w->room : 64;
		if (w->count >= NODES_MAX || !(grown = realloc(w->todo, w->room * sizeof *grown)))
			return fail(w, -ENOMEM, "more than %zu switches", w->count);
		w->todo = grown;
	}
	w->todo[w->count++] = (struct todo){n->node_guid, n->ports, *route};
	return 0;
}

/* A CA port at the end of route; known already if it is ours. */
static int add_end(struct walkabout *w, const struct probe_node *n, const struct probe_route *route,
		   uint32_t *ret_end)
{
	struct fabric_end end = {
		.node_guid = n->node_guid,
		.port_guid = n->port_guid,
		.port = n->port,
	};
	struct probe_port port;
	int rc;

	*ret_end = fabric_find_end(&w->f, n->port_guid);
	if (*ret_end != FABRIC_NONE && w->f.end[*ret_end].sw == FABRIC_NONE)
		return 0;
	if (w->f.ends >= NODES_MAX)
		return fail(w, -EPROTO, "more than %u CA ports", NODES_MAX);
	if ((rc = probe_port_info(w->m, route, n->port, &port, w->error)))
		return rc;
	end.lid = port.lid;
	end.lmc = port.lmc;
	probe_node_desc(w->m, route, end.desc, w->error);
	*ret_end = w->f.ends;
	rc = fabric_add_end(&w->f, &end);
	return rc ? fail_add(w, rc, n) : 0;
}

/* Looks through port p of a known switch, and takes up the node that hangs there. */
static int look_through(struct walkabout *w, const struct todo *t, unsigned p)
{
	struct probe_route route = t->route;
	struct probe_port port;
	struct probe_node n;
	uint32_t end;
	int rc = probe_port_info(w->m, &t->route, p, &port, w->error);

	if (rc || port.state <= STATE_DOWN)
		return rc;
	if (route.hops >= FABRIC_HOPS_MAX)
		return fail(w, -EPROTO, "switch 0x%016" PRIx64 " is %u hops away", t->guid,
			    FABRIC_HOPS_MAX);
	route.path[++route.hops] = (uint8_t)p;
	if ((rc = probe_node(w->m, &route, &n, w->error)))
		return rc;
	if (!n.is_switch) {
		if ((rc = add_end(w, &n, &route, &end)))
			return rc;
		rc = fabric_attach(&w->f, end, t->guid, p);
		return rc == -EEXIST ? 0 : rc;
	}
	if (fabric_find_switch(&w->f, n.node_guid) == FABRIC_NONE &&
	    (rc = add_switch(w, &n, &route)))
		return rc;
	/* a link is seen from both sides; a switch may be looped back to itself */
	rc = fabric_link(&w->f, t->guid, p, n.node_guid, n.port);
	return rc == -EEXIST ? 0 : rc;
}

/* Our own port, and the switch that it is linked to. */
static int begin(struct walkabout *w)
{
	struct probe_route route = {0};
	struct probe_node n;
	uint32_t end;
	int rc;

	if ((rc = probe_node(w->m, &route, &n, w->error)))
		return rc;
	if (n.is_switch)
		return add_switch(w, &n, &route);
	if ((rc = add_end(w, &n, &route, &end)))
		return rc;
	route.path[++route.hops] = n.port;
	if ((rc = probe_node(w->m, &route, &n, w->error)))
		return rc;
	return n.is_switch ? add_switch(w, &n, &route) : 0;
}

static int go_round(struct walkabout *w)
{
	int rc = begin(w);

	for (; !rc && w->next < w->count; w->next++) {
		const struct todo t = w->todo[w->next]; /* todo grows on the way */

		for (unsigned p = 1; !rc && p <= t.ports; p++) {
			rc = look_through(w, &t, p);
			if (rc == -EIO && ++w->silent <= DISCOVER_SILENT_MAX)
				rc = 0;
		}
	}
	return rc;
}

int discover_fabric(struct probe *m, struct fabric *f, unsigned *ret_silent,
		    char error[static PROBE_ERROR_MAX])
{
	struct walkabout w = {.m = m, .error = error};
	int rc;

	*error = '\0';
	rc = go_round(&w);
	free(w.todo);
	if (rc) {
		fabric_clear(&w.f);
		if (!*error)
			fail(&w, rc, "the topology cannot be read: %s", strerror(-rc));
		return rc;
	}
	fabric_clear(f);
	*f = w.f;
	*ret_silent = w.silent;
	return 0;
}
