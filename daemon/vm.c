/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/cold.h"
#include "daemon/daemon.h"
#include "daemon/domain_saved.h"
#include "daemon/events.h"
#include "daemon/journal.h"
#include "daemon/migrate.h"
#include "daemon/settings.h"
#include "daemon/vm_channel.h"
#include "daemon/vm_work.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

struct vm *vm_find(struct daemon *d, const char *uuid)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next)
		if (!vm->gone && !strcmp(vm->uuid, uuid))
			return vm;
	return NULL;
}

struct json_object *vm_guids(const struct vm *vm)
{
	struct json_object *list = json_object_new_array();
	char text[IB_GUID_TEXT];

	for (unsigned i = 0; i < vm->vf_count; i++) {
		ib_guid_format(vm->vfs[i].want.vguid, text);
		json_object_array_add(list, json_object_new_string(text));
	}
	return list;
}

struct vm *vm_by_guid(struct daemon *d, uint64_t vguid)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next)
		if (!vm->gone && vm_has_guid(vm, vguid) && vm_has_vfs(vm) &&
		    vm->state != VM_LEAVING)
			return vm;
	return NULL;
}

struct vm *vm_by_name(struct daemon *d, const char *name)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next)
		if (!vm->gone && (!strcmp(vm->name, name) || !strcmp(vm->uuid, name)))
			return vm;
	return NULL;
}

void vm_note(struct vm *vm, bool bad, const char *fmt, ...)
{
	struct json_object *e = json_object_new_object();
	char text[HTTP_ERROR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	log_at(bad ? LOG_WARN : LOG_NOTICE, "VM %s: %s", vm->name, text);
	journal_event(vm->d->journal, vm->uuid, text);
	json_set_str(e, "type", "vm");
	json_set_str(e, "vm", vm->name);
	json_set_str(e, "uuid", vm->uuid);
	json_set_str(e, "text", text);
	events_publish(vm->d->events, e);
}

const char *vm_state_name(const struct vm *vm)
{
	static const char *const names[] = {
		[VM_INSPECTED] = "inspected", [VM_ATTACHING] = "attaching",
		[VM_ATTACHED] = "attached",   [VM_WITHOUT] = "without-vf",
		[VM_INCOMING] = "incoming",   [VM_LEAVING] = "leaving",
	};

	return names[vm->state];
}

static void vm_free(struct vm *vm)
{
	agent_free(vm->agent);
	free(vm->name);
	free(vm->channel_alias);
	free(vm->problem);
	free(vm->saved_id);
	free(vm);
}

static void collect(struct daemon *d)
{
	for (struct vm **p = &d->vms; *p;) {
		struct vm *vm = *p;

		if (!vm->gone || vm->jobs) {
			p = &vm->next;
			continue;
		}
		*p = vm->next;
		vm_free(vm);
	}
}

static void drop_leases(struct vm *vm)
{
	for (unsigned i = 0; i < vm->vf_count; i++)
		vm->vfs[i].lease = NULL;
}

static void free_leases(struct vm *vm)
{
	for (unsigned i = 0; i < vm->vf_count; i++) {
		struct vf *vf = vm->vfs[i].lease;

		if (vf && vf->leased && !strcmp(vf->vm, vm->uuid))
			vf_free_lease(&vm->d->vfs, vf);
	}
	drop_leases(vm);
}

/* Only marks it: callers up the stack may still hold it. The next discovery or job collects. */
void vm_forget(struct vm *vm)
{
	vm->gone = true;
	drop_leases(vm);
	vm->migration = NULL;
}

void vm_free_all(struct daemon *d)
{
	while (d->vms) {
		struct vm *vm = d->vms;

		d->vms = vm->next;
		vm_free(vm);
	}
}

/* Its QEMU has ended; that of its next start, if there was one meanwhile, is looked at now. */
static void forget_left(struct vm *vm)
{
	vm_forget(vm);
	if (vm->again)
		vm_discover(vm->d, vm->uuid, vm->name, vm->again_incoming);
}

static int start_job(struct vm *vm, struct json_object *in, void (*run)(struct job *j),
		     void (*done)(struct job *j))
{
	int rc = job_start(vm->d, in, run, done, vm, 0);

	if (!rc)
		vm->jobs++;
	return rc;
}

static void set_problem(struct vm *vm, const char *problem)
{
	str_set(&vm->problem, problem);
	vm->state = VM_WITHOUT;
	vm_note(vm, true, "runs without its VF: %s", problem);
}

/* ---- attach ---- */

bool vm_take_leases(struct vm *vm)
{
	struct vf *vfs[DOMAIN_VFS_MAX];

	for (unsigned i = 0; i < vm->vf_count; i++) {
		vfs[i] = vf_of_vm(&vm->d->vfs, vm->uuid, vm->vfs[i].want.vguid);
		if (!vfs[i])
			return false;
	}
	for (unsigned i = 0; i < vm->vf_count; i++)
		vm->vfs[i].lease = vfs[i];
	return vm->vf_count;
}

void vm_attached(struct vm *vm)
{
	vm->state = VM_ATTACHED;
	str_set(&vm->problem, NULL);
	for (unsigned i = 0; i < vm->vf_count; i++) {
		struct vf *vf = vm->vfs[i].lease;

		if (vf->since_ms)
			continue;
		vf->since_ms = wall_ms();
		vf_save(&vm->d->vfs, vf);
	}
}

static void note_attached(struct vm *vm, struct vm_vf *v)
{
	vm_note(vm, false, "VF %s attached as %s on %s, vGUID 0x%016llx, LID %u", v->lease->name,
		v->dev_id, v->lease->bus, (unsigned long long)v->want.vguid, v->lease->lid);
}

static void attach_failed(struct vm *vm, struct job *j)
{
	bool leaving = vm->state == VM_LEAVING;

	/* What QEMU has not let go of stays the VM's until it ends. */
	if (!json_opt_bool(j->out, "stuck", false))
		free_leases(vm);
	set_problem(vm, j->error);
	if (leaving)
		vm_release(vm, false);
}

static void attach_done(struct job *j)
{
	struct vm *vm = j->owner;
	bool leaving = vm->state == VM_LEAVING;

	vm->jobs--;
	if (vm->gone || !vm_has_vfs(vm))
		return;
	if (j->rc) {
		attach_failed(vm, j);
		return;
	}
	for (unsigned i = 0; i < vm->vf_count; i++)
		vm_work_keep(&vm->d->vfs, vm->vfs[i].lease, job_vf(j, i));
	vm_attached(vm);
	for (unsigned i = 0; i < vm->vf_count; i++)
		note_attached(vm, &vm->vfs[i]);
	cold_resume_alone(vm);
	/* It was stopped while they were being attached. Started again, its next QEMU may have got
	 * them: adopt() looks. */
	if (leaving && vm->again)
		forget_left(vm);
	else if (leaving)
		vm_release(vm, false);
}

static int claim(struct vm *vm, char *error)
{
	struct domain_vf wants[DOMAIN_VFS_MAX];
	struct vf *vfs[DOMAIN_VFS_MAX];
	int rc;

	for (unsigned i = 0; i < vm->vf_count; i++)
		wants[i] = vm->vfs[i].want;
	rc = vf_claim(&vm->d->vfs, vm->uuid, vm->name, wants, vm->vf_count, "", vfs, error);
	for (unsigned i = 0; !rc && i < vm->vf_count; i++) {
		vm->vfs[i].lease = vfs[i];
		strcpy(vfs[i]->bus, vm->root_ports[i]);
	}
	return rc;
}

void vm_attach(struct vm *vm)
{
	char error[HTTP_ERROR_MAX] = "";

	if (*vm->d->vf_error) {
		set_problem(vm, vm->d->vf_error);
		return;
	}
	if (vm->root_port_count < vm->vf_count) {
		snprintf(error, sizeof error,
			 "%s: add <controller type='pci' model='pcie-root-port'/> to the domain",
			 vm->root_port_count ? "each VF needs a free pcie-root-port"
					     : "no pcie-root-port is free");
		set_problem(vm, error);
		return;
	}
	if (claim(vm, error)) {
		set_problem(vm, error);
		return;
	}
	vm->state = VM_ATTACHING;
	if (start_job(vm, vm_work_input(vm), vm_work_attach, attach_done)) {
		free_leases(vm);
		set_problem(vm, "out of memory");
	}
}

/* ---- release ---- */

static void release_done(struct job *j)
{
	struct vm *vm = j->owner;

	vm->jobs--;
	if (j->rc)
		vm_note(vm, true, "the VF was not given back cleanly: %s", j->error);
	free_leases(vm);
	vm_note(vm, false, "VF released");
	forget_left(vm);
	collect(j->d);
}

void vm_release(struct vm *vm, bool keep_binding)
{
	struct json_object *in;

	if (!vm_has_vfs(vm)) {
		forget_left(vm);
		return;
	}
	if (vm->state == VM_ATTACHING) {
		/* attach_done() comes back here. */
		vm->state = VM_LEAVING;
		return;
	}
	if (vm->state == VM_LEAVING)
		return; /* stopped again before all was given back */
	vm->state = VM_LEAVING;
	in = vm_work_input(vm);
	json_set_bool(in, "keep_binding", keep_binding);
	start_job(vm, in, vm_work_release, release_done);
}

/* ---- discovery ---- */

/* What it has already stays its own. */
static void set_wanted(struct vm *vm, const struct domain_info *info)
{
	if (!vm_has_vfs(vm))
		vm->vf_count = info->problem ? 0 : info->vf_count;
	for (unsigned i = 0; !vm_has_vfs(vm) && i < vm->vf_count; i++) {
		vm->vfs[i] = (struct vm_vf){.want = info->vfs[i]};
		domain_dev_id(&info->vfs[i], vm->vfs[i].dev_id);
	}
	vm->strategy = info->strategy;
	memcpy(vm->root_ports, info->root_ports, sizeof vm->root_ports);
	vm->root_port_count = info->root_port_count;
}

static struct vm *add_vm(struct daemon *d, const struct domain_info *info, bool incoming)
{
	struct vm *vm = vm_find(d, info->uuid);

	if (!vm) {
		vm = calloc(1, sizeof *vm);
		if (!vm)
			return NULL;
		vm->d = d;
		vm->next = d->vms;
		d->vms = vm;
	}
	strcpy(vm->uuid, info->uuid);
	str_set(&vm->name, info->name);
	str_set(&vm->channel_alias, info->channel_alias);
	set_wanted(vm, info);
	if (info->channel_path && !vm->agent)
		vm_channel_open(vm, info->channel_path, incoming);
	return vm;
}

/* A VM that was there before this daemon started, or before libvirtd did. devices: whether each of
 * its VFs is in QEMU. */
static void adopt(struct vm *vm, struct json_object *devices)
{
	unsigned there = 0, unexplained = 0;
	bool leased;

	if ((vm_has_vfs(vm) && vm->state != VM_WITHOUT) || vm->migration)
		return;
	for (unsigned i = 0; i < vm->vf_count; i++) {
		if (!json_object_get_boolean(json_object_array_get_idx(devices, i)))
			continue;
		there++;
		unexplained += !vf_of_vm(&vm->d->vfs, vm->uuid, vm->vfs[i].want.vguid);
	}
	leased = vm_take_leases(vm);
	if (leased && migrate_open(vm->d, vm->uuid)) {
		vm_attached(vm); /* where the VFs are, the open migration knows */
	} else if (leased && there == vm->vf_count) {
		vm_attached(vm);
		for (unsigned i = 0; i < vm->vf_count; i++)
			vm_note(vm, false, "found with VF %s attached", vm->vfs[i].lease->name);
	} else if (unexplained) {
		drop_leases(vm);
		set_problem(vm, "it has a VF device that no lease explains: shut the VM down and "
				"start it again");
	} else {
		vm_attach(vm); /* what of it is done already is left alone */
	}
}

static void note_saved(struct vm *vm, const char *xml)
{
	struct domain_saved saved;

	if (domain_saved_parse(xml, &saved))
		str_set(&vm->saved_id, saved.id);
}

/* Started again before what its last QEMU had is given back: forget_left() goes on with it. */
static bool comes_too_early(struct daemon *d, const struct domain_info *info, bool incoming)
{
	struct vm *vm = vm_find(d, info->uuid);

	if (!vm || vm->state != VM_LEAVING)
		return false;
	vm->again = true;
	vm->again_incoming = incoming;
	return true;
}

static void inspect_done(struct job *j)
{
	struct daemon *d = j->d;
	const char *xml = json_opt_str(j->out, "xml", "");
	bool incoming = json_opt_bool(j->in, "incoming", false);
	struct domain_info *info = NULL;
	struct vm *vm;

	collect(d);
	if (j->rc && j->rc != -ENOENT && j->rc != -ENOTCONN)
		log_warn("VM %s: cannot be inspected: %s", json_opt_str(j->in, "name", "?"),
			 j->error);
	if (!j->rc && domain_parse(xml, strlen(xml), &info))
		log_warn("VM %s: its domain XML cannot be parsed",
			 json_opt_str(j->in, "name", "?"));
	if (info && info->wants_vf && !comes_too_early(d, info, incoming) &&
	    (vm = add_vm(d, info, incoming))) {
		if (incoming) {
			vm->state = VM_INCOMING;
			migrate_vm_known(vm);
		} else if (info->problem) {
			set_problem(vm, info->problem);
		} else {
			note_saved(vm, xml);
			adopt(vm, json_opt(j->out, "devices"));
			cold_vm_started(vm);
		}
	}
	domain_free(info);
	migrate_recover(d);
}

void vm_discover(struct daemon *d, const char *uuid, const char *name, bool incoming)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "vm", uuid);
	json_set_str(in, "name", name);
	json_set_bool(in, "incoming", incoming);
	job_start(d, in, vm_work_inspect, inspect_done, NULL, 0);
}

static void list_done(struct job *j)
{
	struct json_object *list = json_opt(j->out, "list");
	size_t n = list ? json_object_array_length(list) : 0;

	if (j->rc) {
		log_warn("libvirt: %s", j->error);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		vm_discover(j->d, json_opt_str(o, "uuid", ""), json_opt_str(o, "name", ""), false);
	}
	vm_sweep_leases(j->d, list);
	migrate_recover_after(j->d, n);
}

static void on_connected(struct daemon *d)
{
	job_start(d, NULL, vm_work_list, list_done, NULL, 0);
}

static void on_lost(struct daemon *d)
{
	(void)d;
}

static void on_changed(struct daemon *d, const char *uuid, const char *name, enum virt_change c)
{
	struct vm *vm = vm_find(d, uuid);

	log_debug("VM %s: lifecycle %d", name, c);
	if (migrate_vm_changed(d, uuid, c))
		return;
	switch (c) {
	case VIRT_STARTED:
		vm_discover(d, uuid, name, false);
		break;
	case VIRT_STARTED_INCOMING:
		vm_discover(d, uuid, name, true);
		break;
	case VIRT_RESUMED_INCOMING:
		/* Arrived without a migration of ours: it had no VF at the source. */
		vm_discover(d, uuid, name, false);
		break;
	case VIRT_STOPPED:
	case VIRT_STOPPED_MIGRATED:
		if (vm)
			vm_release(vm, c == VIRT_STOPPED_MIGRATED);
		break;
	case VIRT_RESUMED:
	case VIRT_SUSPENDED:
		break;
	}
}

/* The guest has given it up by itself, or so late that a migration had been walked back already. */
static void reattached(struct job *j)
{
	struct vm *vm = j->owner;

	vm->jobs--;
	if (vm->gone || vm->state != VM_ATTACHED)
		return;
	if (j->rc)
		str_set(&vm->problem, j->error);
	vm_note(vm, j->rc, j->rc ? "the VF could not be attached again: %s" : "VF attached again%s",
		j->rc ? j->error : "");
}

void vm_device_lost(struct vm *vm)
{
	if (vm->state != VM_ATTACHED || !vm_has_vfs(vm))
		return;
	vm_note(vm, true, "the guest has removed a VF; attaching it again");
	start_job(vm, vm_work_input(vm), vm_work_reattach, reattached);
}

static bool is_vf(const struct vm *vm, const char *device)
{
	for (unsigned i = 0; i < vm->vf_count; i++)
		if (!strcmp(vm->vfs[i].dev_id, device))
			return true;
	return false;
}

static void on_monitor(struct daemon *d, const char *uuid, const char *event,
		       struct json_object *details)
{
	struct vm *vm = vm_find(d, uuid);
	const char *device = json_opt_str(details, "device", "");

	if (vm && vm->agent && !strcmp(event, "VSERPORT_CHANGE") &&
	    str_eq(json_opt_str(details, "id", ""), vm->channel_alias))
		agent_guest_opened(vm->agent, json_opt_bool(details, "open", false));
	if (vm && !strcmp(event, "DEVICE_DELETED") && is_vf(vm, device)) {
		if (!migrate_device_deleted(d, uuid, device))
			vm_device_lost(vm);
		return;
	}
	migrate_monitor_event(d, uuid, event, details);
}

const struct virt_ops vm_virt_ops = {
	.connected = on_connected,
	.lost = on_lost,
	.changed = on_changed,
	.monitor = on_monitor,
};

static struct json_object *vf_json(const struct vm_vf *v)
{
	struct json_object *o = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", v->want.pkey);
	json_set_u64(o, "index", v->want.index);
	json_set_str(o, "pf", v->want.pf);
	json_set_guid(o, "vguid", v->want.vguid);
	json_set_str(o, "pkey", pkey);
	json_set_str(o, "vf", v->lease ? v->lease->name : NULL);
	if (v->lease && v->lease->lid)
		json_set_u64(o, "lid", v->lease->lid);
	if (v->lease)
		json_set_u64(o, "since_ms", v->lease->since_ms);
	return o;
}

void vm_set_vfs(struct json_object *o, const struct vm *vm)
{
	static const char *const keys[] = {"vguid", "pf", "pkey", "vf", "lid", "since_ms"};
	struct json_object *list = json_object_new_array(), *first;

	for (unsigned i = 0; i < vm->vf_count; i++)
		json_object_array_add(list, vf_json(&vm->vfs[i]));
	first = json_count(list) ? json_object_array_get_idx(list, 0) : NULL;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (json_opt(first, keys[i]))
			json_set(o, keys[i], json_object_get(json_opt(first, keys[i])));
	json_set(o, "vfs", list);
}

struct json_object *vm_status(struct vm *vm)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "uuid", vm->uuid);
	json_set_str(o, "name", vm->name);
	json_set_str(o, "state", vm_state_name(vm));
	json_set_str(o, "host", vm->d->settings->host_name);
	json_set_str(o, "pkey", NULL);
	json_set_str(o, "vf", NULL);
	vm_set_vfs(o, vm);
	json_set_str(o, "problem", vm->problem);
	json_set(o, "agent", agent_status(vm->agent));
	json_set(o, "migration", migrate_status_of_vm(vm));
	return o;
}
