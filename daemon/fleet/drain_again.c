/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A drain outlives its daemon: what was asked for is in the journal while it runs, and a daemon
 * that starts plans it again for what is left. */
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drain.h"
#include "daemon/fleet/drain_int.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"

#include <errno.h>
#include <string.h>

#define RETRY_MS 1000
#define PATIENCE_MS                                                                                \
	60000 /* until hosts that do not answer end it; others may be starting as well */

int drain_save(const struct drain *dr)
{
	struct json_object *o AUTO_JSON = json_object_new_object(), *asked = NULL;

	if (json_parse(dr->asked, strlen(dr->asked), &asked))
		return -EINVAL;
	json_set_u64(o, "number", dr->number);
	json_set_str(o, "host", dr->host);
	json_set_u64(o, "parallel", dr->parallel);
	json_set_bool(o, "persistent", dr->persistent);
	json_set_u64(o, "started_ms", dr->started_ms);
	json_set(o, "asked", asked);
	return journal_drain_put(dr->d->journal, dr->number, json_text(o));
}

void drain_forget(const struct drain *dr)
{
	if (journal_drain_del(dr->d->journal, dr->number))
		log_warn("drain %llu: it has ended, and may be taken up again at the next start",
			 (unsigned long long)dr->number);
}

static void fail(struct drain *dr, const char *error)
{
	str_set(&dr->error, error);
	dr->state = DRAIN_FAILED;
	dr->ended_ms = wall_ms();
	drain_forget(dr);
	log_warn("drain %llu, begun before the last restart, has ended: %s",
		 (unsigned long long)dr->number, error);
}

static void begin(struct drain *dr, struct json_object *moves)
{
	int rc = drain_take_moves(dr, moves);

	loop_timer_free(TAKE(dr->timer));
	if (!rc)
		rc = drain_begin(dr);
	if (rc)
		fail(dr, strerror(-rc));
}

static void planned(struct job *j)
{
	struct drain *dr = j->owner;

	dr->calls--;
	if (!j->rc && !dr->stop) {
		dr->ranked = json_opt_bool(j->out, "ranked", false);
		str_set(&dr->rank_error, json_opt_str(j->out, "rank_error", NULL));
		begin(dr, json_opt(j->out, "moves"));
	} else if (now_ms() < dr->patience_ms || dr->stop) {
		loop_timer_arm(dr->timer, dr->stop ? 0 : RETRY_MS);
	} else {
		fail(dr, j->error);
	}
}

/* This host's VMs must be known first: it may be the one that is drained, or where VMs go. */
static void plan(void *arg)
{
	struct drain *dr = arg;
	struct json_object *asked = NULL;

	if (dr->stop) {
		fail(dr, "it was stopped before it had been planned again");
		return;
	}
	if (!dr->d->recovered && now_ms() < dr->patience_ms) {
		loop_timer_arm(dr->timer, RETRY_MS);
		return;
	}
	if (json_parse(dr->asked, strlen(dr->asked), &asked)) {
		fail(dr, "what was asked for cannot be read from the journal");
		return;
	}
	if (json_opt(asked, "moves")) {
		begin(dr, json_opt(asked, "moves"));
		json_object_put(asked);
		return;
	}
	json_set_bool(asked, "again", true);
	if (job_start(dr->d, asked, drain_plan_run, planned, dr, 0))
		fail(dr, "out of memory");
	else
		dr->calls++;
}

struct drain *drain_restore(struct daemon *d, struct json_object *saved)
{
	struct drain *dr = calloc(1, sizeof *dr);

	if (!dr || loop_timer_new(d->loop, plan, dr, &dr->timer)) {
		free(dr);
		return NULL;
	}
	dr->d = d;
	dr->state = DRAIN_PLANS;
	dr->taken_up = true;
	dr->number = json_opt_u64(saved, "number", 0);
	dr->parallel = (unsigned)json_opt_u64(saved, "parallel", DRAIN_PARALLEL);
	dr->persistent = json_opt_bool(saved, "persistent", false);
	dr->started_ms = json_opt_u64(saved, "started_ms", 0);
	dr->patience_ms = now_ms() + PATIENCE_MS;
	snprintf(dr->host, sizeof dr->host, "%s", json_opt_str(saved, "host", ""));
	str_set(&dr->asked, json_text(json_opt(saved, "asked")));
	log_notice("drain %llu%s%s goes on", (unsigned long long)dr->number,
		   *dr->host ? " of host " : "", dr->host);
	loop_timer_arm(dr->timer, 0);
	return dr;
}
