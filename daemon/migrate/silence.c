/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The other host is silent: its record is asked for, and an operator is told the way out. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/job.h"
#include "daemon/migrate/dst_orphan.h"
#include "daemon/migrate/src.h"

#include <string.h>

#define OUTCOME_SILENT_S 60 /* then its silence is told */

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
	json_set_str(in, "migration", m->rec.id);
	json_set_str(in, "url", m->rec.to.url);
	json_set_str(in, "to", m->rec.to.host);
	json_set_bool(in, "lost", record_did(&m->rec, TOLD_DESTINATION_LOST));
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
	lost_name_way_out(j);
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
