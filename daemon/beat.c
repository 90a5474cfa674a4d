/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/beat.h"
#include "common/loop.h"
#include "common/trim.h"
#include "common/util.h"
#include "daemon/daemon.h"
#include "daemon/events_libvirt.h"
#include "daemon/migrate.h"
#include "daemon/repath.h"
#include "daemon/vm_discover.h"

#include <errno.h>
#include <systemd/sd-daemon.h>

struct beat {
	struct loop_timer *timer; /* owned */
	uint64_t interval_ms;
	bool trimmed;
};

static void beat(void *arg)
{
	struct daemon *d = arg;
	struct beat *b = d->beat;

	loop_timer_arm(b->timer, b->interval_ms);
	sd_notify(0, "WATCHDOG=1");
	events_libvirt_beat();
	repath_beat(d->repath);
	vm_beat(d);
	if (!b->trimmed)
		trim_code();
	b->trimmed = true;
}

int beat_new(struct daemon *d)
{
	struct beat *b = calloc(1, sizeof *b);
	uint64_t patience_us;
	int rc = b ? loop_timer_new(d->loop, beat, d, &b->timer) : -ENOMEM;

	if (rc) {
		free(b);
		return rc;
	}
	b->interval_ms = BEAT_MS;
	if (sd_watchdog_enabled(0, &patience_us) > 0 && patience_us / 2000 < BEAT_MS)
		b->interval_ms = patience_us / 2000;
	loop_timer_arm(b->timer, b->interval_ms);
	sd_event_set_watchdog(d->loop, false); /* the beat pings */
	d->beat = b;
	return 0;
}

void beat_free(struct daemon *d)
{
	struct beat *b = TAKE(d->beat);

	if (!b)
		return;
	loop_timer_free(b->timer);
	free(b);
}
