/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The answer of a VF provider to "inventory": a table that the daemon relies on, or an error. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "daemon/store/journal.h"
#include "daemon/vf/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int journal_lease_put(struct journal *j, const char *vf, const char *vm, const char *data)
{
	(void)j;
	(void)vf;
	(void)vm;
	(void)data;
	return 0;
}

int journal_lease_del(struct journal *j, const char *vf)
{
	(void)j;
	(void)vf;
	return 0;
}

struct json_object *journal_leases(struct journal *j)
{
	(void)j;
	return json_object_new_array();
}

static void check(const struct vf_table *t)
{
	if (t->pf_count > VF_PFS_MAX || t->vf_count > VF_VFS_MAX)
		abort();
	for (size_t i = 0; i < t->pf_count; i++)
		if (!*t->pfs[i].name || t->pfs[i].pkey_count > VF_PKEYS_MAX)
			abort();
	for (size_t i = 0; i < t->vf_count; i++)
		if (!*t->vfs[i].name || !t->vfs[i].parked_guid || t->vfs[i].leased)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_object *inventory AUTO_JSON = NULL;
	struct vf_table t = {0};
	char error[HTTP_ERROR_MAX] = "";

	if (json_parse((const char *)data, size, &inventory))
		return 0;
	if (vf_table_load(&t, NULL, inventory, error)) {
		if (!*error)
			abort();
		return 0;
	}
	check(&t);
	json_object_put(vf_status(&t));
	json_object_put(vf_pfs(&t));
	vf_table_clear(&t);
	return 0;
}
