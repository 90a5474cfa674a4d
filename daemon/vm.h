/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The VMs of this host that ask for a VF: found, given their VF, watched, released. */
#ifndef IBVMIG_DAEMON_VM_H
#define IBVMIG_DAEMON_VM_H

#include "daemon/agent.h"
#include "daemon/domain.h"
#include "daemon/qmp.h"
#include "daemon/virt.h"

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct vf;
struct migration;

enum vm_state {
	VM_INSPECTED, /* metadata read; no VF yet */
	VM_ATTACHING,
	VM_ATTACHED,
	VM_WITHOUT,  /* runs without a VF; problem says why */
	VM_INCOMING, /* QEMU waits for a migration to this host */
	VM_LEAVING,  /* stopped here; the VF is being given back */
};

struct vm {
	struct vm *next;
	struct daemon *d; /* borrowed */
	char uuid[37];
	char *name; /* owned */
	enum vm_state state;
	struct domain_vf want;
	char dev_id[QMP_DEV_ID];
	char root_port[16];
	char *channel_alias;         /* owned, or NULL */
	char *problem;               /* owned, or NULL */
	char *saved_id;              /* owned; of the save that it was restored from, or NULL */
	struct vf *vf;               /* borrowed from the table, or NULL */
	struct agent *agent;         /* owned, or NULL */
	struct migration *migration; /* borrowed; the one under way, or NULL */
	bool has_strategy_once; /* what its next migration is asked for, instead of want.strategy */
	enum domain_strategy strategy_once;
	unsigned paths_asked; /* path requests of the guest that are under way */
	bool gone;            /* stopped; removed when its last job is done */
	unsigned jobs;
};

extern const struct virt_ops vm_virt_ops;

struct vm *vm_find(struct daemon *d, const char *uuid);
/* The one that has this vGUID here and now: not one that has left for another host. */
struct vm *vm_by_guid(struct daemon *d, uint64_t vguid);
struct vm *vm_by_name(struct daemon *d, const char *name);
/* Logs, journals and publishes what happened to a VM. */
void vm_note(struct vm *vm, bool bad, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Looks at a running domain, and gives it its VF if it asks for one. */
void vm_discover(struct daemon *d, const char *uuid, const char *name, bool incoming);
/* Claims a VF and attaches it. */
void vm_attach(struct vm *vm);
/* Gives the VF of a VM that does not run here any more back; keep_binding: the vGUID lives on
 * elsewhere. */
void vm_release(struct vm *vm, bool keep_binding);
/* The VF has left with, or come with, a migration. */
void vm_set_vf(struct vm *vm, struct vf *vf);
/* The guest has removed its VF, and nobody wanted that: it is attached again. */
void vm_device_lost(struct vm *vm);
void vm_forget(struct vm *vm);
void vm_free_all(struct daemon *d);
const char *vm_state_name(const struct vm *vm);
struct json_object *vm_status(struct vm *vm);

#endif
