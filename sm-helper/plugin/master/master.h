/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Safe changes of masters: the record of the batch under way, and the LIDs that the first sweep as
 * master gives (sm-helper/plugin/master/takeover.h). Lock: OpenSM's. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_MASTER_H
#define IBVMIG_SM_HELPER_PLUGIN_MASTER_H

#include "sm-helper/plugin/main.h"

/* The path of a file in OpenSM's cache directory; owned by the caller. NULL without memory. */
char *master_cache_path(const char *name);

/* Opens the record, a file in OpenSM's cache directory; one of an earlier process is kept until it
 * has been judged. 0 or -errno. */
int master_open(struct plugin *p);

/* A batch of count places begins (target: wanted; was_guid, was_lid: what is there) or, with 0, is
 * over. Survives the process, not the machine: then the standby's copy counts. Lock held
 * exclusively. 0 or -errno. */
int master_record(struct plugin *p, const struct sm_target *target, unsigned count);

/* SM_OP_INTENT: another master is about to begin a batch. Refused by who is master itself. */
int plugin_intent(struct plugin *p, const struct sm_intent_request *req,
		  struct sm_intent_reply *reply);

/* A heavy sweep has found all ports and written nothing yet. If it is the first one as master,
 * OpenSM's file of LIDs is brought in line with the ports; else false. */
bool master_swept(struct plugin *p);

/* A heavy sweep is over, and no batch has begun since: what was recorded before is settled. */
void master_up(struct plugin *p);

/* Other SMs that would take over, or are masters too. Lock held. */
unsigned master_others(const struct plugin *p);

/* IBVMIG_FAULT=die-at: says so in the log. Then, before each batch, master_arm() reads the file
 * ibvmig-die-at in OpenSM's cache directory. It says after how many SMPs of the batch this process
 * kills itself, or "store": after its end, before it is answered. Without the file it lives. */
void master_read_fault(struct plugin *p);
void master_arm(struct plugin *p);
void master_die(struct plugin *p, const char *where) __attribute__((noreturn));

#endif
