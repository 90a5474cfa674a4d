/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/clocks.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/job.h"
#include "daemon/migrate/machine.h"

#include <string.h>

#define TRIES        8
#define FAILURES_MAX 2
#define CALL_MS      5000

void clocks_narrow(struct clocks_bound *b, uint64_t sent_us, uint64_t received_us,
		   uint64_t theirs_us)
{
	int64_t low = (int64_t)theirs_us - (int64_t)received_us;
	int64_t high = (int64_t)theirs_us - (int64_t)sent_us;

	if (!b->known || low > b->high || high < b->low) {
		*b = (struct clocks_bound){.known = true, .low = low, .high = high};
		return;
	}
	if (low > b->low)
		b->low = low;
	if (high < b->high)
		b->high = high;
}

struct clocks_work {
	char id[37], url[256];
	struct clocks_bound bound;
};

static void measure_run(struct job *j)
{
	struct clocks_work *w = j->work;

	for (int i = 0, failures = 0; i < TRIES && failures < FAILURES_MAX; i++) {
		struct json_object *answer AUTO_JSON = NULL;
		uint64_t sent_us = now_us();

		j->rc = http_call(w->url, "GET", "/v1/clock", NULL, CALL_MS, &answer, j->error);
		failures += j->rc != 0;
		if (!j->rc && json_opt(answer, "mono_us"))
			clocks_narrow(&w->bound, sent_us, now_us(),
				      json_opt_u64(answer, "mono_us", 0));
	}
}

static void measured(struct job *j)
{
	const struct clocks_work *w = j->work;
	const struct clocks_bound *b = &w->bound;
	struct migration *m = migrate_find(j->d, w->id, ROLE_SOURCE);
	struct json_object *o;

	if (!b->known)
		log_info("migration %s: the clocks could not be compared: %s", w->id, j->error);
	if (!m || !b->known)
		return;
	o = json_object_new_object();
	json_set(o, "offset_us", json_object_new_int64(b->low + (b->high - b->low) / 2));
	json_set_u64(o, "error_us", (uint64_t)(b->high - b->low + 1) / 2);
	json_set(m->rec.data, "clock", o);
}

void clocks_measure(struct migration *m)
{
	struct clocks_work w = {0};

	memcpy(w.id, m->rec.id, sizeof w.id);
	memcpy(w.url, m->rec.to.url, sizeof w.url);
	job_order(m->d, &(struct job_order){JOB_WORK(w), .run = measure_run, .done = measured});
}

void clocks_get(struct http_request *req)
{
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "mono_us", now_us());
	json_set_u64(o, "wall_ms", wall_ms());
	http_reply(req->exchange, 200, o);
}
