/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The steps of the host that the VM comes to. */
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
#include "daemon/vf/provider.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/vm/repath.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/work.h"

#include <errno.h>
#include <string.h>

#define PRE_ATTACHED        "pre_attached" /* in the record's data */
#define PREPARE_DEADLINE_MS 12000
#define ASK_DEADLINE_MS     4000
#define ORDER_POLL_MS       2000
#define SOURCE_SILENT_S     120 /* then a source is lost whose VM has not even begun to come */
#define RESUME_TRIES        20
#define RESUME_AT_ONCE_US   5000000 /* later, the peers' patience has run out as well */
#define RESUME_AGAIN_MS     200

/* Checks that the leases are there. The first one that is gone stands in the reason. */
static int check_leases(struct migration *m)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		if (!migrate_lease(m, &m->rec.vfs[i]))
			return migrate_error(m, -ENOENT, "the lease of VF %s is gone",
					     m->rec.vfs[i].to.vf);
	return 0;
}

static bool has_leases(const struct migration *m)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		if (migrate_lease(m, &m->rec.vfs[i]))
			return true;
	return false;
}

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
	json_set_bool(m->rec.data, PRE_ATTACHED, true);
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

static int ask_verdict(struct migration *m)
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

/* The VM came, and is dead: this host was off for a while, perhaps. Its source may have been told
 * that it is lost for good, and the VM have its vGUID there again. */
static int judge_dead(struct migration *m)
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
	return record_did(&m->rec, SAW_VM_END) ? judge_dead(m)
					       : ask_source(m, DST_ASK_ORDER, order_asked_for);
}

/* The names of what PREPARE and SWITCH wait for: events begin and end it, and no order of phases.
 */
static const struct migrate_phase waits[] = {
	[DST_AWAIT] = {.name = "await"},         [DST_ASK] = {.name = "ask-source"},
	[DST_ASK_ORDER] = {.name = "ask-order"}, [DST_JUDGE_DEAD] = {.name = "judge-dead"},
	[DST_DEAD_OVER] = {.name = "dead-over"}, [DST_DEAD_GOES_ON] = {.name = "dead-goes-on"},
};

/* A saved VM's source has nothing to say. */
static int over_time(struct migration *m)
{
	return m->rec.strategy == STRATEGY_COLD ? cold_look_for_vm(m) : ask_verdict(m);
}

int dst_prepare(struct migration *m)
{
	int rc;

	m->step.phases = waits;
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
	rc = check_leases(m);
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
	if (!has_leases(m))
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

/* ---- SWITCH ---- */

static int show_guid(struct job *j, struct json_object *vf, char *error)
{
	return provider_set_guid(j->d->provider, vf_text_of(vf, "vf"), vf_guid_of(vf, "vguid"),
				 error);
}

static void switch_run(struct job *j)
{
	struct json_object *answer = NULL;
	uint64_t start_us = now_us();

	job_vfs_at_once(j, show_guid);
	json_set_u64(j->out, "set_guid_us", now_us() - start_us);
	if (!j->rc)
		j->rc = sm_change(j->d->settings, "/v1/moves",
				  json_object_get(json_opt(j->in, "moves")), &answer, j->error);
	json_set(j->out, "answer", answer);
}

static void keep_lids(struct migration *m, struct json_object *answer)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct json_object *moved = repath_move_of(answer, m->rec.vfs[i].vguid);
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		if (!vf)
			continue;
		vf->lid = (unsigned)json_opt_u64(moved, "lid_after", vf->lid);
		vf_save(m->d->vfs, vf);
	}
}

static void switched(struct migration *m, struct job *j)
{
	struct json_object *answer = json_opt(j->out, "answer");
	char text[HTTP_ERROR_MAX] = "";

	/* ibvmig-sm takes no vGUID from a port that is dead. */
	if (j->rc == -EREMOTEIO && m->rec.committed)
		orphan_name_way_out(m, j->error, text);
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", *text ? text : j->error);
		return;
	}
	record_do(&m->rec, DID_MOVE);
	m->rec.reason[0] = '\0'; /* a try before this one gave it */
	json_set_u64(m->rec.data, "set_guid_us", json_opt_u64(j->out, "set_guid_us", 0));
	json_set(m->rec.data, "move", json_object_get(answer));
	keep_lids(m, answer);
	migrate_measure(m, "switch_us");
	migrate_answer_waiting(m, 0);
}

int dst_switch(struct migration *m)
{
	struct json_object *in;

	m->step.phases = waits;
	if (record_did(&m->rec, DID_MOVE) || m->step.phase == DST_DEAD_OVER ||
	    (record_did(&m->rec, SAW_VM_END) && record_did(&m->rec, TOLD_SOURCE_LOST)))
		return STEP_DONE;
	if (record_did(&m->rec, SAW_VM_END) && !m->step.started &&
	    m->step.phase != DST_DEAD_GOES_ON)
		return judge_dead(m);
	if (m->step.timed_out && m->step.phase == DST_AWAIT && !m->rec.committed)
		return ask_verdict(m);
	/* A try that failed is repeated on the source's order, or when the guest runs here. */
	if (m->step.started && !m->inflight && (record_did(&m->rec, DID_ORDER) || m->rec.committed))
		m->step.started = false;
	if (m->step.started)
		return STEP_WAIT;
	m->step.started = true;
	record_do(&m->rec, DID_PARK);
	in = migrate_input(m);
	if (record_did(&m->rec, TOLD_SOURCE_LOST))
		return orphan_take_over(m, in);
	json_set(in, "moves", record_moves(&m->rec, false));
	return migrate_job(m, in, switch_run, switched);
}

static int park(struct job *j, struct json_object *vf, char *error)
{
	return provider_set_guid(j->d->provider, vf_text_of(vf, "vf"),
				 vf_guid_of(vf, "parked_guid"), error);
}

void dst_park_run(struct job *j)
{
	job_vfs_at_once(j, park);
}

static void vfs_parked(struct migration *m, struct job *j)
{
	if (migrate_job_failed(m, j))
		return;
	record_undo(&m->rec, DID_PARK);
	record_undo(&m->rec, DID_MOVE);
	migrate_answer_waiting(m, 0);
}

/* The move in the subnet is the source's to take back, once both VFs are right. */
static int park_vfs(struct migration *m)
{
	return migrate_job(m, migrate_input(m), dst_park_run, vfs_parked);
}

static const struct migrate_phase switch_undo[] = {
	{"park", park_vfs, NULL},
	{0},
};

int dst_switch_undo(struct migration *m)
{
	return record_did(&m->rec, DID_PARK) ? migrate_run_phases(m, switch_undo) : STEP_DONE;
}

/* ---- ATTACH ---- */

struct attach_work {
	char vm[37];
	bool native, pre_attached; /* QEMU has started with the VFs */
};

/* With strategy native QEMU has started with it. */
static int find_native(struct job *j, struct json_object *vf, char *error)
{
	const struct attach_work *w = j->work;
	bool has = false;
	int rc = qmp_has_device(j->d->virt, w->vm, vf_text_of(vf, "dev_id"), &has, error);

	if (rc || has)
		return rc;
	snprintf(error, HTTP_ERROR_MAX, "QEMU was not started with the VF");
	return -ENODEV;
}

/* A VF that QEMU has started with is there already; the guest has yet to look for it. */
static int find_or_plug(struct job *j, struct json_object *vf, char *error)
{
	const struct attach_work *w = j->work;
	bool has = false;
	int rc = qmp_has_device(j->d->virt, w->vm, vf_text_of(vf, "dev_id"), &has, error);

	if (rc || has)
		return rc;
	return vm_work_plug(j, vf, error);
}

static void attach_run(struct job *j)
{
	const struct attach_work *w = j->work;

	job_each_vf(j, w->native ? find_native : w->pre_attached ? find_or_plug : vm_work_plug);
}

static void attached(struct migration *m, struct job *j)
{
	struct vm *vm = migrate_vm(m);

	if (migrate_job_failed(m, j))
		return;
	json_set_u64(m->rec.data, "attach_us", now_us() - m->committed_us);
	record_do(&m->rec, DID_ATTACH);
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		if (!vf)
			continue;
		vf->migration[0] = '\0';
		str_set(&vf->attach, vf_text_of(job_vf(j, i), "attach"));
		vf_save(m->d->vfs, vf);
	}
	if (vm && vm_take_leases(vm)) {
		vm_attached(vm);
		vm->migration = m;
	}
	dst_tell_source(m);
}

static int await_guest(struct migration *m)
{
	return m->dst.guest_resumed && migrate_vm(m) ? STEP_DONE : STEP_WAIT;
}

static int plug(struct migration *m)
{
	struct attach_work w = {.native = m->rec.strategy == STRATEGY_NATIVE};
	int rc = check_leases(m);

	if (rc)
		return rc;
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	w.pre_attached = json_opt_bool(m->rec.data, PRE_ATTACHED, false);
	return migrate_order(
		m, (struct job_order){JOB_WORK(w), .in = migrate_input(m), .run = attach_run},
		attached);
}

static const struct migrate_phase attach[] = {
	{"guest", await_guest, await_guest},
	{"plug", plug, NULL},
	{0},
};

int dst_attach(struct migration *m)
{
	if (record_did(&m->rec, DID_ATTACH) || record_did(&m->rec, SAW_VM_END))
		return STEP_DONE;
	return migrate_run_phases(m, attach);
}

/* ---- RESUME ---- */

enum { RESUME_ALL, RESUME_FINISH };

/* A device that is not ready yet can be a matter of moments; the peers wait meanwhile. */
static void agent_resumed(struct migration *m, int rc, struct json_object *answer,
			  const char *error)
{
	bool at_once = now_us() - m->step.asked_us < RESUME_AT_ONCE_US;

	if (rc == -EREMOTEIO && at_once && !m->pending_rc && m->step.asked_again++ < RESUME_TRIES) {
		log_info("VM %s: migration %s: resume is asked again: %s", m->rec.vm_name,
			 m->rec.id, error);
		m->step.ask_again = m->step.resting = true;
		migrate_poll(m, RESUME_AGAIN_MS);
		return;
	}
	mover_resumed(m, rc, answer, error);
}

static void ask_resume(struct migration *m, struct vm *vm)
{
	struct json_object *msg = mover_resume(m, true);

	if (json_opt_bool(m->rec.data, PRE_ATTACHED, false))
		json_set_bool(msg, "rescan", true);
	m->step.asked_us = now_us();
	migrate_ask_agent(m, vm, msg, MIGRATE_RESUME_MS, agent_resumed);
}

/* Also the peers of a VM that has died are told, but they have nobody to meet. */
static int resume_again(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	if (m->step.ask_again && vm) {
		m->step.ask_again = false;
		ask_resume(m, vm);
	}
	if (m->pending)
		return STEP_WAIT;
	if (m->pending_rc && !record_did(&m->rec, SAW_VM_END))
		return migrate_error(m, m->pending_rc, "%s", m->pending_error);
	record_do(&m->rec, DID_RESUME);
	migrate_measure(m, "resume_us");
	return STEP_DONE;
}

static int resume_all(struct migration *m)
{
	struct vm *vm = migrate_vm(m);
	bool suspended = record_did(&m->rec, DID_SUSPEND);

	if (record_did(&m->rec, DID_RESUME))
		return STEP_DONE;
	if (suspended && vm && vm->agent && !record_did(&m->rec, SAW_VM_END)) {
		m->pending++;
		ask_resume(m, vm);
	}
	if (suspended)
		peers_resume(m, true);
	return resume_again(m);
}

/* The VM has died on its way: what it had of this host is given back. */
static void dead_released(struct migration *m, struct job *j)
{
	struct vm *vm = migrate_vm(m);

	if (migrate_job_failed(m, j))
		return;
	migrate_free_leases(m);
	if (vm)
		vm_forget(vm);
	migrate_next(m);
}

/* vm_work_guard() reads the VM from the input. */
struct finish_work {
	char vm[37];
	uint64_t downtime_ms; /* the guest's, as QEMU tells it */
	bool known;
};

/* Without the guards its next migration may be too quick to be held, and virsh saves it with its
 * VF. */
static void finish_run(struct job *j)
{
	struct finish_work *w = j->work;
	char why[HTTP_ERROR_MAX];

	j->rc = vm_work_guard(j, j->error);
	w->known = !virt_downtime_ms(j->d->virt, w->vm, &w->downtime_ms, why);
}

static void finished(struct migration *m, struct job *j)
{
	const struct finish_work *w = j->work;

	if (!record_did(&m->rec, SAW_VM_END) && migrate_job_failed(m, j))
		return;
	if (w->known)
		json_set_u64(m->rec.data, "vm_downtime_ms", w->downtime_ms);
	if (record_did(&m->rec, SAW_VM_END))
		migrate_enter(m, RESUME_FINISH); /* the VM has died meanwhile */
	else
		migrate_next(m);
}

static int finish(struct migration *m)
{
	struct finish_work w = {0};
	struct json_object *in;

	if (record_did(&m->rec, SAW_VM_END) && has_leases(m))
		return migrate_job(m, migrate_input(m), vm_work_release, dead_released);
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	in = json_object_new_object();
	json_set_str(in, "vm", m->rec.vm_uuid);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .in = in, .run = finish_run},
			     finished);
}

static const struct migrate_phase resume[] = {
	[RESUME_ALL] = {"resume", resume_all, resume_again},
	[RESUME_FINISH] = {"finish", finish, NULL},
	{0},
};

int dst_resume(struct migration *m)
{
	if (!migrate_vm(m))
		record_do(&m->rec, SAW_VM_END);
	return migrate_run_phases(m, resume);
}
