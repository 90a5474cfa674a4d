/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm_work.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/daemon.h"
#include "daemon/locate.h"
#include "daemon/migrate.h"
#include "daemon/provider.h"
#include "daemon/settings.h"
#include "daemon/sm.h"
#include "daemon/vm.h"

#include <errno.h>
#include <string.h>

static const char *str(struct job *j, const char *key)
{
	return json_opt_str(j->in, key, "");
}

static uint64_t guid(struct job *j, const char *key)
{
	uint64_t value = 0;

	ib_guid_parse(str(j, key), &value);
	return value;
}

struct json_object *vm_work_lease_input(const struct vf *vf)
{
	struct json_object *in = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", vf->pkey);
	json_set_str(in, "vm", vf->vm);
	json_set_str(in, "name", vf->vm_name);
	json_set_str(in, "vf", vf->name);
	json_set_guid(in, "parked_guid", vf->parked_guid);
	vf_set_entry(in, vf);
	json_set_guid(in, "vguid", vf->vguid);
	json_set_str(in, "pkey", pkey);
	json_set_str(in, "bus", vf->bus);
	json_set_str(in, "attach", vf->attach ? vf->attach : "[]");
	json_set_str(in, "detach", vf->detach ? vf->detach : "[]");
	return in;
}

struct json_object *vm_work_input(struct vm *vm)
{
	struct json_object *in = vm_work_lease_input(vm->vf);

	json_set_str(in, "dev_id", vm->dev_id);
	json_set_str(in, "strategy", strategy_name(vm->want.strategy));
	return in;
}

/* Attached so, QEMU does not unplug it during a migration: only where that may be wanted. */
static bool may_be_native(const char *strategy)
{
	return !strcmp(strategy, "auto") || !strcmp(strategy, "native");
}

int vm_work_prepare(struct job *j)
{
	char *attach AUTO_FREE = NULL;
	struct json_object *in AUTO_JSON = json_object_new_object(), *out AUTO_JSON = NULL;
	struct json_reader r;
	const char *const keys[] = {"vf", "vguid", "pkey", "vm"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		json_set_str(in, keys[i], str(j, keys[i]));
	j->rc = provider_prepare(j->d->provider, in, &out, j->error);
	if (j->rc)
		return j->rc;
	json_reader_init(&r, out);
	attach = qmp_mark_native(json_need_array(&r, "attach"), may_be_native(str(j, "strategy")));
	json_set_str(j->out, "attach", attach);
	json_set_str(j->out, "detach", json_text(json_need_array(&r, "detach")));
	if (r.error)
		job_fail(j, r.error, "the VF provider's answer to \"prepare\": %s", r.message);
	return j->rc;
}

static int bind_vguid(struct job *j)
{
	const char *const keys[] = {"vguid", "vm", "name", "vf", "parked_guid", "pkey"};
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		json_set_str(body, keys[i], str(j, keys[i]));
	vf_copy_entry(body, j->in);
	json_set_str(body, "host", j->d->settings->host_name);
	json_set_str(body, "url", j->d->settings->url);
	j->rc = sm_call(j->d->settings, "POST", "/v1/bind", body, &answer, j->error);
	if (!j->rc)
		json_set_u64(j->out, "lid", json_opt_u64(answer, "lid", 0));
	return j->rc;
}

static int unbind_vguid(struct job *j, char *error)
{
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;

	json_set_str(body, "vguid", str(j, "vguid"));
	json_set_str(body, "vm", str(j, "vm"));
	return sm_call(j->d->settings, "POST", "/v1/unbind", body, &answer, error);
}

/* The undo of the first steps of an attach, newest first. */
static void attach_undo(struct job *j, int steps)
{
	char error[HTTP_ERROR_MAX];

	if (steps >= 4)
		qmp_cleanup(j->d->virt, str(j, "vm"), json_opt_str(j->out, "detach", "[]"), error);
	if (steps >= 3 && unbind_vguid(j, error))
		log_warn("VM %s: undo of the attach: %s", str(j, "name"), error);
	if (steps >= 2 &&
	    provider_set_guid(j->d->provider, str(j, "vf"), guid(j, "parked_guid"), error))
		log_warn("VM %s: undo of the attach: %s", str(j, "name"), error);
	if (steps >= 1 && provider_release(j->d->provider, str(j, "vf"), error))
		log_warn("VM %s: undo of the attach: %s", str(j, "name"), error);
}

/* Before a VF shows the vGUID: nobody else may have it. */
static int check_unique(struct job *j)
{
	struct location l;
	char why[HTTP_ERROR_MAX];

	if (locate_guid(j->d->settings, guid(j, "vguid"), &l, why) || str_eq(l.vm, str(j, "vm")))
		return 0; /* unknown: bind has the last word */
	return job_fail(j, -EEXIST,
			"vguid %s belongs to VM %s (%s) on host %s: a vGUID must be unique in the "
			"subnet",
			str(j, "vguid"), l.name, l.vm, l.host);
}

/* The VM must not converge before the daemon drives: docs/migration.md, "Hold". */
#define SPEED_PRESET_MIB 1

void vm_work_attach(struct job *j)
{
	int done = 0;

	if (check_unique(j) || vm_work_prepare(j))
		return;
	done = 1;
	j->rc = provider_set_guid(j->d->provider, str(j, "vf"), guid(j, "vguid"), j->error);
	if (!j->rc) {
		done = 2;
		if (!bind_vguid(j)) {
			done = 3;
			j->rc = virt_set_max_speed(j->d->virt, str(j, "vm"), SPEED_PRESET_MIB,
						   j->error);
		}
	}
	if (!j->rc) {
		done = 4;
		j->rc = qmp_attach(j->d->virt, str(j, "vm"), json_opt_str(j->out, "attach", "[]"),
				   str(j, "dev_id"), str(j, "bus"), j->error);
	}
	if (j->rc)
		attach_undo(j, done);
}

void vm_work_reattach(struct job *j)
{
	j->rc = qmp_cleanup(j->d->virt, str(j, "vm"), str(j, "detach"), j->error);
	if (!j->rc)
		j->rc = qmp_attach(j->d->virt, str(j, "vm"), str(j, "attach"), str(j, "dev_id"),
				   str(j, "bus"), j->error);
}

static void keep_first(struct job *j, int rc, const char *error)
{
	if (rc && !j->rc)
		job_fail(j, rc, "%s", error);
}

void vm_work_release(struct job *j)
{
	char error[HTTP_ERROR_MAX] = "";

	keep_first(j,
		   provider_set_guid(j->d->provider, str(j, "vf"), guid(j, "parked_guid"), error),
		   error);
	if (!json_opt_bool(j->in, "keep_binding", false))
		keep_first(j, unbind_vguid(j, error), error);
	keep_first(j, provider_release(j->d->provider, str(j, "vf"), error), error);
}

/* The VF's id, from the metadata: a VM without any has no VF. */
static int find_device(struct job *j)
{
	const char *xml = json_opt_str(j->out, "xml", "");
	struct domain_info *info = NULL;
	char id[QMP_DEV_ID];
	bool has = false;

	if (domain_parse(xml, strlen(xml), &info))
		return job_fail(j, -EBADMSG, "its domain XML cannot be parsed");
	if (info->wants_vf) {
		snprintf(id, sizeof id, "ibvf%u", info->vf.index);
		j->rc = qmp_has_device(j->d->virt, str(j, "vm"), id, &has, j->error);
	}
	domain_free(info);
	json_set_bool(j->out, "has_device", has);
	return j->rc;
}

void vm_work_inspect(struct job *j)
{
	char *xml AUTO_FREE = NULL;

	j->rc = virt_domain_xml(j->d->virt, str(j, "vm"), &xml, j->error);
	if (j->rc)
		return;
	json_set_str(j->out, "xml", xml);
	if (!json_opt_bool(j->in, "incoming", false))
		find_device(j);
}

void vm_work_list(struct job *j)
{
	struct json_object *list = NULL;

	j->rc = virt_running(j->d->virt, &list, j->error);
	json_set(j->out, "list", list);
}

static void sweep_done(struct job *j)
{
	struct vf *vf = vf_by_name(&j->d->vfs, str(j, "vf"));

	if (j->rc)
		log_warn("VF %s of VM %s, which does not run here, was not given back cleanly: %s",
			 str(j, "vf"), str(j, "name"), j->error);
	if (vf && vf->leased && !strcmp(vf->vm, str(j, "vm")) && !vm_find(j->d, vf->vm))
		vf_free_lease(&j->d->vfs, vf);
}

static bool in_list(struct json_object *list, const char *uuid)
{
	for (size_t i = 0; list && i < json_object_array_length(list); i++)
		if (str_eq(json_opt_str(json_object_array_get_idx(list, i), "uuid", ""), uuid))
			return true;
	return false;
}

void vm_sweep_leases(struct daemon *d, struct json_object *list)
{
	for (size_t i = 0; i < d->vfs.vf_count; i++) {
		struct vf *vf = &d->vfs.vfs[i];

		if (!vf->leased || *vf->migration || in_list(list, vf->vm) ||
		    migrate_open(d, vf->vm))
			continue;
		log_notice("VF %s: VM %s does not run here any more; giving the VF back", vf->name,
			   vf->vm_name);
		job_start(d, vm_work_lease_input(vf), vm_work_release, sweep_done, NULL, 0);
	}
}
