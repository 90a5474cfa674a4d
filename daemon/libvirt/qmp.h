/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QEMU's monitor through libvirt. Blocks: from workers only. 0 or -errno with a line in error;
 * -EREMOTEIO: QEMU itself refused, in QEMU's words. */
#ifndef IBVMIG_DAEMON_LIBVIRT_QMP_H
#define IBVMIG_DAEMON_LIBVIRT_QMP_H

#include "common/http/client.h"
#include "daemon/base/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* A pair id that no standby device has: it makes QEMU allow device_del while it migrates. */
#define QMP_NO_PAIR "ibvmig-none"
/* Property of vfio-pci since QEMU 10.1: the PCI class that the guest, and the pair id, see. */
#define QMP_CLASS_CODE "x-pci-class-code"

/* Flags of a device_add of attach commands, beside QMP's words. */
#define QMP_MIGRATES_STATE "migrates_state" /* the provider's: QEMU can migrate its state */
#define QMP_NEEDS_GROUP    "needs_group"    /* the provider's: it might, if it opened it itself */
#define QMP_NATIVE         "native"         /* ours: it is attached so that QEMU does so */
#define QMP_STAYS          "stays"          /* ours: QEMU does not let it leave meanwhile */

/* Also there: nodes of the host that QEMU opens by itself, an array of paths; it is let, and until
 * the device has gone. All groups of VFIO share one, which gives nothing alone, and stays. */
#define QMP_OPENS          "opens"
#define QMP_VFIO_CONTAINER "/dev/vfio/vfio"

struct virt;

/* args: owned by the call, NULL for none. ret_value: NULL, or owned by the caller. */
int qmp_call(struct virt *v, const char *uuid, const char *execute, struct json_object *args,
	     struct json_object **ret_value, char *error);

/* True if the device_add of these commands has this flag. */
bool qmp_device_flag(const char *commands, const char *flag);
/* The same commands with device_add flagged as QMP_NATIVE if wanted and QMP_MIGRATES_STATE; owned
 * by the caller. */
char *qmp_mark_native(struct json_object *commands, bool wanted);
/* The same as text, with device_add flagged as QMP_STAYS; owned by the caller, NULL: no memory. */
char *qmp_mark_stays(const char *commands);
/* commands: JSON text of an array of {"execute","arguments"}. device_add gets dev_id, bus and,
 * unless it is QMP_NATIVE, what lets the device leave while QEMU migrates. That is QMP_LATE_DETACH,
 * or where QEMU lacks it QMP_NO_PAIR, with an Ethernet device's class if QEMU has QMP_CLASS_CODE.
 * If QEMU allows this for no device of its class, it gets none of it: *ret_stays, and QEMU refuses
 * to migrate with it. What is already there is left alone. */
int qmp_attach(struct virt *v, const char *uuid, const char *commands, const char *dev_id,
	       const char *bus, bool *ret_stays, char *error);
/* After the device has gone: QEMU may not open any more what it was let for it (QMP_OPENS).
 * commands: those of the attach. */
void qmp_take_back(struct virt *v, const char *uuid, const char *commands);
/* The commands for after DEVICE_DELETED; what is already gone is no error. */
int qmp_cleanup(struct virt *v, const char *uuid, const char *commands, char *error);
/* -ENODEV: it is not there. */
int qmp_device_del(struct virt *v, const char *uuid, const char *dev_id, char *error);
int qmp_has_device(struct virt *v, const char *uuid, const char *dev_id, bool *ret_has,
		   char *error);

/* Asks whether QEMU's migration fails, and the VM stays, if the guest is stopped while the device
 * of these commands is there. Our patch sees to that where the device has it. If emulated_too, so
 * does any emulated device: a destination that does not start with it cannot load its state. */
int qmp_keeps_vm(struct virt *v, const char *uuid, const char *commands, const char *dev_id,
		 bool emulated_too, bool *ret_keeps, char *error);

struct qmp_migration {
	char status[24];
	uint64_t remaining_bytes, passes;
	uint64_t sent_bytes; /* pages, zero ones too */
	uint64_t mbps;
};

int qmp_query_migrate(struct virt *v, const char *uuid, struct qmp_migration *ret, char *error);
/* Asks whether a migration under way may be switched to post-copy. */
int qmp_can_post_copy(struct virt *v, const char *uuid, bool *ret_can, char *error);
/* Asks whether it sends pages in less than their bytes (virsh migrate --compressed): no bandwidth
 * and no count of pages tells then how far it is. */
int qmp_compresses(struct virt *v, const char *uuid, bool *ret_does, char *error);
/* Bytes per second and ms; 0 leaves a value as it is. */
int qmp_set_migrate(struct virt *v, const char *uuid, uint64_t max_bandwidth,
		    uint64_t downtime_limit_ms, char *error);
/* Disks that are being copied (virsh migrate --copy-storage-all): whether there are, and those that
 * have this limit, in bytes per second, get none. */
int qmp_unlimit_mirrors(struct virt *v, const char *uuid, uint64_t limit, bool *ret_some,
			char *error);
/* Sets whether QEMU refuses to be saved to a file (`virsh save`, managedsave, dump, a snapshot with
 * memory), also while no ibvmigd lives. A save would take the VF's device along, or lose it, and
 * the file could not be restored.
 *
 * The refusal is in the TLS credentials of the next migration: there are none of that name, and the
 * name is what the user reads. For live migrations libvirt sets its own, and these again when one
 * has failed (qemuMigrationParamsDisableTLS, qemuMigrationParamsReset). */
int qmp_refuse_save(struct virt *v, const char *uuid, bool refuse, char *error);
int qmp_get_migrate(struct virt *v, const char *uuid, uint64_t *ret_max_bandwidth,
		    uint64_t *ret_downtime_limit_ms, char *error);

/* How a migration with auto-converge throttles a guest that it cannot keep up with: at first, and
 * each time that it was not enough; percent, 1 to 99. Zeros: it does not. */
struct qmp_throttle {
	uint64_t initial, increment;
};

int qmp_get_throttle(struct virt *v, const char *uuid, struct qmp_throttle *ret, char *error);
int qmp_set_throttle(struct virt *v, const char *uuid, struct qmp_throttle t, char *error);

#endif
