/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Changes of SL, MTU or rate of somebody's path by a move: then, and only then, peers are told. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_PATHS_H
#define IBVMIG_SM_HELPER_PLUGIN_PATHS_H

#include "sm-helper/plugin/main.h"

/* Ports in the subnet above which no path is computed and none counts as changed. */
#define PATHS_PORTS_MAX 16384

struct path_view {
	uint64_t peer;
	uint8_t sl_to, sl_from, mtu, rate;
};

struct paths {
	struct path_view *view; /* owned */
	unsigned count;
};

/* Limits that a path takes from a port on its way, IBA codes. */
struct link_view {
	uint8_t mtu, rate;
};

struct link_view paths_link(const osm_physp_t *physp);
/* True if all links between switches are alike in these: then they are *ret_link, all 0 where there
 * is none. OpenSM's lock is held. */
bool paths_links_alike(const struct plugin *p, struct link_view *ret_link);
/* True if paths depend on where a port is by nothing but its own link: SLs are the partition's, and
 * all links between switches are alike. The first call after a heavy sweep finds it out. The gate
 * is held, and OpenSM's lock is not; so for the next two. */
bool paths_uniform(struct plugin *p);
/* True if the links of two VFs are alike: then, in a uniform subnet, moving between them changes no
 * path. */
bool paths_same_link(struct plugin *p, const osm_physp_t *a, const osm_physp_t *b);
/* The paths between the port with this GUID and all other active CA ports. OpenSM's lock is shared
 * with its queries, for 512 ports at a time. Empty without memory or above PATHS_PORTS_MAX. */
struct paths paths_read(struct plugin *p, uint64_t port_guid);
void paths_free(struct paths *paths);

/* Peers that are in both and differ; those in b that do are appended to r->path as far as there is
 * room. */
unsigned paths_differ(const struct paths *a, const struct paths *b, uint64_t moved,
		      struct sm_assign_reply *r);

/* Collects the paths between a port's alias GUID and all GUIDs of active CA ports, alias GUIDs too,
 * with which it shares a partition. The caller knows already that something has changed. Returns
 * how many there are; the first of them, up to SM_PATHS_MAX in all, are appended. Above
 * PATHS_PORTS_MAX none counts. */
unsigned paths_of(struct plugin *p, uint64_t guid, struct sm_path path[static SM_PATHS_MAX],
		  uint32_t *count);

/* SM_UNPATH_TRAP (68) or SM_REPATH_TRAP (69) for paths to the GUID (0: all), to whoever subscribed
 * with OpenSM. Lock held exclusively. */
void paths_report(struct plugin *p, unsigned trap, uint64_t port_guid);

#endif
