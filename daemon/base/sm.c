/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/sm.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

/* An answer is fresh for so long. Once it is half as old, ibvmig-sm is asked again, so a client
 * that asks often enough never waits. */
#define FRESH_MS 2000

static int call(const struct settings *s, const char *method, const char *path,
		struct json_object *body, unsigned ms, struct json_object **ret_answer, char *error)
{
	struct json_object *owned AUTO_JSON = body;

	if (!s->sm_url) {
		*ret_answer = json_object_new_object();
		return 0;
	}
	int rc = http_call(s->sm_url, method, path, owned, ms, ret_answer, error);

	if (rc && rc != -EREMOTEIO) {
		char line[HTTP_ERROR_MAX];

		snprintf(line, sizeof line, "ibvmig-sm is not reachable: %.400s", error);
		memcpy(error, line, sizeof line);
	}
	return rc;
}

int sm_call(const struct settings *s, const char *method, const char *path,
	    struct json_object *body, struct json_object **ret_answer, char *error)
{
	return call(s, method, path, body, SM_DEADLINE_MS, ret_answer, error);
}

int sm_ask(const struct settings *s, const char *path, struct json_object *body, unsigned ms,
	   struct json_object **ret_answer, char *error)
{
	return call(s, "POST", path, body, ms, ret_answer, error);
}

int sm_change(const struct settings *s, const char *path, struct json_object *body,
	      struct json_object **ret_answer, char *error)
{
	return call(s, "POST", path, body, SM_CHANGE_MS, ret_answer, error);
}

int sm_check(const struct settings *s, bool *ret_caching, char *error)
{
	struct json_object *answer AUTO_JSON = NULL, *sm;
	const char *why;
	int rc;

	*ret_caching = false;
	if (!s->sm_url)
		return 0;
	rc = sm_call(s, "GET", "/v1/status", NULL, &answer, error);
	if (rc)
		return rc;
	*ret_caching = json_opt_bool(answer, "caching", false);
	why = json_opt_str(json_opt(answer, "registry"), "error", "");
	if (*why) {
		snprintf(error, HTTP_ERROR_MAX, "ibvmig-sm changes no addresses: %.440s", why);
		return -EHOSTDOWN;
	}
	sm = json_opt(answer, "sm");
	if (json_opt_bool(sm, "plugin", false) && str_eq(json_opt_str(sm, "state", ""), "master"))
		return 0;
	snprintf(error, HTTP_ERROR_MAX, "the subnet manager cannot move addresses: %s",
		 json_opt_str(sm, "error", "its plugin is not loaded, or it is not master"));
	return -EHOSTDOWN;
}

/* A caller that waits for the answer that is under way. */
struct sm_waiter {
	struct sm_waiter *next;
	void (*done)(void *arg);
	void *arg;
};

static void refresh_run(struct job *j)
{
	bool caching;

	j->rc = sm_check(j->d->settings, &caching, j->error);
	/* -EHOSTDOWN: it has answered, and not well. */
	if (!j->rc || j->rc == -EHOSTDOWN)
		json_set_bool(j->out, "caching", caching);
}

void sm_set_caching(struct daemon *d, bool caching)
{
	bool news = !d->sm.caching_known || d->sm.caching != caching;

	d->sm.caching = caching;
	d->sm.caching_known = true;
	if (news && d->sm.on_caching)
		d->sm.on_caching(d);
}

void sm_on_caching(struct daemon *d, void (*changed)(struct daemon *d))
{
	d->sm.on_caching = changed;
}

static void refresh_done(struct job *j)
{
	struct sm_state *sm = &j->d->sm;
	struct sm_waiter *w = TAKE(sm->waiters);

	sm->asking = false;
	sm->known = true;
	sm->asked_ms = now_ms();
	if (json_opt(j->out, "caching"))
		sm_set_caching(j->d, json_opt_bool(j->out, "caching", false));
	snprintf(sm->error, sizeof sm->error, "%.250s", j->rc ? j->error : "");
	while (w) {
		struct sm_waiter *next = w->next;

		w->done(w->arg);
		free(w);
		w = next;
	}
}

/* Only one question is under way at a time: an ibvmig-sm that is slow does not keep all workers
 * busy with it. */
void sm_refresh(struct daemon *d, void (*done)(void *arg), void *arg)
{
	struct sm_state *sm = &d->sm;
	uint64_t age_ms = !d->settings->sm_url ? 0 : sm->known ? now_ms() - sm->asked_ms : FRESH_MS;
	bool fresh = age_ms < FRESH_MS;
	struct sm_waiter *w;

	if (age_ms >= FRESH_MS / 2 && !sm->asking)
		sm->asking = !job_start(d, NULL, refresh_run, refresh_done, NULL, 0);
	if (!done)
		return;
	if (fresh || !sm->asking || !(w = malloc(sizeof *w))) {
		done(arg);
		return;
	}
	*w = (struct sm_waiter){.next = sm->waiters, .done = done, .arg = arg};
	sm->waiters = w;
}

struct json_object *sm_status(const struct daemon *d)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "url", d->settings->sm_url);
	json_set_bool(o, "ok", d->settings->sm_url && d->sm.known && !*d->sm.error);
	json_set_str(o, "error",
		     d->settings->sm_url ? (*d->sm.error ? d->sm.error : NULL)
					 : "sm-url is not configured: no fabric is managed");
	return o;
}
