/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Homes: which LIDs belong to a place that has, or had, a VM. A routing engine shall compute the
 * same tables whatever VMs are where. So it is shown each place with one identity, its home, for
 * good (sm-helper/plugin/seen.h). Its result for that is the route of the LIDs that the place
 * really has. A record exists where home and truth differ.
 *
 * Records are kept in OpenSM's cache directory like guid2lid, and like that read again at a start:
 * the first sweep then writes the tables that the switches hold already. A record that is lost or
 * stale costs routes, never reachability: engines then see what is there. OpenSM's lock is held
 * exclusively in all calls but homes_store(), which is called without it. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_HOMES_H
#define IBVMIG_SM_HELPER_PLUGIN_HOMES_H

#include "sm-helper/plugin/main.h"
#include "common/ib.h"

#include <complib/cl_fleximap.h>
#include <opensm/osm_db.h>

struct home_key {
	uint64_t switch_guid; /* node GUID of the (v)switch that the place hangs on */
	uint8_t switch_port;
};

struct home {
	struct home_key key;
	uint64_t node_guid, port_guid; /* identity that engines see there */
	uint16_t lid;                  /* likewise */
	uint16_t own;  /* the LID that takes the routes of `lid`: the place's, also while it shows a
			  copy */
	uint64_t like; /* port GUID whose LID the port has as a copy; 0: it has no copy */
};

struct homes {
	cl_fmap_t map;       /* records, struct home_item, by key */
	osm_db_domain_t *db; /* owned by OpenSM; NULL: nothing is kept */
	/* Index for engines that keep the SL of a path by LIDs: under which LID the routes of this
	 * one were computed. */
	uint16_t seen_as[IB_LID_UCAST_MAX + 1];
};

struct home_item {
	cl_fmap_item_t item;
	struct home home;
};

/* Compares two struct home_key: an order, as qsort() wants it. */
int homes_compare(const void *a, const void *b);

/* Reads the file. 0 or -ENOMEM; a line that makes no sense is logged and left out. */
int homes_open(struct plugin *p);

/* NULL: this place is at home. Borrowed until the next change. */
const struct home *homes_find(const struct plugin *p, struct home_key key);

/* True if engines see this port GUID at some place that is not at home. */
bool homes_show(const struct plugin *p, uint64_t port_guid);

/* 0 or -ENOMEM: the record is as it was. */
int homes_put(struct plugin *p, const struct home *h);
void homes_drop(struct plugin *p, struct home_key key);
/* Drops the records of all places but this one at which `lid` would wait behind a copy. */
void homes_drop_waiting(struct plugin *p, uint16_t lid, struct home_key but);

/* Writes the file if something has changed. */
void homes_store(struct plugin *p);

#endif
