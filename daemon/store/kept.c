/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/store/kept.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/store/durable.h"
#include "daemon/store/journal.h"

#include <stdio.h>

#define REWRITE_MS 1000

/* An end, or PARKED with its command, comes into the journal once the disk takes it: a restarted
 * daemon would take up an open record again. */
static void on_rewrite(void *arg)
{
	struct kept *k = arg;

	k->again(k->arg, *k->note ? k->note : NULL);
}

static void on_durable(void *arg, int rc)
{
	struct kept *k = arg;

	k->saving--;
	k->durable(k->arg, rc);
}

int kept_init(struct kept *k, sd_event *loop, void (*again)(void *arg, const char *note),
	      void (*durable)(void *arg, int rc), void *arg)
{
	*k = (struct kept){.again = again, .durable = durable, .arg = arg};
	return loop_timer_new(loop, on_rewrite, k, &k->rewrite);
}

void kept_clear(struct kept *k)
{
	loop_timer_free(TAKE(k->rewrite));
}

int kept_write(struct kept *k, struct journal *journal, struct durable *durable,
	       const struct journal_step *s)
{
	int rc = journal_step(journal, s);

	k->behind = rc;
	if (rc) {
		if (s->note != k->note)
			snprintf(k->note, sizeof k->note, "%s", s->note ? s->note : "");
		loop_timer_arm(k->rewrite, REWRITE_MS);
		return rc;
	}
	loop_timer_disarm(k->rewrite);
	k->saving++;
	durable_then(durable, on_durable, k);
	return 0;
}
