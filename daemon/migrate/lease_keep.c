/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmigd's side of the leases. */
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/store/lease.h"
#include "daemon/base/settings.h"
#include "daemon/migrate/machine.h"

#include <errno.h>
#include <string.h>

struct lease_keeper {
	struct loop_timer *renew; /* owned; armed while there are leases */
	bool complained;
};

static void renew(void *arg)
{
	lease_sync(arg);
}

int lease_keeper_new(struct daemon *d, struct lease_keeper **ret_keeper)
{
	struct lease_keeper *k = calloc(1, sizeof *k);
	int rc = k ? loop_timer_new(d->loop, renew, d, &k->renew) : -ENOMEM;

	if (rc) {
		free(k);
		return rc;
	}
	*ret_keeper = k;
	return 0;
}

void lease_keeper_free(struct lease_keeper *k)
{
	if (!k)
		return;
	loop_timer_free(k->renew);
	free(k);
}

/* The VM still has its VF and must not go with it, and nobody but us would see to that. */
static bool wants_lease(const struct migration *m)
{
	return m->rec.role == ROLE_SOURCE && !m->rec.back && m->rec.state <= M_DETACH;
}

/* The migration is to end, and perhaps has not. Its lease runs out, so that ibvmig-lease goes on to
 * ask for the end when we have given up (PARKED). */
static bool leaves_lease(const struct migration *m)
{
	return m->rec.role == ROLE_SOURCE && !m->rec.back &&
	       (m->rec.state == M_CANCEL || m->rec.state == M_PARKED) &&
	       m->rec.reached <= M_DETACH && (m->recovery.unprobed || m->src.job == JOB_ACTIVE) &&
	       record_devices_gone(&m->rec) < m->rec.vf_count;
}

static void put(struct daemon *d, struct migration *m)
{
	struct lease_keeper *k = d->leases;
	int rc = lease_put(d->settings->lease_dir, m->rec.vm_uuid, now_us() + LEASE_MS * 1000);

	m->leased = true;
	if (rc && !k->complained)
		log_warn("lease of VM %s: %s cannot be written (%s): if ibvmigd dies, nobody "
			 "cancels the migration",
			 m->rec.vm_name, d->settings->lease_dir, strerror(-rc));
	k->complained = rc;
}

void lease_sync(struct daemon *d)
{
	bool any = false;

	if (!d->leases) /* tests of parts */
		return;
	/* First the old ones: the VM may have a new migration. */
	for (struct migration *m = d->migrations; m; m = m->next) {
		if (wants_lease(m) || leaves_lease(m) || !m->leased)
			continue;
		lease_drop(d->settings->lease_dir, m->rec.vm_uuid);
		m->leased = false;
	}
	for (struct migration *m = d->migrations; m; m = m->next) {
		if (!wants_lease(m))
			continue;
		put(d, m);
		any = true;
	}
	if (any)
		loop_timer_arm(d->leases->renew, LEASE_RENEW_MS);
}
