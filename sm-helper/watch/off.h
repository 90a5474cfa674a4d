/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A host that is said to be off, as the fabric sees it. A card shows a VF's vGUID for as long as it
 * has power, whatever its host's programs do: silence on the management network proves nothing. */
#ifndef IBVMIG_SM_HELPER_WATCH_OFF_H
#define IBVMIG_SM_HELPER_WATCH_OFF_H

#include "sm-helper/moves/ops.h"

#define OFF_TEXT_MAX 320

enum off_verdict {
	OFF_GONE,   /* no port answers there, or it shows something else */
	OFF_SHOWN,  /* the vGUID is shown where the registry has it */
	OFF_UNSEEN, /* nothing can be seen */
};

/* Asks the port of the VF itself, by SMP, or the subnet manager that moves by itself. ret_text: one
 * line, but for OFF_GONE. Without ops lock. */
enum off_verdict off_look(struct ops *o, const struct reg_entry *e,
			  char ret_text[static OFF_TEXT_MAX]);

#endif
