/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PREPARE at the host that the VM leaves: the agent and its peers are asked, a strategy is chosen.
 */
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/src_saved.h"
#include "daemon/base/daemon.h"
#include "daemon/base/defer.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/migrate/choice.h"
#include "daemon/migrate/src.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/libvirt/virt.h"

#include <errno.h>
#include <string.h>

#define CHECK_WAY_MS     2000
#define BALLAST_HEARD_US 5000000 /* it is asked each 3 s */
#define BALLAST_INTERVAL 20      /* ms: less than a link of 400 MB/s needs for the ballast */

static const char *str(struct job *j, const char *key)
{
	return json_opt_str(j->in, key, "");
}

/* ---- peers of the agent's answer to query ---- */

static int add_peer(struct migration *m, uint64_t guid)
{
	struct vm *vm = vm_by_guid(m->d, guid);
	struct migrate_peer *p;

	for (unsigned i = 0; i < m->peer_count; i++)
		if (m->peers[i].guid == guid)
			return 0;
	if (m->peer_count == MIGRATE_PEERS_MAX)
		return -E2BIG;
	p = &m->peers[m->peer_count++];
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
	m->peer_count = 0;
	for (size_t i = 0;
	     json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct ib_gid gid;
		const char *text = json_opt_str(json_object_array_get_idx(list, i), "dgid", "");

		if (!ib_gid_parse(text, &gid) && !migrate_vf(m, gid.guid) && add_peer(m, gid.guid))
			return migrate_error(m, -E2BIG,
					     "it is connected to more than %d others, which is the "
					     "limit",
					     MIGRATE_PEERS_MAX);
	}
	return 0;
}

/* The host of a peer that is not here. */
static int find_peer(struct job *j, struct json_object *o)
{
	const char *guid = json_opt_str(o, "guid", "");
	char why[HTTP_ERROR_MAX];
	struct location l = {0};
	uint64_t value = 0;

	if (*json_opt_str(o, "url", ""))
		return 0;
	ib_guid_parse(guid, &value);
	if (locate_guid(j->d->settings, value, &l, why))
		return job_fail(j, -ENOENT,
				"the VM is connected to GUID %s, but %.300s; without its "
				"agent the connection would break",
				guid, why);
	json_set_str(o, "url", l.url);
	json_set_str(o, "host", l.host);
	return 0;
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
static int check_host(struct job *j, struct json_object *peers, size_t i)
{
	struct json_object *o = json_object_array_get_idx(peers, i);
	const char *url = json_opt_str(o, "url", "");
	struct json_object *guids = guids_from(peers, i, url);
	struct json_object *body AUTO_JSON = NULL, *answer AUTO_JSON = NULL;
	char why[HTTP_ERROR_MAX];
	unsigned ms = json_opt_bool(j->in, "save", false) ? MIGRATE_SAVE_QUERY_MS
							  : MIGRATE_PEER_QUERY_MS;

	if (!guids)
		return 0;
	body = json_object_new_object();
	json_set_str(body, "migration", str(j, "migration"));
	json_set(body, "vguids", json_object_get(json_opt(j->in, "vguids")));
	json_set(body, "guids", guids);
	json_set_u64(body, "deadline_ms", ms);
	if (http_call(url, "POST", "/v1/peer/check", body, ms + CHECK_WAY_MS, &answer, why))
		return job_fail(j, -EHOSTUNREACH, "host %.60s: %.400s",
				json_opt_str(o, "host", "?"), why);
	return 0;
}

/* Whether ibvmig-sm would take the addresses where they are to go: once QEMU is released it may be
 * too late to stay. A VM that is saved goes nowhere yet. */
static int check_fabric(struct job *j)
{
	struct json_object *moves = json_opt(j->in, "moves"), *answer AUTO_JSON = NULL;
	bool caching;

	j->rc = sm_check(j->d->settings, &caching, j->error);
	if (!j->rc && moves)
		j->rc = sm_call(j->d->settings, "POST", "/v1/moves/check", json_object_get(moves),
				&answer, j->error);
	return j->rc;
}

void src_check_run(struct job *j)
{
	struct json_object *peers = json_opt(j->in, "peers");

	if (json_opt_bool(j->in, "sm", false))
		check_fabric(j);
	for (size_t i = 0; !j->rc && i < json_object_array_length(peers); i++)
		find_peer(j, json_object_array_get_idx(peers, i));
	for (size_t i = 0; !j->rc && i < json_object_array_length(peers); i++)
		check_host(j, peers, i);
	json_set(j->out, "peers", json_object_get(peers));
}

struct json_object *src_check_input(struct migration *m, bool sm)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "migration", m->id);
	json_set(in, "vguids", migrate_guids(m));
	json_set(in, "peers", peers_json(m));
	json_set_bool(in, "sm", sm);
	json_set_bool(in, "save", m->file);
	if (sm && !m->file)
		json_set(in, "moves", migrate_moves(m, false));
	return in;
}

bool src_agent_wanted(struct migration *m, struct vm *vm)
{
	if (!vm || !vm->agent)
		return false;
	return src_agent_needed(m) || agent_state(vm->agent) == AGENT_UP;
}

bool src_agent_needed(const struct migration *m)
{
	return m->d->settings->require_agent || m->strategy == STRATEGY_LATE;
}

/* ---- PREPARE ---- */

static struct json_object *ballast_message(uint64_t bytes)
{
	struct json_object *msg = src_op_message("ballast");

	json_set_u64(msg, "bytes", bytes);
	json_set_u64(msg, "interval_ms", BALLAST_INTERVAL);
	return msg;
}

static void ballast_kept(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct vm *vm = arg;

	if (rc)
		log_debug("VM %s: the ballast is not kept: %s", vm->name, error);
	vm->ballast_bytes = rc ? 0 : json_opt_u64(answer, "bytes", vm->d->settings->ballast_bytes);
	vm->ballast_us = now_us();
}

static void ask_ballast(struct vm *vm)
{
	agent_request(vm->agent, ballast_message(vm->d->settings->ballast_bytes), SRC_QUERY_MS,
		      ballast_kept, vm);
}

void src_begin_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	m->ballast = m->d->settings->ballast_bytes;
	if (!vm)
		return;
	vm->ballast_bytes = 0;
	if (agent_state(vm->agent) == AGENT_UP)
		ask_ballast(vm);
}

void src_end_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	m->ballast = false;
	if (vm && agent_state(vm->agent) == AGENT_UP)
		migrate_ask_agent(m, vm, ballast_message(0), SRC_QUERY_MS, NULL);
}

bool src_has_ballast(struct migration *m)
{
	uint64_t wanted = m->d->settings->ballast_bytes;
	const struct vm *vm = migrate_vm(m);

	return vm && agent_state(vm->agent) == AGENT_UP && wanted && vm->ballast_bytes >= wanted &&
	       now_us() - vm->ballast_us < BALLAST_HEARD_US;
}

void src_keep_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	/* No step waits for it: HOLD looks at QEMU meanwhile. */
	if (m->ballast && !m->back && vm && agent_state(vm->agent) == AGENT_UP)
		ask_ballast(vm);
}

static void prepare_checked(struct migration *m, struct job *j)
{
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	peers_load(m, json_opt(j->out, "peers"));
	m->armed = true;
	migrate_measure(m, "prepare_us");
	if (m->strategy == STRATEGY_LATE)
		src_begin_ballast(m);
	migrate_save(m, "armed");
	/* QEMU must not begin before an early VF has left. */
	if (!migrate_vf_first(m))
		migrate_answer_waiting(m, 0);
}

/* error: why the agent gave no answer. */
static void prepare_choose(struct migration *m, struct vm *vm, struct json_object *answer,
			   const char *error)
{
	struct strategy_facts facts;
	int rc;

	choice_facts(vm, answer, &facts);
	facts.paused = m->stands ? m->vm_name : NULL;
	json_set_bool(m->data, "agent", facts.agent);
	rc = choice_make(m, &facts);
	if (rc && facts.agent_needed && !facts.agent && !facts.paused)
		snprintf(m->reason, sizeof m->reason, "%s", error);
	else if (!rc && answer && m->strategy != STRATEGY_NATIVE)
		rc = src_read_query(m, answer);
	if (rc)
		migrate_fail(m, rc, "%s", m->reason);
	else if (migrate_job(m, src_check_input(m, true), src_check_run, prepare_checked))
		migrate_fail(m, -ENOMEM, "out of memory");
}

static void prepare_queried(struct migration *m, int rc, struct json_object *answer,
			    const char *error)
{
	struct vm *vm = migrate_vm(m);

	if (vm)
		prepare_choose(m, vm, rc ? NULL : answer, error);
	else
		migrate_fail(m, -ENOENT, "the VM has ended");
}

static void prepare_ask(struct migration *m, struct vm *vm)
{
	char why[HTTP_ERROR_MAX];

	if (!m->stands && src_agent_wanted(m, vm)) {
		src_query(m, vm, prepare_queried);
		return;
	}
	snprintf(why, sizeof why,
		 "it has no channel %s: add it to the domain and start ibvmig-agent in the guest",
		 DOMAIN_CHANNEL);
	prepare_choose(m, vm, NULL, why);
}

static void prepare_look_run(struct job *j)
{
	enum virt_state state = VIRT_RUNS;

	j->rc = virt_state(j->d->virt, str(j, "vm"), &state, j->error);
	json_set_bool(j->out, "stands", state == VIRT_STANDS);
}

/* Without libvirt's word it is taken for running: an agent that answers is as good. */
static void prepare_looked(struct migration *m, struct job *j)
{
	struct vm *vm = migrate_vm(m);

	m->stands = json_opt_bool(j->out, "stands", false);
	if (vm)
		prepare_ask(m, vm);
	else
		migrate_fail(m, -ENOENT, "the VM has ended");
}

int src_prepare(struct migration *m)
{
	struct json_object *in;

	if (m->armed)
		return m->job == JOB_ACTIVE || migrate_vf_first(m) ? STEP_DONE : src_await_begin(m);
	if (m->step.started)
		return STEP_WAIT;
	m->step.started = true;
	in = json_object_new_object();
	json_set_str(in, "vm", m->vm_uuid);
	if (migrate_job(m, in, prepare_look_run, prepare_looked))
		return migrate_error(m, -ENOMEM, "out of memory");
	return STEP_WAIT;
}

/* ---- the destination asks for it ---- */

static void fill_vf(struct migrate_vf *v, const struct vm_vf *ours)
{
	*v = (struct migrate_vf){.vguid = ours->want.vguid, .pkey = ours->want.pkey};
	snprintf(v->dev_id, sizeof v->dev_id, "%s", ours->dev_id);
	snprintf(v->bus, sizeof v->bus, "%s", ours->lease->bus);
	migrate_end_here(&v->from, ours->lease);
}

void src_set_destination(struct migration *m, struct migration *asked)
{
	m->to = asked->to;
	m->destination_lost = false; /* that was another one */
	for (unsigned i = 0; i < m->vf_count; i++) {
		const struct migrate_vf *wanted = migrate_vf(asked, m->vfs[i].vguid);

		if (wanted)
			m->vfs[i].to = wanted->to;
	}
}

void src_fill_record(struct migration *m, struct vm *vm, struct migration *asked)
{
	m->vf_count = vm->vf_count;
	for (unsigned i = 0; i < vm->vf_count; i++)
		fill_vf(&m->vfs[i], &vm->vfs[i]);
	migrate_host_here(&m->from, m->d);
	if (asked)
		src_set_destination(m, asked);
	vm->migration = m;
}

static bool same_guids(const struct vm *vm, const struct migration *asked)
{
	for (unsigned i = 0; i < asked->vf_count; i++)
		if (!vm_has_guid(vm, asked->vfs[i].vguid))
			return false;
	return asked->vf_count == vm->vf_count;
}

const char *src_cannot_migrate(struct vm *vm, const struct migration *asked)
{
	struct migration *open;

	if (vm->state != VM_ATTACHED || !vm_has_vfs(vm))
		return "it has no VF attached here";
	if (asked && !same_guids(vm, asked))
		return "it has other vGUIDs here than its domain XML says: restart it";
	open = migrate_open(vm->d, vm->uuid);
	if (open && (!asked || strcmp(open->id, asked->id)))
		return "an earlier migration of it has not ended: wait, or see ibvmig status";
	return NULL;
}

/* libvirt may be done with the last migration before we are; and one that never began is superseded
 * by the next. true: ask again. */
static bool must_wait(struct vm *vm, const char *id)
{
	struct migration *open = migrate_open(vm->d, vm->uuid);

	if (!open || !strcmp(open->id, id) || open->state == M_PARKED)
		return false;
	if (open->role == ROLE_SOURCE && src_awaits_begin(open))
		migrate_fail(open, -ECANCELED, "it never began, and another one was asked for");
	return open->committed || open->back || open->state == M_CANCEL || open->ended;
}

/* The destination's words, checked; 0 or -EINVAL with a line in why. */
static int read_request(struct json_object *body, struct migration *ret_asked, char *why)
{
	struct json_object *to, *vfs;
	struct json_reader r;

	json_reader_init(&r, body);
	snprintf(ret_asked->id, sizeof ret_asked->id, "%s", json_need_str(&r, "migration"));
	snprintf(ret_asked->vm_uuid, sizeof ret_asked->vm_uuid, "%s", json_need_str(&r, "vm"));
	to = json_need_obj(&r, "to");
	vfs = json_need_array(&r, "vfs");
	for (size_t i = 0; !r.error && i < json_count(vfs); i++) {
		struct json_reader one;

		json_reader_init(&one, json_object_array_get_idx(vfs, i));
		json_need_guid(&one, "vguid");
		json_reader_init(&one, json_need_obj(&one, "to"));
		json_need_str(&one, "vf");
		json_need_guid(&one, "parked_guid");
		r = one.error ? one : r;
	}
	snprintf(why, HTTP_ERROR_MAX, "%s", r.message);
	if (r.error)
		return r.error;
	migrate_host_load(&ret_asked->to, to);
	migrate_vfs_load(ret_asked, body);
	return 0;
}

static void prepare(struct http_request *req, struct vm *vm, struct migration *asked)
{
	struct migration *m = migrate_find(vm->d, asked->id, ROLE_SOURCE);

	/* Asked again, by libvirt's next try. */
	if (m && m->strategy == STRATEGY_EARLY && src_awaits_begin(m)) {
		http_reply(req->exchange, 200, src_prepare_answer(m));
		return;
	}
	if (!m)
		m = migrate_new(vm->d, ROLE_SOURCE, asked->id, vm->uuid, vm->name);
	if (!m || m->state != M_PREPARE || m->back || m->waiting) {
		http_fail(req->exchange, 409, "cannot-migrate", "migration %s is under way",
			  asked->id);
		return;
	}
	/* The metadata may have been edited since the VM started. */
	strategy_parse(json_opt_str(req->body, "strategy", ""), &vm->strategy);
	src_fill_record(m, vm, asked);
	m->asked = m->strategy = vm->has_strategy_once ? vm->strategy_once : vm->strategy;
	m->state_there = json_opt_bool(req->body, "state_there", false);
	m->hold.starts_with = json_opt_bool(req->body, "pre_attach", false);
	m->waiting = req->exchange;
	migrate_save(m, "asked by the destination");
	if (m->armed)
		migrate_answer_waiting(m, 0);
	migrate_drive(m);
}

void src_on_prepare(struct http_request *req)
{
	struct daemon *d = req->user;
	struct migration *asked AUTO_FREE = calloc(1, sizeof *asked);
	char error[HTTP_ERROR_MAX] = "out of memory";
	const char *why;
	struct vm *vm;

	if (!asked || read_request(req->body, asked, error)) {
		http_fail(req->exchange, 400, "bad-field", "%s", error);
		return;
	}
	if (cold_answer_prepare(req, asked))
		return;
	vm = vm_find(d, asked->vm_uuid);
	if (vm && must_wait(vm, asked->id) && defer_request(req, src_on_prepare))
		return;
	why = vm ? src_cannot_migrate(vm, asked) : "ibvmigd there does not know it";
	if (why)
		http_fail(req->exchange, 409, "cannot-migrate", "host %s: %s",
			  d->settings->host_name, why);
	else
		prepare(req, vm, asked);
}

void src_unprepared(struct vm *vm)
{
	struct migration *m = migrate_new(vm->d, ROLE_SOURCE, NULL, vm->uuid, vm->name);

	if (!m)
		return;
	src_fill_record(m, vm, NULL);
	m->job = JOB_ACTIVE;
	migrate_fail(
		m, -EPROTO,
		"it leaves without its VF being prepared: the libvirt hook of ibvmig is not "
		"installed at the destination (or this is a save to a file, for which there is "
		"ibvmig save); the job is cancelled, the VM stays");
}
