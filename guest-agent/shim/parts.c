/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of the parts of a job. A new one is a line here; what it may do, and when, is in
 * core/part.h. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/deliver.h"
#include "guest-agent/shim/repath/repath.h"
#include "guest-agent/shim/ud/ud.h"

const struct shim_part *const shim_parts[] = {&deliver_part, &repath_part, &ud_part, &cm_part,
					      NULL};
