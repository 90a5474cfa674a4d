/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The objects of this process, and what is asked of all of them. */
#include "guest-agent/shim/core/objects.h"

struct shim_qp *qp_by_vqpn(uint32_t vqpn)
{
	return (struct shim_qp *)(uintptr_t)table_get(&shim.qp_by_vqpn, vqpn);
}

bool gid_in_order(const uint8_t gid[16], const struct shim_order *o)
{
	uint64_t guid = 0;

	for (int i = 8; i < 16; i++)
		guid = guid << 8 | gid[i];
	for (unsigned i = 0; i < o->vguid_count; i++)
		if (o->vguid[i] == guid)
			return true;
	return false;
}
