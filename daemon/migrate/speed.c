/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A user's settings for QEMU's migration, beside those of ibvmigd. */
#include "common/json.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/migrate/src.h"

#define PRESET_BYTES (1ull << 20) /* vm_work_attach() sets this */

static const char *str(struct job *j, const char *key)
{
	return json_opt_str(j->in, key, "");
}

int src_read_user_values(struct job *j, uint64_t *ret_bandwidth, uint64_t *ret_downtime_ms)
{
	uint64_t bandwidth = 0, downtime_ms = 0;

	j->rc = qmp_get_migrate(j->d->virt, str(j, "vm"), &bandwidth, &downtime_ms, j->error);
	/* Another value than our preset is the user's --bandwidth. */
	*ret_bandwidth = bandwidth == PRESET_BYTES ? FULL_SPEED : bandwidth;
	*ret_downtime_ms = downtime_ms ? downtime_ms : DOWNTIME_MS;
	return j->rc;
}

void src_let_copy(struct job *j)
{
	bool copies = false;

	j->rc = qmp_unlimit_mirrors(j->d->virt, str(j, "vm"), PRESET_BYTES, &copies, j->error);
	json_set_bool(j->out, "copies", copies);
}

int src_read_changes(struct job *j)
{
	uint64_t bandwidth = 0, downtime_ms = 0;

	j->rc = qmp_get_migrate(j->d->virt, str(j, "vm"), &bandwidth, &downtime_ms, j->error);
	if (!j->rc && bandwidth && bandwidth != json_opt_u64(j->in, "set_bandwidth", bandwidth))
		json_set_u64(j->out, "bandwidth", bandwidth);
	if (!j->rc && downtime_ms && downtime_ms != HOLD_DOWNTIME_MS)
		json_set_u64(j->out, "downtime_ms", downtime_ms);
	return j->rc;
}
