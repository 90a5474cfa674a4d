/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A migration as those who ask for it see it. */
#include "common/json.h"
#include "daemon/migrate/machine.h"

static unsigned failures(const struct migration *m)
{
	return m->step.failures ? m->step.failures : m->step.silent;
}

void migrate_write_record(struct printbuf *text, const struct migration *m)
{
	record_write(text, &m->rec, failures(m));
}

struct json_object *migrate_record(const struct migration *m)
{
	struct printbuf *text = printbuf_new();

	migrate_write_record(text, m);
	return json_written(text);
}

void migrate_write_account(struct printbuf *text, const char *key, const struct migration *m)
{
	json_write_open(text, key, '{');
	record_write_common(text, &m->rec, failures(m));
	json_write_bool(text, "back", m->rec.back);
	json_write_bool(text, "committed", m->rec.committed);
	json_write_bool(text, "ended", m->rec.ended);
	json_write_bool(text, "journal_behind", m->kept.behind);
	json_write_close(text, '}');
}
