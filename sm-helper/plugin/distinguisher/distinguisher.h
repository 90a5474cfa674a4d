/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finds after each heavy sweep which paths it has changed (plugin/distinguisher/differ.h). Trap 68
 * then names ports whose paths are gone, trap 69 those whose paths are back or others, and
 * SM_OP_REROUTE tells all. A thread of its own does it, so that no batch waits. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_DISTINGUISHER_DISTINGUISHER_H
#define IBVMIG_SM_HELPER_PLUGIN_DISTINGUISHER_DISTINGUISHER_H

#include "sm-helper/plugin/main.h"

struct distinguisher;

/* Sets p->distinguisher. 0 or -errno. */
int distinguisher_start(struct plugin *p);
/* Ends the thread. What is kept stays, for events still come. */
void distinguisher_stop(struct plugin *p);

/* A sweep has ended, or OpenSM has routed anew. Any thread. */
void distinguisher_wake(struct plugin *p);
/* A notice of OpenSM's: 64 and 65 name GIDs, of alias GUIDs too, that come and go. OpenSM's lock is
 * held. */
void distinguisher_heard(struct plugin *p, const ib_mad_notice_attr_t *notice);

/* False: there is nothing to answer yet; else as the requests of plugin/main.h. Our thread of
 * requests. */
bool distinguisher_answers(struct plugin *p, const struct sm_reroute_request *req);
int plugin_reroute(struct plugin *p, const struct sm_reroute_request *req,
		   struct sm_reroute_reply *r);

#endif
