/* SPDX-License-Identifier: GPL-2.0-or-later */
/* doctor: P_Keys of VMs, of their guests' QPs, and of this host's ports. */
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/partition.h"
#include "daemon/report/doctor.h"

static struct json_object *at(struct json_object *list, size_t i)
{
	return json_object_array_get_idx(list, i);
}

static const char *str(struct json_object *o, const char *key)
{
	return json_opt_str(o, key, "");
}

static uint16_t pkey_of(struct json_object *o)
{
	uint16_t pkey = 0;

	ib_pkey_parse(str(o, "pkey"), &pkey);
	return pkey;
}

#define JOIN_FIX                                                                                   \
	"make the vGUID a member in the SM's partitions.conf, or by ibvmig-sm partition PKEY "     \
	"full "                                                                                    \
	"VGUID"

static void check_own(struct doctor *d, const char *vm, struct json_object *vf,
		      struct json_object *answer)
{
	const char *vguid = str(vf, "vguid"), *pkey = str(vf, "pkey");
	enum partition_right right = partition_own(answer, vguid, pkey_of(vf));

	if (right == PARTITION_UNKNOWN)
		doctor_add(d, "pkey", DOCTOR_SKIPPED, vm, NULL,
			   "whether vGUID %s is a member of the partition of PKey %s is not known: "
			   "%.300s",
			   vguid, pkey, partition_why(answer));
	else if (right == PARTITION_NONE)
		doctor_add(
			d, "pkey", DOCTOR_BAD, vm, JOIN_FIX,
			"vGUID %s is no member of the partition of PKey %s: the VM cannot use it, "
			"nor migrate",
			vguid, pkey);
	else
		doctor_add(d, "pkey", DOCTOR_OK, vm, NULL,
			   "vGUID %s is a %s member of the partition of PKey %s%s", vguid,
			   right == PARTITION_FULL ? "full" : "limited", pkey,
			   right == PARTITION_LIMITED ? ", and speaks with full members only" : "");
}

/* QPs of the guest that a port with this vGUID does not serve. */
static void check_used(struct doctor *d, const char *vm, struct json_object *used,
		       struct json_object *answer)
{
	for (size_t i = 0; i < json_count(used); i++) {
		struct json_object *u = at(used, i);

		if (!partition_serves(answer, str(u, "vguid"), pkey_of(u)))
			doctor_add(d, "guest-pkey", DOCTOR_BAD, vm, JOIN_FIX,
				   "process %llu (%s) has QPs with PKey %s, which vGUID %s is not "
				   "given: the VM cannot migrate",
				   (unsigned long long)json_opt_u64(u, "pid", 0), str(u, "comm"),
				   str(u, "pkey"), str(u, "vguid"));
	}
}

static const char *shown(struct json_object *vf)
{
	return json_opt_str(vf, "vguid", str(vf, "parked_guid"));
}

static void check_leftovers(struct doctor *d, struct json_object *vfs, struct json_object *answer)
{
	unsigned bad = 0, seen = 0;

	for (size_t i = 0; i < json_count(vfs); i++) {
		uint16_t pkey = partition_leftover(answer, shown(at(vfs, i)));

		seen += partition_is_seen(answer, shown(at(vfs, i)));
		if (!pkey)
			continue;
		bad++;
		doctor_add(
			d, "leftover-pkey", DOCTOR_BAD, str(at(vfs, i), "name"),
			"have the SM sweep (kill -HUP OpenSM); ibvmig-sm verify tells of all hosts",
			"its port has PKey 0x%04x, and GUID %s has no right to it: the VF's last "
			"user has left it",
			pkey, shown(at(vfs, i)));
	}
	if (bad || !json_count(vfs) || *partition_why(answer))
		return;
	if (seen)
		doctor_add(d, "leftover-pkey", DOCTOR_OK, "VFs", NULL,
			   "none of %u ports has a PKey that its GUID has no right to", seen);
	else
		doctor_add(d, "leftover-pkey", DOCTOR_SKIPPED, "VFs", NULL,
			   "ibvmig-sm sees no port of a VF");
}

void doctor_partitions(struct doctor *d, struct json_object *vms, struct json_object *vfs,
		       struct json_object *answer)
{
	for (size_t i = 0; i < json_count(vms); i++) {
		struct json_object *vm = at(vms, i), *own = json_opt(vm, "vfs");

		for (size_t k = 0; k < json_count(own); k++)
			check_own(d, str(vm, "name"), at(own, k), answer);
		check_used(d, str(vm, "name"), json_opt(vm, "guest_pkeys"), answer);
	}
	check_leftovers(d, vfs, answer);
}

struct json_object *doctor_guids(struct json_object *vms, struct json_object *vfs)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < json_count(vfs); i++)
		json_object_array_add(list, json_object_new_string(shown(at(vfs, i))));
	for (size_t i = 0; i < json_count(vms); i++) {
		struct json_object *own = json_opt(at(vms, i), "vfs");

		for (size_t k = 0; k < json_count(own); k++)
			if (!json_find(vfs, "vguid", str(at(own, k), "vguid")))
				json_object_array_add(
					list, json_object_new_string(str(at(own, k), "vguid")));
	}
	return list;
}
