/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/record.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* 1 (not written): one VF, its fields among the record's own. 2: vfs. */
#define RECORD_VERSION 2

/* The names are the journal's, of all ibvmigd that have ever been shipped. */
static const char *const deed_names[] = {
	[DID_ARM] = "armed",
	[DID_BALLAST] = "ballast",
	[DID_RAISE] = "raised",
	[DID_SUSPEND] = "suspended",
	[DID_UNPLUG] = "device_del_sent",
	[DID_PARK] = "parked",
	[DID_MOVE] = "moved",
	[DID_ATTACH] = "attached",
	[DID_RESUME] = "resumed",
	[DID_ORDER] = "switch_ordered",
	[SAW_VM_END] = "vm_dead",
	[DID_SAVE] = "saved",
	[DID_LET_GO] = "let_go",
	[TOLD_DESTINATION_LOST] = "destination_lost",
	[TOLD_SOURCE_LOST] = "source_lost",
};

/* ---- names ---- */

const char *const migrate_state_names[] = {
	[M_PREPARE] = "PREPARE", [M_HOLD] = "HOLD",       [M_QUIESCE] = "QUIESCE",
	[M_DETACH] = "DETACH",   [M_SAVED] = "SAVED",     [M_SWITCH] = "SWITCH",
	[M_ATTACH] = "ATTACH",   [M_RESUME] = "RESUME",   [M_DONE] = "DONE",
	[M_CANCEL] = "CANCEL",   [M_ABORTED] = "ABORTED", [M_PARKED] = "PARKED",
};

int migrate_state_parse(const char *name, enum migrate_state *ret_state)
{
	for (int s = M_PREPARE; s <= M_PARKED; s++) {
		if (!strcmp(migrate_state_name((enum migrate_state)s), name)) {
			*ret_state = (enum migrate_state)s;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- its hosts and VFs ---- */

static void write_host(struct printbuf *text, const char *key, const struct migrate_host *h)
{
	json_write_open(text, key, '{');
	json_write_str(text, "host", h->host);
	json_write_str(text, "url", h->url);
	json_write_close(text, '}');
}

struct json_object *migrate_host_json(const struct migrate_host *h)
{
	struct printbuf *text = printbuf_new();

	write_host(text, NULL, h);
	return json_read_back(text);
}

void migrate_host_load(struct migrate_host *h, struct json_object *o)
{
	snprintf(h->host, sizeof h->host, "%s", json_opt_str(o, "host", ""));
	snprintf(h->url, sizeof h->url, "%s", json_opt_str(o, "url", ""));
}

struct json_object *migrate_end_add(struct json_object *o, const struct migrate_end *e)
{
	json_set_str(o, "vf", e->vf);
	if (e->parked_guid)
		json_set_guid(o, "parked_guid", e->parked_guid);
	if (!e->port_guid || !e->guid_index)
		return o;
	json_set_guid(o, "port_guid", e->port_guid);
	json_set_u64(o, "guid_index", e->guid_index);
	return o;
}

void migrate_end_load(struct migrate_end *e, struct json_object *o)
{
	snprintf(e->vf, sizeof e->vf, "%s", json_opt_str(o, "vf", ""));
	ib_guid_parse(json_opt_str(o, "parked_guid", ""), &e->parked_guid);
	ib_guid_parse(json_opt_str(o, "port_guid", ""), &e->port_guid);
	e->guid_index = (unsigned)json_opt_u64(o, "guid_index", 0);
}

static void set_pkey(struct json_object *o, uint16_t pkey)
{
	char text[8];

	snprintf(text, sizeof text, "0x%04x", pkey);
	json_set_str(o, "pkey", text);
}

static struct json_object *vf_json(const struct migrate_vf *v)
{
	struct json_object *o = json_object_new_object();

	if (v->vguid)
		json_set_guid(o, "vguid", v->vguid);
	set_pkey(o, v->pkey);
	json_set_str(o, "dev_id", v->dev_id);
	json_set_str(o, "bus", v->bus);
	json_set(o, "from", migrate_end_add(json_object_new_object(), &v->from));
	json_set(o, "to", migrate_end_add(json_object_new_object(), &v->to));
	json_set_bool(o, "device_gone", v->device_gone);
	return o;
}

static void vf_load(struct migrate_vf *v, struct json_object *o)
{
	uint64_t pkey = 0;

	*v = (struct migrate_vf){0};
	ib_guid_parse(json_opt_str(o, "vguid", ""), &v->vguid);
	parse_u64(json_opt_str(o, "pkey", "0"), 0, UINT16_MAX, &pkey);
	v->pkey = (uint16_t)pkey;
	snprintf(v->dev_id, sizeof v->dev_id, "%s", json_opt_str(o, "dev_id", ""));
	snprintf(v->bus, sizeof v->bus, "%s", json_opt_str(o, "bus", ""));
	migrate_end_load(&v->from, json_opt(o, "from"));
	migrate_end_load(&v->to, json_opt(o, "to"));
	v->device_gone = json_opt_bool(o, "device_gone", false);
}

struct json_object *record_vfs_json(const struct record *r)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < r->vf_count; i++)
		json_object_array_add(list, vf_json(&r->vfs[i]));
	return list;
}

void record_vfs_load(struct record *r, struct json_object *record)
{
	struct json_object *list = json_opt(record, "vfs");
	size_t n = list ? json_count(list) : 1;

	r->vf_count = 0;
	while (r->vf_count < n && r->vf_count < DOMAIN_VFS_MAX) {
		struct json_object *o = list ? json_object_array_get_idx(list, r->vf_count)
					     : record;

		vf_load(&r->vfs[r->vf_count++], o);
	}
}

/* ---- its peers ---- */

struct json_object *record_peers_json(const struct record *r)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < r->peer_count; i++) {
		struct json_object *o = json_object_new_object();

		json_set_guid(o, "guid", r->peers[i].guid);
		json_set_str(o, "host", r->peers[i].host);
		json_set_str(o, "url", r->peers[i].url);
		json_object_array_add(list, o);
	}
	return list;
}

void record_peers_load(struct record *r, struct json_object *list)
{
	r->peer_count = 0;
	for (size_t i = 0; json_object_is_type(list, json_type_array) &&
			   i < json_object_array_length(list) && i < MIGRATE_PEERS_MAX;
	     i++) {
		struct json_object *o = json_object_array_get_idx(list, i);
		struct migrate_peer *p = &r->peers[r->peer_count];

		*p = (struct migrate_peer){0};
		if (ib_guid_parse(json_opt_str(o, "guid", ""), &p->guid))
			continue;
		snprintf(p->host, sizeof p->host, "%s", json_opt_str(o, "host", ""));
		snprintf(p->url, sizeof p->url, "%s", json_opt_str(o, "url", ""));
		r->peer_count++;
	}
}

/* ---- all of its VFs ---- */

struct migrate_vf *record_vf(struct record *r, uint64_t vguid)
{
	for (unsigned i = 0; i < r->vf_count; i++)
		if (r->vfs[i].vguid == vguid)
			return &r->vfs[i];
	return NULL;
}

struct json_object *record_guids(const struct record *r)
{
	struct json_object *list = json_object_new_array();
	char text[IB_GUID_TEXT];

	for (unsigned i = 0; i < r->vf_count; i++) {
		ib_guid_format(r->vfs[i].vguid, text);
		json_object_array_add(list, json_object_new_string(text));
	}
	return list;
}

unsigned record_devices_gone(const struct record *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->vf_count; i++)
		n += r->vfs[i].device_gone;
	return n;
}

static struct json_object *move_json(const struct record *r, const struct migrate_vf *v, bool back)
{
	struct json_object *o = json_object_new_object();
	struct json_object *from = migrate_end_add(migrate_host_json(&r->from), &v->from);
	struct json_object *to = migrate_end_add(migrate_host_json(&r->to), &v->to);

	json_set_guid(o, "vguid", v->vguid);
	json_set_str(o, "vm", r->vm_uuid);
	set_pkey(o, v->pkey);
	json_set(o, "from", back ? to : from);
	json_set(o, "to", back ? from : to);
	json_set_bool(o, "senders_alive", r->strategy == STRATEGY_NATIVE); /* quiesces nobody */
	return o;
}

struct json_object *record_moves(const struct record *r, bool back)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (unsigned i = 0; i < r->vf_count; i++)
		json_object_array_add(list, move_json(r, &r->vfs[i], back));
	json_set(o, "moves", list);
	return o;
}

/* ---- the whole ---- */

void record_write_common(struct printbuf *text, const struct record *r, unsigned failures)
{
	json_write_str(text, "id", r->id);
	json_write_str(text, "role", migrate_role_name(r->role));
	json_write_str(text, "state", migrate_state_name(r->state));
	json_write_str(text, "reached", migrate_state_name(r->reached));
	json_write_str(text, "strategy", strategy_name(r->strategy));
	json_write_str(text, "asked", strategy_name(r->asked));
	write_host(text, "from", &r->from);
	write_host(text, "to", &r->to);
	json_write_str(text, "reason", *r->reason ? r->reason : NULL);
	json_write_str(text, "trouble", *r->trouble ? r->trouble : NULL);
	json_write_u64(text, "failures", failures);
	json_write(text, "data", r->data);
}

void record_write_fields(struct printbuf *text, const struct record *r, unsigned failures)
{
	struct json_object *vfs AUTO_JSON = record_vfs_json(r),
				*peers AUTO_JSON = record_peers_json(r);

	json_write_u64(text, "version", RECORD_VERSION);
	record_write_common(text, r, failures);
	json_write_str(text, "vm", r->vm_uuid);
	json_write_str(text, "name", r->vm_name);
	json_write_str(text, "file", r->file);
	json_write_str(text, "boot", r->boot);
	json_write(text, "vfs", vfs);
	json_write(text, "peers", peers);
	json_write_bool(text, "back", r->back);
	json_write_bool(text, "committed", r->committed);
	json_write_bool(text, "ended", r->ended);
	for (size_t i = 0; i < ARRAY_SIZE(deed_names); i++)
		json_write_bool(text, deed_names[i], record_did(r, (enum deed)i));
}

void record_write(struct printbuf *text, const struct record *r, unsigned failures)
{
	json_write_open(text, NULL, '{');
	record_write_fields(text, r, failures);
	json_write_close(text, '}');
}

static void load_texts(struct record *r, struct json_object *o)
{
	str_set(&r->file, json_opt_str(o, "file", NULL));
	/* A record of an older version has no boot. */
	snprintf(r->boot, sizeof r->boot, "%s", json_opt_str(o, "boot", r->boot));
	snprintf(r->reason, sizeof r->reason, "%s", json_opt_str(o, "reason", ""));
	snprintf(r->trouble, sizeof r->trouble, "%s", json_opt_str(o, "trouble", ""));
}

static void load_flags(struct record *r, struct json_object *o)
{
	r->back = json_opt_bool(o, "back", false);
	r->committed = json_opt_bool(o, "committed", false);
	r->ended = json_opt_bool(o, "ended", false);
	for (size_t i = 0; i < ARRAY_SIZE(deed_names); i++)
		record_set(r, (enum deed)i, json_opt_bool(o, deed_names[i], false));
}

int record_load(struct record *r, struct json_object *o)
{
	if (json_opt_u64(o, "version", 1) > RECORD_VERSION)
		return -EINVAL;
	if (migrate_state_parse(json_opt_str(o, "state", ""), &r->state) ||
	    migrate_state_parse(json_opt_str(o, "reached", ""), &r->reached))
		return -EINVAL;
	r->asked = r->strategy = STRATEGY_AUTO;
	strategy_parse(json_opt_str(o, "asked", ""), &r->asked);
	strategy_parse(json_opt_str(o, "strategy", ""), &r->strategy);
	load_texts(r, o);
	migrate_host_load(&r->from, json_opt(o, "from"));
	migrate_host_load(&r->to, json_opt(o, "to"));
	record_vfs_load(r, o);
	record_peers_load(r, json_opt(o, "peers"));
	load_flags(r, o);
	if (json_opt(o, "data")) {
		json_object_put(r->data);
		r->data = json_object_get(json_opt(o, "data"));
	}
	return 0;
}

void record_clear(struct record *r)
{
	json_object_put(TAKE(r->data));
	free(TAKE(r->file));
}
