/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PREPARE asks the VM's agent, its peers and the fabric before the VM moves; a dry run asks the
 * same by the same code. */
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/base/partition.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/migrate/src.h"

#include <errno.h>
#include <string.h>

#define CHECK_WAY_MS 2000

/* Questions of a job before the VM moves; JSON as it goes over the wire. */
struct check_work {
	char id[37];
	bool sm, save;
	struct json_object *vguids, *moves; /* owned */
	struct json_object *peers; /* owned; the hosts of those that are not here are found */
	struct json_object *vfs;   /* owned; whose partitions are asked for; NULL: none */
	struct json_object *pkeys; /* owned; partition_used() of the guest, or NULL */
};

/* ---- the mover's agent ---- */

struct json_object *src_op_message(const char *op)
{
	struct json_object *msg = json_object_new_object();

	json_set_str(msg, "op", op);
	return msg;
}

void src_query(struct migration *m, struct vm *vm,
	       void (*done)(struct migration *m, int rc, struct json_object *answer,
			    const char *error))
{
	/* libvirt's hook waits for a migration, nobody for a save. */
	unsigned ms = m->rec.file ? MIGRATE_SAVE_QUERY_MS : SRC_QUERY_MS;
	struct json_object *msg = src_op_message("query");

	json_set_u64(msg, "deadline_ms", ms - MIGRATE_AGENT_MARGIN_MS);
	migrate_ask_agent(m, vm, msg, ms, done);
}

/* ---- peers of the agent's answer to query ---- */

static int add_peer(struct migration *m, uint64_t guid)
{
	struct vm *vm = vm_by_guid(m->d, guid);
	struct migrate_peer *p;

	for (unsigned i = 0; i < m->rec.peer_count; i++)
		if (m->rec.peers[i].guid == guid)
			return 0;
	if (m->rec.peer_count == MIGRATE_PEERS_MAX)
		return -E2BIG;
	p = &m->rec.peers[m->rec.peer_count++];
	*p = (struct migrate_peer){.guid = guid};
	if (!vm)
		return 0;
	snprintf(p->host, sizeof p->host, "%s", m->d->settings->host_name);
	snprintf(p->url, sizeof p->url, "%s", m->d->settings->url);
	return 0;
}

int src_read_query(struct migration *m, struct json_object *answer)
{
	struct json_object *list = json_opt(answer, "peers");
	char why[HTTP_ERROR_MAX];

	choice_uncovered(answer, why, sizeof why);
	if (*why)
		return migrate_error(m, -EBUSY, "%s", why);
	if (!m->src.pkeys)
		m->src.pkeys = json_object_new_array();
	m->src.new_pkeys = partition_used(answer, m->src.pkeys);
	m->rec.peer_count = 0;
	for (size_t i = 0;
	     json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct ib_gid gid;
		const char *text = json_opt_str(json_object_array_get_idx(list, i), "dgid", "");

		if (!ib_gid_parse(text, &gid) && !record_vf(&m->rec, gid.guid) &&
		    add_peer(m, gid.guid))
			return migrate_error(m, -E2BIG,
					     "it is connected to more than %d others, which is the "
					     "limit",
					     MIGRATE_PEERS_MAX);
	}
	return 0;
}

int ask_find_peer(const struct settings *s, struct json_object *peer, char *why)
{
	struct location l = {0};
	uint64_t guid = 0;
	int rc;

	if (*json_opt_str(peer, "url", ""))
		return 0;
	ib_guid_parse(json_opt_str(peer, "guid", ""), &guid);
	rc = locate_guid(s, guid, &l, why);
	if (rc)
		return rc;
	json_set_str(peer, "host", l.host);
	json_set_str(peer, "vm", l.name);
	json_set_str(peer, "url", l.url);
	return 0;
}

int ask_peers_at(const char *url, struct json_object *body, unsigned agent_ms, char *why)
{
	struct json_object *answer AUTO_JSON = NULL;

	json_set_u64(body, "deadline_ms", agent_ms);
	return http_call(url, "POST", "/v1/peer/check", body, agent_ms + CHECK_WAY_MS, &answer,
			 why);
}

static int find_peer(struct job *j, struct json_object *o)
{
	char why[HTTP_ERROR_MAX];

	if (!ask_find_peer(j->d->settings, o, why))
		return 0;
	return job_fail(j, -ENOENT,
			"the VM is connected to GUID %s, but %.300s; without its agent the "
			"connection would break",
			json_opt_str(o, "guid", ""), why);
}

/* The GUIDs of the peers at url from the i-th peer on; NULL: they have been asked with one before
 * it. */
static struct json_object *guids_from(struct json_object *peers, size_t i, const char *url)
{
	struct json_object *guids = NULL;

	for (size_t k = 0; k < json_object_array_length(peers); k++) {
		struct json_object *o = json_object_array_get_idx(peers, k);

		if (!str_eq(json_opt_str(o, "url", ""), url))
			continue;
		if (k < i)
			return NULL;
		if (!guids)
			guids = json_object_new_array();
		json_object_array_add(guids, json_object_get(json_opt(o, "guid")));
	}
	return guids;
}

/* Asks the agents of all peers of one host, through it. */
static int check_host(struct job *j, size_t i)
{
	const struct check_work *w = j->work;
	struct json_object *o = json_object_array_get_idx(w->peers, i);
	const char *url = json_opt_str(o, "url", "");
	struct json_object *guids = guids_from(w->peers, i, url);
	struct json_object *body AUTO_JSON = NULL;
	char why[HTTP_ERROR_MAX];

	if (!guids)
		return 0;
	body = json_object_new_object();
	json_set_str(body, "migration", w->id);
	json_set(body, "vguids", json_object_get(w->vguids));
	json_set(body, "guids", guids);
	if (ask_peers_at(url, body, w->save ? MIGRATE_SAVE_QUERY_MS : MIGRATE_PEER_QUERY_MS, why))
		return job_fail(j, -EHOSTUNREACH, "host %.60s: %.400s",
				json_opt_str(o, "host", "?"), why);
	return 0;
}

/* Asks ibvmig-sm whether it would take the addresses where they are to go: once QEMU is released it
 * may be too late to stay. A VM that is saved goes nowhere yet. */
static int check_fabric(struct job *j)
{
	const struct check_work *w = j->work;
	struct json_object *answer AUTO_JSON = NULL;
	bool caching;

	j->rc = sm_check(j->d->settings, &caching, j->error);
	if (!j->rc && w->moves)
		j->rc = sm_call(j->d->settings, "POST", "/v1/moves/check",
				json_object_get(w->moves), &answer, j->error);
	return j->rc;
}

static void log_remark(void *arg, const char *text)
{
	const struct check_work *w = arg;

	log_notice("migration %s: %s", w->id, text);
}

/* The membership moves with the vGUID, so it is the subnet manager that knows it, and not the ports
 * of the destination. */
static int check_partitions(struct job *j)
{
	struct check_work *w = j->work;
	struct json_object *answer AUTO_JSON = partition_ask(j->d->settings,
							     partition_guids(w->vfs), false);

	j->rc = partition_judge(answer, w->vfs, w->pkeys, j->error, sizeof j->error);
	if (!j->rc)
		partition_remarks(answer, w->vfs, log_remark, w);
	return j->rc;
}

static void check_run(struct job *j)
{
	const struct check_work *w = j->work;
	size_t count = json_count(w->peers);

	if (w->sm)
		check_fabric(j);
	if (!j->rc && w->vfs)
		check_partitions(j);
	for (size_t i = 0; !j->rc && i < count; i++)
		find_peer(j, json_object_array_get_idx(w->peers, i));
	for (size_t i = 0; !j->rc && i < count; i++)
		check_host(j, i);
}

static void check_clear(void *work)
{
	struct check_work *w = work;

	json_object_put(w->vguids);
	json_object_put(w->moves);
	json_object_put(w->vfs);
	json_object_put(w->pkeys);
	json_object_put(w->peers);
}

/* A VM that is saved goes nowhere yet; without sm-url no fabric is managed. */
static void take_partitions(const struct migration *m, bool sm, struct check_work *w)
{
	if (m->rec.file || !(sm || m->src.new_pkeys) || !m->d->settings->sm_url)
		return;
	w->vfs = record_vfs_json(&m->rec);
	if (m->src.pkeys)
		json_object_deep_copy(m->src.pkeys, &w->pkeys, NULL);
}

int src_check(struct migration *m, bool sm, void (*done)(struct migration *m, struct job *j))
{
	struct check_work w = {
		.sm = sm,
		.save = m->rec.file,
		.vguids = record_guids(&m->rec),
		.moves = sm && !m->rec.file ? record_moves(&m->rec, false) : NULL,
		.peers = record_peers_json(&m->rec),
	};

	memcpy(w.id, m->rec.id, sizeof w.id);
	take_partitions(m, sm, &w);
	return migrate_order(
		m, (struct job_order){JOB_WORK(w), .clear = check_clear, .run = check_run}, done);
}

void src_take_peers(struct migration *m, struct job *j)
{
	record_peers_load(&m->rec, ((const struct check_work *)j->work)->peers);
}

bool src_agent_wanted(struct migration *m, struct vm *vm)
{
	if (!vm || !vm->agent)
		return false;
	return src_agent_needed(m) || agent_state(vm->agent) == AGENT_UP;
}

bool src_agent_needed(const struct migration *m)
{
	return m->d->settings->require_agent || m->rec.strategy == STRATEGY_LATE;
}

/* ---- the record of a VM that is asked for ---- */

static void fill_vf(struct migrate_vf *v, const struct vm_vf *ours)
{
	*v = (struct migrate_vf){.vguid = ours->want.vguid, .pkey = ours->want.pkey};
	snprintf(v->dev_id, sizeof v->dev_id, "%s", ours->dev_id);
	snprintf(v->bus, sizeof v->bus, "%s", ours->lease->bus);
	migrate_end_here(&v->from, ours->lease);
}

void src_set_destination(struct migration *m, struct record *asked)
{
	m->rec.to = asked->to;
	record_undo(&m->rec, TOLD_DESTINATION_LOST); /* an operator has said so of another one */
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		const struct migrate_vf *wanted = record_vf(asked, m->rec.vfs[i].vguid);

		if (wanted)
			m->rec.vfs[i].to = wanted->to;
	}
}

void src_fill_record(struct migration *m, struct vm *vm, struct record *asked)
{
	m->rec.vf_count = vm->vf_count;
	for (unsigned i = 0; i < vm->vf_count; i++)
		fill_vf(&m->rec.vfs[i], &vm->vfs[i]);
	migrate_host_here(&m->rec.from, m->d);
	if (asked)
		src_set_destination(m, asked);
	vm->migration = m;
}

static bool same_guids(const struct vm *vm, const struct record *asked)
{
	for (unsigned i = 0; i < asked->vf_count; i++)
		if (!vm_has_guid(vm, asked->vfs[i].vguid))
			return false;
	return asked->vf_count == vm->vf_count;
}

const char *src_cannot_migrate(struct vm *vm, const struct record *asked)
{
	struct migration *open;

	if (vm->state != VM_ATTACHED || !vm_has_vfs(vm))
		return "it has no VF attached here";
	if (asked && !same_guids(vm, asked))
		return "it has other vGUIDs here than its domain XML says: restart it";
	open = migrate_open(vm->d, vm->uuid);
	if (open && (!asked || strcmp(open->rec.id, asked->id)))
		return "an earlier migration of it has not ended: wait, or see ibvmig status";
	return NULL;
}
