/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/homes.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <opensm/osm_log.h>

#define DOMAIN "ibvmig-homes"

int homes_compare(const void *a, const void *b)
{
	const struct home_key *x = a, *y = b;

	if (x->switch_guid != y->switch_guid)
		return x->switch_guid < y->switch_guid ? -1 : 1;
	return (int)x->switch_port - (int)y->switch_port;
}

static struct home_item *find(const struct plugin *p, struct home_key key)
{
	cl_fmap_item_t *i = cl_fmap_get(&p->homes->map, &key);

	return i == cl_fmap_end(&p->homes->map) ? NULL : (struct home_item *)i;
}

const struct home *homes_find(const struct plugin *p, struct home_key key)
{
	const struct home_item *i = find(p, key);

	return i ? &i->home : NULL;
}

bool homes_show(const struct plugin *p, uint64_t port_guid)
{
	const cl_fmap_t *map = &p->homes->map;

	for (const cl_fmap_item_t *i = cl_fmap_head(map); i != cl_fmap_end(map);
	     i = cl_fmap_next(i))
		if (((const struct home_item *)i)->home.port_guid == port_guid)
			return true;
	return false;
}

/* OpenSM's files have a number as the first word of a line. */
static void key_text(struct home_key key, char text[static 32])
{
	snprintf(text, 32, "0x%016" PRIx64 ":%u", key.switch_guid, key.switch_port);
}

static void write_db(struct plugin *p, const struct home *h)
{
	char key[32], value[128];

	if (!p->homes->db)
		return;
	key_text(h->key, key);
	snprintf(value, sizeof value,
		 "0x%016" PRIx64 " 0x%016" PRIx64 " 0x%04x 0x%04x 0x%016" PRIx64, h->port_guid,
		 h->node_guid, h->lid, h->own, h->like);
	osm_db_update(p->homes->db, key, value);
}

static int put(struct plugin *p, const struct home *h)
{
	struct home_item *i = find(p, h->key);

	if (!i) {
		if (!(i = calloc(1, sizeof *i)))
			return -ENOMEM;
		i->home.key = h->key;
		cl_fmap_insert(&p->homes->map, &i->home.key, &i->item);
	}
	i->home = *h;
	return 0;
}

int homes_put(struct plugin *p, const struct home *h)
{
	int rc = put(p, h);

	if (!rc)
		write_db(p, h);
	return rc;
}

void homes_drop(struct plugin *p, struct home_key key)
{
	struct home_item *i = find(p, key);
	char text[32];

	if (!i)
		return;
	cl_fmap_remove_item(&p->homes->map, &i->item);
	free(i);
	key_text(key, text);
	if (p->homes->db)
		osm_db_delete(p->homes->db, text);
}

void homes_drop_waiting(struct plugin *p, uint16_t lid, struct home_key but)
{
	cl_fmap_t *map = &p->homes->map;

	for (cl_fmap_item_t *i = cl_fmap_head(map), *next; i != cl_fmap_end(map); i = next) {
		const struct home *h = &((struct home_item *)i)->home;

		next = cl_fmap_next(i);
		if (h->like && h->own == lid && homes_compare(&h->key, &but))
			homes_drop(p, h->key);
	}
}

void homes_store(struct plugin *p)
{
	if (p->homes->db)
		osm_db_store(p->homes->db, p->osm->subn.opt.fsync_high_avail_files);
}

static bool parse(const char *key, const char *value, struct home *h)
{
	unsigned port, lid, own;
	int end = 0;

	if (sscanf(key, "%" SCNx64 ":%u", &h->key.switch_guid, &port) != 2 ||
	    sscanf(value, "%" SCNx64 " %" SCNx64 " %x %x %" SCNx64 " %n", &h->port_guid,
		   &h->node_guid, &lid, &own, &h->like, &end) != 5 ||
	    value[end])
		return false;
	if (!h->key.switch_guid || port < 1 || port > 254 || !h->port_guid || !h->node_guid ||
	    !ib_lid_is_unicast(lid) || !ib_lid_is_unicast(own))
		return false;
	h->key.switch_port = (uint8_t)port;
	h->lid = (uint16_t)lid;
	h->own = (uint16_t)own;
	return true;
}

static void restore(struct plugin *p)
{
	cl_list_t keys;
	char *key;

	cl_list_construct(&keys);
	if (osm_db_restore(p->homes->db) || cl_list_init(&keys, 16) != CL_SUCCESS)
		return;
	osm_db_keys(p->homes->db, &keys);
	while ((key = cl_list_remove_head(&keys))) {
		const char *value = osm_db_lookup(p->homes->db, key);
		struct home h = {0};

		if (!parse(key, value, &h) || (h.lid | h.own) % plugin_lids(p))
			osm_log(&p->osm->log, OSM_LOG_SYS,
				"ibvmig: file " DOMAIN ": the line of %s is left out: \"%s\"\n",
				key, value);
		else
			put(p, &h);
	}
	cl_list_destroy(&keys);
}

int homes_open(struct plugin *p)
{
	struct homes *h = calloc(1, sizeof *h);

	if (!h)
		return -ENOMEM;
	cl_fmap_init(&h->map, homes_compare);
	for (unsigned i = 0; i < ARRAY_SIZE(h->seen_as); i++)
		h->seen_as[i] = (uint16_t)i;
	p->homes = h;
	if ((h->db = osm_db_domain_init(&p->osm->db, DOMAIN)))
		restore(p);
	return 0;
}
