/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/routing/engine.h"
#include "common/util.h"

#include <errno.h>

const struct route_engine *const route_engines[ROUTE_ENGINES] = {
	&route_minhop,
	&route_updn,
	&route_dor,
	&route_ftree,
};

int route_engine_find(const char *name, const struct route_engine **ret_engine,
		      struct fabric_error *e)
{
	for (unsigned i = 0; i < ROUTE_ENGINES; i++)
		if (str_eq(name, route_engines[i]->name)) {
			*ret_engine = route_engines[i];
			return 0;
		}
	return fabric_fail(e, -EINVAL, "routing \"%s\": must be minhop, updn, dor or ftree", name);
}
