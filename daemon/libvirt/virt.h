/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The connection to libvirtd: opened and re-opened by itself, events to the loop, calls for
 * workers. */
#ifndef IBVMIG_DAEMON_LIBVIRT_VIRT_H
#define IBVMIG_DAEMON_LIBVIRT_VIRT_H

#include "common/http/client.h"

#include <stdbool.h>
#include <stdint.h>

#define VIRT_UUID_TEXT 37

struct daemon;
struct domain_saved;
struct virt;

enum virt_change {
	VIRT_STARTED,          /* from cold, or restored from a file */
	VIRT_STARTED_INCOMING, /* paused; QEMU waits for a migration */
	VIRT_RESUMED,
	VIRT_RESUMED_INCOMING, /* a migration has arrived and the guest runs here */
	VIRT_SUSPENDED,
	VIRT_STOPPED,
	VIRT_STOPPED_MIGRATED, /* the VM runs on another host now */
};

/* The loop's thread calls all of them; texts are borrowed during the call. */
struct virt_ops {
	void (*connected)(struct daemon *d);
	void (*changed)(struct daemon *d, const char *uuid, const char *name, enum virt_change c);
	/* details: the JSON object of QEMU's event. */
	void (*monitor)(struct daemon *d, const char *uuid, const char *event,
			struct json_object *details);
};

int virt_new(struct daemon *d, const struct virt_ops *ops, struct virt **ret_virt);
void virt_free(struct virt *v);
bool virt_is_connected(struct virt *v);

/* The rest blocks: from workers only. uuid: of a domain, or its name. 0 or
 * -errno (-ENOTCONN without libvirtd, -ENOENT for an unknown domain, -EIO for libvirt's own
 * refusal); error has libvirt's words. */
int virt_domain_xml(struct virt *v, const char *uuid, char **ret_xml, char *error);
/* command: JSON text; *ret_answer is owned by the caller. Errors of QEMU are in the answer. fd: for
 * "getfd", it stays the caller's; or -1. */
int virt_monitor(struct virt *v, const char *uuid, const char *command, int fd, char **ret_answer,
		 char *error);
/* Lets QEMU pin the memory of its guest, as a device of VFIO needs. libvirt does so only for
 * devices that it knows. */
int virt_allow_pinning(struct virt *v, const char *uuid, char *error);
/* Lets QEMU open a device node of this host (daemon/libvirt/grant.h), or not any more. */
int virt_let_open(struct virt *v, const char *uuid, const char *node, bool may, char *error);
int virt_abort_job(struct virt *v, const char *uuid, char *error);
int virt_set_max_speed(struct virt *v, const char *uuid, unsigned long mib_per_s, char *error);
/* Does what `virsh migrate --live --p2p` does; returns when libvirt is done. mib_per_s: 0 for no
 * limit. persistent: the definition moves along. */
int virt_migrate(struct virt *v, const char *uuid, const char *uri, unsigned mib_per_s,
		 bool persistent, char *error);

/* The running VM's memory and XML go into file (an absolute path of this host), and the VM ends, as
 * `virsh save` does; returns when that is done. mark goes into its metadata. A VM that could not be
 * saved runs on. */
int virt_save(struct virt *v, const char *uuid, const char *file, const struct domain_saved *mark,
	      char *error);
/* The XML in what virt_save() has made, once that is whole; *ret_xml is owned by the caller. */
int virt_image_xml(struct virt *v, const char *file, char **ret_xml, char *error);
/* Starts the VM of that file again, as `virsh restore` does. xml: instead of the file's own, or
 * NULL. */
int virt_restore(struct virt *v, const char *file, const char *xml, char *error);

struct virt_progress {
	uint64_t total_bytes, remaining_bytes, bytes_per_s, passes;
};

/* Asks about the outgoing migration under way; -ENODATA: there is none. */
int virt_progress(struct virt *v, const char *uuid, struct virt_progress *ret, char *error);
/* Asks for the downtime of the completed incoming migration, in ms. */
int virt_downtime_ms(struct virt *v, const char *uuid, uint64_t *ret_ms, char *error);
enum virt_state {
	VIRT_GONE,   /* unknown here, or shut off */
	VIRT_STANDS, /* paused, or it waits for a migration */
	VIRT_RUNS
};

/* Asks for the VM's state here. The call waits for no job of libvirt's, as calls to the monitor do.
 */
int virt_state(struct virt *v, const char *uuid, enum virt_state *ret_state, char *error);

/* Asks whether it runs here, or is paused: a domain may be defined and shut off. An unknown one
 * does not run; ret_running is untouched where libvirt cannot tell. */
int virt_is_running(struct virt *v, const char *uuid, bool *ret_running, char *error);
/* An array of {"uuid","name","memory_bytes"} of the domains that run; owned by the caller. */
int virt_running(struct virt *v, struct json_object **ret_list, char *error);

#endif
