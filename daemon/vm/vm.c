/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/vm.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/events.h"
#include "daemon/store/journal.h"
#include "daemon/base/settings.h"
#include "daemon/vm/discover.h"
#include "daemon/vm/rights.h"
#include "daemon/vm/work.h"

#include <stdarg.h>
#include <string.h>

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
	json_object_put(vm->paths_waiting);
	free(vm->name);
	free(vm->channel_alias);
	free(vm->problem);
	free(vm->saved_id);
	free(vm);
}

void vm_collect(struct daemon *d)
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

void vm_drop_leases(struct vm *vm)
{
	for (unsigned i = 0; i < vm->vf_count; i++)
		vm->vfs[i].lease = NULL;
}

static void free_leases(struct vm *vm)
{
	for (unsigned i = 0; i < vm->vf_count; i++) {
		struct vf *vf = vm->vfs[i].lease;

		if (vf && vf->leased && !strcmp(vf->vm, vm->uuid))
			vf_free_lease(vm->d->vfs, vf);
	}
	vm_drop_leases(vm);
}

/* Only marks it: callers up the stack may still hold it. The next discovery, release or beat
 * collects. */
void vm_forget(struct vm *vm)
{
	vm->gone = true;
	vm_drop_leases(vm);
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

void vm_left(struct vm *vm)
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

void vm_without(struct vm *vm, const char *problem)
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
		vfs[i] = vf_of_vm(vm->d->vfs, vm->uuid, vm->vfs[i].want.vguid);
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
		vf_save(vm->d->vfs, vf);
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

	/* A VF that QEMU has not let go of stays the VM's until it ends. */
	if (!json_opt_bool(j->out, "stuck", false))
		free_leases(vm);
	vm_without(vm, j->error);
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
		vm_work_keep(vm->d->vfs, vm->vfs[i].lease, job_vf(j, i));
	vm_attached(vm);
	for (unsigned i = 0; i < vm->vf_count; i++)
		note_attached(vm, &vm->vfs[i]);
	vm->d->watcher->attached(vm);
	/* The VM was stopped while they were being attached. Started again, its next QEMU may have
	 * got them: adopt() looks. */
	if (leaving && vm->again)
		vm_left(vm);
	else if (leaving)
		vm_release(vm, false);
}

static int claim(struct vm *vm, char *error)
{
	struct vf_want wants[DOMAIN_VFS_MAX];
	struct vf *vfs[DOMAIN_VFS_MAX];
	int rc;

	for (unsigned i = 0; i < vm->vf_count; i++)
		wants[i] = vm->vfs[i].want;
	rc = vf_claim(vm->d->vfs, vm->uuid, vm->name, wants, vm->vf_count, "", vfs, error);
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
		vm_without(vm, vm->d->vf_error);
		return;
	}
	if (vm->root_port_count < vm->vf_count) {
		snprintf(error, sizeof error,
			 "%s: add <controller type='pci' model='pcie-root-port'/> to the domain",
			 vm->root_port_count ? "each VF needs a free pcie-root-port"
					     : "no pcie-root-port is free");
		vm_without(vm, error);
		return;
	}
	if (claim(vm, error)) {
		vm_without(vm, error);
		return;
	}
	vm->state = VM_ATTACHING;
	if (start_job(vm, vm_work_input(vm), vm_work_attach, attach_done)) {
		free_leases(vm);
		vm_without(vm, "out of memory");
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
	vm_left(vm);
	vm_collect(j->d);
}

void vm_release(struct vm *vm, bool keep_binding)
{
	struct json_object *in;

	if (!vm_has_vfs(vm)) {
		vm_left(vm);
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

/* ---- what others see of it ---- */

static void write_vf(struct printbuf *text, const struct daemon *d, const struct vm_vf *v)
{
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", v->want.pkey);
	json_write_guid(text, "vguid", v->want.vguid);
	json_write_str(text, "pf", v->want.pf);
	json_write_str(text, "pkey", pkey);
	json_write_str(text, "membership", vm_right(d, v));
	json_write_str(text, "vf", v->lease ? v->lease->name : NULL);
	if (v->lease && v->lease->lid)
		json_write_u64(text, "lid", v->lease->lid);
	if (v->lease)
		json_write_u64(text, "since_ms", v->lease->since_ms);
}

static void write_vfs(struct printbuf *text, const struct vm *vm)
{
	if (vm->vf_count)
		write_vf(text, vm->d, &vm->vfs[0]);
	json_write_open(text, "vfs", '[');
	for (unsigned i = 0; i < vm->vf_count; i++) {
		json_write_open(text, NULL, '{');
		json_write_u64(text, "index", vm->vfs[i].want.index);
		write_vf(text, vm->d, &vm->vfs[i]);
		json_write_close(text, '}');
	}
	json_write_close(text, ']');
}

void vm_set_vfs(struct json_object *o, const struct vm *vm)
{
	struct printbuf *text = printbuf_new();

	json_write_open(text, NULL, '{');
	write_vfs(text, vm);
	json_write_close(text, '}');
	struct json_object *vfs AUTO_JSON = json_read_back(text);

	json_object_object_foreach(vfs, key, value)
	{
		if (value)
			json_set(o, key, json_object_get(value));
	}
}

static void write_facts(struct printbuf *text, const struct vm *vm)
{
	json_write_str(text, "uuid", vm->uuid);
	json_write_str(text, "name", vm->name);
	json_write_str(text, "state", vm_state_name(vm));
	json_write_str(text, "host", vm->d->settings->host_name);
	if (!vm->vf_count) {
		json_write_str(text, "pkey", NULL);
		json_write_str(text, "vf", NULL);
	}
	write_vfs(text, vm);
	json_write_str(text, "problem", vm->problem);
	agent_write_status(text, "agent", vm->agent);
}

struct json_object *vm_facts(const struct vm *vm)
{
	struct printbuf *text = printbuf_new();

	json_write_open(text, NULL, '{');
	write_facts(text, vm);
	json_write_close(text, '}');
	return json_read_back(text);
}

void vm_write_status(struct printbuf *text, struct vm *vm)
{
	json_write_open(text, NULL, '{');
	write_facts(text, vm);
	vm->d->watcher->write_newest(text, "migration", vm);
	json_write_close(text, '}');
}
