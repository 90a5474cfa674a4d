/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/dst_orphan.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/base/daemon.h"
#include "daemon/store/journal.h"
#include "daemon/migrate/src.h"
#include "daemon/migrate/calls.h"

#include <errno.h>
#include <string.h>

#define ASK_MS 7000

/* ---- the addresses ---- */

static void taken_over(struct migration *m, struct job *j)
{
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	record_do(&m->rec, DID_MOVE);
	lost_keep_lids(m, j);
	json_set(m->rec.data, "move", json_object_get(json_opt(m->rec.data, "rebound")));
	migrate_measure(m, "switch_us");
}

int orphan_take_over(struct migration *m, struct json_object *in)
{
	struct address_work *w = lost_addresses(m, &m->rec.from);

	if (!w) {
		json_object_put(in);
		return -ENOMEM;
	}
	json_set(in, "moves", record_moves(&m->rec, false));
	return migrate_order(m, (struct job_order){.work = w, .in = in, .run = lost_take_back_run},
			     taken_over)
		       ? -ENOMEM
		       : STEP_WAIT;
}

/* ---- the request ---- */

static bool needs_source(const struct migration *m)
{
	return m->rec.committed && !m->rec.ended && !record_did(&m->rec, DID_MOVE);
}

/* The source was to tell that the programs are suspended, and which peers they have. Without it the
 * programs look for the VM by themselves. */
static void go_on(struct migration *m)
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

static void answer_idle(struct http_exchange *x, struct daemon *d, const char *id)
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

/* The operator may be wrong, so the host is asked. */
static void ask_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;

	j->rc = http_call(((struct other_host *)j->work)->url, "GET", "/", NULL, ASK_MS, &answer,
			  j->error);
}

static void asked(struct job *j)
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
		answer_idle(x, j->d, id);
	} else {
		if (!record_did(&m->rec, TOLD_SOURCE_LOST) || m->rec.state == M_PARKED)
			go_on(m);
		http_reply(x, 200, journal_migration(j->d->journal, m->rec.id));
	}
}

void orphan_post(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o AUTO_JSON = journal_migration(d->journal, req->param);
	struct other_host *h;
	struct migration *m = migrate_find(d, req->param, ROLE_DESTINATION);

	if (!m && !o) {
		rest_no_migration(req, req->param);
		return;
	}
	if (!m || !needs_source(m)) {
		answer_idle(req->exchange, d, req->param);
		return;
	}
	h = calloc(1, sizeof *h);
	if (h) {
		memcpy(h->id, m->rec.id, sizeof h->id);
		memcpy(h->host, m->rec.from.host, sizeof h->host);
		memcpy(h->url, m->rec.from.url, sizeof h->url);
	}
	if (!h ||
	    job_order(d, &(struct job_order){
				 .work = h, .run = ask_run, .done = asked, .owner = req->exchange}))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}
