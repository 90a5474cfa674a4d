/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The commands of ibvmig-sm, for a person: each asks the running daemon and prints its answer. */
#ifndef IBVMIG_SM_HELPER_CLI_H
#define IBVMIG_SM_HELPER_CLI_H

#include "common/conf.h"

/* The exit status of the program. word: what followed the command, or NULL. */
int cli_status(const struct conf *conf, const char *word); /* 0: the backend can bind and move */
int cli_vguids(const struct conf *conf, const char *word); /* holders of vGUIDs, and since when */
int cli_verify(const struct conf *conf, const char *word); /* 0: the fabric is as the registry */
/* word "release" or NULL. 0: nothing is leaked (any more). */
int cli_reconcile(const struct conf *conf, const char *word);
/* Shows what a failed batch has left; word "undo", "commit" or NULL. 0: nothing is parked (any
 * more). */
int cli_parked(const struct conf *conf, const char *word);

#endif
