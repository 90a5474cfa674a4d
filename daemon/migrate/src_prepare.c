/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PREPARE at the host that the VM leaves: the agent and its peers are asked, a strategy is chosen.
 */
#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/base/defer.h"
#include "daemon/base/job.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/libvirt/virt.h"

#include <errno.h>
#include <string.h>

/* ---- PREPARE ---- */

static void prepare_checked(struct migration *m, struct job *j)
{
	if (migrate_job_failed(m, j))
		return;
	src_take_peers(m, j);
	migrate_next(m);
	record_do(&m->rec, DID_ARM);
	migrate_measure(m, "prepare_us");
	if (m->rec.strategy == STRATEGY_LATE)
		src_begin_ballast(m);
	migrate_save(m, "armed");
	/* QEMU must not begin before an early VF has left. */
	if (!record_vf_first(&m->rec))
		migrate_answer_waiting(m, 0);
}

/* error: why the agent gave no answer. */
static void prepare_choose(struct migration *m, struct vm *vm, struct json_object *answer,
			   const char *error)
{
	struct strategy_facts facts;
	int rc;

	choice_facts(vm, answer, &facts);
	facts.paused = m->src.stands ? m->rec.vm_name : NULL;
	json_set_bool(m->rec.data, "agent", facts.agent);
	rc = choice_make(m, &facts);
	if (rc && facts.agent_needed && !facts.agent && !facts.paused)
		snprintf(m->rec.reason, sizeof m->rec.reason, "%s", error);
	else if (!rc && answer && m->rec.strategy != STRATEGY_NATIVE)
		rc = src_read_query(m, answer);
	if (rc)
		migrate_fail(m, rc, "%s", m->rec.reason);
	else
		migrate_next(m);
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

static int prepare_ask(struct migration *m)
{
	struct vm *vm = migrate_vm(m);
	char why[HTTP_ERROR_MAX];

	if (!vm)
		return migrate_error(m, -ENOENT, "the VM has ended");
	if (!m->src.stands && src_agent_wanted(m, vm)) {
		src_query(m, vm, prepare_queried);
		return STEP_WAIT;
	}
	snprintf(why, sizeof why,
		 "it has no channel %s: add it to the domain and start ibvmig-agent in the guest",
		 DOMAIN_CHANNEL);
	prepare_choose(m, vm, NULL, why);
	return STEP_JUMP;
}

static int prepare_check(struct migration *m)
{
	return src_check(m, true, prepare_checked);
}

struct look_work {
	char vm[37];
	bool stands;
};

static void prepare_look_run(struct job *j)
{
	struct look_work *w = j->work;
	enum virt_state state = VIRT_RUNS;

	j->rc = virt_state(j->d->virt, w->vm, &state, j->error);
	w->stands = state == VIRT_STANDS;
}

/* Without libvirt's word the VM is taken for running: an agent that answers is as good. */
static void prepare_looked(struct migration *m, struct job *j)
{
	m->src.stands = ((const struct look_work *)j->work)->stands;
	migrate_next(m);
}

static int prepare_look(struct migration *m)
{
	struct look_work w = {0};

	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .run = prepare_look_run},
			     prepare_looked);
}

/* Armed: QEMU begins, or the VF of an early VM leaves before. */
static int prepare_begin(struct migration *m)
{
	if (m->src.job == JOB_ACTIVE || record_vf_first(&m->rec))
		return STEP_DONE;
	return src_await_begin(m);
}

static const struct migrate_phase prepare_phases[] = {
	{"look", prepare_look, NULL},
	{"query", prepare_ask, NULL},
	{"check", prepare_check, NULL},
	{"begin", prepare_begin, prepare_begin},
	{0},
};

int src_prepare(struct migration *m)
{
	if (record_did(&m->rec, DID_ARM))
		return prepare_begin(m);
	return migrate_run_phases(m, prepare_phases);
}

/* ---- the destination asks for it ---- */

/* libvirt may be done with the last migration before we are; and one that never began is superseded
 * by the next. true: ask again. */
static bool must_wait(struct vm *vm, const char *id)
{
	struct migration *open = migrate_open(vm->d, vm->uuid);

	if (!open || !strcmp(open->rec.id, id) || open->rec.state == M_PARKED)
		return false;
	if (open->rec.role == ROLE_SOURCE && src_awaits_begin(open))
		migrate_fail(open, -ECANCELED, "it never began, and another one was asked for");
	return open->rec.committed || open->rec.back || open->rec.state == M_CANCEL ||
	       open->rec.ended;
}

/* The destination's words, checked; 0 or -EINVAL with a line in why. */
static int read_request(struct json_object *body, struct record *ret_asked, char *why)
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
	record_vfs_load(ret_asked, body);
	return 0;
}

/* m: the record that was asked for, or NULL: there is none yet. */
static void prepare(struct http_request *req, struct vm *vm, struct migration *m,
		    struct record *asked)
{
	/* Asked again, by libvirt's next try. */
	if (m && m->rec.strategy == STRATEGY_EARLY && src_awaits_begin(m)) {
		http_reply(req->exchange, 200, src_prepare_answer(m));
		return;
	}
	if (!m)
		m = migrate_new(vm->d, ROLE_SOURCE, asked->id, vm->uuid, vm->name);
	if (!m || m->rec.state != M_PREPARE || m->rec.back || m->waiting) {
		http_fail(req->exchange, 409, "cannot-migrate", "migration %s is under way",
			  asked->id);
		return;
	}
	/* The metadata may have been edited since the VM started. */
	strategy_parse(json_opt_str(req->body, "strategy", ""), &vm->strategy);
	src_fill_record(m, vm, asked);
	m->rec.asked = m->rec.strategy = vm->has_strategy_once ? vm->strategy_once : vm->strategy;
	m->rec.state_there = json_opt_bool(req->body, "state_there", false);
	m->src.hold.starts_with = json_opt_bool(req->body, "pre_attach", false);
	m->waiting = req->exchange;
	migrate_save(m, "asked by the destination");
	if (record_did(&m->rec, DID_ARM))
		migrate_answer_waiting(m, 0);
	migrate_drive(m);
}

void src_on_prepare(struct http_request *req)
{
	struct daemon *d = req->user;
	struct record *asked AUTO_FREE = calloc(1, sizeof *asked);
	char error[HTTP_ERROR_MAX] = "out of memory";
	struct migration *m;
	const char *why;
	struct vm *vm;

	if (!asked || read_request(req->body, asked, error)) {
		http_fail(req->exchange, 400, "bad-field", "%s", error);
		return;
	}
	m = migrate_find(d, asked->id, ROLE_SOURCE);
	if (m && m->rec.file) {
		cold_answer_prepare(req, m, asked);
		return;
	}
	vm = vm_find(d, asked->vm_uuid);
	if (vm && must_wait(vm, asked->id) && defer_request(req, src_on_prepare))
		return;
	why = vm ? src_cannot_migrate(vm, asked) : "ibvmigd there does not know it";
	if (why)
		http_fail(req->exchange, 409, "cannot-migrate", "host %s: %s",
			  d->settings->host_name, why);
	else
		prepare(req, vm, m, asked);
}

void src_unprepared(struct vm *vm)
{
	struct migration *m = migrate_new(vm->d, ROLE_SOURCE, NULL, vm->uuid, vm->name);

	if (!m)
		return;
	src_fill_record(m, vm, NULL);
	m->src.job = JOB_ACTIVE;
	migrate_fail(
		m, -EPROTO,
		"it leaves without its VF being prepared: the libvirt hook of ibvmig is not "
		"installed at the destination (or this is a save to a file, for which there is "
		"ibvmig save); the job is cancelled, the VM stays");
}
