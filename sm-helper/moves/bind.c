/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/dynamic.h"
#include "sm-helper/moves/ops_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int ops_check_holder(int found, const struct reg_vf *vf, const struct reg_entry *holder,
		     struct op_error *e)
{
	if (found)
		return found == -ENOENT ? 0 : ops_fail_registry(e, found);
	return ops_fail(e, -EBUSY, 409, "vf-in-use",
			"VF %s of %s carries vGUID 0x%016" PRIx64 " of VM %s (%s)", vf->vf,
			vf->host, holder->vguid, holder->name, holder->vm);
}

int ops_check_parked(struct ops *o, const struct reg_vf *vf, struct op_error *e)
{
	struct reg_entry other;
	int rc = registry_find(o->registry, vf->parked_guid, &other);

	if (rc)
		return rc == -ENOENT ? 0 : ops_fail_registry(e, rc);
	return ops_fail(e, -EINVAL, 409, "parked-guid",
			"parked GUID 0x%016" PRIx64 " of VF %s of %s is the vGUID of VM %s (%s): "
			"give the GUID that the VF has while no VM has it",
			vf->parked_guid, vf->vf, vf->host, other.name, other.vm);
}

int ops_check_free(struct ops *o, const struct reg_entry *want, struct reg_entry *ret_old,
		   struct op_error *e)
{
	struct reg_entry other;
	int rc = registry_find(o->registry, want->vguid, ret_old);

	if (rc && rc != -ENOENT)
		return ops_fail_registry(e, rc);
	if (!rc && strcmp(ret_old->vm, want->vm))
		return ops_fail(e, -EEXIST, 409, "duplicate-vguid",
				"vGUID 0x%016" PRIx64 " belongs to VM %s (%s) on VF %s of %s",
				want->vguid, ret_old->name, ret_old->vm, ret_old->at.vf,
				ret_old->at.host);
	if (!rc && !reg_same_vf(&ret_old->at, &want->at))
		return ops_fail(e, -EEXIST, 409, "bound-elsewhere",
				"vGUID 0x%016" PRIx64
				" of this VM is on VF %s of %s: move or unbind "
				"it first",
				want->vguid, ret_old->at.vf, ret_old->at.host);
	if (!rc)
		return 1;
	rc = registry_find_vf(o->registry, want->at.parked_guid, &other);
	if ((rc = ops_check_holder(rc, &want->at, &other, e)))
		return rc;
	if ((rc = ops_check_parked(o, &want->at, e)))
		return rc;
	rc = registry_find_vf(o->registry, want->vguid, &other);
	if (!rc)
		return ops_fail(e, -EINVAL, 409, "parked-guid",
				"vGUID 0x%016" PRIx64 " is the parked GUID of VF %s of %s, which "
				"VM %s (%s) has: give another vGUID",
				want->vguid, other.at.vf, other.at.host, other.name, other.vm);
	return rc == -ENOENT ? 0 : ops_fail_registry(e, rc);
}

int ops_check_vm(struct ops *o, uint64_t vguid, const char *vm, struct reg_entry *ret_entry,
		 struct op_error *e)
{
	int rc = registry_find(o->registry, vguid, ret_entry);

	if (rc)
		return rc == -ENOENT ? rc : ops_fail_registry(e, rc);
	if (!strcmp(ret_entry->vm, vm))
		return 0;
	return ops_fail(e, -EPERM, 409, "wrong-vm",
			"vGUID 0x%016" PRIx64 " belongs to VM %s (%s), not to %s", vguid,
			ret_entry->name, ret_entry->vm, vm);
}

int ops_check_at(const struct reg_entry *x, const struct reg_vf *vf, struct op_error *e)
{
	if (reg_same_vf(&x->at, vf))
		return 0;
	return ops_fail(e, -EINVAL, 409, "wrong-host",
			"vGUID 0x%016" PRIx64 " is on VF %s of %s (parked GUID 0x%016" PRIx64
			"), not on VF %s of %s",
			x->vguid, x->at.vf, x->at.host, x->at.parked_guid, vf->vf, vf->host);
}

int ops_record_bind(struct ops *o, struct reg_entry *x, struct op_error *e)
{
	x->intent = REG_BIND;
	x->since_ms = wall_ms();
	return registry_put(o->registry, x) ? ops_fail_registry(e, -EIO) : 0;
}

/* Binds again: what is so already costs nothing, what got lost is restored. */
static int bind_again(struct ops *o, const struct bind_kind *kind, struct reg_entry *x,
		      uint16_t *ret_lid, struct op_error *e)
{
	bool unknown = false;
	int rc = kind->again(o, x, &unknown, e);

	if (!rc)
		*ret_lid = x->lid;
	return rc;
}

int ops_bind_as(struct ops *o, const struct bind_kind *kind, const struct reg_entry *want,
		uint64_t deadline_us, uint16_t *ret_lid, struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct reg_entry x = *want, old;
	bool unknown = false;
	int rc;

	if ((rc = ops_start(o, deadline_us, e)) || (rc = ops_begin(o, e)) ||
	    (rc = ops_check_free(o, want, &old, e)) < 0)
		return rc;
	if (rc)
		return bind_again(o, kind, &old, ret_lid, e);
	rc = kind->bind(o, &x, &unknown, e);
	if (rc) {
		if (!unknown)
			registry_delete(o->registry, x.vguid);
		return rc;
	}
	x.intent = REG_NONE;
	if ((rc = registry_put(o->registry, &x)))
		return ops_fail_registry(e, rc);
	log_info("bind: vGUID 0x%016" PRIx64 " of %s to VF %s of %s, LID %u", x.vguid, x.name,
		 x.at.vf, x.at.host, x.lid);
	*ret_lid = x.lid;
	return 0;
}

int ops_unbind_as(struct ops *o, const struct bind_kind *kind, uint64_t vguid, const char *vm,
		  const struct reg_vf *from, uint64_t deadline_us, struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct reg_entry x;
	bool unknown;
	int rc;

	if ((rc = ops_start(o, deadline_us, e)) || (rc = ops_begin(o, e)))
		return rc;
	rc = ops_check_vm(o, vguid, vm, &x, e);
	if (rc == -ENOENT)
		return 0; /* again */
	if (rc || (from && (rc = ops_check_at(&x, from, e))))
		return rc;
	x.intent = REG_UNBIND;
	if ((rc = registry_put(o->registry, &x)))
		return ops_fail_registry(e, rc);
	rc = kind->unbind(o, &x, &unknown, e);
	if (rc == -ENOENT) { /* the VF has left the fabric: there is nothing to undo */
		*e = (struct op_error){0};
	} else if (rc) {
		x.intent = REG_NONE;
		if (!unknown)
			registry_put(o->registry, &x);
		return rc;
	}
	log_info("unbind: vGUID 0x%016" PRIx64 " of %s from VF %s of %s", vguid, x.name, x.at.vf,
		 x.at.host);
	parked_drop_move(o, vguid);
	rc = registry_delete(o->registry, vguid);
	return rc ? ops_fail_registry(e, rc) : 0;
}

/* ---- with LIDs of their own ---- */

/* Finds the VF's place. OpenSM knows it by its parked GUID, or by its new one after a sweep since
 * that was set. */
static int find_place(struct ops *o, struct reg_entry *x, struct op_error *e)
{
	uint32_t end = fabric_find_end(&o->fabric, x->at.parked_guid);

	if (end != FABRIC_NONE && ops_locate(o, x->at.parked_guid, &x->at)) {
		x->at.parked_node = o->fabric.end[end].node_guid;
		return 0;
	}
	if (ops_locate(o, x->vguid, &x->at))
		return 0;
	return ops_fail(e, -ENOENT, 409, "unknown-vf",
			"OpenSM sees no port with GUID 0x%016" PRIx64
			" (VF %s of %s) in the fabric: "
			"is its link up, and is parked_guid right?",
			x->at.parked_guid, x->at.vf, x->at.host);
}

static int try_bind(struct ops *o, struct reg_entry *x, bool is_new, bool *ret_unknown,
		    struct op_error *e)
{
	struct sm_target t = {
		.port_guid = x->vguid,
		.parked_guid = x->at.parked_guid,
		.lid = x->lid,
		.own_lid = x->at.lid,
		.was_own_lid = is_new ? 0 : reg_own_lid(x),
	};
	struct sm_assign_reply r;
	int rc;

	*ret_unknown = false;
	if ((rc = ops_begin(o, e)) || (is_new && (rc = find_place(o, x, e))))
		return rc;
	t.switch_guid = x->at.switch_guid;
	t.switch_port = x->at.switch_port;
	t.like_guid = x->mode == ADDRESS_DYNAMIC ? dynamic_like(o, &x->at) : 0;
	if ((rc = ops_check_shows(o, &x->at, x->vguid, &t.node_guid, e)) ||
	    (rc = ops_assign(o, &t, 1, 0, &r, ret_unknown, e)))
		return rc;
	x->lid = r.lid[0];
	x->at.lid = x->mode == ADDRESS_DYNAMIC ? r.own_lid[0] : 0;
	if (!x->at.parked_node) /* a VF's node GUID keeps its distance from the port GUID */
		x->at.parked_node = x->at.parked_guid - (x->vguid - t.node_guid);
	return 0;
}

static int bind_vguid(struct ops *o, struct reg_entry *x, bool is_new, bool *ret_unknown,
		      struct op_error *e)
{
	int rc;

	do {
		rc = try_bind(o, x, is_new, ret_unknown, e);
	} while (ops_again(o, rc, e));
	return rc;
}

/* A new binding, with the intent recorded first. */
static int bind_new(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e)
{
	int rc = ops_record_bind(o, x, e);

	return rc ? rc : bind_vguid(o, x, true, ret_unknown, e);
}

/* A LID of the range that OpenSM keeps for somebody who is away is left out. */
static int bind_dynamic(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e)
{
	struct lids lids;
	int rc = dynamic_lids(o, &lids, e);

	x->mode = ADDRESS_DYNAMIC;
	x->at.lid = ops_lid_at(o, &x->at);
	while (!rc && !(rc = dynamic_take(&lids, dynamic_lmc(o), &x->lid, e))) {
		rc = bind_new(o, x, ret_unknown, e);
		if (rc != -EADDRINUSE)
			break;
		*e = (struct op_error){0};
		rc = 0;
	}
	return rc;
}

static int bind_own(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e)
{
	int rc = find_place(o, x, e);

	if (rc)
		return rc;
	return o->addresses == ADDRESS_DYNAMIC ? bind_dynamic(o, x, ret_unknown, e)
					       : bind_new(o, x, ret_unknown, e);
}

static int bind_own_again(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e)
{
	return bind_vguid(o, x, false, ret_unknown, e);
}

static int unbind_own(struct ops *o, const struct reg_entry *x, bool *ret_unknown,
		      struct op_error *e)
{
	struct sm_target t = {
		.switch_guid = x->at.switch_guid,
		.switch_port = x->at.switch_port,
		.node_guid = x->at.parked_node,
		.port_guid = x->at.parked_guid,
		.parked_guid = x->at.parked_guid,
		.own_lid = x->at.lid,
		.was_own_lid = reg_own_lid(x),
	};
	struct sm_assign_reply r;

	o->epoch = (struct backend_epoch){0};
	return ops_assign(o, &t, 1, 0, &r, ret_unknown, e);
}

static const struct bind_kind own = {
	.bind = bind_own,
	.again = bind_own_again,
	.unbind = unbind_own,
};

int ops_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us, uint16_t *ret_lid,
	     struct op_error *e)
{
	return ops_bind_as(o, &own, want, deadline_us, ret_lid, e);
}

int ops_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
	       uint64_t deadline_us, struct op_error *e)
{
	return ops_unbind_as(o, &own, vguid, vm, from, deadline_us, e);
}
