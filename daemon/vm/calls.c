/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/calls.h"
#include "common/http/server.h"
#include "common/json.h"
#include "daemon/base/daemon.h"
#include "daemon/vm/discover.h"
#include "daemon/vm/vm.h"

struct vm *rest_vm(struct http_request *req)
{
	struct vm *vm = vm_by_name(req->user, req->param);

	if (!vm)
		http_fail(req->exchange, 404, "not-found",
			  "no VM %s with <ibvmig:vf> metadata runs on this host: ibvmig status "
			  "shows those that do, and virsh metadata %s --uri urn:ibvmig:1 what it "
			  "has",
			  req->param, req->param);
	return vm;
}

void vm_write_list(struct printbuf *text, const struct daemon *d)
{
	json_write_open(text, "vms", '[');
	for (struct vm *vm = d->vms; vm; vm = vm->next)
		if (!vm->gone)
			vm_write_status(text, vm);
	json_write_close(text, ']');
}

void vm_get_all(struct http_request *req)
{
	struct printbuf *text = printbuf_new();

	json_write_open(text, NULL, '{');
	vm_write_list(text, req->user);
	json_write_close(text, '}');
	http_reply(req->exchange, 200, json_written(text));
}

static void reply_vm(struct http_exchange *x, unsigned status, struct vm *vm)
{
	struct printbuf *text = printbuf_new();

	vm_write_status(text, vm);
	http_reply(x, status, json_written(text));
}

void vm_get(struct http_request *req)
{
	struct vm *vm = rest_vm(req);

	if (vm)
		reply_vm(req->exchange, 200, vm);
}

/* After what kept a VM from its VF has been mended. */
void vm_post_attach(struct http_request *req)
{
	struct vm *vm = rest_vm(req);

	if (!vm)
		return;
	if (vm->state == VM_LEAVING || vm->state == VM_INCOMING ||
	    vm->d->watcher->moves(vm->d, vm->uuid)) {
		http_fail(req->exchange, 409, "not-without-vf",
			  "VM %s is %s; only a VM that "
			  "runs without its VF can be given one",
			  vm->name,
			  vm->d->watcher->moves(vm->d, vm->uuid) ? "migrating" : vm_state_name(vm));
		return;
	}
	if (vm->state == VM_WITHOUT)
		vm_discover(vm->d, vm->uuid, vm->name, false);
	reply_vm(req->exchange, vm->state == VM_ATTACHED ? 200 : 202, vm);
}
