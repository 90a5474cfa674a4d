/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VM's addresses without the other host: taken back, taken over, or let go. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/migrate/src.h"
#include "daemon/vf/provider.h"
#include "daemon/vm/work.h"

#include <errno.h>
#include <string.h>

int src_show_guid(struct job *j, struct json_object *vf, char *error)
{
	return provider_set_guid(j->d->provider, vf_text_of(vf, "vf"), vf_guid_of(vf, "vguid"),
				 error);
}

struct address_work lost_addresses(const struct migration *m, const struct migrate_host *lost)
{
	struct address_work w;

	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	memcpy(w.host, lost->host, sizeof w.host);
	return w;
}

/* ibvmig-sm does not take a vGUID from a port that is dead: it lets go what the VM had there, and
 * gives it to ours as to one that starts. */
static void bind_anew(struct job *j)
{
	const struct address_work *w = j->work;
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;
	char why[HTTP_ERROR_MAX];

	json_set_str(body, "vm", w->vm);
	json_set_str(body, "host", w->host);
	j->rc = sm_change(j->d->settings, "/v1/fence", body, &answer, why);
	if (j->rc) {
		size_t n = strlen(j->error);

		snprintf(j->error + n, sizeof j->error - n, "; %s", why);
		return;
	}
	job_each_vf(j, vm_work_bind);
}

void lost_take_back_run(struct job *j)
{
	struct json_object *moved AUTO_JSON = NULL;

	if (job_vfs_at_once(j, src_show_guid))
		return;
	j->rc = sm_change(j->d->settings, "/v1/moves", json_object_get(json_opt(j->in, "moves")),
			  &moved, j->error);
	if (j->rc == -EREMOTEIO)
		bind_anew(j);
}

/* The LIDs of VFs that were bound anew may be others: who is resumed asks for its paths. */
void lost_keep_lids(struct migration *m, struct job *j)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);
		uint64_t lid = json_opt_u64(job_vf(j, i), "lid", 0);
		struct json_object *one;

		if (!vf || !lid || lid == vf->lid)
			continue;
		one = json_object_new_object();
		json_set_guid(one, "vguid", m->rec.vfs[i].vguid);
		json_set_u64(one, "lid_before", vf->lid);
		json_set_u64(one, "lid_after", lid);
		json_set_u64(one, "paths_changed", 1);
		json_object_array_add(list, one);
		vf->lid = (unsigned)lid;
		vf_save(m->d->vfs, vf);
	}
	json_set(o, "moves", list);
	json_set(m->rec.data, "rebound", o);
}

/* A vGUID that ibvmig-sm still has at one of the two hosts is nobody's any more. A vGUID that the
 * VM has got elsewhere meanwhile is left alone. */
static int let_go(struct job *j, struct json_object *vf, char *error)
{
	const struct address_work *w = j->work;
	struct json_object *body, *answer AUTO_JSON = NULL;
	struct location l;
	int rc = locate_guid(j->d->settings, vf_guid_of(vf, "vguid"), &l, error);

	if (rc == -ENOENT || (!rc && !str_eq(l.vm, w->vm)))
		return 0;
	if (!rc && str_eq(l.host, j->d->settings->host_name))
		return vm_work_unbind(j, vf, error);
	if (rc || !str_eq(l.host, w->host))
		return rc;
	body = json_object_new_object();
	json_set_str(body, "vm", l.vm);
	json_set_str(body, "host", l.host);
	return sm_change(j->d->settings, "/v1/fence", body, &answer, error);
}

void lost_release_run(struct job *j)
{
	if (j->d->settings->sm_url)
		job_each_vf(j, let_go);
	if (!j->rc)
		migrate_release_run(j);
}

/* ---- the VM runs here, and its source is lost ---- */

static void taken_over(struct migration *m, struct job *j)
{
	if (migrate_job_failed(m, j))
		return;
	record_do(&m->rec, DID_MOVE);
	lost_keep_lids(m, j);
	json_set(m->rec.data, "move", json_object_get(json_opt(m->rec.data, "rebound")));
	migrate_measure(m, "switch_us");
}

int orphan_take_over(struct migration *m, struct json_object *in)
{
	struct address_work w = lost_addresses(m, &m->rec.from);

	json_set(in, "moves", record_moves(&m->rec, false));
	return migrate_order(m,
			     (struct job_order){JOB_WORK(w), .in = in, .run = lost_take_back_run},
			     taken_over);
}
