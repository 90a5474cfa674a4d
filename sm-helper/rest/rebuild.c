/* SPDX-License-Identifier: GPL-2.0-or-later */
/* POST /v1/rebuild: the registry as hosts' daemons, OpenSM and its plugin know it; with "apply" it
 * becomes so, and the subnet is taken over. */
#include "sm-helper/watch/rebuild.h"
#include "common/http/client.h"
#include "common/log.h"
#include "common/util.h"
#include "common/work.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/own.h"
#include "sm-helper/rest/rest_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ASK_MS 3000

struct asked {
	char host[REG_TEXT_MAX], url[REG_TEXT_MAX];
	char error[HTTP_ERROR_MAX]; /* "": it has answered */
};

struct homes {
	struct sm_home *list; /* owned */
	size_t count;
};

struct rebuilding {
	struct rest_call *call;
	struct rebuild r;
	struct asked *host; /* owned */
	size_t hosts;
	struct reg_entry *known; /* owned */
	size_t knowns;
	struct homes before, home; /* of before the hosts were asked, and of now */
	char *aside;               /* owned; where the corrupt file is, or NULL */
};

static void add_url(struct rebuilding *b, const char *host, const char *url)
{
	struct asked *grown;

	for (size_t i = 0; i < b->hosts; i++)
		if (!strcmp(b->host[i].url, url))
			return;
	if (!*url || !(grown = realloc(b->host, (b->hosts + 1) * sizeof *grown)))
		return;
	b->host = grown;
	grown += b->hosts++;
	*grown = (struct asked){0};
	snprintf(grown->host, sizeof grown->host, "%s", host);
	snprintf(grown->url, sizeof grown->url, "%s", url);
}

static void add_subscription(void *arg, const struct reg_subscription *s)
{
	add_url(arg, s->host, s->url);
}

static void add_known(void *arg, const struct reg_entry *e)
{
	struct rebuilding *b = arg;
	struct reg_entry *grown = realloc(b->known, (b->knowns + 1) * sizeof *grown);

	if (!grown)
		return;
	b->known = grown;
	grown[b->knowns++] = *e;
	add_url(b, e->at.host, e->at.url);
}

/* Hosts that are asked at once, and what they say. */
struct round {
	struct asked *host;                        /* borrowed */
	struct json_object *status[WORK_EACH_MAX]; /* owned; NULL: no answer */
};

static void ask(void *arg, size_t i)
{
	struct round *r = arg;

	if (http_call(r->host[i].url, "GET", "/v1/status", NULL, ASK_MS, &r->status[i],
		      r->host[i].error))
		json_object_put(TAKE(r->status[i]));
}

static void take(struct rebuilding *b, struct asked *h, struct json_object *status)
{
	if (!status)
		return;
	h->error[0] = 0;
	if (rebuild_add_host(&b->r, h->url, status))
		snprintf(h->error, sizeof h->error, "it answers, but not as an ibvmigd");
	else
		snprintf(h->host, sizeof h->host, "%s", json_opt_str(status, "host", ""));
	json_object_put(status);
}

/* A registry is lost when hosts are, too: many may be silent. */
static void ask_all(struct rebuilding *b)
{
	for (size_t at = 0, n; at < b->hosts; at += n) {
		struct round r = {.host = &b->host[at]};

		n = b->hosts - at < WORK_EACH_MAX ? b->hosts - at : WORK_EACH_MAX;
		work_each(n, ask, &r);
		for (size_t i = 0; i < n; i++)
			take(b, &r.host[i], r.status[i]);
	}
}

/* Hosts are those that have subscribed, that the registry names, and that the caller names. */
static void ask_hosts(struct rebuilding *b)
{
	struct registry *reg = b->call->rest->ops->registry;
	struct json_object *list = json_opt(b->call->body, "hosts");

	registry_each_subscription(reg, add_subscription, b);
	registry_each(reg, add_known, b); /* what a corrupt one still tells */
	for (size_t i = 0; i < json_count(list); i++) {
		const char *url = json_object_get_string(json_object_array_get_idx(list, i));

		add_url(b, "", url ? url : "");
	}
	ask_all(b);
}

/* The database refuses a vGUID that another VM has claimed, and with it all that is entered. */
static void check_claims(struct rebuilding *b)
{
	struct reg_claim c;

	for (size_t i = 0; i < b->r.count; i++) {
		struct rebuild_row *row = &b->r.row[i];

		if (!registry_claim_find(b->call->rest->ops->registry, row->e.vguid, &c) &&
		    strcmp(c.vm, row->e.vm))
			rebuild_claimed(row, c.vm);
	}
}

static int read_homes(struct rebuilding *b, struct homes *h)
{
	struct ops *o = b->call->rest->ops;
	struct sm_homes_reply *r AUTO_FREE = malloc(sizeof *r);
	char text[BACKEND_ERROR_MAX];
	struct sm_home *grown;
	int rc = r ? 0 : -ENOMEM;

	while (!rc && backend_claims(o->backend)) {
		rc = backend_homes(o->backend, (uint32_t)h->count, r, text);
		if (rc)
			return ops_fail_plugin(&b->call->error, rc, text);
		if (!r->count || h->count >= r->total)
			break;
		grown = realloc(h->list, (h->count + r->count) * sizeof *grown);
		if (!grown)
			return -ENOMEM;
		h->list = grown;
		memcpy(grown + h->count, r->home, r->count * sizeof *grown);
		h->count += r->count;
	}
	return rc;
}

/* A file that is full or cannot be written keeps what it has; the copy of a corrupt one may be at
 * the other ibvmig-sm. */
static int may_apply(struct rebuilding *b, const struct registry_health *h)
{
	struct rest_call *call = b->call;

	if (h->state == REGISTRY_GOOD || (h->state == REGISTRY_CORRUPT && !call->rest->has_peer))
		return 0;
	return ops_fail(&call->error, -EROFS, 409, "not-rebuilt",
			h->state == REGISTRY_CORRUPT
				? "%s; the other ibvmig-sm (peer) has a copy: lay the file aside, "
				  "and start this one again"
				: "%s; this is no damage that rebuilding mends",
			h->why);
}

static int enter_rows(struct rebuilding *b)
{
	struct reg_entry *e AUTO_FREE = calloc(b->r.count + 1, sizeof *e);
	unsigned n = 0;

	for (size_t i = 0; e && i < b->r.count; i++) {
		const struct rebuild_row *row = &b->r.row[i];

		if (row->verdict != REBUILD_ENTER && row->verdict != REBUILD_CORRECT)
			continue;
		e[n] = row->e;
		if (!e[n].since_ms)
			e[n].since_ms = wall_ms();
		n++;
	}
	return !e ? -ENOMEM : n ? registry_put_all(b->call->rest->ops->registry, e, n) : 0;
}

/* A new file has nothing of what was to stay as it is in the corrupt one. */
static void carry_over(struct rebuilding *b)
{
	for (size_t i = 0; b->aside && i < b->knowns; i++) {
		const struct reg_entry *x = &b->known[i];

		if (!rebuild_enters(&b->r, x->vguid) &&
		    registry_put(b->call->rest->ops->registry, x))
			log_warn("vGUID 0x%016" PRIx64 " of %s on VF %s of %s, as the corrupt "
				 "registry had it, is lost",
				 x->vguid, x->name, x->at.vf, x->at.host);
	}
}

static int apply(struct rebuilding *b)
{
	struct ops *o = b->call->rest->ops;
	struct registry_health h = registry_judge(o->registry, 0);
	char *error AUTO_FREE = NULL;
	int rc = may_apply(b, &h);

	if (rc)
		return rc;
	if (h.state == REGISTRY_CORRUPT && (rc = registry_renew(o->registry, &b->aside, &error)))
		return ops_fail(&b->call->error, rc, 500, "registry", "%s",
				error ? error : strerror(-rc));
	for (size_t i = 0; !rc && b->aside && i < b->hosts; i++)
		if (*b->host[i].host)
			rc = registry_subscribe(o->registry, b->host[i].host, b->host[i].url);
	if (rc || (rc = enter_rows(b)))
		return ops_fail_registry(&b->call->error, rc);
	carry_over(b);
	o->reconciled = false;
	log_notice("the registry was made anew from %zu hosts%s%s", b->hosts,
		   b->aside ? "; what it was is kept as " : "", b->aside ? b->aside : "");
	return own_take(o, &b->call->error);
}

static struct json_object *hosts_json(const struct rebuilding *b)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < b->hosts; i++) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "host", *b->host[i].host ? b->host[i].host : NULL);
		json_set_str(o, "url", b->host[i].url);
		json_set_bool(o, "answered", !*b->host[i].error);
		json_set_str(o, "error", *b->host[i].error ? b->host[i].error : NULL);
		json_object_array_add(list, o);
	}
	return list;
}

static struct json_object *row_json(const struct rebuild_row *row)
{
	struct json_object *o = rest_entry_json(&row->e);

	json_set_str(o, "verdict", rebuild_text(row->verdict));
	json_set_str(o, "text", *row->text ? row->text : NULL);
	return o;
}

static void answer(struct rebuilding *b, bool applied)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	unsigned conflicts = 0;

	for (size_t i = 0; i < b->r.count; i++) {
		json_object_array_add(list, row_json(&b->r.row[i]));
		conflicts += b->r.row[i].verdict == REBUILD_CONFLICT;
	}
	json_set(o, "hosts", hosts_json(b));
	json_set(o, "vguids", list);
	json_set_u64(o, "conflicts", conflicts);
	json_set_bool(o, "applied", applied);
	json_set_str(o, "aside", b->aside);
	b->call->reply = o;
}

/* The list of a subnet manager that moves by itself tells the places. */
static int judge_places(struct rebuilding *b)
{
	struct ops *o = b->call->rest->ops;
	struct sm_place *place AUTO_FREE = NULL;
	size_t n;
	int rc = action_places(o, &place, &n, &b->call->error);

	if (rc)
		return rc;
	rebuild_place(&b->r, place, n);
	return rebuild_judge(&b->r, NULL, NULL, 0, b->known, b->knowns);
}

static int judge(struct rebuilding *b)
{
	if (action_sm_moves(b->call->rest->ops))
		return judge_places(b);
	rebuild_moved(&b->r, b->before.list, b->before.count, b->home.list, b->home.count);
	return rebuild_judge(&b->r, &b->call->rest->ops->fabric, b->home.list, b->home.count,
			     b->known, b->knowns);
}

static void run_rebuild(struct rest_call *call)
{
	struct rebuilding b = {.call = call};
	struct ops *o = call->rest->ops;
	bool wanted = json_opt_bool(call->body, "apply", false);
	int rc;

	rc = read_homes(&b, &b.before);
	if (!rc)
		ask_hosts(&b); /* without the lock: they may be slow, and have their own time */
	check_claims(&b);
	pthread_mutex_lock(&o->lock);
	if (!rc && !(rc = ops_start(o, 0, &call->error)) && !(rc = ops_refresh(o, &call->error)) &&
	    !(rc = read_homes(&b, &b.home)) && !(rc = judge(&b)) && wanted)
		rc = apply(&b);
	pthread_mutex_unlock(&o->lock);
	if (rc && !call->error.status)
		ops_fail(&call->error, rc, 500, "no-memory", "no memory");
	if (!rc)
		answer(&b, wanted);
	rebuild_free(&b.r);
	free(b.host);
	free(b.known);
	free(b.before.list);
	free(b.home.list);
	free(b.aside);
}

void rest_post_rebuild(struct http_request *req)
{
	rest_submit_slow(req, run_rebuild, NULL);
}
