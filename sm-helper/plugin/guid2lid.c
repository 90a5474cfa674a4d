/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/guid2lid.h"

#include <string.h>

#include <opensm/osm_db_pack.h>

static osm_db_domain_t *file_of(const struct plugin *p)
{
	return p->osm->sm.lid_mgr.p_g2l;
}

uint16_t guid2lid_get(const struct plugin *p, uint64_t guid)
{
	uint16_t min, max;

	return osm_db_guid2lid_get(file_of(p), guid, &min, &max) ? 0 : min;
}

/* Takes the elements of OpenSM's list. */
static unsigned take_all(const struct plugin *p, cl_qlist_t *guids, struct known_lid *all)
{
	unsigned n = 0;

	while (!cl_is_qlist_empty(guids)) {
		osm_db_guid_elem_t *e = (osm_db_guid_elem_t *)cl_qlist_remove_head(guids);
		uint16_t min, max;

		if (all && !osm_db_guid2lid_get(file_of(p), e->guid, &min, &max))
			all[n++] = (struct known_lid){e->guid, min, (uint16_t)(max - min + 1)};
		free(e);
	}
	return n;
}

unsigned guid2lid_all(const struct plugin *p, struct known_lid **ret_all)
{
	cl_qlist_t guids;

	cl_qlist_init(&guids);
	osm_db_guid2lid_guids(file_of(p), &guids);
	*ret_all = calloc(cl_qlist_count(&guids) + 1, sizeof **ret_all);
	return take_all(p, &guids, *ret_all);
}

void guid2lid_set(struct plugin *p, uint64_t guid, uint16_t lid, unsigned lids)
{
	osm_db_guid2lid_set(file_of(p), guid, lid, (uint16_t)(lid + lids - 1));
}

void guid2lid_drop(struct plugin *p, uint64_t guid)
{
	osm_db_guid2lid_delete(file_of(p), guid);
}

void guid2lid_keep(struct plugin *p, uint16_t lid, unsigned lids, bool keep)
{
	memset(p->osm->sm.lid_mgr.used_lids + lid, keep, lids);
}
