/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The registry that may change this subnet, in a file of OpenSM's cache directory. Of two ibvmig-sm
 * one goes on: the one that an operator has given the subnet last. The other one is told. All in
 * our thread. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_OWNER_H
#define IBVMIG_SM_HELPER_PLUGIN_OWNER_H

#include "sm-helper/plugin/main.h"

/* Reads the file. A damaged one is logged, and nobody owns the subnet then. 0 or -ENOMEM. */
int owner_open(struct plugin *p);

/* SM_OP_OWNER of a client. */
int plugin_owner(struct plugin *p, int client, const struct sm_owner_request *req,
		 struct sm_owner_reply *reply);

/* -EKEYREJECTED with reason if the client may change nothing. */
int owner_check(const struct plugin *p, int client, struct sm_reply_head *h);

#endif
