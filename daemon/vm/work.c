/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/work.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/locate.h"
#include "daemon/base/partition.h"
#include "daemon/vf/provider.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static const char *str(struct job *j, const char *key)
{
	return json_opt_str(j->in, key, "");
}

static struct json_object *new_input(const char *vm, const char *name)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "vm", vm);
	json_set_str(in, "name", name);
	json_set(in, "vfs", json_object_new_array());
	return in;
}

static void add_vf(struct json_object *in, const struct vf *vf, const char *dev_id)
{
	struct json_object *o = vf_lease_json(vf);

	json_set_str(o, "dev_id", dev_id);
	json_object_array_add(json_opt(in, "vfs"), o);
}

struct json_object *vm_work_lease_input(const struct vf *vf)
{
	struct json_object *in = new_input(vf->vm, vf->vm_name);

	add_vf(in, vf, NULL);
	return in;
}

struct json_object *vm_work_input(struct vm *vm)
{
	struct json_object *in = new_input(vm->uuid, vm->name);

	json_set_str(in, "strategy", strategy_name(vm->strategy));
	for (unsigned i = 0; i < vm->vf_count; i++)
		add_vf(in, vm->vfs[i].lease, vm->vfs[i].dev_id);
	return in;
}

void vm_work_keep(struct vf_table *t, struct vf *vf, struct json_object *o)
{
	str_set(&vf->attach, json_opt_str(o, "attach", "[]"));
	str_set(&vf->detach, json_opt_str(o, "detach", "[]"));
	vf->lid = (unsigned)json_opt_u64(o, "lid", 0);
	vf_save(t, vf);
}

/* Attached so, QEMU does not unplug it during a migration: only where that may be wanted. */
static bool may_be_native(const char *strategy)
{
	return !strcmp(strategy, "auto") || !strcmp(strategy, "native");
}

/* The VF's commands become texts in the object. */
static int read_commands(struct job *j, struct json_object *vf, struct json_object *answer,
			 char *error)
{
	char *attach AUTO_FREE = NULL;
	struct json_reader r;

	json_reader_init(&r, answer);
	attach = qmp_mark_native(json_need_array(&r, "attach"), may_be_native(str(j, "strategy")));
	json_set_str(vf, "attach", attach);
	json_set_str(vf, "detach", json_text(json_need_array(&r, "detach")));
	if (r.error)
		snprintf(error, HTTP_ERROR_MAX, "the VF provider's answer to \"prepare\": %s",
			 r.message);
	return r.error;
}

int vm_work_prepare(struct job *j, struct json_object *vf, char *error)
{
	struct json_object *in AUTO_JSON = json_object_new_object(), *out AUTO_JSON = NULL;
	const char *const keys[] = {"vf", "vguid", "pkey"};
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		json_set_str(in, keys[i], vf_text_of(vf, keys[i]));
	json_set_str(in, "vm", str(j, "vm"));
	rc = provider_prepare(j->d->provider, in, &out, error);
	return rc ? rc : read_commands(j, vf, out, error);
}

int vm_work_bind(struct job *j, struct json_object *vf, char *error)
{
	const char *const keys[] = {"vguid", "vf", "parked_guid", "pkey"};
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		json_set_str(body, keys[i], vf_text_of(vf, keys[i]));
	vf_copy_entry(body, vf);
	json_set_str(body, "vm", str(j, "vm"));
	json_set_str(body, "name", str(j, "name"));
	json_set_str(body, "host", j->d->settings->host_name);
	json_set_str(body, "url", j->d->settings->url);
	rc = sm_change(j->d->settings, "/v1/bind", body, &answer, error);
	if (!rc)
		json_set_u64(vf, "lid", json_opt_u64(answer, "lid", 0));
	return rc;
}

int vm_work_unbind(struct job *j, struct json_object *vf, char *error)
{
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;
	struct json_object *from = json_object_new_object();
	char why[HTTP_ERROR_MAX];
	struct location l;
	int rc;

	json_set_str(from, "host", j->d->settings->host_name);
	json_set_str(from, "vf", vf_text_of(vf, "vf"));
	json_set_str(from, "parked_guid", vf_text_of(vf, "parked_guid"));
	json_set_str(body, "vguid", vf_text_of(vf, "vguid"));
	json_set_str(body, "vm", str(j, "vm"));
	json_set(body, "from", from);
	rc = sm_change(j->d->settings, "/v1/unbind", body, &answer, error);
	if (rc == -EREMOTEIO && !locate_guid(j->d->settings, vf_guid_of(vf, "vguid"), &l, why) &&
	    !str_eq(l.host, j->d->settings->host_name))
		return 0;
	return rc;
}

/* Before a VF shows the vGUID: nobody else may have it. */
static int check_unique(struct job *j, struct json_object *vf, char *error)
{
	struct location l;
	char why[HTTP_ERROR_MAX];

	if (locate_guid(j->d->settings, vf_guid_of(vf, "vguid"), &l, why) ||
	    str_eq(l.vm, str(j, "vm")))
		return 0; /* unknown: bind has the last word */
	snprintf(error, HTTP_ERROR_MAX,
		 "vguid %s belongs to VM %s (%s) on host %s: a vGUID must be unique in the subnet",
		 vf_text_of(vf, "vguid"), l.name, l.vm, l.host);
	return -EEXIST;
}

/* ---- attach ---- */

#define SPEED_PRESET_MIB 1
#define UNPLUG_MS        10000
#define LOOK_MS          100

enum { SHOWN_NOT, SHOWN_PREPARED, SHOWN_GUID, SHOWN_BOUND };

/* The undo of the first steps of vm_work_show(), newest first. */
static void hide(struct job *j, struct json_object *vf, int steps)
{
	const char *name = vf_text_of(vf, "vf");
	char error[HTTP_ERROR_MAX];

	if (steps >= SHOWN_BOUND && vm_work_unbind(j, vf, error))
		log_warn("VM %s: undo of the attach: %s", str(j, "name"), error);
	if (steps >= SHOWN_GUID &&
	    provider_set_guid(j->d->provider, name, vf_guid_of(vf, "parked_guid"), error))
		log_warn("VM %s: undo of the attach: %s", str(j, "name"), error);
	if (steps >= SHOWN_PREPARED && provider_release(j->d->provider, name, error))
		log_warn("VM %s: undo of the attach: %s", str(j, "name"), error);
}

int vm_work_show(struct job *j, struct json_object *vf, char *error)
{
	int steps = SHOWN_NOT, rc = check_unique(j, vf, error);

	if (!rc)
		rc = vm_work_prepare(j, vf, error);
	if (!rc) {
		steps = SHOWN_PREPARED;
		rc = provider_set_guid(j->d->provider, vf_text_of(vf, "vf"),
				       vf_guid_of(vf, "vguid"), error);
	}
	if (!rc) {
		steps = SHOWN_GUID;
		rc = vm_work_bind(j, vf, error);
	}
	if (rc)
		hide(j, vf, steps);
	json_set_bool(vf, "shown", !rc);
	return rc;
}

int vm_work_plug(struct job *j, struct json_object *vf, char *error)
{
	char *attach AUTO_FREE = NULL;
	bool stays = false;
	int rc = qmp_attach(j->d->virt, str(j, "vm"), vf_text_of(vf, "attach"),
			    vf_text_of(vf, "dev_id"), vf_text_of(vf, "bus"), &stays, error);

	if (rc || !stays)
		return rc;
	log_warn("VM %s: its QEMU lets no VF of this class leave during a migration: with VF %s it "
		 "does not migrate live (ibvmig doctor)",
		 str(j, "name"), vf_text_of(vf, "vf"));
	attach = qmp_mark_stays(vf_text_of(vf, "attach"));
	json_set_str(vf, "attach", attach);
	return 0;
}

int vm_work_clean(struct job *j, struct json_object *vf, char *error)
{
	qmp_take_back(j->d->virt, str(j, "vm"), vf_text_of(vf, "attach"));
	return qmp_cleanup(j->d->virt, str(j, "vm"), vf_text_of(vf, "detach"), error);
}

static int replug(struct job *j, struct json_object *vf, char *error)
{
	bool has = false;
	int rc = qmp_has_device(j->d->virt, str(j, "vm"), vf_text_of(vf, "dev_id"), &has, error);

	if (rc || has)
		return rc;
	rc = vm_work_clean(j, vf, error);
	return rc ? rc : vm_work_plug(j, vf, error);
}

/* Out of QEMU, of a VM that does not get all of its VFs. -ETIMEDOUT: the guest keeps it. */
static int unplug(struct job *j, struct json_object *vf, char *error)
{
	const char *vm = str(j, "vm"), *dev_id = vf_text_of(vf, "dev_id");
	uint64_t start_ms = now_ms();
	bool has = true;
	int rc = qmp_device_del(j->d->virt, vm, dev_id, error);

	while (!rc && has && now_ms() - start_ms < UNPLUG_MS) {
		rc = qmp_has_device(j->d->virt, vm, dev_id, &has, error);
		if (!rc && has)
			poll(NULL, 0, LOOK_MS);
	}
	if (rc && rc != -ENODEV)
		return rc;
	if (!rc && has)
		return -ETIMEDOUT;
	vm_work_clean(j, vf, error);
	return 0;
}

/* The failure stays in j->rc and j->error. plugged: QEMU was given the VFs. */
static void attach_undo(struct job *j, bool plugged)
{
	bool stuck = false;

	for (size_t i = job_vf_count(j); i-- && !stuck;) {
		struct json_object *vf = job_vf(j, i);
		char error[HTTP_ERROR_MAX] = "the guest does not give it up";

		if (!json_opt_bool(vf, "shown", false))
			continue;
		stuck = plugged && unplug(j, vf, error);
		if (stuck)
			log_warn("VM %s: undo of the attach: VF %s stays in QEMU: %s",
				 str(j, "name"), vf_text_of(vf, "vf"), error);
		else
			hide(j, vf, SHOWN_BOUND);
	}
	json_set_bool(j->out, "stuck", stuck);
}

int vm_work_guard(struct job *j, char *error)
{
	int rc = virt_set_max_speed(j->d->virt, str(j, "vm"), SPEED_PRESET_MIB, error);

	return rc ? rc : qmp_refuse_save(j->d->virt, str(j, "vm"), true, error);
}

static void log_remark(void *arg, const char *text)
{
	struct job *j = arg;

	log_notice("VM %s: %s", str(j, "name"), text);
}

/* Before a VF shows anything: in another partition than its own the VM would be of no use. */
static int check_partitions(struct job *j)
{
	struct json_object *vfs = json_opt(j->in, "vfs");
	struct json_object *answer AUTO_JSON = NULL;

	if (!j->d->settings->sm_url)
		return 0;
	answer = partition_ask(j->d->settings, partition_guids(vfs), false);
	j->rc = partition_judge(answer, vfs, NULL, j->error, sizeof j->error);
	if (!j->rc)
		partition_remarks(answer, vfs, log_remark, j);
	return j->rc;
}

void vm_work_attach(struct job *j)
{
	bool plugged = false;

	if (!check_partitions(j) && !job_each_vf(j, vm_work_show))
		j->rc = vm_work_guard(j, j->error);
	if (!j->rc) {
		plugged = true;
		job_each_vf(j, vm_work_plug);
	}
	if (j->rc)
		attach_undo(j, plugged);
}

void vm_work_reattach(struct job *j)
{
	job_each_vf(j, replug);
}

/* ---- release ---- */

static void keep_first(int *ret_rc, int rc, char *ret_error, const char *error)
{
	if (!rc || *ret_rc)
		return;
	*ret_rc = rc;
	snprintf(ret_error, HTTP_ERROR_MAX, "%s", error);
}

static int release(struct job *j, struct json_object *vf, char *error)
{
	const char *name = vf_text_of(vf, "vf");
	char why[HTTP_ERROR_MAX] = "";
	int rc = 0;

	keep_first(&rc, provider_set_guid(j->d->provider, name, vf_guid_of(vf, "parked_guid"), why),
		   error, why);
	if (!json_opt_bool(j->in, "keep_binding", false))
		keep_first(&rc, vm_work_unbind(j, vf, why), error, why);
	keep_first(&rc, provider_release(j->d->provider, name, why), error, why);
	return rc;
}

void vm_work_release(struct job *j)
{
	job_each_vf(j, release);
}

/* ---- looking ---- */

/* Tells which of the VFs that the metadata asks for are in QEMU; without any there are none. */
static int find_devices(struct job *j)
{
	const char *xml = json_opt_str(j->out, "xml", "");
	struct json_object *devices = json_object_new_array();
	struct domain_info *info = NULL;
	char id[QMP_DEV_ID];

	json_set(j->out, "devices", devices);
	if (domain_parse(xml, strlen(xml), &info))
		return job_fail(j, -EBADMSG, "its domain XML cannot be parsed");
	for (unsigned i = 0; !j->rc && !info->problem && i < info->vf_count; i++) {
		bool has = false;

		domain_dev_id(&info->vfs[i], id);
		j->rc = qmp_has_device(j->d->virt, str(j, "vm"), id, &has, j->error);
		json_object_array_add(devices, json_object_new_boolean(has));
	}
	domain_free(info);
	return j->rc;
}

/* A QEMU that has migrated away; one that was started since has not. */
static bool has_sent(struct job *j)
{
	struct qmp_migration q;
	char why[HTTP_ERROR_MAX];

	return qmp_query_migrate(j->d->virt, str(j, "vm"), &q, why) || strcmp(q.status, "none");
}

void vm_work_inspect(struct job *j)
{
	char *xml AUTO_FREE = NULL;

	j->rc = virt_domain_xml(j->d->virt, str(j, "vm"), &xml, j->error);
	if (j->rc)
		return;
	json_set_str(j->out, "xml", xml);
	if (json_opt_bool(j->in, "left", false))
		json_set_bool(j->out, "stayed", has_sent(j));
	if (!json_opt_bool(j->in, "incoming", false))
		find_devices(j);
}

void vm_work_list(struct job *j)
{
	struct json_object *list = NULL;

	j->rc = virt_running(j->d->virt, &list, j->error);
	json_set(j->out, "list", list);
}
