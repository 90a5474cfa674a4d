/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A migration as JSON: for the journal, for those who ask, and back after a restart. */
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "daemon/base/daemon.h"
#include "daemon/migrate/step.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

/* 1 (not written): one VF, its fields among the record's own. 2: vfs. */
#define RECORD_VERSION 2

static const struct flag {
	const char *name;
	size_t offset;
} flags[] = {
#define FLAG(f)                                                                                    \
	{                                                                                          \
#f, offsetof(struct migration, f)                                                  \
	}
	FLAG(back),     FLAG(committed),        FLAG(ended),           FLAG(armed),   FLAG(ballast),
	FLAG(raised),   FLAG(suspended),        FLAG(device_del_sent), FLAG(parked),  FLAG(moved),
	FLAG(attached), FLAG(resumed),          FLAG(switch_ordered),  FLAG(vm_dead), FLAG(saved),
	FLAG(let_go),   FLAG(destination_lost), FLAG(source_lost),
#undef FLAG
};

static bool *flag_at(const struct migration *m, const struct flag *f)
{
	return (bool *)((char *)m + f->offset);
}

struct json_object *peers_json(const struct migration *m)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < m->peer_count; i++) {
		struct json_object *o = json_object_new_object();

		json_set_guid(o, "guid", m->peers[i].guid);
		json_set_str(o, "host", m->peers[i].host);
		json_set_str(o, "url", m->peers[i].url);
		json_object_array_add(list, o);
	}
	return list;
}

void peers_load(struct migration *m, struct json_object *list)
{
	m->peer_count = 0;
	for (size_t i = 0; json_object_is_type(list, json_type_array) &&
			   i < json_object_array_length(list) && i < MIGRATE_PEERS_MAX;
	     i++) {
		struct json_object *o = json_object_array_get_idx(list, i);
		struct migrate_peer *p = &m->peers[m->peer_count];

		*p = (struct migrate_peer){0};
		if (ib_guid_parse(json_opt_str(o, "guid", ""), &p->guid))
			continue;
		snprintf(p->host, sizeof p->host, "%s", json_opt_str(o, "host", ""));
		snprintf(p->url, sizeof p->url, "%s", json_opt_str(o, "url", ""));
		m->peer_count++;
	}
}

/* What others ask a migration for, and the journal keeps of it as well. */
static void write_common(struct printbuf *text, const struct migration *m)
{
	json_write_str(text, "id", m->id);
	json_write_str(text, "role", migrate_role_name(m->role));
	json_write_str(text, "state", migrate_state_name(m->state));
	json_write_str(text, "reached", migrate_state_name(m->reached));
	json_write_str(text, "strategy", strategy_name(m->strategy));
	json_write_str(text, "asked", strategy_name(m->asked));
	migrate_write_host(text, "from", &m->from);
	migrate_write_host(text, "to", &m->to);
	json_write_str(text, "reason", *m->reason ? m->reason : NULL);
	json_write_str(text, "trouble", *m->trouble ? m->trouble : NULL);
	json_write_u64(text, "failures", m->step.failures ? m->step.failures : m->step.silent);
	json_write(text, "data", m->data);
}

void migrate_write_record(struct printbuf *text, const struct migration *m)
{
	struct json_object *vfs AUTO_JSON = migrate_vfs_json(m), *peers AUTO_JSON = peers_json(m);

	json_write_open(text, NULL, '{');
	json_write_u64(text, "version", RECORD_VERSION);
	write_common(text, m);
	json_write_str(text, "vm", m->vm_uuid);
	json_write_str(text, "name", m->vm_name);
	json_write_str(text, "file", m->file);
	json_write_str(text, "boot", m->boot);
	json_write(text, "vfs", vfs);
	json_write(text, "peers", peers);
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		json_write_bool(text, flags[i].name, *flag_at(m, &flags[i]));
	json_write_close(text, '}');
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
	write_common(text, m);
	json_write_bool(text, "back", m->back);
	json_write_bool(text, "committed", m->committed);
	json_write_bool(text, "ended", m->ended);
	json_write_bool(text, "journal_behind", m->behind);
	json_write_close(text, '}');
}

int migrate_load(struct migration *m, struct json_object *o)
{
	if (json_opt_u64(o, "version", 1) > RECORD_VERSION)
		return -EINVAL;
	if (migrate_state_parse(json_opt_str(o, "state", ""), &m->state) ||
	    migrate_state_parse(json_opt_str(o, "reached", ""), &m->reached))
		return -EINVAL;
	m->asked = m->strategy = STRATEGY_AUTO;
	strategy_parse(json_opt_str(o, "asked", ""), &m->asked);
	strategy_parse(json_opt_str(o, "strategy", ""), &m->strategy);
	str_set(&m->file, json_opt_str(o, "file", NULL));
	/* A record of an older version has no boot. */
	m->rebooted = !str_eq(json_opt_str(o, "boot", m->boot), m->boot);
	snprintf(m->boot, sizeof m->boot, "%s", json_opt_str(o, "boot", m->boot));
	snprintf(m->reason, sizeof m->reason, "%s", json_opt_str(o, "reason", ""));
	snprintf(m->trouble, sizeof m->trouble, "%s", json_opt_str(o, "trouble", ""));
	migrate_host_load(&m->from, json_opt(o, "from"));
	migrate_host_load(&m->to, json_opt(o, "to"));
	migrate_vfs_load(m, o);
	peers_load(m, json_opt(o, "peers"));
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		*flag_at(m, &flags[i]) = json_opt_bool(o, flags[i].name, false);
	if (json_opt(o, "data")) {
		json_object_put(m->data);
		m->data = json_object_get(json_opt(o, "data"));
	}
	return 0;
}
