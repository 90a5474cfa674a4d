/* SPDX-License-Identifier: GPL-2.0-or-later */
/* May this ibvmig-sm change the subnet? Its registry can be written, and OpenSM's plugin takes
 * changes from it and from no other. */
#ifndef IBVMIG_SM_HELPER_MOVES_OWN_H
#define IBVMIG_SM_HELPER_MOVES_OWN_H

#include "sm-helper/moves/ops.h"

enum own_state {
	OWN_GOOD,
	OWN_BAD,    /* the registry's file: registry_judge() */
	OWN_EMPTY,  /* it is new, while vGUIDs are bound */
	OWN_FENCED, /* another registry has the subnet */
};

/* Claims the subnet where it is not ours as the status says. With ops.lock held. */
void own_claim(struct ops *o, const struct sm_status_reply *s);
/* 0, or -EROFS or -EKEYREJECTED with *e. fresh_ms: as registry_judge(). With ops.lock held. */
int own_check(struct ops *o, unsigned fresh_ms, struct op_error *e);
/* The verdict by a status, and the sentence for people. Without ops.lock. s: a status, or NULL. */
enum own_state own_state(struct ops *o, const struct sm_status_reply *s,
			 char ret_why[static OWN_WHY_MAX]);
const char *own_state_name(struct ops *o, enum own_state s);
/* Takes the subnet from whoever has it. With ops.lock held. 0 or -errno with *e. */
int own_take(struct ops *o, struct op_error *e);

#endif
