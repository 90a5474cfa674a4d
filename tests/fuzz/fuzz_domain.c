/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Domain XML with our metadata, as libvirt's hook hands it to us: a VF is wanted only with values
 * that the rest of the daemon may rely on. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/libvirt/domain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct domain_info *info = NULL;

	log_set_level(LOG_ERROR);
	if (domain_parse((const char *)data, size, &info))
		return 0;
	if (info->wants_vf && !info->problem &&
	    (!info->vf_count || info->vf_count > DOMAIN_VFS_MAX))
		abort();
	for (unsigned i = 0; !info->problem && i < info->vf_count; i++) {
		const struct vf_want *vf = &info->vfs[i];

		if (!vf->vguid || vf->vguid == UINT64_MAX || vf->index >= DOMAIN_VFS_MAX ||
		    !(vf->pkey & 0x7fff) || !*vf->pf || (i && vf->index <= vf[-1].index))
			abort();
	}
	domain_free(info);
	return 0;
}
