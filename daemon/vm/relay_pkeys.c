/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/relay_pkeys.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/partition.h"
#include "daemon/vm/rights.h"
#include "daemon/vm/vm.h"

#include <stdio.h>

#define PKEY_FULL 0x8000
#define PKEY_BASE 0x7fff

struct json_object *relay_pkeys(const struct vm *vm, uint64_t guid)
{
	struct json_object *list = json_object_new_array(), *told;
	char text[IB_GUID_TEXT], pkey[8];

	for (unsigned i = 0; i < vm->vf_count; i++) {
		if (vm->vfs[i].want.vguid != guid || !vm->vfs[i].want.pkey)
			continue;
		snprintf(pkey, sizeof pkey, "0x%04x", vm->vfs[i].want.pkey);
		json_object_array_add(list, json_object_new_string(pkey));
	}
	ib_guid_format(guid, text);
	told = partition_pkeys(vm->d->sm.partitions, text);
	for (size_t i = 0; i < json_count(told); i++)
		json_object_array_add(list, json_object_get(json_object_array_get_idx(told, i)));
	if (json_count(list))
		return list;
	json_object_put(list);
	return NULL;
}

/* Two limited members cannot reach each other (IBA 1.4, 10.9.3). */
static bool meet(const char *a, const char *b)
{
	uint16_t p, q;

	return a && b && !ib_pkey_parse(a, &p) && !ib_pkey_parse(b, &q) && !((p ^ q) & PKEY_BASE) &&
	       (p | q) & PKEY_FULL;
}

static const char *at(struct json_object *list, size_t i)
{
	return json_object_get_string(json_object_array_get_idx(list, i));
}

bool relay_pkeys_meet(const struct vm *vm, uint64_t guid, struct json_object *pkeys)
{
	struct json_object *own AUTO_JSON = pkeys ? relay_pkeys(vm, guid) : NULL;

	for (size_t i = 0; i < json_count(own); i++)
		for (size_t k = 0; k < json_count(pkeys); k++)
			if (meet(at(own, i), at(pkeys, k)))
				return true;
	if (own)
		vm_rights_refresh(vm->d); /* another partition may be there since */
	return !own;
}
