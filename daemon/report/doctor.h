/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The doctor looks on this host for what is known to keep VFs from working or VMs from migrating. A
 * finding says what is wrong and how it is mended. */
#ifndef IBVMIG_DAEMON_REPORT_DOCTOR_H
#define IBVMIG_DAEMON_REPORT_DOCTOR_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

struct http_request;
struct provider;

enum doctor_verdict { DOCTOR_OK, DOCTOR_SKIPPED, DOCTOR_WARNING, DOCTOR_BAD };

struct doctor {
	const char *root;          /* borrowed: "" for the host itself, a folder in tests */
	struct json_object *found; /* owned by the holder: [{"check","subject","verdict",…}] */
};

/* subject: what was looked at. fix: how to mend it, NULL where nothing is to be done. */
void doctor_add(struct doctor *d, const char *check, enum doctor_verdict v, const char *subject,
		const char *fix, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* The host's files, below d->root. */
void doctor_ipoib(struct doctor *d); /* ib_ipoib is loaded where a PF has VFs */
void doctor_ports(struct doctor *d); /* ports of PFs, and of VFs that the host still drives */
void doctor_hook(struct doctor *d);  /* libvirt's hook is installed */
void doctor_lease(struct doctor *d, const char *dir); /* ibvmig-lease runs; dir: lease-dir */
/* pid: of the VM's QEMU; needed_bytes: the guest's memory, which a VF pins. */
void doctor_memlock(struct doctor *d, const char *vm, uint64_t pid, uint64_t needed_bytes);

/* The host's files and what the provider knows; they block. vfs: as GET /v1/status has them, and
 * "vfio": a VM has it by VFIO. */
/* a VF without GUIDs gets no address */
void doctor_zero_guid(struct doctor *d, struct provider *p, struct json_object *vfs);
/* a VM could have each free VF; one that a VM has is bound to a driver of VFIO */
void doctor_vfio(struct doctor *d, struct provider *p, struct json_object *vfs);

/* The following use what others tell. vms, vfs: as GET /v1/status has them. why: there is no
 * inventory, or "". */
void doctor_inventory(struct doctor *d, struct json_object *vfs, const char *why);
void doctor_agents(struct doctor *d, struct json_object *vms);
/* vms: each that has its VFs, and does not migrate, also with "guest_vfs":[{"vguid","port"}] of its
 * agent's answer; without it the agent has not told. */
void doctor_guest_ports(struct doctor *d, struct json_object *vms);
/* status: ibvmig-sm's, or NULL and why. */
void doctor_sm(struct doctor *d, struct json_object *status, const char *why);
/* bound: ibvmig-sm's GET /v1/vguids. */
void doctor_duplicates(struct doctor *d, struct json_object *vms, struct json_object *bound);
/* vms: with "guest_pkeys" of partition_used(), where the agent has told; answer: partition_ask()'s
 * about doctor_guids(), with what ports show. Here they are owned by the caller. */
void doctor_partitions(struct doctor *d, struct json_object *vms, struct json_object *vfs,
		       struct json_object *answer);
struct json_object *doctor_guids(struct json_object *vms, struct json_object *vfs);
/* status: GET /v1/status of a host that these VMs may go to, or NULL and why. */
void doctor_peer(struct doctor *d, const char *host, struct json_object *vms,
		 struct json_object *status, const char *why);
/* properties: QMP device-list-properties of vfio-pci, or NULL. vm NULL: there is none to ask. */
void doctor_qemu(struct doctor *d, const char *vm, struct json_object *properties);
/* This host, as GET /v1/status has it. */
void doctor_drained(struct doctor *d, const char *host, bool drained);
/* Checks the daemon's certificate. listens: on TCP; tls: with a certificate, that ends at ends_s.
 */
void doctor_certificate(struct doctor *d, bool listens, bool tls, int64_t ends_s, int64_t now_s);
/* Checks ibvmig-sm's, where its status tells when that ends. */
void doctor_sm_certificate(struct doctor *d, struct json_object *status, int64_t now_s);
/* True if a PF of this host is InfiniBand's (and not an Ethernet port with RoCE). */
bool doctor_has_ib(const struct doctor *d);

/* GET /v1/doctor: {"checks":[…],"bad","warnings","skipped"} */
void doctor_get(struct http_request *req);

#endif
