/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A place keeps its LID while the GUID of its VF changes. The hosts set GUIDs before they call, and
 * a heavy sweep may come in between. OpenSM would then take a port that shows a parked GUID for a
 * new one, keep the LID that it has for the vGUID, and give it a third one. So what OpenSM's tables
 * say of each place is remembered when a sweep begins. Where its port still has that LID when all
 * ports are found, that is the LID of the GUID that it shows by then. LIDs change places in batches
 * only. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_KEEP_H
#define IBVMIG_SM_HELPER_PLUGIN_KEEP_H

#include "sm-helper/plugin/main.h"

/* The first sweep as master did not find these GUIDs (count of them; owned by the callee from here
 * on). Guid2lid's word on them may be of long ago. When one is found, its port's own LID goes
 * before that line, as in the first sweep. */
void keep_doubt(struct plugin *p, uint64_t *guid, unsigned count);

/* A heavy sweep begins; no batch is under way. Takes OpenSM's lock. */
void keep_remember(struct plugin *p);

/* The sweep has found all ports and written nothing yet: guid2lid, and the homes of the places,
 * follow the GUIDs. Not for the first sweep as master (plugin/master.h). Takes OpenSM's lock. */
void keep_swept(struct plugin *p);

#endif
