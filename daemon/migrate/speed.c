/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/settings.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/libvirt/qmp.h"

#define BALLAST_HEARD_US 5000000      /* the agent is asked each 3 s */
#define BALLAST_INTERVAL 20           /* ms: less than a link of 400 MB/s needs for the ballast */
#define PRESET_BYTES     (1ull << 20) /* vm_work_attach() sets this */

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

/* ---- the ballast: memory that the agent keeps dirty, so that pre-copy does not end before the VF
 * has left ---- */

static struct json_object *ballast_message(uint64_t bytes)
{
	struct json_object *msg = src_op_message("ballast");

	json_set_u64(msg, "bytes", bytes);
	json_set_u64(msg, "interval_ms", BALLAST_INTERVAL);
	return msg;
}

static void ballast_kept(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct vm *vm = arg;

	if (rc)
		log_debug("VM %s: the ballast is not kept: %s", vm->name, error);
	vm->ballast_bytes = rc ? 0 : json_opt_u64(answer, "bytes", vm->d->settings->ballast_bytes);
	vm->ballast_us = now_us();
}

static void ask_ballast(struct vm *vm)
{
	agent_request(vm->agent, ballast_message(vm->d->settings->ballast_bytes), SRC_QUERY_MS,
		      ballast_kept, vm);
}

void src_begin_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	record_set(&m->rec, DID_BALLAST, m->d->settings->ballast_bytes);
	if (!vm)
		return;
	vm->ballast_bytes = 0;
	if (agent_state(vm->agent) == AGENT_UP)
		ask_ballast(vm);
}

void src_end_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	record_undo(&m->rec, DID_BALLAST);
	if (vm && agent_state(vm->agent) == AGENT_UP)
		migrate_ask_agent(m, vm, ballast_message(0), SRC_QUERY_MS, NULL);
}

bool src_has_ballast(struct migration *m)
{
	uint64_t wanted = m->d->settings->ballast_bytes;
	const struct vm *vm = migrate_vm(m);

	return vm && agent_state(vm->agent) == AGENT_UP && wanted && vm->ballast_bytes >= wanted &&
	       now_us() - vm->ballast_us < BALLAST_HEARD_US;
}

void src_keep_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	/* No step waits for it: HOLD looks at QEMU meanwhile. */
	if (record_did(&m->rec, DID_BALLAST) && !m->rec.back && vm &&
	    agent_state(vm->agent) == AGENT_UP)
		ask_ballast(vm);
}
