/* SPDX-License-Identifier: GPL-2.0-or-later */
/* This host's PFs and VFs, and who has leased which. A lease is durable before it is used. */
#ifndef IBVMIG_DAEMON_VF_TABLE_H
#define IBVMIG_DAEMON_VF_TABLE_H

#include "common/http/client.h"
#include "daemon/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VF_PKEYS_MAX 128
#define VF_PCI_MAX   16
#define VF_PFS_MAX   64
#define VF_VFS_MAX   4096

struct journal;

/* A VF that a VM's metadata asks for. */
struct vf_want {
	char pf[VF_NAME_MAX];
	uint64_t vguid;
	uint16_t pkey;
	unsigned index; /* 0 to DOMAIN_VFS_MAX - 1; the device's id in QEMU is "ibvf" and this */
	char pci[VF_PCI_MAX]; /* the VF's address on the host that reads this; "": any free one */
};

struct pf {
	char name[VF_NAME_MAX];
	uint64_t guid;
	uint16_t pkeys[VF_PKEYS_MAX];
	size_t pkey_count;
};

struct vf {
	char name[VF_NAME_MAX], pf[VF_NAME_MAX];
	unsigned index;
	char pci[VF_PCI_MAX]; /* address on this host, as 0000:3b:00.2; "": not told */
	uint64_t parked_guid;
	uint64_t port_guid;  /* the PF's port; where VFs share that port's LID, the VM's GUID is */
	unsigned guid_index; /* this entry of that port's GUID table; 0: none */
	bool leased;
	/* The lease: */
	char vm[37], migration[37]; /* migration: "" when the VM has it for good */
	char vm_name[VM_NAME_MAX];
	uint64_t vguid;
	uint16_t pkey;
	char bus[16];
	char *attach, *detach; /* owned; monitor commands from the provider, JSON text */
	unsigned lid;          /* 0: not known */
	uint64_t since_ms;     /* wall clock: when the VM got it; 0: it has not yet */
};

struct vf_table {
	struct journal *journal; /* borrowed */
	struct pf *pfs;          /* owned */
	struct vf *vfs;          /* owned */
	size_t pf_count, vf_count;
};

/* inventory: the provider's answer. The leases of the journal are put on their VFs. 0, or -EINVAL
 * with a line in error. */
int vf_table_load(struct vf_table *t, struct journal *journal, struct json_object *inventory,
		  char error[static HTTP_ERROR_MAX]);
void vf_table_clear(struct vf_table *t);
void vf_table_free(struct vf_table *t);

/* port_guid and guid_index, where both are known. */
void vf_set_entry(struct json_object *o, const struct vf *vf);
void vf_copy_entry(struct json_object *to, struct json_object *from);

/* A VF for each of wants for this VM, all or none. First comes the one that it has already with
 * that vGUID, else that of its pci, where one is wanted, else a free one of its pf. ret_vfs: count
 * of them, borrowed from t. -EINVAL: no such PF or VF, -EBUSY: not free; error names the value and
 * what is allowed. The P_Key is the subnet manager's matter (daemon/base/partition.h). */
int vf_claim(struct vf_table *t, const char *vm, const char *vm_name, const struct vf_want *wants,
	     unsigned count, const char *migration, struct vf **ret_vfs,
	     char error[static HTTP_ERROR_MAX]);
/* {vf,parked_guid[,port_guid,guid_index],vguid,pkey,bus,attach,detach}: a leased VF for a job.
 * Owned by the caller. */
struct json_object *vf_lease_json(const struct vf *vf);
/* Makes the present lease of vf durable. */
int vf_save(struct vf_table *t, struct vf *vf);
void vf_free_lease(struct vf_table *t, struct vf *vf);
/* The one that the VM has leased with this vGUID; 0: any. Or NULL. */
struct vf *vf_of_vm(struct vf_table *t, const char *vm, uint64_t vguid);
static inline struct vf *vf_by_name(struct vf_table *t, const char *name)
{
	for (size_t i = 0; i < t->vf_count; i++)
		if (!strcmp(t->vfs[i].name, name))
			return &t->vfs[i];
	return NULL;
}

/* The list of all. */
void vf_write_status(struct printbuf *text, const char *key, const struct vf_table *t);
struct json_object *vf_status(const struct vf_table *t);
/* [{"name","guid","pkeys"}] */
struct json_object *vf_pfs(const struct vf_table *t);

#endif
