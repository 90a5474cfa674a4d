/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/discover.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/domain_saved.h"
#include "daemon/vm/vm.h"
#include "daemon/vm/channel.h"
#include "daemon/vm/rights.h"
#include "daemon/vm/work.h"

#include <errno.h>
#include <string.h>

/* VFs that the VM has already stay its own. */
static void set_wanted(struct vm *vm, const struct domain_info *info)
{
	bool news = false;

	if (!vm_has_vfs(vm))
		vm->vf_count = info->problem ? 0 : info->vf_count;
	for (unsigned i = 0; !vm_has_vfs(vm) && i < vm->vf_count; i++) {
		news = news || vm->vfs[i].want.vguid != info->vfs[i].vguid;
		vm->vfs[i] = (struct vm_vf){.want = info->vfs[i]};
		domain_dev_id(&info->vfs[i], vm->vfs[i].dev_id);
	}
	vm->strategy = info->strategy;
	memcpy(vm->root_ports, info->root_ports, sizeof vm->root_ports);
	vm->root_port_count = info->root_port_count;
	if (news)
		vm_rights_news(vm->d);
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
	vm->missing = 0;
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
		unexplained += !vf_of_vm(vm->d->vfs, vm->uuid, vm->vfs[i].want.vguid);
	}
	leased = vm_take_leases(vm);
	if (leased && vm->d->watcher->moves(vm->d, vm->uuid)) {
		vm_attached(vm); /* the open migration knows where the VFs are */
	} else if (leased && there == vm->vf_count) {
		vm_attached(vm);
		for (unsigned i = 0; i < vm->vf_count; i++)
			vm_note(vm, false, "found with VF %s attached", vm->vfs[i].lease->name);
	} else if (unexplained) {
		vm_drop_leases(vm);
		vm_without(vm, "it has a VF device that no lease explains: shut the VM down and "
			       "start it again");
	} else {
		vm_attach(vm); /* steps that are done already are left alone */
	}
}

static void note_saved(struct vm *vm, const char *xml)
{
	struct domain_saved saved;

	if (domain_saved_parse(xml, &saved))
		str_set(&vm->saved_id, saved.id);
}

/* Started again before what its last QEMU had is given back: vm_left() goes on with it. stayed: it
 * is that last QEMU, of a VM that has migrated away. */
static bool comes_too_early(struct daemon *d, const struct domain_info *info, bool incoming,
			    bool stayed)
{
	struct vm *vm = vm_find(d, info->uuid);

	if (!vm && d->watcher->has_left(d, info->uuid) && (vm = add_vm(d, info, incoming)))
		vm->state = VM_LEAVING;
	if (!vm || vm->state != VM_LEAVING)
		return false;
	if (stayed)
		return true;
	vm->again = true;
	vm->again_incoming = incoming;
	return true;
}

bool vm_is_unseen(const struct daemon *d, const char *uuid)
{
	return json_opt(d->unseen, uuid);
}

/* libvirt has refused, over a connection that lives: another job holds the domain's lock, perhaps.
 * The next beat asks again. Of one that comes, its arrival does. */
static void keep_unseen(struct daemon *d, struct job *j)
{
	struct json_object *o = json_object_new_object();

	if (!d->unseen)
		d->unseen = json_object_new_object();
	json_set_str(o, "name", json_opt_str(j->in, "name", ""));
	json_set(d->unseen, json_opt_str(j->in, "vm", ""), o);
}

/* A lost connection is no refusal: the next one lists all. */
static void note_unseen(struct daemon *d, struct job *j)
{
	if (vm_is_unseen(d, json_opt_str(j->in, "vm", "")))
		json_object_object_del(d->unseen, json_opt_str(j->in, "vm", ""));
	if (!j->rc || j->rc == -ENOENT || j->rc == -ENOTCONN)
		return;
	log_warn("VM %s: cannot be inspected: %s", json_opt_str(j->in, "name", "?"), j->error);
	if (!json_opt_bool(j->in, "incoming", false))
		keep_unseen(d, j);
}

static void inspect_done(struct job *j)
{
	struct daemon *d = j->d;
	const char *xml = json_opt_str(j->out, "xml", "");
	bool incoming = json_opt_bool(j->in, "incoming", false);
	struct domain_info *info = NULL;
	struct vm *vm;

	vm_collect(d);
	note_unseen(d, j);
	if (!j->rc && domain_parse(xml, strlen(xml), &info))
		log_warn("VM %s: its domain XML cannot be parsed",
			 json_opt_str(j->in, "name", "?"));
	if (info && info->wants_vf &&
	    !comes_too_early(d, info, incoming, json_opt_bool(j->out, "stayed", false)) &&
	    (vm = add_vm(d, info, incoming))) {
		if (incoming && vm_has_vfs(vm)) {
			log_debug("VM %s: its start was told again", vm->name);
		} else if (incoming) {
			vm->state = VM_INCOMING;
			d->watcher->incoming(vm);
		} else if (info->problem) {
			vm_without(vm, info->problem);
		} else {
			note_saved(vm, xml);
			adopt(vm, json_opt(j->out, "devices"));
			d->watcher->started(vm);
		}
	}
	domain_free(info);
	d->watcher->inspected(d);
}

void vm_discover(struct daemon *d, const char *uuid, const char *name, bool incoming)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "vm", uuid);
	json_set_str(in, "name", name);
	json_set_bool(in, "incoming", incoming);
	json_set_bool(in, "left", d->watcher->has_left(d, uuid));
	job_start(d, in, vm_work_inspect, inspect_done, NULL, 0);
}

/* ---- leases that nobody needs ---- */

static void sweep_done(struct job *j)
{
	const char *name = vf_text_of(job_vf(j, 0), "vf");
	struct vf *vf = vf_by_name(j->d->vfs, name);

	if (j->rc)
		log_warn("VF %s of VM %s, which does not run here, was not given back cleanly: %s",
			 name, json_opt_str(j->in, "name", ""), j->error);
	if (vf && vf->leased && !strcmp(vf->vm, json_opt_str(j->in, "vm", "")) &&
	    !vm_find(j->d, vf->vm))
		vf_free_lease(j->d->vfs, vf);
}

/* Leases whose VM does not run here (list: those that do) and that no open migration explains are
 * given back. */
static void sweep_leases(struct daemon *d, struct json_object *list)
{
	for (size_t i = 0; i < d->vfs->vf_count; i++) {
		struct vf *vf = &d->vfs->vfs[i];

		if (!vf->leased || *vf->migration || json_find(list, "uuid", vf->vm) ||
		    d->watcher->moves(d, vf->vm))
			continue;
		log_notice("VF %s: VM %s does not run here any more; giving the VF back", vf->name,
			   vf->vm_name);
		job_start(d, vm_work_lease_input(vf), vm_work_release, sweep_done, NULL, 0);
	}
}

/* ---- libvirt's events ---- */

static void list_done(struct job *j)
{
	struct json_object *list = json_opt(j->out, "list");
	size_t n = list ? json_object_array_length(list) : 0;

	j->d->unlisted = j->rc;
	if (j->rc) {
		log_warn("libvirt: %s", j->error);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		vm_discover(j->d, json_opt_str(o, "uuid", ""), json_opt_str(o, "name", ""), false);
	}
	sweep_leases(j->d, list);
	j->d->watcher->listed(j->d, n);
}

/* A VM that is missing twice has ended, and the event was lost. Once may be a VM that starts: its
 * list was made before. */
static void look_for_ended(struct daemon *d, struct json_object *list)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next) {
		bool here = vm->gone || json_find(list, "uuid", vm->uuid);

		vm->missing = here || d->watcher->moves(d, vm->uuid) ? 0 : vm->missing + 1;
		if (vm->missing < 2 || vm->state == VM_LEAVING)
			continue;
		log_warn("VM %s: it does not run here any more, and libvirt has not said so",
			 vm->name);
		vm_release(vm, false);
	}
}

static void relisted(struct job *j)
{
	if (!j->rc)
		look_for_ended(j->d, json_opt(j->out, "list"));
}

static void on_connected(struct daemon *d)
{
	job_start(d, NULL, vm_work_list, list_done, NULL, 0);
}

static void discover_unseen(struct daemon *d)
{
	json_object_object_foreach(d->unseen, uuid, o)
	{
		if (json_opt_bool(o, "asked", false))
			continue;
		json_set_bool(o, "asked", true);
		vm_discover(d, uuid, json_opt_str(o, "name", ""), false);
	}
}

void vm_beat(struct daemon *d)
{
	vm_collect(d); /* the agent of one that has left would go on looking for its channel */
	if (!virt_is_connected(d->virt))
		return;
	if (d->unlisted)
		on_connected(d);
	else if (d->vms)
		job_start(d, NULL, vm_work_list, relisted, NULL, 0);
	if (d->unseen)
		discover_unseen(d);
}

static void on_changed(struct daemon *d, const char *uuid, const char *name, enum virt_change c)
{
	struct vm *vm = vm_find(d, uuid);

	log_debug("VM %s: lifecycle %d", name, c);
	if (d->watcher->changed(d, uuid, c))
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
		if (!d->watcher->device_deleted(d, uuid, device))
			vm_device_lost(vm);
		return;
	}
	d->watcher->monitor_event(d, uuid, event, details);
}

const struct virt_ops vm_virt_ops = {
	.connected = on_connected,
	.changed = on_changed,
	.monitor = on_monitor,
};
