/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the files of ops. All with ops.lock held. */
#ifndef IBVMIG_SM_HELPER_MOVES_OPS_INT_H
#define IBVMIG_SM_HELPER_MOVES_OPS_INT_H

#include "sm-helper/moves/ops.h"

int ops_fail(struct op_error *e, int rc, unsigned status, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* The error of a call to the registry, or to the subnet manager, for who asked. Returns rc. */
int ops_fail_registry(struct op_error *e, int rc);
int ops_fail_plugin(struct op_error *e, int rc, const char *text);

/* The first of every operation: how long it may try (ops.h). -EBUSY with *e: that time is over. */
int ops_start(struct ops *o, uint64_t deadline_us, struct op_error *e);
/* Gives the time for the operation's next step, milliseconds; never so short that a healthy subnet
 * could not do it. */
unsigned ops_left_ms(const struct ops *o);

/* OpenSM is master and ready, o->fabric is fresh, nothing half done is left. */
int ops_begin(struct ops *o, struct op_error *e);
/* The first two of these. */
int ops_refresh(struct ops *o, struct op_error *e);
/* The last: finishes what the registry has as begun, as OpenSM's tables say. */
int ops_settle(struct ops *o, struct op_error *e);

/* True if an operation that ended with rc starts again; *e is cleared then, after a pause. A sweep
 * may have changed what it was made from, or is not done with a port yet. Or a link on the way is
 * down and OpenSM does not know it yet. Its tables are then as before the batch, and its sweep
 * brings the switches in line. */
bool ops_again(const struct ops *o, int rc, struct op_error *e);

/* A heavy sweep from its beginning to its end; for what OpenSM may not have been told: it ignores a
 * switch's traps after ten within ten seconds. */
int ops_sweep(struct ops *o, struct op_error *e);

/* Batch in the plugin, made from o->fabric; -ESTALE if one of its places does not look as there any
 * more (with o->epoch zeroed before the call, that does not matter). Afterwards o->fabric has the
 * batch in it, or is stale.
 * *ret_unknown: the outcome is not known. */
int ops_assign(struct ops *o, const struct sm_target *targets, unsigned count, uint32_t flags,
	       struct sm_assign_reply *r, bool *ret_unknown, struct op_error *e);

/* Makes sure that the other ibvmig-sm, if there is one, has the registry before a change begins
 * that needs no record of LIDs. -EHOSTDOWN and others: it has not, and nothing may be changed. */
int ops_tell_twin(struct ops *o, struct op_error *e);

/* Tells if a vGUID may be bound to this VF, as far as the registry goes. 0: yes; 1: it is so
 * already, *ret_old: what the registry has. */
int ops_check_free(struct ops *o, const struct reg_entry *want, struct reg_entry *ret_old,
		   struct op_error *e);

/* A VF cannot be parked under a GUID that a VM has: 0, or -EINVAL with *e. */
int ops_check_parked(struct ops *o, const struct reg_vf *vf, struct op_error *e);

/* Judges what registry_find_vf() returned for a VF: 0 if nobody has it, else an error that names
 * who. */
int ops_check_holder(int found, const struct reg_vf *vf, const struct reg_entry *holder,
		     struct op_error *e);

/* Tells if the vGUID is bound for this VM. 0: yes; -ENOENT without *e: it is bound to none. */
int ops_check_vm(struct ops *o, uint64_t vguid, const char *vm, struct reg_entry *ret_entry,
		 struct op_error *e);

/* Tells if the vGUID is bound to this VF, by host and parked GUID; else *e says where it is. */
int ops_check_at(const struct reg_entry *x, const struct reg_vf *vf, struct op_error *e);

/* How one kind of addresses is bound. Each: 0, or -errno with *e; *ret_unknown: the outcome is not
 * known. */
struct bind_kind {
	/* Finds the place of x, calls ops_record_bind(), and puts the vGUID there. */
	int (*bind)(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e);
	/* The last again, of what the registry has as bound. */
	int (*again)(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e);
	/* -ENOENT: the place is gone. */
	int (*unbind)(struct ops *o, const struct reg_entry *x, bool *ret_unknown,
		      struct op_error *e);
};
/* Bind and unbind like ops_bind() and ops_unbind(), and like these without the lock. */
int ops_bind_as(struct ops *o, const struct bind_kind *kind, const struct reg_entry *want,
		uint64_t deadline_us, uint16_t *ret_lid, struct op_error *e);
int ops_unbind_as(struct ops *o, const struct bind_kind *kind, uint64_t vguid, const char *vm,
		  const struct reg_vf *from, uint64_t deadline_us, struct op_error *e);
/* The intent, before anything is done. */
int ops_record_bind(struct ops *o, struct reg_entry *x, struct op_error *e);

/* Finds where OpenSM sees this port GUID, and fills the switch of *ret_vf; false: nowhere. */
bool ops_locate(const struct ops *o, uint64_t port_guid, struct reg_vf *ret_vf);
bool ops_same_place(const struct reg_vf *a, const struct reg_vf *b);
/* The LID of the port at this place, as OpenSM has it; 0: there is none. */
uint16_t ops_lid_at(const struct ops *o, const struct reg_vf *at);

/* Asks the VF itself which GUIDs it shows; they must be `guid`, or it is a 409 that says what to
 * do. Returns its node GUID. */
int ops_check_shows(struct ops *o, const struct reg_vf *vf, uint64_t guid, uint64_t *ret_node_guid,
		    struct op_error *e);

/* Walks the LFTs as the switches hold them. All ways to `lid`, and to the others of its LMC, must
 * end at the target's place, and the port there must answer as its port GUID. Blocks that have been
 * read since ops_forget() are not read again. */
int ops_verify(struct ops *o, const struct sm_target *t, uint16_t lid, unsigned *ret_walks,
	       enum reach_by *ret_by, struct op_error *e);
void ops_forget(struct ops *o);

#endif
