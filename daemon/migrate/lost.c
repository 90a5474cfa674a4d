/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A host that is lost for good. No daemon can know that: an operator says it (`ibvmig resolve ID
 * --destination-lost`, `--source-lost`), and the other host goes on without it (docs/migration.md).
 */
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/sm.h"
#include "daemon/migrate/src.h"
#include "daemon/store/journal.h"
#include "daemon/vf/provider.h"

#include <errno.h>
#include <string.h>

#define ASK_MS 7000

/* ---- a destination that is lost: the request ---- */

/* Before SWITCH nothing is undone over there, and what waits for it ends by itself. */
static bool needs_destination(const struct migration *m)
{
	return *m->rec.to.url && !m->rec.ended &&
	       (m->rec.state >= M_SAVED || m->rec.back); /* CANCEL and PARKED are behind, too */
}

static void go_on(struct migration *m)
{
	char note[160];

	snprintf(note, sizeof note, "the operator says that host %.60s is lost", m->rec.to.host);
	log_notice("VM %s: migration %s: %s", m->rec.vm_name, m->rec.id, note);
	record_do(&m->rec, TOLD_DESTINATION_LOST);
	if (m->rec.state == M_SAVED) {
		cold_not_restored(m); /* another host may */
		return;
	}
	m->step.resting = false;
	if (m->rec.state == M_PARKED) {
		migrate_unpark(m, note);
	} else if (!m->rec.back && !m->rec.committed && m->rec.state != M_CANCEL) {
		migrate_fail(m, -EHOSTDOWN, "%s", note);
	} else {
		migrate_save(m, note);
		migrate_drive(m);
	}
}

/* The operator may be wrong, so the host is asked. */
static void ask_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;

	j->rc = http_call(((struct other_host *)j->work)->url, "GET", "/", NULL, ASK_MS, &answer,
			  j->error);
}

/* which: the host of m that is said to be lost. done() answers. */
static void ask(struct http_exchange *x, const struct migration *m,
		const struct migrate_host *which, void (*done)(struct job *j))
{
	struct other_host h = other_host(m, which);

	if (job_order(m->d,
		      &(struct job_order){JOB_WORK(h), .run = ask_run, .done = done, .owner = x}))
		http_fail(x, 503, "no-memory", "out of memory");
}

/* Names the command that ends a source's record which waits for no destination, or "". */
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
	const struct other_host *h = j->work;
	struct migration *m = migrate_find(j->d, h->id, ROLE_SOURCE);
	struct http_exchange *x = j->owner;

	if (!j->rc || j->rc == -EREMOTEIO) {
		http_fail(x, 409, "not-lost",
			  "host %s is not lost: its ibvmigd answers. ibvmig resolve %s, without "
			  "--destination-lost",
			  h->host, h->id);
	} else if (!m || !needs_destination(m)) {
		answer_idle(x, j->d, h->id);
	} else {
		if (!record_did(&m->rec, TOLD_DESTINATION_LOST) || m->rec.state == M_PARKED)
			go_on(m);
		http_reply(x, 200, journal_migration(j->d->journal, m->rec.id));
	}
}

void lost_post(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o AUTO_JSON = journal_migration(d->journal, req->param);
	struct migration *m = migrate_find(d, req->param, ROLE_SOURCE);

	if (!m && !o)
		rest_no_migration(req, req->param);
	else if (!m || !needs_destination(m))
		answer_idle(req->exchange, d, req->param);
	else
		ask(req->exchange, m, &m->rec.to, asked);
}

/* ---- a source that is lost ---- */

static bool needs_source(const struct migration *m)
{
	return m->rec.committed && !m->rec.ended && !record_did(&m->rec, DID_MOVE);
}

/* The source was to tell that the programs are suspended, and which peers they have. Without it the
 * programs look for the VM by themselves. */
static void source_go_on(struct migration *m)
{
	char note[160];

	snprintf(note, sizeof note, "the operator says that host %.60s is lost", m->rec.from.host);
	log_notice("VM %s: migration %s: %s", m->rec.vm_name, m->rec.id, note);
	record_do(&m->rec, TOLD_SOURCE_LOST);
	if (m->rec.strategy != STRATEGY_NATIVE)
		record_do(&m->rec, DID_SUSPEND);
	m->step.resting = false;
	if (m->rec.state == M_PARKED) {
		migrate_unpark(m, note);
	} else {
		migrate_save(m, note);
		migrate_drive(m);
	}
}

static void source_answer_idle(struct http_exchange *x, struct daemon *d, const char *id)
{
	struct json_object *o = journal_migration(d->journal, id),
			   *dst = json_opt(o, "destination");

	if (json_opt_bool(dst, "source_lost", false)) {
		http_reply(x, 200, o);
		return;
	}
	if (dst)
		http_fail(x, 409, "not-waiting",
			  "migration %s is %s, and waits for nothing of its source", id,
			  json_opt_str(dst, "state", "?"));
	else
		http_fail(x, 409, "not-waiting",
			  "migration %s goes from this host: its destination is %s, say it there",
			  id, json_opt_str(json_opt(json_opt(o, "source"), "to"), "host", "?"));
	json_object_put(o);
}

static void source_asked(struct job *j)
{
	const struct other_host *h = j->work;
	const char *id = h->id;
	struct migration *m = migrate_find(j->d, id, ROLE_DESTINATION);
	struct http_exchange *x = j->owner;

	if (!j->rc || j->rc == -EREMOTEIO) {
		http_fail(x, 409, "not-lost",
			  "host %s is not lost: its ibvmigd answers. ibvmig resolve %s, without "
			  "--source-lost",
			  h->host, id);
	} else if (!m || !needs_source(m)) {
		source_answer_idle(x, j->d, id);
	} else {
		if (!record_did(&m->rec, TOLD_SOURCE_LOST) || m->rec.state == M_PARKED)
			source_go_on(m);
		http_reply(x, 200, journal_migration(j->d->journal, m->rec.id));
	}
}

void orphan_post(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o AUTO_JSON = journal_migration(d->journal, req->param);
	struct migration *m = migrate_find(d, req->param, ROLE_DESTINATION);

	if (!m && !o)
		rest_no_migration(req, req->param);
	else if (!m || !needs_source(m))
		source_answer_idle(req->exchange, d, req->param);
	else
		ask(req->exchange, m, &m->rec.from, source_asked);
}
