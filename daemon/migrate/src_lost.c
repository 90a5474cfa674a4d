/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A destination that is lost for good. No daemon can know that: an operator says it (`ibvmig
 * resolve ID --destination-lost`), and the source goes on without it (docs/migration.md, "A
 * destination that is lost"). */
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/src_saved.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job_vfs.h"
#include "daemon/store/journal.h"
#include "daemon/base/locate.h"
#include "daemon/migrate/src.h"
#include "daemon/rest.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/work.h"

#include <errno.h>
#include <string.h>

#define ASK_MS 7000

static const char *str(struct job *j, const char *key)
{
	return json_opt_str(j->in, key, "");
}

void lost_name_way_out(struct job *j)
{
	char why[HTTP_ERROR_MAX];

	memcpy(why, j->error, sizeof why);
	snprintf(j->error, sizeof j->error,
		 "host %s does not answer (%.200s): start ibvmigd there, or, if it is lost for "
		 "good, and off: ibvmig resolve %s --destination-lost",
		 str(j, "to"), why, str(j, "migration"));
}

void lost_input(const struct migration *m, struct json_object *in)
{
	json_set_str(in, "migration", m->id);
	json_set_str(in, "url", m->to.url);
	json_set_str(in, "to", m->to.host);
	json_set_bool(in, "lost", m->destination_lost);
}

/* ---- the VM runs here: its addresses come back ---- */

/* ibvmig-sm does not take a vGUID from a port that is dead: it lets go what the VM had there, and
 * gives it to ours as to one that starts. */
static void bind_anew(struct job *j)
{
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;

	char why[HTTP_ERROR_MAX];

	json_set_str(body, "vm", str(j, "vm"));
	json_set_str(body, "host", str(j, "to"));
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

	for (unsigned i = 0; i < m->vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->vfs[i]);
		uint64_t lid = json_opt_u64(job_vf(j, i), "lid", 0);
		struct json_object *one;

		if (!vf || !lid || lid == vf->lid)
			continue;
		one = json_object_new_object();
		json_set_guid(one, "vguid", m->vfs[i].vguid);
		json_set_u64(one, "lid_before", vf->lid);
		json_set_u64(one, "lid_after", lid);
		json_set_u64(one, "paths_changed", 1);
		json_object_array_add(list, one);
		vf->lid = (unsigned)lid;
		vf_save(&m->d->vfs, vf);
	}
	json_set(o, "moves", list);
	json_set(m->data, "rebound", o);
}

/* ---- the VM had left: nothing of it stays here ---- */

/* Where ibvmig-sm still has the vGUID at one of the two hosts, nobody has it any more. One that the
 * VM has got elsewhere meanwhile is left alone. */
static int let_go(struct job *j, struct json_object *vf, char *error)
{
	struct json_object *body, *answer AUTO_JSON = NULL;
	struct location l;
	int rc = locate_guid(j->d->settings, vf_guid_of(vf, "vguid"), &l, error);

	if (rc == -ENOENT || (!rc && !str_eq(l.vm, str(j, "vm"))))
		return 0;
	if (!rc && str_eq(l.host, j->d->settings->host_name))
		return vm_work_unbind(j, vf, error);
	if (rc || !str_eq(l.host, str(j, "to")))
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

/* ---- the request ---- */

/* Before SWITCH nothing is undone over there, and what waits for it ends by itself. */
static bool needs_destination(const struct migration *m)
{
	return *m->to.url && !m->ended &&
	       (m->state >= M_SAVED || m->back); /* CANCEL and PARKED are behind, too */
}

static void go_on(struct migration *m)
{
	char note[160];

	snprintf(note, sizeof note, "the operator says that host %.60s is lost", m->to.host);
	log_notice("VM %s: migration %s: %s", m->vm_name, m->id, note);
	m->destination_lost = true;
	if (m->state == M_SAVED) {
		cold_not_restored(m); /* another host may */
		return;
	}
	m->step.resting = false;
	if (m->state == M_PARKED) {
		migrate_unpark(m, note);
	} else if (!m->back && !m->committed && m->state != M_CANCEL) {
		migrate_fail(m, -EHOSTDOWN, "%s", note);
	} else {
		migrate_save(m, note);
		migrate_drive(m);
	}
}

/* Who says so may be wrong: the host is asked. */
static void ask_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;

	j->rc = http_call(str(j, "url"), "GET", "/", NULL, ASK_MS, &answer, j->error);
}

/* What ends a source's record that waits for no destination, or "". */
static void name_idle_way_out(struct json_object *src, char text[static HTTP_ERROR_MAX])
{
	const char *state = json_opt_str(src, "state", ""), *id = json_opt_str(src, "id", "");

	*text = '\0';
	if (json_opt_bool(src, "ended", false))
		return;
	if (str_eq(state, "PARKED"))
		snprintf(text, HTTP_ERROR_MAX, ": ibvmig resolve %s lets it go on", id);
	else if (str_eq(state, "SAVED") && json_opt_bool(src, "saved", false))
		snprintf(text, HTTP_ERROR_MAX,
			 ": ibvmig restore %.250s brings the VM back, ibvmig resolve %s gives its "
			 "address up",
			 json_opt_str(src, "file", ""), id);
	else
		snprintf(text, HTTP_ERROR_MAX, ": ibvmig abort %s ends it",
			 json_opt_str(src, "name", ""));
}

/* Nothing of it waits for a destination: because that was said before, or it never did. */
static void answer_idle(struct http_exchange *x, struct daemon *d, const char *id)
{
	struct json_object *o = journal_migration(d->journal, id), *src = json_opt(o, "source");
	char way_out[HTTP_ERROR_MAX];

	if (json_opt_bool(src, "destination_lost", false)) {
		http_reply(x, 200, o);
		return;
	}
	name_idle_way_out(src, way_out);
	if (src)
		http_fail(x, 409, "not-waiting",
			  "migration %s is %s, and waits for no destination%s", id,
			  json_opt_str(src, "state", "?"), way_out);
	else
		http_fail(x, 409, "not-waiting",
			  "migration %s came to this host: its source is %s, say it there", id,
			  json_opt_str(json_opt(json_opt(o, "destination"), "from"), "host", "?"));
	json_object_put(o);
}

static void asked(struct job *j)
{
	struct migration *m = migrate_find(j->d, str(j, "migration"), ROLE_SOURCE);
	struct http_exchange *x = j->owner;

	if (!j->rc || j->rc == -EREMOTEIO) {
		http_fail(x, 409, "not-lost",
			  "host %s is not lost: its ibvmigd answers. ibvmig resolve %s, without "
			  "--destination-lost",
			  str(j, "to"), str(j, "migration"));
	} else if (!m || !needs_destination(m)) {
		answer_idle(x, j->d, str(j, "migration"));
	} else {
		if (!m->destination_lost || m->state == M_PARKED)
			go_on(m);
		http_reply(x, 200, journal_migration(j->d->journal, m->id));
	}
}

void lost_post(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o AUTO_JSON = journal_migration(d->journal, req->param), *in;
	struct migration *m = migrate_find(d, req->param, ROLE_SOURCE);

	if (!m && !o) {
		rest_no_migration(req, req->param);
		return;
	}
	if (!m || !needs_destination(m)) {
		answer_idle(req->exchange, d, req->param);
		return;
	}
	in = json_object_new_object();
	lost_input(m, in);
	if (job_start(d, in, ask_run, asked, req->exchange, 0))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}
