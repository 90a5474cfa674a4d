/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/speed.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/libvirt/qmp.h"

#define PRESET_BYTES (1ull << 20) /* vm_work_attach() sets this */

int speed_read(struct job *j, const char *vm, struct speed *ret_user)
{
	struct speed s = {0};

	j->rc = qmp_get_migrate(j->d->virt, vm, &s.bandwidth, &s.downtime_ms, j->error);
	/* Another value than our preset is the user's --bandwidth. */
	ret_user->bandwidth = s.bandwidth == PRESET_BYTES ? FULL_SPEED : s.bandwidth;
	ret_user->downtime_ms = s.downtime_ms ? s.downtime_ms : DOWNTIME_MS;
	return j->rc;
}

int speed_read_changes(struct job *j, const char *vm, uint64_t ours, struct speed *ret_changed)
{
	struct speed s = {0};

	j->rc = qmp_get_migrate(j->d->virt, vm, &s.bandwidth, &s.downtime_ms, j->error);
	*ret_changed = (struct speed){0};
	if (!j->rc && ours && s.bandwidth != ours)
		ret_changed->bandwidth = s.bandwidth;
	if (!j->rc && s.downtime_ms != HOLD_DOWNTIME_MS)
		ret_changed->downtime_ms = s.downtime_ms;
	return j->rc;
}

int speed_let_copy(struct job *j, const char *vm, bool *ret_copies)
{
	return j->rc = qmp_unlimit_mirrors(j->d->virt, vm, PRESET_BYTES, ret_copies, j->error);
}
