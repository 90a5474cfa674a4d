/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PREPARE at the host that the VM comes to, and what becomes of a migration whose source is silent.
 */
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/migrate/silence.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/domain_device.h"
#include "daemon/store/durable.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/migrate/step.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/base/settings.h"
#include "daemon/vm/work.h"
#include <errno.h>
#include <string.h>

#define PREPARE_DEADLINE_MS 12000
#define ASK_DEADLINE_MS     4000
#define ORDER_POLL_MS       2000
#define SOURCE_SILENT_S     120 /* then a source is lost whose VM has not even begun to come */

/* ---- PREPARE ---- */

/* PREPARE: the worker reads the first half, and writes the other; input "to" and "record" are the
 * call's. */
struct prepare_work {
	char vm[37], id[37], name[VM_NAME_MAX];
	char source[256]; /* the URL of the host that has saved the VM; "": it is looked for */

	bool no_vf; /* the VM runs at its source without a VF: there is nothing for us to do */
};

/* The VM's host has all its vGUIDs. */
static int find_source(struct job *j, struct location *source)
{
	struct prepare_work *w = j->work;
	const char *vguid = vf_text_of(job_vf(j, 0), "vguid");
	char why[HTTP_ERROR_MAX];
	int rc;

	/* The image of a saved VM tells where it was saved. */
	if (*w->source) {
		memcpy(source->url, w->source, sizeof w->source);
		return 0;
	}
	rc = locate_guid(j->d->settings, vf_guid_of(job_vf(j, 0), "vguid"), source, j->error);
	if (!rc && !str_eq(source->vm, w->vm))
		return job_fail(j, -EEXIST,
				"vguid %s belongs to another VM, on host %s: a vGUID must be "
				"unique in the subnet",
				vguid, source->host);
	if (rc == -ENOENT && !locate_vm(j->d->settings, w->vm, source, why)) {
		w->no_vf = true;
		return j->rc = -ENODEV;
	}
	return j->rc = rc;
}

/* QEMU would take the state of every VF. */
static bool states_there(const struct job *j)
{
	for (size_t i = 0; i < job_vf_count(j); i++)
		if (!qmp_device_flag(vf_text_of(job_vf(j, i), "attach"), QMP_NATIVE))
			return false;
	return true;
}

static struct json_object *prepare_body(struct job *j)
{
	struct json_object *body = json_object_new_object();
	const struct prepare_work *w = j->work;

	json_set_str(body, "migration", w->id);
	json_set_str(body, "vm", w->vm);
	json_set_str(body, "name", w->name);
	json_set_str(body, "strategy", json_opt_str(j->in, "strategy", ""));
	json_set(body, "to", json_object_get(json_opt(j->in, "to")));
	json_set(body, "vfs", json_object_get(json_opt(j->in, "record")));
	json_set_bool(body, "state_there", states_there(j));
	json_set_bool(body, "pre_attach", j->d->settings->pre_attach != NULL);
	return body;
}

/* The host that saved the VM is silent. */
static void name_way_out(struct job *j)
{
	char why[HTTP_ERROR_MAX];

	memcpy(why, j->error, sizeof why);
	snprintf(j->error, sizeof j->error,
		 "the host that saved it does not answer (%.200s): start ibvmigd there. If it is "
		 "lost, and off, for two VFs with one vGUID break each other's traffic: ibvmig "
		 "restore FILE --source-lost",
		 why);
}

static void prepare_run(struct job *j)
{
	struct json_object *body AUTO_JSON = NULL, *answer = NULL;
	struct location source = {0};

	if (find_source(j, &source))
		return;
	if (!strcmp(source.url, j->d->settings->url)) {
		job_fail(j, -EALREADY, "it runs on this host already");
		return;
	}
	if (job_each_vf(j, vm_work_prepare))
		return;
	body = prepare_body(j);
	j->rc = http_call(source.url, "POST", "/v1/peer/prepare", body, PREPARE_DEADLINE_MS,
			  &answer, j->error);
	json_set(j->out, "answer", answer);
	if (j->rc && j->rc != -EREMOTEIO && *((struct prepare_work *)j->work)->source)
		name_way_out(j);
}

static int put_devices(struct migration *m, const char *xml, unsigned count, const char *leaves_by,
		       char *error)
{
	struct domain_plug plugs[DOMAIN_VFS_MAX];

	for (unsigned i = 0; i < count; i++)
		plugs[i] = (struct domain_plug){
			.commands = migrate_lease(m, &m->rec.vfs[i])->attach,
			.dev_id = m->rec.vfs[i].dev_id,
			.bus = m->rec.vfs[i].bus,
			.leaves_by = leaves_by};
	return domain_with_devices(xml, plugs, count, &m->dst.hook_xml, error);
}

/* A VF is added when the guest runs if it cannot be on a command line, or if no agent would make
 * the guest look for it. */
static bool pre_attach(struct migration *m, const char *xml, bool agent)
{
	const char *leaves_by = m->d->settings->pre_attach;
	char why[HTTP_ERROR_MAX] = "";

	if (!leaves_by || !agent || m->rec.strategy == STRATEGY_COLD)
		return false;
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		if (qmp_device_flag(migrate_lease(m, &m->rec.vfs[i])->attach, QMP_NATIVE))
			return false;
	if (put_devices(m, xml, m->rec.vf_count, leaves_by, why)) {
		log_notice("VM %s: not attached before it runs: %s", m->rec.vm_name, why);
		return false;
	}
	json_set_bool(m->rec.data, DST_PRE_ATTACHED, true);
	return true;
}

/* QEMU loads a device's state only into one that it has started with; one of an earlier migration
 * has another VF's name. */
static int change_xml(struct migration *m, bool agent)
{
	unsigned count = m->rec.strategy == STRATEGY_NATIVE ? m->rec.vf_count : 0;
	char *xml AUTO_FREE = TAKE(m->dst.hook_xml);
	char error[HTTP_ERROR_MAX] = "";
	int rc;

	if (xml && !count && pre_attach(m, xml, agent))
		return 0;
	rc = !xml ? -EINVAL : put_devices(m, xml, count, NULL, error);
	return rc ? migrate_error(m, rc, "%s", error) : 0;
}

/* Keeps the source's words about a VF, and the provider's about ours. */
static int keep_vf(struct migration *m, struct migrate_vf *v, struct json_object *answer,
		   struct json_object *prepared)
{
	struct vf *vf = migrate_lease(m, v);
	struct json_object *from = json_opt(answer, "from");

	if (!vf || !from)
		return -EPROTO;
	migrate_end_load(&v->from, from);
	snprintf(v->bus, sizeof v->bus, "%s", json_opt_str(answer, "bus", ""));
	snprintf(vf->bus, sizeof vf->bus, "%s", v->bus);
	json_set_u64(prepared, "lid", json_opt_u64(answer, "lid", 0));
	vm_work_keep(m->d->vfs, vf, prepared);
	return 0;
}

static struct json_object *answer_of(struct json_object *answer, uint64_t vguid)
{
	struct json_object *list = json_opt(answer, "vfs");

	for (size_t i = 0; i < json_count(list); i++)
		if (vf_guid_of(json_object_array_get_idx(list, i), "vguid") == vguid)
			return json_object_array_get_idx(list, i);
	return NULL;
}

static int keep_answer(struct migration *m, struct job *j)
{
	struct json_object *answer = json_opt(j->out, "answer");
	int rc = 0;

	migrate_host_load(&m->rec.from, json_opt(answer, "from"));
	for (unsigned i = 0; !rc && i < m->rec.vf_count; i++)
		rc = keep_vf(m, &m->rec.vfs[i], answer_of(answer, m->rec.vfs[i].vguid),
			     job_vf(j, i));
	if (rc)
		return migrate_error(m, rc,
				     "the source's answer to prepare lacks a VF of the VM: do both "
				     "hosts run the same version of ibvmigd?");
	strategy_parse(json_opt_str(answer, "strategy", ""), &m->rec.strategy);
	json_set(m->rec.data, "choice", json_object_get(json_opt(answer, "choice")));
	return change_xml(m, json_opt_bool(answer, "agent", true));
}

/* libvirt's hook lets it come as any VM. */
static void leave_alone(struct migration *m, int rc)
{
	struct http_exchange *x = TAKE(m->waiting);

	migrate_fail(m, rc, "it runs without a VF at its source");
	if (x)
		durable_reply(m->d->durable, x, 200, NULL);
}

static void prepared(struct migration *m, struct job *j)
{
	if (j->rc && ((const struct prepare_work *)j->work)->no_vf) {
		leave_alone(m, j->rc);
		return;
	}
	if (j->rc || keep_answer(m, j)) {
		migrate_fail(m, -EINVAL, "%s", j->rc ? j->error : m->rec.reason);
		return;
	}
	record_do(&m->rec, DID_ARM);
	migrate_measure(m, "prepare_us");
	migrate_save(m, "armed");
	migrate_answer_waiting(m, 0);
}

static int order_prepare(struct migration *m)
{
	struct json_object *in = migrate_input(m);
	struct prepare_work w = {0};

	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	memcpy(w.id, m->rec.id, sizeof w.id);
	memcpy(w.name, m->rec.vm_name, sizeof w.name);
	if (m->rec.asked == STRATEGY_COLD)
		memcpy(w.source, m->rec.from.url, sizeof w.source);
	json_set_str(in, "strategy", strategy_name(m->rec.asked)); /* for vm_work_prepare() */
	json_set(in, "to", migrate_host_json(&m->rec.to));
	json_set(in, "record", record_vfs_json(&m->rec));
	return migrate_order(
		m,
		(struct job_order){
			.pool = m->d->callers, JOB_WORK(w), .in = in, .run = prepare_run},
		prepared);
}

/* ---- the verdict of a silent source ---- */

/* The source's verdict: the worker reads the first half, and writes the other. */
struct verdict_work {
	char vm[37], id[37], url[256];

	bool over; /* the source has ended, or walks back, or has no record */
	bool here; /* the source is silent: libvirt has a QEMU for the VM, which may wait for it */
};

static void verdict_run(struct job *j)
{
	struct verdict_work *w = j->work;
	struct remote_record src;
	char why[HTTP_ERROR_MAX];

	j->rc = remote_ask(w->url, w->id, ROLE_SOURCE, ASK_DEADLINE_MS, &src, j->error);
	if (j->rc && j->rc != -EREMOTEIO) {
		/* No verdict: it is asked for again. A libvirt that does not say may have it. */
		w->here = true;
		if (virt_is_running(j->d->virt, w->vm, &w->here, why))
			w->here = true;
		return;
	}
	w->over = !src.known || src.ended || src.back;
	j->rc = 0;
}

static bool is_over(const struct job *j)
{
	return ((const struct verdict_work *)j->work)->over;
}

/* The hook has had our answer, and libvirt has not started the VM: nobody comes from a host that is
 * lost. One that was only away asks us, and hears of it. */
static bool nobody_comes(const struct migration *m, const struct job *j)
{
	uint64_t heard_us = m->step.heard_us ? m->step.heard_us : m->step.entered_us;

	return j->rc && m->rec.state == M_PREPARE && !record_did(&m->rec, DID_ORDER) &&
	       !((const struct verdict_work *)j->work)->here &&
	       now_us() - heard_us > SOURCE_SILENT_S * 1000000ull;
}

static void verdict(struct migration *m, struct job *j)
{
	migrate_enter(m, DST_AWAIT);
	m->step.timed_out = false;
	if (!j->rc)
		m->step.heard_us = now_us();
	if (!j->rc && is_over(j) && !m->dst.guest_resumed)
		migrate_give_up(m, "the source has given the migration up");
	else if (nobody_comes(m, j))
		migrate_give_up(m,
				"host %.60s has not answered for %d s, and libvirt has not started "
				"the VM here: %.300s",
				m->rec.from.host, SOURCE_SILENT_S, j->error);
	else
		migrate_deadline_again(m);
}

static int ask_source(struct migration *m, unsigned phase,
		      void (*done)(struct migration *m, struct job *j))
{
	struct verdict_work w = {0};

	migrate_enter(m, phase);
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	memcpy(w.id, m->rec.id, sizeof w.id);
	memcpy(w.url, m->rec.from.url, sizeof w.url);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .run = verdict_run}, done);
}

int dst_ask_verdict(struct migration *m)
{
	return ask_source(m, DST_ASK, verdict);
}

static void dead_judged(struct migration *m, struct job *j)
{
	if (j->rc)
		migrate_fail(m, j->rc,
			     "the VM is dead, and host %.60s does not say whether it has its vGUID "
			     "again: %.300s",
			     m->rec.from.host, j->error);
	else if (is_over(j))
		migrate_enter(m, DST_DEAD_OVER);
	else
		migrate_enter(m, m->rec.state == M_SWITCH ? DST_DEAD_GOES_ON : DST_AWAIT);
}

int dst_judge_dead(struct migration *m)
{
	if (m->step.phase == DST_JUDGE_DEAD || m->inflight)
		return STEP_WAIT;
	return ask_source(m, DST_JUDGE_DEAD, dead_judged);
}

static void order_asked_for(struct migration *m, struct job *j)
{
	migrate_enter(m, DST_AWAIT);
	if (!j->rc && is_over(j)) {
		migrate_fail(m, -ECANCELED,
			     "the VM runs here, and host %.60s has ended its part of the migration "
			     "without giving its addresses away",
			     m->rec.from.host);
		return;
	}
	m->step.silent = j->rc ? m->step.silent + 1 : 0;
	m->rec.trouble[0] = '\0';
	if (j->rc)
		orphan_name_way_out(m, j->error, m->rec.trouble);
}

/* The VM runs here, and its source has not ordered SWITCH yet. Who is silent may come back, and is
 * asked for as long as it takes. */
static int await_order(struct migration *m)
{
	if (m->step.phase != DST_AWAIT || m->inflight)
		return STEP_WAIT;
	loop_timer_disarm(m->deadline);
	if (!m->step.asked_us)
		m->step.asked_us = now_us();
	if (now_us() - m->step.asked_us < ORDER_POLL_MS * 1000ull) {
		migrate_poll(m, ORDER_POLL_MS);
		return STEP_WAIT;
	}
	m->step.asked_us = now_us();
	return record_did(&m->rec, SAW_VM_END) ? dst_judge_dead(m)
					       : ask_source(m, DST_ASK_ORDER, order_asked_for);
}

const struct migrate_phase dst_waits[] = {
	[DST_AWAIT] = {.name = "await"},         [DST_ASK] = {.name = "ask-source"},
	[DST_ASK_ORDER] = {.name = "ask-order"}, [DST_JUDGE_DEAD] = {.name = "judge-dead"},
	[DST_DEAD_OVER] = {.name = "dead-over"}, [DST_DEAD_GOES_ON] = {.name = "dead-goes-on"},
};

/* A saved VM's source has nothing to say. */
static int over_time(struct migration *m)
{
	return m->rec.strategy == STRATEGY_COLD ? cold_look_for_vm(m) : dst_ask_verdict(m);
}

int dst_prepare(struct migration *m)
{
	int rc;

	m->step.phases = dst_waits;
	if (record_did(&m->rec, DID_ARM) &&
	    (record_did(&m->rec, DID_ORDER) || record_did(&m->rec, TOLD_SOURCE_LOST) ||
	     m->step.phase == DST_DEAD_OVER))
		return STEP_DONE;
	if (m->rec.committed)
		return await_order(m);
	if (record_did(&m->rec, DID_ARM))
		return m->step.timed_out && m->step.phase == DST_AWAIT ? over_time(m) : STEP_WAIT;
	if (m->step.started)
		return STEP_WAIT;
	m->step.started = true;
	rc = migrate_check_leases(m);
	if (rc)
		return rc;
	return order_prepare(m);
}

static void released(struct migration *m, struct job *j)
{
	if (migrate_job_failed(m, j))
		return;
	migrate_free_leases(m);
	migrate_next(m);
}

static int release(struct migration *m)
{
	if (!migrate_has_leases(m))
		return STEP_DONE;
	return migrate_job(m, migrate_input(m), migrate_release_run, released);
}

static int forget(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	if (vm && vm->state == VM_INCOMING)
		vm_forget(vm);
	return STEP_DONE;
}

static const struct migrate_phase prepare_undo[] = {
	{"release", release, NULL},
	{"forget", forget, NULL},
	{0},
};

int dst_prepare_undo(struct migration *m)
{
	return migrate_run_phases(m, prepare_undo);
}
