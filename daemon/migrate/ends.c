/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The VFs of a migration: in its record, for jobs about all of them, for ibvmig-sm. */
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job_vfs.h"
#include "daemon/migrate/step.h"
#include "daemon/vf/provider.h"
#include "daemon/base/settings.h"

#include <string.h>

/* ---- JSON ---- */

void migrate_write_host(struct printbuf *text, const char *key, const struct migrate_host *h)
{
	json_write_open(text, key, '{');
	json_write_str(text, "host", h->host);
	json_write_str(text, "url", h->url);
	json_write_close(text, '}');
}

struct json_object *migrate_host_json(const struct migrate_host *h)
{
	struct printbuf *text = printbuf_new();

	migrate_write_host(text, NULL, h);
	return json_read_back(text);
}

void migrate_host_load(struct migrate_host *h, struct json_object *o)
{
	snprintf(h->host, sizeof h->host, "%s", json_opt_str(o, "host", ""));
	snprintf(h->url, sizeof h->url, "%s", json_opt_str(o, "url", ""));
}

void migrate_host_here(struct migrate_host *h, const struct daemon *d)
{
	snprintf(h->host, sizeof h->host, "%s", d->settings->host_name);
	snprintf(h->url, sizeof h->url, "%s", d->settings->url);
}

/* o: an object that has its host already, or an empty one. */
static struct json_object *add_end(struct json_object *o, const struct migrate_end *e)
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

void migrate_end_here(struct migrate_end *e, const struct vf *vf)
{
	*e = (struct migrate_end){
		.parked_guid = vf->parked_guid,
		.port_guid = vf->port_guid,
		.guid_index = vf->guid_index,
	};
	snprintf(e->vf, sizeof e->vf, "%s", vf->name);
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
	json_set(o, "from", add_end(json_object_new_object(), &v->from));
	json_set(o, "to", add_end(json_object_new_object(), &v->to));
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

struct json_object *migrate_vfs_json(const struct migration *m)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < m->vf_count; i++)
		json_object_array_add(list, vf_json(&m->vfs[i]));
	return list;
}

void migrate_vfs_load(struct migration *m, struct json_object *record)
{
	struct json_object *list = json_opt(record, "vfs");
	size_t n = list ? json_count(list) : 1;

	m->vf_count = 0;
	while (m->vf_count < n && m->vf_count < DOMAIN_VFS_MAX) {
		struct json_object *o = list ? json_object_array_get_idx(list, m->vf_count)
					     : record;

		vf_load(&m->vfs[m->vf_count++], o);
	}
}

/* ---- one and all ---- */

struct migrate_vf *migrate_vf(struct migration *m, uint64_t vguid)
{
	for (unsigned i = 0; i < m->vf_count; i++)
		if (m->vfs[i].vguid == vguid)
			return &m->vfs[i];
	return NULL;
}

struct json_object *migrate_guids(const struct migration *m)
{
	struct json_object *list = json_object_new_array();
	char text[IB_GUID_TEXT];

	for (unsigned i = 0; i < m->vf_count; i++) {
		ib_guid_format(m->vfs[i].vguid, text);
		json_object_array_add(list, json_object_new_string(text));
	}
	return list;
}

static const struct migrate_end *end_here(const struct migration *m, const struct migrate_vf *v)
{
	return m->role == ROLE_SOURCE ? &v->from : &v->to;
}

struct vf *migrate_lease(const struct migration *m, const struct migrate_vf *v)
{
	struct vf *vf = vf_by_name(&m->d->vfs, end_here(m, v)->vf);

	return vf && vf->leased && !strcmp(vf->vm, m->vm_uuid) ? vf : NULL;
}

unsigned migrate_devices_gone(const struct migration *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->vf_count; i++)
		n += m->vfs[i].device_gone;
	return n;
}

bool cold_is_file(const struct migration *m)
{
	return m->saved && m->state == M_SAVED && !m->back;
}

bool cold_ignores_job(const struct migration *m)
{
	return m->file && m->state == M_SAVED && !m->back;
}

/* ---- for jobs ---- */

static struct json_object *vf_input(const struct migration *m, const struct migrate_vf *v)
{
	const struct migrate_end *e = end_here(m, v);
	struct vf *vf = migrate_lease(m, v);
	struct json_object *o = vf ? vf_lease_json(vf) : json_object_new_object();

	add_end(o, e);
	json_set_guid(o, "vguid", v->vguid);
	json_set_str(o, "dev_id", v->dev_id);
	json_set_str(o, "bus", v->bus);
	return o;
}

struct json_object *migrate_input(const struct migration *m)
{
	struct json_object *in = json_object_new_object(), *list = json_object_new_array();

	json_set_str(in, "vm", m->vm_uuid);
	json_set_str(in, "name", m->vm_name);
	json_set_str(in, "migration", m->id);
	for (unsigned i = 0; i < m->vf_count; i++)
		json_object_array_add(list, vf_input(m, &m->vfs[i]));
	json_set(in, "vfs", list);
	return in;
}

static struct json_object *move_json(const struct migration *m, const struct migrate_vf *v,
				     bool back)
{
	struct json_object *o = json_object_new_object();
	struct json_object *from = add_end(migrate_host_json(&m->from), &v->from);
	struct json_object *to = add_end(migrate_host_json(&m->to), &v->to);

	json_set_guid(o, "vguid", v->vguid);
	json_set_str(o, "vm", m->vm_uuid);
	set_pkey(o, v->pkey);
	json_set(o, "from", back ? to : from);
	json_set(o, "to", back ? from : to);
	return o;
}

struct json_object *migrate_moves(const struct migration *m, bool back)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (unsigned i = 0; i < m->vf_count; i++)
		json_object_array_add(list, move_json(m, &m->vfs[i], back));
	json_set(o, "moves", list);
	return o;
}

static int release(struct job *j, struct json_object *vf, char *error)
{
	return provider_release(j->d->provider, vf_text_of(vf, "vf"), error);
}

void migrate_release_run(struct job *j)
{
	job_each_vf(j, release);
}

void migrate_free_leases(struct migration *m)
{
	for (unsigned i = 0; i < m->vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->vfs[i]);

		if (vf)
			vf_free_lease(&m->d->vfs, vf);
	}
}
