/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The other host is silent: its record is asked for, and an operator is told the way out. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/job.h"
#include "daemon/migrate/src.h"

#define ASK_MS           7000
#define OUTCOME_SILENT_S 60 /* then its silence is told */

static void read_record(struct remote_record *r, struct json_object *o)
{
	r->known = true;
	r->committed = json_opt_bool(o, "committed", false);
	r->attached = json_opt_bool(o, "attached", false);
	r->ended = json_opt_bool(o, "ended", false);
	r->back = json_opt_bool(o, "back", false);
	if (migrate_state_parse(json_opt_str(o, "state", ""), &r->state))
		r->state = M_PARKED;
	snprintf(r->reason, sizeof r->reason, "%s", json_opt_str(o, "reason", ""));
	snprintf(r->to_url, sizeof r->to_url, "%s", json_opt_str(json_opt(o, "to"), "url", ""));
}

int remote_ask(const char *url, const char *id, enum migrate_role role, unsigned ms,
	       struct remote_record *ret_r, char error[static HTTP_ERROR_MAX])
{
	struct json_object *answer AUTO_JSON = NULL, *o;
	char *path AUTO_FREE = strf("/v1/migrations/%s", id);
	int rc = http_call(url, "GET", path, NULL, ms, &answer, error);

	*ret_r = (struct remote_record){0};
	o = json_opt(answer, migrate_role_name(role));
	if (!rc && o)
		read_record(ret_r, o);
	return rc;
}

void lost_name_way_out(struct job *j, const struct other_host *h)
{
	char why[HTTP_ERROR_MAX];

	memcpy(why, j->error, sizeof why);
	snprintf(j->error, sizeof j->error,
		 "host %s does not answer (%.200s): start ibvmigd there, or, if it is lost for "
		 "good, and off: ibvmig resolve %s --destination-lost",
		 h->host, why, h->id);
}

static void ask_run(struct job *j)
{
	struct outcome *o = j->work;

	j->rc = remote_ask(o->at.url, o->at.id, ROLE_DESTINATION, ASK_MS, &o->dst, j->error);
}

int src_ask_destination(struct migration *m, void (*done)(struct migration *m, struct job *j))
{
	struct outcome o = {.at = other_host(m, &m->rec.to)};

	return migrate_order(m, (struct job_order){JOB_WORK(o), .run = ask_run}, done);
}

void orphan_name_way_out(const struct migration *m, const char *why,
			 char text[static HTTP_ERROR_MAX])
{
	snprintf(
		text, HTTP_ERROR_MAX,
		"the VM runs here, and host %.60s has not given its addresses away (%.200s): start "
		"ibvmigd there, or, if it is lost for good, and off: ibvmig resolve %s "
		"--source-lost",
		m->rec.from.host, why, m->rec.id);
}

void src_note_silence(struct migration *m, struct job *j)
{
	m->step.silent++;
	lost_name_way_out(j, &((struct outcome *)j->work)->at);
	migrate_error(m, j->rc, "%s", j->error);
	if (m->step.silence_told || now_us() - m->step.heard_us < OUTCOME_SILENT_S * 1000000ull)
		return;
	m->step.silence_told = true;
	log_warn("VM %s: migration %s waits in %s: %s", m->rec.vm_name, m->rec.id,
		 migrate_state_name(m->rec.state), m->rec.trouble);
	migrate_save(m, m->rec.trouble);
}

void src_note_heard(struct migration *m)
{
	m->step.heard_us = now_us();
	m->step.silent = 0;
	m->step.silence_told = false;
}
