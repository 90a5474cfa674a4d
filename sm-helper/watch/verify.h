/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Compares the fabric with the registry, by SMPs and SA queries only: no subnet manager's tables
 * are believed, and nothing is changed. Works with every backend that has a management port. */
#ifndef IBVMIG_SM_HELPER_WATCH_VERIFY_H
#define IBVMIG_SM_HELPER_WATCH_VERIFY_H

#include "sm-helper/fabric/reach.h"
#include "sm-helper/registry/registry.h"
#include "vswitch/model/fabric.h"

#define VERIFY_TEXT_MAX 320

struct verify {
	struct probe *m; /* borrowed */
	uint64_t own_guid;
	struct fabric f; /* owned: as the nodes tell it now; its LFTs are read as they are needed */
	struct reach *reach; /* borrowed; NULL: for the topology alone */
	unsigned sources;    /* CA ports that each verification walks from, at most; 0: all */
};

/* Reads the topology. 0 or -errno with one line in error. */
int verify_begin(struct verify *v, struct probe *m, struct reach *reach, unsigned sources,
		 char error[static PROBE_ERROR_MAX]);
void verify_end(struct verify *v);

struct verify_result {
	unsigned walks; /* how many were made */
	bool sa;        /* the SA's record was seen; false: it shows our port none of that port's */
	enum reach_by by;           /* how it was seen that the port answers */
	char text[VERIFY_TEXT_MAX]; /* what is wrong */
};

/* The port that shows the vGUID is where the registry has it and has its LID. The SA says the same
 * LID, LFTs lead there from everywhere, and the port answers at that LID. The SA has no path from
 * our port to one that shares no partition with it, but as limited members: that is no fault. 0, or
 * -EHOSTUNREACH with a text. */
int verify_entry(struct verify *v, const struct reg_entry *e, struct verify_result *ret_result);

#endif
