/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The VFs of a migration: in its record, for jobs about all of them, for ibvmig-sm. */
#include "common/json.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/src.h"
#include "daemon/migrate/step.h"
#include "daemon/vf/provider.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

/* ---- JSON ---- */

void migrate_host_here(struct migrate_host *h, const struct daemon *d)
{
	snprintf(h->host, sizeof h->host, "%s", d->settings->host_name);
	snprintf(h->url, sizeof h->url, "%s", d->settings->url);
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

/* ---- one and all ---- */

static const struct migrate_end *end_here(const struct migration *m, const struct migrate_vf *v)
{
	return m->rec.role == ROLE_SOURCE ? &v->from : &v->to;
}

struct vf *migrate_lease(const struct migration *m, const struct migrate_vf *v)
{
	struct vf *vf = vf_by_name(m->d->vfs, end_here(m, v)->vf);

	return vf && vf->leased && !strcmp(vf->vm, m->rec.vm_uuid) ? vf : NULL;
}

/* ---- for jobs ---- */

static struct json_object *vf_input(const struct migration *m, const struct migrate_vf *v)
{
	const struct migrate_end *e = end_here(m, v);
	struct vf *vf = migrate_lease(m, v);
	struct json_object *o = vf ? vf_lease_json(vf) : json_object_new_object();

	migrate_end_add(o, e);
	json_set_guid(o, "vguid", v->vguid);
	json_set_str(o, "dev_id", v->dev_id);
	json_set_str(o, "bus", v->bus);
	return o;
}

struct json_object *migrate_input(const struct migration *m)
{
	struct json_object *in = json_object_new_object(), *list = json_object_new_array();

	json_set_str(in, "vm", m->rec.vm_uuid);
	json_set_str(in, "name", m->rec.vm_name);
	json_set_str(in, "migration", m->rec.id);
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		json_object_array_add(list, vf_input(m, &m->rec.vfs[i]));
	json_set(in, "vfs", list);
	return in;
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
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		if (vf)
			vf_free_lease(m->d->vfs, vf);
	}
}

int migrate_check_leases(struct migration *m)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		if (!migrate_lease(m, &m->rec.vfs[i]))
			return migrate_error(m, -ENOENT, "the lease of VF %s is gone",
					     m->rec.vfs[i].to.vf);
	return 0;
}

bool migrate_has_leases(const struct migration *m)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		if (migrate_lease(m, &m->rec.vfs[i]))
			return true;
	return false;
}
