/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The blocking sequences for a VM's VFs, run by workers (daemon/base/job.h). */
#ifndef IBVMIG_DAEMON_VM_WORK_H
#define IBVMIG_DAEMON_VM_WORK_H

#include "daemon/base/job.h"

struct daemon;
struct vf;
struct vf_table;
struct vm;

/* {vm,name,strategy,vfs:[vf_lease_json() and dev_id]}; the VM must have its VFs. */
struct json_object *vm_work_input(struct vm *vm);
/* The same for one lease, whose VM does not run: without strategy and dev_id. */
struct json_object *vm_work_lease_input(const struct vf *vf);
/* The news that a worker has of a VF go into its lease. o: its object of the job. */
void vm_work_keep(struct vf_table *t, struct vf *vf, struct json_object *o);

/* Gives the VM all its VFs, or none: undoes what it did when it fails. → attach, detach, lid of
 * each VF. out.stuck: QEMU keeps a VF of an attach that failed, and nothing of it is undone. */
void vm_work_attach(struct job *j);
/* Only QEMU's part: VFs have left it while their leases and bindings live on. */
void vm_work_reattach(struct job *j);
/* keep_binding: the vGUIDs are not unbound. Goes on after errors. */
void vm_work_release(struct job *j);
/* in: vm, incoming, left → xml, devices (whether QEMU has it, for each VF of the metadata); left: →
 * stayed: it is the QEMU that has migrated away */
void vm_work_inspect(struct job *j);
/* → list */
void vm_work_list(struct job *j);

/* Sets what holds for a VM as long as it has VFs, whether or not ibvmigd lives. A migration crawls
 * until it is driven (docs/migration.md, "Hold"), and QEMU refuses to be saved to a file. 0, or
 * -errno with a line in error. */
int vm_work_guard(struct job *j, char *error);

/* The following do a part for one VF, for job_each_vf(). All but QEMU's part: the VF shows the
 * vGUID, in the subnet too (→ attach, detach, lid), or nothing of it is done: */
int vm_work_show(struct job *j, struct json_object *vf, char *error);
/* The provider's part; its two command lists go into vf as text: */
int vm_work_prepare(struct job *j, struct json_object *vf, char *error);
/* into QEMU; what is there already is left alone: */
int vm_work_plug(struct job *j, struct json_object *vf, char *error);
/* the provider's commands for after DEVICE_DELETED: */
int vm_work_clean(struct job *j, struct json_object *vf, char *error);

/* ibvmig-sm: the VF, which shows its vGUID, has it (→ lid), and no more. From this VF of this host
 * only: the VM may have it elsewhere by now, if this host was taken for dead; that is no error. */
int vm_work_bind(struct job *j, struct json_object *vf, char *error);
int vm_work_unbind(struct job *j, struct json_object *vf, char *error);

#endif
