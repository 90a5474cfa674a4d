/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QEMU's monitor through libvirt. Blocks: from workers only. 0 or -errno with a line in error;
 * -EREMOTEIO: QEMU itself refused, in QEMU's words. */
#ifndef IBVMIG_DAEMON_QMP_H
#define IBVMIG_DAEMON_QMP_H

#include "common/http_client.h"

#include <stdbool.h>
#include <stdint.h>

/* A pair id that no standby device has: it makes QEMU allow device_del while it migrates. */
#define QMP_NO_PAIR "ibvmig-none"
#define QMP_DEV_ID  24 /* "ibvf" and a number */

struct virt;

/* args: owned by the call, NULL for none. ret_value: NULL, or owned by the caller. */
int qmp_call(struct virt *v, const char *uuid, const char *execute, struct json_object *args,
	     struct json_object **ret_value, char *error);

/* commands: JSON text of an array of {"execute","arguments"}. device_add gets dev_id, bus and
 * QMP_NO_PAIR. What is already there is left alone. */
int qmp_attach(struct virt *v, const char *uuid, const char *commands, const char *dev_id,
	       const char *bus, char *error);
/* The commands for after DEVICE_DELETED; what is already gone is no error. */
int qmp_cleanup(struct virt *v, const char *uuid, const char *commands, char *error);
/* -ENODEV: it is not there. */
int qmp_device_del(struct virt *v, const char *uuid, const char *dev_id, char *error);
int qmp_has_device(struct virt *v, const char *uuid, const char *dev_id, bool *ret_has,
		   char *error);

struct qmp_migration {
	char status[24];
	uint64_t remaining_bytes, passes;
	uint64_t mbps;
};

int qmp_query_migrate(struct virt *v, const char *uuid, struct qmp_migration *ret, char *error);
/* Bytes per second and ms; 0 leaves a value as it is. */
int qmp_set_migrate(struct virt *v, const char *uuid, uint64_t max_bandwidth,
		    uint64_t downtime_limit_ms, char *error);
int qmp_get_migrate(struct virt *v, const char *uuid, uint64_t *ret_max_bandwidth,
		    uint64_t *ret_downtime_limit_ms, char *error);

#endif
