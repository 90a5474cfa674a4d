/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/beat.h"
#include "common/loop.h"
#include "common/trim.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/loop.h"
#include "daemon/store/journal.h"
#include "daemon/migrate/machine.h"
#include "daemon/vm/repath.h"
#include "daemon/vm/discover.h"

#include <errno.h>
#include <malloc.h>
#include <systemd/sd-daemon.h>

struct beat {
	struct loop_timer *timer; /* owned */
	uint64_t interval_ms;
	bool rested;
	const struct migration *newest; /* when it was looked at last; not followed */
};

static bool migrates(const struct daemon *d)
{
	const struct migration *m = d->migrations;

	while (m && m->rec.ended)
		m = m->next;
	return m;
}

/* Memory that the start, or the last migrations, needed and nobody needs now goes back to the
 * kernel. */
static void rest(struct daemon *d)
{
	struct beat *b = d->beat;

	if (b->newest != d->migrations)
		b->rested = false;
	b->newest = d->migrations;
	if (b->rested || migrates(d))
		return;
	trim_code();
	journal_rest(d->journal);
	malloc_trim(0); /* wherever the pages are: malloc itself trims the heap's end only */
	b->rested = true;
}

static void beat(void *arg)
{
	struct daemon *d = arg;
	struct beat *b = d->beat;

	loop_timer_arm(b->timer, b->interval_ms);
	sd_notify(0, "WATCHDOG=1");
	events_libvirt_beat();
	repath_beat(d->repath);
	vm_beat(d);
	rest(d);
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
