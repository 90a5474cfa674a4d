/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/alias.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <opensm/osm_log.h>
#include <opensm/osm_mcm_port.h>
#include <opensm/osm_multicast.h>

unsigned alias_blocks(const osm_port_t *port)
{
	return (port->p_physp->port_info.guid_cap + GUID_TABLE_MAX_ENTRIES - 1) /
	       GUID_TABLE_MAX_ENTRIES;
}

bool alias_is_known(const osm_port_t *port)
{
	return port->p_physp->p_guids != NULL;
}

ib_net64_t alias_entry(const osm_port_t *port, uint8_t index)
{
	return (*port->p_physp->p_guids)[index];
}

void alias_set_entry(const struct alias_entry *e, ib_net64_t guid)
{
	(*e->port->p_physp->p_guids)[e->index] = guid;
}

/* ---- who has a GUID ---- */

static void forget(struct plugin *p, ib_net64_t guid)
{
	osm_alias_guid_t *a = osm_get_alias_guid_by_guid(&p->osm->subn, guid);

	if (!a || a->p_base_port->guid == guid)
		return;
	cl_qmap_remove_item(&p->osm->subn.alias_port_guid_tbl, &a->map_item);
	osm_alias_guid_delete(&a);
}

static int add(struct plugin *p, ib_net64_t guid, osm_port_t *port)
{
	osm_alias_guid_t *a = osm_alias_guid_new(guid, port);

	if (!a)
		return -ENOMEM;
	cl_qmap_insert(&p->osm->subn.alias_port_guid_tbl, guid, &a->map_item);
	return 0;
}

void alias_unlearn(osm_port_t *port)
{
	free(port->p_physp->p_guids);
	port->p_physp->p_guids = NULL;
}

/* GUIDs that the port does not show. */
static void forget_others(struct plugin *p, const osm_port_t *port, const ib_net64_t *table,
			  unsigned entries)
{
	cl_qmap_t *map = &p->osm->subn.alias_port_guid_tbl;
	cl_map_item_t *i, *next;

	for (i = cl_qmap_head(map); i != cl_qmap_end(map); i = next) {
		osm_alias_guid_t *a = (osm_alias_guid_t *)i;
		unsigned k = 0;

		next = cl_qmap_next(i);
		if (a->p_base_port != port)
			continue;
		while (k < entries && table[k] != a->alias_guid)
			k++;
		if (k == entries)
			forget(p, a->alias_guid);
	}
}

static void log_wrong(struct plugin *p, const osm_port_t *port, unsigned i, ib_net64_t guid)
{
	osm_log(&p->osm->log, OSM_LOG_SYS,
		"ibvmig: port 0x%016" PRIx64 " shows 0x%016" PRIx64
		" in entry %u, which belongs to another port: it is taken out\n",
		cl_ntoh64(port->guid), cl_ntoh64(guid), i);
}

int alias_learn(struct plugin *p, osm_port_t *port, const ib_guid_info_t info[],
		const enum alias_say say[], bool ret_wrong[static ALIAS_BLOCKS_MAX])
{
	unsigned entries = alias_blocks(port) * GUID_TABLE_MAX_ENTRIES;
	ib_net64_t *table = calloc(entries, sizeof *table);

	if (!table)
		return -ENOMEM;
	table[0] = port->guid;
	for (unsigned i = 1; i < entries; i++) {
		ib_net64_t guid = info[i / GUID_TABLE_MAX_ENTRIES].guid[i % GUID_TABLE_MAX_ENTRIES];
		const osm_port_t *has = guid ? osm_get_port_by_alias_guid(&p->osm->subn, guid)
					     : NULL;

		if (guid && say[i] != ALIAS_OURS &&
		    (say[i] == ALIAS_WRONG || (has && has != port))) {
			log_wrong(p, port, i, guid);
			ret_wrong[i / GUID_TABLE_MAX_ENTRIES] = true;
			continue;
		}
		if (guid && !has && add(p, guid, port)) {
			free(table);
			return -ENOMEM;
		}
		table[i] = guid;
	}
	forget_others(p, port, table, entries);
	alias_unlearn(port);
	port->p_physp->p_guids = (void *)table;
	return 0;
}

/* ---- multicast ---- */

/* The group stays while its only member is between two ports: it counts one more. */
static void rejoin(struct plugin *p, osm_mgrp_t *group, osm_mcm_alias_guid_t *was, osm_port_t *to)
{
	osm_subn_t *subn = &p->osm->subn;
	ib_member_rec_t join, leave;
	boolean_t proxy = was->proxy_join;

	memset(&join, 0, sizeof join);
	join.port_gid = was->port_gid;
	join.scope_state = was->scope_state;
	leave = join;
	leave.scope_state |= 0x0f;
	group->full_members++;
	osm_mgrp_remove_port(subn, &p->osm->log, group, was, &leave);
	if (!osm_mgrp_add_port(subn, &p->osm->log, group, to, &join, proxy))
		osm_log(&p->osm->log, OSM_LOG_SYS,
			"ibvmig: no memory: 0x%016" PRIx64 " has left group MLID 0x%x\n",
			cl_ntoh64(join.port_gid.unicast.interface_id),
			cl_ntoh16(osm_mgrp_get_mlid(group)));
	group->full_members--;
}

static void leave(struct plugin *p, osm_mgrp_t *group, osm_mcm_alias_guid_t *member)
{
	ib_member_rec_t rec;

	memset(&rec, 0, sizeof rec);
	rec.scope_state = 0x0f;
	osm_mgrp_remove_port(&p->osm->subn, &p->osm->log, group, member, &rec);
}

/* Moves the GUID's memberships of the port's groups; to: NULL to leave them. */
static void move_memberships(struct plugin *p, const osm_port_t *from, ib_net64_t guid,
			     osm_port_t *to)
{
	const cl_qlist_t *list = &from->mcm_list;
	cl_list_item_t *i, *next;

	for (i = cl_qlist_head(list); i != cl_qlist_end(list); i = next) {
		osm_mgrp_t *group = container_of(i, osm_mcm_port_t, list_item)->mgrp;
		osm_mcm_alias_guid_t *member = osm_mgrp_get_mcm_alias_guid(group, guid);

		next = cl_qlist_next(i);
		if (!member || member->p_base_mcm_port->port != from)
			continue;
		if (to)
			rejoin(p, group, member, to);
		else
			leave(p, group, member);
	}
}

/* ---- both ---- */

static const struct alias_entry *goes_to(const struct alias_entry *e, unsigned count,
					 ib_net64_t guid)
{
	for (unsigned i = 0; guid && i < count; i++)
		if (e[i].after == guid)
			return &e[i];
	return NULL;
}

void alias_hand_over(struct plugin *p, const struct alias_entry *e, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const struct alias_entry *to = goes_to(e, count, e[i].before);

		if (!e[i].before || (to && to->port == e[i].port))
			continue;
		move_memberships(p, e[i].port, e[i].before, to ? to->port : NULL);
		forget(p, e[i].before);
	}
	for (unsigned i = 0; i < count; i++)
		if (e[i].after && !osm_get_alias_guid_by_guid(&p->osm->subn, e[i].after) &&
		    add(p, e[i].after, e[i].port))
			osm_log(&p->osm->log, OSM_LOG_SYS,
				"ibvmig: no memory: the SA does not know 0x%016" PRIx64 "\n",
				cl_ntoh64(e[i].after));
	p->osm->sa.dirty = TRUE;
}
