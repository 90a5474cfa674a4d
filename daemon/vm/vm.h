/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The VMs of this host that ask for a VF: given their VF, and released (found: vm/discover.h). */
#ifndef IBVMIG_DAEMON_VM_VM_H
#define IBVMIG_DAEMON_VM_VM_H

#include "daemon/vm/agent.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/domain.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/libvirt/virt.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

/* A VF of a VM. */
struct vm_vf {
	struct vf_want want;
	char dev_id[QMP_DEV_ID];
	struct vf *lease; /* borrowed from the table, or NULL */
};

struct vm {
	struct vm *next;
	struct daemon *d; /* borrowed */
	char uuid[37];
	char *name; /* owned */
	enum vm_state state;
	struct vm_vf vfs[DOMAIN_VFS_MAX]; /* the VM has all of them, or none */
	unsigned vf_count;
	enum domain_strategy strategy;
	char root_ports[DOMAIN_VFS_MAX][16];
	unsigned root_port_count;
	char *channel_alias;  /* owned, or NULL */
	char *problem;        /* owned, or NULL */
	char *saved_id;       /* owned; of the save that it was restored from, or NULL */
	unsigned alone_tries; /* cold_resume_alone(): how often it was asked, and when last */
	uint64_t alone_asked_us;
	struct agent_line *agent; /* owned, or NULL */
	uint64_t ballast_bytes;   /* memory that the agent keeps dirty, as it said at ballast_us */
	uint64_t ballast_us;
	struct migration *migration; /* borrowed; the one under way, or NULL */
	bool has_strategy_once;      /* the next migration is asked for this, instead of strategy */
	enum domain_strategy strategy_once;
	unsigned paths_asking; /* path requests of the guest that are under way */
	struct json_object
		*paths_waiting; /* owned; those that are not yet, oldest first; or NULL */
	bool again; /* started once more while LEAVING; again_incoming: by a migration */
	bool again_incoming;
	unsigned missing; /* from so many of libvirt's lists in turn */
	bool gone;        /* stopped; removed when its last job is done */
	unsigned jobs;
};

/* The state machine of migrations watches VMs through this: vm/ knows no migration but by it.
 * migrate/events.c fills it; daemon/start.c sets it in struct daemon before libvirt is heard. */
struct vm_watcher {
	/* A migration of the VM has not ended here. */
	bool (*moves)(struct daemon *d, const char *uuid);
	/* The VM has left this host by a migration that has not ended here. */
	bool (*has_left)(struct daemon *d, const char *uuid);

	/* From libvirt. true: a migration has taken care of the change. */
	bool (*changed)(struct daemon *d, const char *uuid, enum virt_change c);
	void (*monitor_event)(struct daemon *d, const char *uuid, const char *event,
			      struct json_object *details);
	/* A VF of a VM has left QEMU. false: no migration wanted that. */
	bool (*device_deleted)(struct daemon *d, const char *uuid, const char *dev_id);

	/* At the start libvirt has told of so many running VMs, and then of one more of them. */
	void (*listed)(struct daemon *d, size_t vms);
	void (*inspected)(struct daemon *d);

	void (*incoming)(struct vm *vm); /* QEMU waits for the VM here */
	void (*started)(struct vm *vm);  /* the VM runs here */
	void (*attached)(struct vm *vm); /* the VM has got its VFs */
	void (*agent_changed)(struct vm *vm);

	/* The account of the VM's newest migration on this host, or null. */
	void (*write_newest)(struct printbuf *text, const char *key, struct vm *vm);
};

static inline struct vm *vm_find(struct daemon *d, const char *uuid)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next)
		if (!vm->gone && !strcmp(vm->uuid, uuid))
			return vm;
	return NULL;
}

/* True if VFs of this host are leased to it. */
static inline bool vm_has_vfs(const struct vm *vm)
{
	return vm->vf_count && vm->vfs[0].lease;
}

static inline bool vm_has_guid(const struct vm *vm, uint64_t vguid)
{
	for (unsigned i = 0; i < vm->vf_count; i++)
		if (vm->vfs[i].want.vguid == vguid)
			return true;
	return false;
}

/* [vGUID…] of all its VFs; owned by the caller. */
struct json_object *vm_guids(const struct vm *vm);
/* The one that has this vGUID here and now: not one that has left for another host. */
struct vm *vm_by_guid(struct daemon *d, uint64_t vguid);
struct vm *vm_by_name(struct daemon *d, const char *name);
/* Logs, journals and publishes what happened to a VM. */
void vm_note(struct vm *vm, bool bad, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Claims its VFs and attaches them. */
void vm_attach(struct vm *vm);
/* Gives the VFs of a VM that does not run here any more back; keep_binding: the vGUIDs live on
 * elsewhere. */
void vm_release(struct vm *vm, bool keep_binding);
/* The VFs that are leased to it are its own from now on. false: some are missing. */
bool vm_take_leases(struct vm *vm);
/* The VM has its VFs, in QEMU too. */
void vm_attached(struct vm *vm);
/* The guest has removed a VF, and nobody wanted that: it is attached again. */
void vm_device_lost(struct vm *vm);
/* The VM runs without its VFs, and this is why. */
void vm_without(struct vm *vm, const char *problem);
/* No lease is its own any more; they stay in the table. */
void vm_drop_leases(struct vm *vm);
/* The VM's QEMU has ended, or the VM is no matter of ours any more. vm_collect() frees what was
 * forgotten, once no job needs it. */
void vm_forget(struct vm *vm);
void vm_collect(struct daemon *d);
/* The same, and that of its next start, if there was one meanwhile, is looked at now. */
void vm_left(struct vm *vm);
void vm_free_all(struct daemon *d);
const char *vm_state_name(const struct vm *vm);
/* "vfs":[{"index","pf","vguid","pkey","vf"[,"lid","since_ms"]}…], and the fields of the first VF
 * as o's own: most VMs have one. */
void vm_set_vfs(struct json_object *o, const struct vm *vm);
/* Writes one object, and cheaply: lists of many VMs are asked for often, by status --watch and
 * Nova. */
void vm_write_status(struct printbuf *text, struct vm *vm);
/* The same without its migration, as a tree: guests' answers are part of that, nested as deep as
 * the parser lets them be alone. */
struct json_object *vm_facts(const struct vm *vm);

#endif
