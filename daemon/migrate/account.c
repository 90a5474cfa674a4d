/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A migration as those who ask for it see it. */
#include "common/json.h"
#include "daemon/migrate/machine.h"

#define PHASE_TEXT 48

/* "STATE/phase", or NULL where the step has no phases. */
static const char *phase_of(const struct migration *m, char text[static PHASE_TEXT])
{
	const struct migrate_step *s = &m->step;
	const char *name = s->phases ? s->phases[s->phase].name : NULL;

	snprintf(text, PHASE_TEXT, "%s/%s", migrate_state_name(m->rec.state), name ? name : "");
	return name ? text : NULL;
}

void migrate_write_record(struct printbuf *text, const struct migration *m)
{
	record_write(text, &m->rec, migrate_failures(m));
}

struct json_object *migrate_record(const struct migration *m)
{
	struct printbuf *text = printbuf_new();
	char phase[PHASE_TEXT];

	json_write_open(text, NULL, '{');
	record_write_fields(text, &m->rec, migrate_failures(m));
	json_write_str(text, "phase", phase_of(m, phase));
	json_write_close(text, '}');
	return json_written(text);
}

void migrate_write_account(struct printbuf *text, const char *key, const struct migration *m)
{
	char phase[PHASE_TEXT];

	json_write_open(text, key, '{');
	record_write_common(text, &m->rec, migrate_failures(m));
	json_write_bool(text, "back", m->rec.back);
	json_write_bool(text, "committed", m->rec.committed);
	json_write_bool(text, "ended", m->rec.ended);
	json_write_bool(text, "journal_behind", m->kept.behind);
	json_write_str(text, "phase", phase_of(m, phase));
	json_write_close(text, '}');
}
