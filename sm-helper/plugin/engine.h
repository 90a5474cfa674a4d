/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between OpenSM and its routing engines. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_ENGINE_H
#define IBVMIG_SM_HELPER_PLUGIN_ENGINE_H

#include "sm-helper/plugin/main.h"

/* Whatever engine routes sees homes (sm-helper/plugin/seen.h), the one that OpenSM falls back to
 * included. To be called at the start of each heavy sweep, without OpenSM's lock: engines are set
 * up after plugins. An engine without memory for it stays as it is, which is logged. */
void engines_wrap(struct plugin *p);

#endif
