/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/silence.h"
#include "daemon/migrate/peer_watch.h"
#include "common/http/client.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"
#include "daemon/base/settings.h"
#include "daemon/vm/vm.h"

#include <string.h>

#define WATCH_MS         20000 /* longer than a migration keeps its peers suspended */
#define CALL_DEADLINE_MS 20000
/* The source counts as lost after so many questions in vain: a host that has failed as a whole. A
 * restart or a disturbed network takes less. */
#define SILENT_MAX 9

#define RESERVED_KEY "reserved" /* no agent was asked yet */

/* A suspend, or the intent, that no resume has followed yet. */
struct peer_watch {
	struct peer_watch *next;
	struct daemon *d;         /* borrowed */
	struct json_object *body; /* owned: of the suspend */
	struct loop_timer *timer; /* owned */
	unsigned jobs, silent;
	bool over;
};

static const char *watch_id(const struct peer_watch *w)
{
	return json_opt_str(w->body, "migration", "");
}

static struct peer_watch *watch_find(struct daemon *d, const char *id)
{
	for (struct peer_watch *w = d->peer_watches; w; w = w->next)
		if (!w->over && !strcmp(watch_id(w), id))
			return w;
	return NULL;
}

static void watch_collect(struct daemon *d)
{
	for (struct peer_watch **p = &d->peer_watches; *p;) {
		struct peer_watch *w = *p;

		if (!w->over || w->jobs) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		loop_timer_free(w->timer);
		json_object_put(w->body);
		free(w);
	}
}

/* A question to the source. */
struct watch_work {
	struct json_object *body; /* owned: of a resume, once it is known how the migration ended */
	bool lost;                /* the source has been silent for long */

	bool silent, resumed;
};

static void watch_clear(void *work)
{
	json_object_put(((struct watch_work *)work)->body);
}

/* How the migration has ended, into the body. false: it has not, or its source does not say. */
static bool ask_source(struct job *j)
{
	struct watch_work *w = j->work;
	struct remote_record src;
	bool moved;

	j->rc = remote_ask(json_opt_str(w->body, "url", ""), json_opt_str(w->body, "migration", ""),
			   ROLE_SOURCE, CALL_DEADLINE_MS, &src, j->error);
	w->silent = j->rc;
	if (!src.ended)
		return false;
	moved = src.state == M_DONE;
	json_set_bool(w->body, "moved", moved);
	if (moved)
		json_set_str(w->body, "url", src.to_url);
	return true;
}

/* Resumes through our own REST, as the source would. A resume that comes too early does no harm. A
 * mover that lives is met, or waited for in vain, and one that nobody has a way to is given up. */
static void watch_run(struct job *j)
{
	struct json_object *done AUTO_JSON = NULL;
	struct watch_work *w = j->work;
	char *self AUTO_FREE = strf("unix:%s", j->d->settings->socket);

	if (!ask_source(j)) {
		if (!j->rc || !w->lost)
			return;
		json_set_str(w->body, "url", ""); /* wherever the fabric has the mover now */
	}
	j->rc = http_call(self, "POST", "/v1/peer/resume", w->body, CALL_DEADLINE_MS, &done,
			  j->error);
	w->resumed = !j->rc;
}

static void watch_done(struct job *j)
{
	const struct watch_work *asked = j->work;
	struct peer_watch *w = j->owner;

	w->jobs--;
	w->silent = asked->silent ? w->silent + 1 : 0;
	if (asked->resumed)
		log_notice("migration %s: its end was not told; the VMs of this host that were "
			   "suspended for it are resumed",
			   watch_id(w));
	if (j->rc && !w->over)
		log_warn("migration %s: VMs of this host are suspended for it, and have not been "
			 "resumed: %s",
			 watch_id(w), j->error);
	loop_timer_arm(w->timer, WATCH_MS);
	watch_collect(j->d);
}

static void watch_ask(void *arg)
{
	struct peer_watch *w = arg;
	const char *text = json_text(w->body);
	struct watch_work work = {.lost = w->silent >= SILENT_MAX};

	/* A copy: the worker changes it. */
	json_parse(text, strlen(text), &work.body);
	if (!job_order(w->d, &(struct job_order){JOB_WORK(work), .clear = watch_clear,
						 .run = watch_run, .done = watch_done, .owner = w}))
		w->jobs++;
	else
		loop_timer_arm(w->timer, WATCH_MS);
}

static void watch_new(struct daemon *d, struct json_object *body)
{
	struct peer_watch *w = calloc(1, sizeof *w);

	if (!w || loop_timer_new(d->loop, watch_ask, w, &w->timer)) {
		free(w);
		return;
	}
	w->d = d;
	w->body = json_object_get(body);
	w->next = d->peer_watches;
	d->peer_watches = w;
	loop_timer_arm(w->timer, WATCH_MS);
}

void peer_watch_start(struct daemon *d, struct json_object *body)
{
	const char *id = json_opt_str(body, "migration", "");

	peer_watch_end(d, id); /* a source may have asked before */
	watch_new(d, body);
	journal_watch_put(d->journal, id, json_text(body));
}

void peer_watch_reserve(struct daemon *d, struct json_object *body)
{
	json_set_bool(body, RESERVED_KEY, true);
	peer_watch_start(d, body);
}

void peer_watch_release(struct daemon *d, const char *migration)
{
	struct peer_watch *w = watch_find(d, migration);

	if (w && json_opt_bool(w->body, RESERVED_KEY, false))
		peer_watch_end(d, migration);
}

static bool is_among(const struct vm *vm, struct json_object *guids)
{
	for (size_t i = 0; i < json_count(guids); i++) {
		uint64_t guid;

		if (!ib_guid_parse(json_object_get_string(json_object_array_get_idx(guids, i))
					   ?: "",
				   &guid) &&
		    vm_has_guid(vm, guid))
			return true;
	}
	return false;
}

const char *peer_watch_holder(struct daemon *d, const struct vm *vm, const char *migration)
{
	for (struct peer_watch *w = d->peer_watches; w; w = w->next)
		if (!w->over && strcmp(watch_id(w), migration) &&
		    is_among(vm, json_opt(w->body, "guids")))
			return watch_id(w);
	return NULL;
}

void peer_watch_load(struct daemon *d)
{
	struct json_object *list AUTO_JSON = journal_watches(d->journal);

	for (size_t i = 0; i < json_object_array_length(list); i++)
		watch_new(d, json_object_array_get_idx(list, i));
}

void peer_watch_heard(struct daemon *d, const char *migration)
{
	struct peer_watch *w = watch_find(d, migration);

	if (w)
		loop_timer_arm(w->timer, WATCH_MS);
}

void peer_watch_end(struct daemon *d, const char *migration)
{
	struct peer_watch *w = watch_find(d, migration);

	if (!w)
		return;
	w->over = true;
	loop_timer_disarm(w->timer);
	journal_watch_del(d->journal, migration);
	watch_collect(d);
}

void peer_watch_free_all(struct daemon *d)
{
	for (struct peer_watch *w = d->peer_watches; w; w = w->next) {
		w->over = true;
		w->jobs = 0;
	}
	watch_collect(d);
}
