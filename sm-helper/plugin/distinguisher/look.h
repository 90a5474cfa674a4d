/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes a look (plugin/distinguisher/differ.h) of OpenSM's tables, with its lock shared and let go
 * again and again, so that nobody waits long. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_DISTINGUISHER_LOOK_H
#define IBVMIG_SM_HELPER_PLUGIN_DISTINGUISHER_LOOK_H

#include "sm-helper/plugin/distinguisher/differ.h"
#include "sm-helper/plugin/main.h"

/* 0, or -EAGAIN: a sweep runs, or has begun meanwhile, or OpenSM ends. *ret_look is the caller's.
 * The look is not whole without memory, where the cells are too many, and where batches do not
 * leave off. */
int look_read(struct plugin *p, struct look *ret_look);

#endif
