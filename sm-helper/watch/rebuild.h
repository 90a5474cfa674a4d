/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The registry made anew, from those who see a part of it. Daemons know VMs and VFs (GET
 * /v1/status), OpenSM's tables places and LIDs, its plugin which LIDs are copies. Where two differ,
 * nothing is entered. Pure: somebody else asks. */
#ifndef IBVMIG_SM_HELPER_WATCH_REBUILD_H
#define IBVMIG_SM_HELPER_WATCH_REBUILD_H

#include "sm-helper/moves/mover.h"
#include "sm-helper/proto/plugin.h"
#include "sm-helper/registry/registry.h"
#include "vswitch/model/fabric.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

#define REBUILD_TEXT_MAX 320

enum rebuild_verdict {
	REBUILD_SAME,     /* the registry has it so */
	REBUILD_ENTER,    /* the registry lacks it */
	REBUILD_CORRECT,  /* the registry has it otherwise */
	REBUILD_LEFT,     /* only the registry has it: it stays as it is */
	REBUILD_CONFLICT, /* nothing is entered: text */
};

struct rebuild_row {
	struct reg_entry e; /* as far as is known */
	enum rebuild_verdict verdict;
	char text[REBUILD_TEXT_MAX]; /* why, or what the registry has; "": nothing to say */
};

/* A zeroed one is empty. */
struct rebuild {
	struct rebuild_row *row; /* owned */
	size_t count;
};

/* Adds the word of a host's daemon on its VFs; url: the daemon's. Then, once, the three others. 0,
 * -EBADMSG: that is no daemon's answer; -ENOMEM. */
int rebuild_add_host(struct rebuild *r, const char *url, struct json_object *status);
/* Before rebuild_judge(): the registry has the vGUID claimed by this VM, another one. */
void rebuild_claimed(struct rebuild_row *row, const char *vm);
/* Likewise: the plugin's records of places from before the hosts were asked, and those of now. A
 * host's word on a VM that has moved between the two is past. */
void rebuild_moved(struct rebuild *r, const struct sm_home *before, size_t befores,
		   const struct sm_home *home, size_t homes);
/* Likewise, where the subnet manager moves by itself: its list in place of a fabric's. */
void rebuild_place(struct rebuild *r, const struct sm_place *place, size_t places);
/* f: NULL after rebuild_place(). 0 or -ENOMEM. */
int rebuild_judge(struct rebuild *r, const struct fabric *f, const struct sm_home *home,
		  size_t homes, const struct reg_entry *known, size_t knowns);
/* True if a row of this vGUID is to be entered. */
bool rebuild_enters(const struct rebuild *r, uint64_t vguid);
const char *rebuild_text(enum rebuild_verdict v);
void rebuild_free(struct rebuild *r);

#endif
