/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/moves/address.h"
#include "common/util.h"

#include <errno.h>

static const char *const mode_name[ADDRESS_MODES] = {
	[ADDRESS_PREPOPULATED] = "prepopulated",
	[ADDRESS_DYNAMIC] = "dynamic",
	[ADDRESS_SHARED_PORT] = "shared-port",
};

const char *address_mode_name(enum address_mode m)
{
	return mode_name[m];
}

int address_mode_parse(const char *name, enum address_mode *ret_mode, struct fabric_error *e)
{
	for (unsigned i = 0; i < ADDRESS_MODES; i++)
		if (str_eq(name, mode_name[i])) {
			*ret_mode = (enum address_mode)i;
			return 0;
		}
	return fabric_fail(e, -EINVAL, "mode \"%s\": must be prepopulated, dynamic or shared-port",
			   name);
}

uint32_t address_host(const struct fabric *f, uint32_t vf)
{
	const struct fabric_end *e = &f->end[vf];

	if (e->pf != FABRIC_NONE)
		return e->pf;
	if (e->sw == FABRIC_NONE || !f->sw[e->sw].inside)
		return vf;
	for (unsigned p = 1; p <= f->sw[e->sw].ports; p++)
		if (f->sw[e->sw].peer[p].end != FABRIC_NONE)
			return f->sw[e->sw].peer[p].end;
	return vf;
}
