/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The blocking sequences for a VM's VF, run by workers (daemon/job.h). */
#ifndef IBVMIG_DAEMON_VM_WORK_H
#define IBVMIG_DAEMON_VM_WORK_H

#include "daemon/job.h"

struct vm;
struct vf;
struct daemon;

/* {vm,name,vf,parked_guid,vguid,pkey,dev_id,bus,attach,detach}; vm->vf must be set. */
struct json_object *vm_work_input(struct vm *vm);
/* The same for a lease whose VM does not run. */
struct json_object *vm_work_lease_input(const struct vf *vf);

/* → attach, detach, lid. Undoes what it did when it fails. */
void vm_work_attach(struct job *j);
/* Only QEMU's part: the VF has left it while its lease and binding live on. */
void vm_work_reattach(struct job *j);
/* keep_binding: the vGUID is not unbound. Goes on after errors; the first one is reported. */
void vm_work_release(struct job *j);
/* in: vm, incoming → xml, has_device */
void vm_work_inspect(struct job *j);
/* → list */
void vm_work_list(struct job *j);

/* {vf,vguid,pkey,vm} for the provider → its two command lists as text in out. */
int vm_work_prepare(struct job *j);

/* Leases whose VM does not run here (list: those that do) and that no open migration explains are
 * given back. */
void vm_sweep_leases(struct daemon *d, struct json_object *list);

#endif
