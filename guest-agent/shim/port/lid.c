/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs as the program has seen them. Before the first move the newest counts, because a subnet
 * manager may give the port another one; after it the first. */
#include "guest-agent/shim/port/lid.h"
#include "guest-agent/shim/core/link.h"

#include <string.h>

/* Ports beyond those that are kept have the device's own. */
static bool is_kept(uint8_t port)
{
	return port >= 1 && port <= SHIM_PORTS_MAX;
}

void lid_answer(struct shim_context *c, uint8_t port, struct ibv_port_attr *attr)
{
	struct shim_lids *l = is_kept(port) ? &c->lids[port - 1] : NULL;

	if (!l || attr->link_layer != IBV_LINK_LAYER_INFINIBAND)
		return;
	l->lmc = attr->lmc;
	if (attr->lid && (!c->moved || !l->seen))
		l->seen = attr->lid;
	if (l->seen && attr->lid)
		attr->lid = l->seen;
	if (shim.grh_required)
		attr->flags |= IBV_QPF_GRH_REQUIRED;
}

uint16_t lid_now(const struct shim_context *c, uint8_t port)
{
	struct verbs_context *v = c->real ? verbs_get_ctx_op(c->real, query_port) : NULL;
	struct ibv_port_attr attr;

	memset(&attr, 0, sizeof(attr));
	if (!v || v->query_port(c->real, port, &attr, sizeof(attr)) ||
	    attr.link_layer != IBV_LINK_LAYER_INFINIBAND)
		return 0;
	return attr.lid;
}

uint16_t lid_shown(const struct shim_context *c, uint8_t port, uint16_t now)
{
	return is_kept(port) && c->moved && c->lids[port - 1].seen ? c->lids[port - 1].seen : now;
}

uint16_t lid_told(const struct shim_context *c, uint8_t port)
{
	return is_kept(port) ? c->lids[port - 1].seen : 0;
}

bool lid_same_port(const struct shim_context *c, uint8_t port, uint16_t a, uint16_t b)
{
	return !((a ^ b) >> (is_kept(port) ? c->lids[port - 1].lmc : 0));
}
