/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The commands of ibvmig-sm, for a person: each asks the running daemon and prints its answer. */
#ifndef IBVMIG_SM_HELPER_CLI_H
#define IBVMIG_SM_HELPER_CLI_H

#include "common/command.h"

/* The exit status of the program. The context of l is the configuration, a struct conf. */
int cli_status(const struct command_line *l); /* 0: it can bind and move */
int cli_vguids(const struct command_line *l); /* holders of vGUIDs, and since when */
int cli_partitions(const struct command_line *l);
/* Words PKEY, "full", "limited" or "remove", GUIDs. */
int cli_partition(const struct command_line *l);
int cli_verify(const struct command_line *l); /* 0: the fabric is as the registry */
/* Shows what the registry would be; 0: nothing is missing in it, or all has been entered. */
int cli_rebuild(const struct command_line *l);
/* word "release" or NULL. 0: nothing is leaked (any more). */
int cli_fence(const struct command_line *l);
int cli_reconcile(const struct command_line *l);
/* Shows what a failed batch has left; word "undo", "commit" or NULL. 0: nothing is parked (any
 * more). */
int cli_parked(const struct command_line *l);

#endif
