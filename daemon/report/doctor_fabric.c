/* SPDX-License-Identifier: GPL-2.0-or-later */
/* doctor: what the provider, agents, QEMU, ibvmig-sm and the other hosts say. */
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/report/doctor.h"
#include "daemon/libvirt/qmp.h"

#include <strings.h>
#include <string.h>

static struct json_object *at(struct json_object *list, size_t i)
{
	return json_object_array_get_idx(list, i);
}

static const char *str(struct json_object *o, const char *key)
{
	return json_opt_str(o, key, "");
}

/* ---- this host's VFs ---- */

/* Returns what the VF shows: its VM's vGUID, or its own GUID. */
static const char *shown(struct json_object *vf)
{
	return json_opt_str(vf, "vguid", str(vf, "parked_guid"));
}

void doctor_inventory(struct doctor *d, struct json_object *vfs, const char *why)
{
	size_t before = json_object_array_length(d->found);

	if (*why)
		doctor_add(d, "inventory", DOCTOR_BAD, "provider",
			   "mend what it says, then restart ibvmigd; provider-exec in ibvmigd.conf "
			   "names the program",
			   "%s", why);
	else if (!json_count(vfs))
		doctor_add(d, "inventory", DOCTOR_BAD, "provider",
			   "echo N >/sys/class/infiniband/PF/device/sriov_numvfs, then restart "
			   "ibvmigd",
			   "this host has no VF");
	for (size_t i = 0; i < json_count(vfs); i++)
		for (size_t k = 0; k < i; k++)
			if (!strcasecmp(shown(at(vfs, i)), shown(at(vfs, k))))
				doctor_add(d, "duplicate-guid", DOCTOR_BAD, str(at(vfs, i), "name"),
					   "give each VF a GUID of its own in the provider's "
					   "inventory, and none of them a VM's vGUID",
					   "VFs %s and %s both have GUID %s",
					   str(at(vfs, i), "name"), str(at(vfs, k), "name"),
					   shown(at(vfs, i)));
	if (json_object_array_length(d->found) == before)
		doctor_add(d, "inventory", DOCTOR_OK, "provider", NULL,
			   "%zu VFs, each with a GUID of its own", json_count(vfs));
}

/* ---- VMs ---- */

void doctor_agents(struct doctor *d, struct json_object *vms)
{
	for (size_t i = 0; i < json_count(vms); i++) {
		struct json_object *vm = at(vms, i);
		const char *state = str(json_opt(vm, "agent"), "state"), *name = str(vm, "name");

		if (*str(vm, "problem"))
			doctor_add(d, "vm", DOCTOR_BAD, name, "mend it, then ibvmig attach VM",
				   "runs without its VF: %s", str(vm, "problem"));
		if (!strcmp(state, "up"))
			doctor_add(d, "agent", DOCTOR_OK, name, NULL, "answers, version %s",
				   str(json_opt(vm, "agent"), "version"));
		else if (!strcmp(state, "none"))
			doctor_add(d, "agent", DOCTOR_BAD, name,
				   "add <channel type='unix'><target type='virtio' "
				   "name='org.ibvmig.0'/></channel> to the domain, and start "
				   "ibvmig-agent in the guest",
				   "the VM has no channel for the agent: it cannot migrate");
		else
			doctor_add(d, "agent", DOCTOR_BAD, name, "start ibvmig-agent in the guest",
				   "no agent answers in the guest: the VM cannot migrate");
	}
	if (!json_count(vms))
		doctor_add(d, "agent", DOCTOR_SKIPPED, "VMs", NULL, "no VM with a VF runs here");
}

static void check_guest_port(struct doctor *d, const char *vm, struct json_object *vf,
			     struct json_object *told)
{
	char *subject AUTO_FREE = strf("%s, VF %s", vm, str(vf, "vf"));
	const char *port = str(json_find(told, "vguid", str(vf, "vguid")), "port");

	if (!strcmp(port, "active"))
		doctor_add(d, "guest-port", DOCTOR_OK, subject, NULL, "ACTIVE in the guest");
	else if (!strcmp(port, "down"))
		doctor_add(d, "guest-port", DOCTOR_BAD, subject,
			   "check the PF's port (ibstat); let the SM serve virtual ports "
			   "(virt_enabled 2), and set the VF's policy to Follow",
			   "the guest's port with vGUID %s is not ACTIVE", str(vf, "vguid"));
	else if (!strcmp(port, "none"))
		doctor_add(
			d, "guest-port", DOCTOR_BAD, subject,
			"load the VF's driver in the guest (modprobe mlx5_ib); dmesg there tells "
			"what it ran into",
			"no RDMA device of the guest shows vGUID %s", str(vf, "vguid"));
	else
		doctor_add(d, "guest-port", DOCTOR_SKIPPED, subject, NULL,
			   "the guest's agent does not tell: none answers, or an older one");
}

void doctor_guest_ports(struct doctor *d, struct json_object *vms)
{
	for (size_t i = 0; i < json_count(vms); i++) {
		struct json_object *vm = at(vms, i), *vfs = json_opt(vm, "vfs");

		if (strcmp(str(vm, "state"), "attached") || json_opt_bool(vm, "migrates", false))
			continue;
		for (size_t k = 0; k < json_count(vfs); k++)
			check_guest_port(d, str(vm, "name"), at(vfs, k), json_opt(vm, "guest_vfs"));
	}
}

void doctor_qemu(struct doctor *d, const char *vm, struct json_object *properties)
{
	if (!vm)
		doctor_add(d, "qemu", DOCTOR_SKIPPED, "QEMU", NULL,
			   "it is asked where it runs a VM, and no VM with a VF is here");
	else if (!json_count(properties))
		doctor_add(d, "qemu", DOCTOR_SKIPPED, vm, NULL,
			   "its QEMU has no vfio-pci, or does not answer");
	else if (json_find(properties, "name", QMP_LATE_DETACH))
		doctor_add(d, "qemu", DOCTOR_OK, vm, NULL, "vfio-pci has x-late-detach");
	else if (json_find(properties, "name", QMP_CLASS_CODE))
		doctor_add(d, "qemu", DOCTOR_OK, vm, NULL, "vfio-pci has x-pci-class-code");
	else
		doctor_add(d, "qemu", DOCTOR_BAD, vm,
			   "use QEMU >= 10.1, or one with the patch of hooks/qemu",
			   "its vfio-pci has neither x-late-detach nor x-pci-class-code: an "
			   "InfiniBand VF blocks the migration");
}

/* ---- the fabric ---- */

void doctor_sm(struct doctor *d, struct json_object *status, const char *why)
{
	struct json_object *sm = json_opt(status, "sm");
	const char *version = str(sm, "plugin_version");
	bool plugin = str_eq(json_opt_str(sm, "backend", "plugin"), "plugin");

	if (!status)
		doctor_add(d, "sm", DOCTOR_BAD, "ibvmig-sm",
			   "start ibvmig-sm; sm-url in ibvmigd.conf says where it is", "%s", why);
	else if (!json_opt_bool(sm, "plugin", false))
		doctor_add(d, "plugin", DOCTOR_BAD, "OpenSM",
			   "event_plugin_name ibvmigsm in opensm.conf, libibvmigsm.so where OpenSM "
			   "finds it, restart OpenSM; its log says why a plugin was not loaded",
			   "%s", json_opt_str(sm, "error", "the plugin does not answer"));
	else if (plugin && strcmp(version, IBVMIG_VERSION))
		doctor_add(d, "plugin", DOCTOR_BAD, "OpenSM",
			   "install the same version everywhere, and restart OpenSM",
			   "its plugin is version \"%s\", this daemon %s", version, IBVMIG_VERSION);
	else if (strcmp(str(sm, "state"), "master"))
		doctor_add(d, "sm", DOCTOR_BAD, "ibvmig-sm",
			   "let ibvmig-sm run beside the master SM (sminfo names it)",
			   "its subnet manager is \"%s\", not master", str(sm, "state"));
	else
		doctor_add(d, "plugin", DOCTOR_OK, "OpenSM", NULL, "version %s, master", version);
}

static struct json_object *holder(struct json_object *bound, const char *vguid)
{
	for (size_t i = 0; i < json_count(bound); i++)
		if (!strcasecmp(str(at(bound, i), "vguid"), vguid))
			return at(bound, i);
	return NULL;
}

/* The one of the first n VMs that asks for it too, or NULL. */
static struct json_object *twin_of(struct json_object *vms, size_t n, const char *vguid)
{
	for (size_t i = 0; i < n; i++)
		if (holder(json_opt(at(vms, i), "vfs"), vguid))
			return at(vms, i);
	return NULL;
}

static void check_vguid(struct doctor *d, struct json_object *vm, const char *vguid,
			struct json_object *twin, struct json_object *bound)
{
	struct json_object *other = holder(bound, vguid);
	const char *name = str(vm, "name");

	if (twin)
		doctor_add(d, "duplicate-vguid", DOCTOR_BAD, name,
			   "give one of them another vguid in its metadata",
			   "VMs %s and %s both ask for vGUID %s", name, str(twin, "name"), vguid);
	else if (other && strcmp(str(other, "vm"), str(vm, "uuid")))
		doctor_add(d, "duplicate-vguid", DOCTOR_BAD, name,
			   "give one of them another vguid in its metadata",
			   "vGUID %s is that of VM %s on host %s", vguid, str(other, "name"),
			   str(other, "host"));
	else
		doctor_add(d, "duplicate-vguid", DOCTOR_OK, name, NULL, "%s is this VM's alone",
			   vguid);
}

void doctor_duplicates(struct doctor *d, struct json_object *vms, struct json_object *bound)
{
	for (size_t i = 0; i < json_count(vms); i++) {
		struct json_object *vm = at(vms, i), *vfs = json_opt(vm, "vfs");

		for (size_t k = 0; k < json_count(vfs); k++) {
			const char *vguid = str(at(vfs, k), "vguid");

			check_vguid(d, vm, vguid, twin_of(vms, i, vguid), bound);
		}
	}
}

/* ---- other hosts ---- */

static void check_vf_there(struct doctor *d, const char *host, const char *subject,
			   struct json_object *vf, struct json_object *pfs)
{
	if (json_find(pfs, "name", str(vf, "pf")))
		doctor_add(d, "pf", DOCTOR_OK, subject, NULL, "the host has PF %s", str(vf, "pf"));
	else
		doctor_add(d, "pf", DOCTOR_BAD, subject,
			   "name the PFs alike on all hosts (the provider's inventory)",
			   "host %s has no PF \"%s\"", host, str(vf, "pf"));
}

/* True if one of the VFs before the n-th needs the same there. */
static bool said_before(struct json_object *vfs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(str(at(vfs, i), "pf"), str(at(vfs, n), "pf")))
			return true;
	return false;
}

static void check_vm_there(struct doctor *d, const char *host, struct json_object *vm,
			   struct json_object *pfs)
{
	char *subject AUTO_FREE = strf("%s on %s", str(vm, "name"), host);
	struct json_object *vfs = json_opt(vm, "vfs");

	for (size_t i = 0; i < json_count(vfs); i++)
		if (!said_before(vfs, i))
			check_vf_there(d, host, subject, at(vfs, i), pfs);
}

void doctor_peer(struct doctor *d, const char *host, struct json_object *vms,
		 struct json_object *status, const char *why)
{
	struct json_object *vfs = json_opt(status, "vfs");
	size_t used = 0;

	if (!status) {
		doctor_add(d, "peer", DOCTOR_BAD, host,
			   "start ibvmigd there; peer in ibvmigd.conf says where it is", "%s", why);
		return;
	}
	for (size_t i = 0; i < json_count(vfs); i++)
		used += *str(at(vfs, i), "vm") != '\0';
	if (strcmp(str(status, "version"), IBVMIG_VERSION))
		doctor_add(d, "peer", DOCTOR_WARNING, host, "install the same version everywhere",
			   "its ibvmigd is version \"%s\", this one %s", str(status, "version"),
			   IBVMIG_VERSION);
	else if (json_opt_bool(status, "drained", false))
		doctor_add(d, "peer", DOCTOR_WARNING, host, "ibvmig undrain, when VMs may go there",
			   "it is drained: no VM can go there");
	else if (used == json_count(vfs))
		doctor_add(d, "peer", DOCTOR_WARNING, host, "move a VM away from it",
			   "none of its %zu VFs is free: no VM with a VF can go there", used);
	else
		doctor_add(d, "peer", DOCTOR_OK, host, NULL, "answers, %zu of %zu VFs are free",
			   json_count(vfs) - used, json_count(vfs));
	for (size_t i = 0; i < json_count(vms); i++)
		check_vm_there(d, host, at(vms, i), json_opt(status, "pfs"));
}
