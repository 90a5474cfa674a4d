/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Answers that a record owes: to the other host's call, to libvirt's hook, to the source's
 * record. */
#include "daemon/migrate/machine.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/step.h"
#include "daemon/store/durable.h"

#include <string.h>

#define TELL_DEADLINE_MS 5000

struct json_object *src_prepare_answer(const struct migration *m)
{
	struct json_object *o = json_object_new_object(), *vfs = record_vfs_json(&m->rec);

	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		json_set_u64(json_object_array_get_idx(vfs, i), "lid", vf ? vf->lid : 0);
	}
	json_set(o, "from", migrate_host_json(&m->rec.from));
	json_set(o, "vfs", vfs);
	json_set(o, "peers", record_peers_json(&m->rec));
	json_set_str(o, "strategy", strategy_name(m->rec.strategy));
	json_set(o, "choice", json_object_get(json_opt(m->rec.data, "choice")));
	json_set_bool(o, "agent", json_opt_bool(m->rec.data, "agent", true));
	return o;
}

void migrate_answer_waiting(struct migration *m, int rc)
{
	struct http_exchange *x = TAKE(m->waiting);
	struct json_object *o;

	if (!x)
		return;
	if (rc && m->rec.role == ROLE_SOURCE && !m->rec.file) {
		http_fail(x, 409, "refused", "%s",
			  m->rec.reason); /* the hook of the destination names the VM */
	} else if (rc && m->rec.back) {
		http_fail(x, 409, "not-undone", "host %s: %s", m->rec.to.host, m->rec.trouble);
	} else if (rc) {
		http_fail(x, 409, "refused", "%sVM %s: %s",
			  m->rec.file ? "" : "ibvmig: ", m->rec.vm_name, m->rec.reason);
	} else if (m->rec.role == ROLE_SOURCE) {
		durable_reply(m->d->durable, x, 200, src_prepare_answer(m));
	} else {
		o = json_object_new_object();
		if (json_opt(m->rec.data, "move"))
			json_set(o, "move", json_object_get(json_opt(m->rec.data, "move")));
		if (m->rec.state == M_PREPARE && m->dst.hook_xml)
			json_set_str(o, "xml", m->dst.hook_xml);
		durable_reply(m->d->durable, x, 200, o);
	}
}

struct tell_work {
	char id[37], url[256];
	struct json_object *body; /* owned */
};

static void tell_clear(void *work)
{
	json_object_put(((struct tell_work *)work)->body);
}

static void tell_run(struct job *j)
{
	const struct tell_work *w = j->work;
	struct json_object *answer AUTO_JSON = NULL;

	j->rc = http_call(w->url, "POST", "/v1/peer/outcome", w->body, TELL_DEADLINE_MS, &answer,
			  j->error);
}

static void tell_done(struct job *j)
{
	if (j->rc)
		log_info("migration %s: the source was not told (it asks by itself): %s",
			 ((const struct tell_work *)j->work)->id, j->error);
}

static struct json_object *outcome(const struct migration *m)
{
	struct json_object *body = json_object_new_object(), *data = NULL;
	const char *text = json_text(m->rec.data);

	json_set_str(body, "migration", m->rec.id);
	json_set_bool(body, "committed", m->rec.committed);
	json_set_bool(body, "attached", record_did(&m->rec, DID_ATTACH));
	json_set_bool(body, "ended", m->rec.state == M_DONE);
	if (m->rec.state == M_ABORTED)
		json_set_str(body, "aborted", m->rec.reason);
	/* A copy: the worker must not share m->rec.data with the loop. */
	if (!json_parse(text, strlen(text), &data))
		json_set(body, "data", data);
	return body;
}

void dst_tell_source(struct migration *m)
{
	struct tell_work w = {0};

	if (!*m->rec.from.url)
		return;
	memcpy(w.id, m->rec.id, sizeof w.id);
	memcpy(w.url, m->rec.from.url, sizeof w.url);
	w.body = outcome(m);
	job_order(m->d, &(struct job_order){JOB_WORK(w), .clear = tell_clear, .run = tell_run,
					    .done = tell_done});
}

/* ---- those who ask for its record ---- */

const char *migrate_phase(const struct migration *m, char text[static MIGRATE_PHASE_TEXT])
{
	const struct migrate_step *s = &m->step;
	const char *name = s->phases ? s->phases[s->phase].name : NULL;

	snprintf(text, MIGRATE_PHASE_TEXT, "%s/%s", migrate_state_name(m->rec.state),
		 name ? name : "");
	return name ? text : NULL;
}

struct json_object *migrate_record(const struct migration *m)
{
	struct printbuf *text = printbuf_new();
	char phase[MIGRATE_PHASE_TEXT];

	json_write_open(text, NULL, '{');
	record_write_fields(text, &m->rec, migrate_failures(m));
	json_write_str(text, "phase", migrate_phase(m, phase));
	json_write_close(text, '}');
	return json_written(text);
}

void migrate_write_account(struct printbuf *text, const char *key, const struct migration *m)
{
	char phase[MIGRATE_PHASE_TEXT];

	json_write_open(text, key, '{');
	record_write_common(text, &m->rec, migrate_failures(m));
	json_write_bool(text, "back", m->rec.back);
	json_write_bool(text, "committed", m->rec.committed);
	json_write_bool(text, "ended", m->rec.ended);
	json_write_bool(text, "journal_behind", m->kept.behind);
	json_write_str(text, "phase", migrate_phase(m, phase));
	json_write_close(text, '}');
}
