/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/notify/reroute.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/notify/outbox.h"
#include "sm-helper/paths/interest.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define RECONNECT_MS 200
#define MESSAGE_MAX  2048 /* records; a daemon takes 1 MiB */
#define ON_WAY_MAX   64   /* messages made ahead of those that are sent */
#define ROOM_MS      500  /* silent hosts hold the others up for so long */

static const char *const names[] = {
	[SIGNALLING_INTEREST] = "interest",
	[SIGNALLING_HYBRID] = "hybrid",
	[SIGNALLING_WILDCARD] = "wildcard",
	[SIGNALLING_REPATH_ONLY] = "repath-only",
};

/* Account of what was told of a comparison. */
struct told {
	uint64_t compared, records; /* held records that were read anew, and those that differed */
	unsigned hosts, messages;
	uint64_t elapsed_us;
};

struct reroute {
	struct ops *o; /* borrowed */
	enum signalling mode;
	struct backend *backend; /* owned; the thread's alone. NULL: there is no thread */
	int stop_fd;             /* owned */
	pthread_t thread;
	bool started, again;          /* again: the last pass was cut short, and is made anew */
	pthread_mutex_t lock;         /* guards the rest */
	struct sm_reroute_reply last; /* number 0: none yet */
	struct told told;
};

int signalling_parse(const char *text, enum signalling *ret_signalling)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(text, names[i])) {
			*ret_signalling = (enum signalling)i;
			return 0;
		}
	return -EINVAL;
}

const char *signalling_name(enum signalling s)
{
	return names[s];
}

/* ---- hosts ---- */

struct address {
	char host[REG_TEXT_MAX], url[REG_TEXT_MAX];
};

/* The host of a vGUID by the registry: the one that passes on what its guest holds. */
struct place {
	uint64_t vguid;
	char host[REG_TEXT_MAX];
};

struct directory {
	struct address *address; /* owned; all subscribers */
	size_t addresses;
	struct place *place; /* owned; by vGUID */
	size_t places;
};

static void add_address(void *arg, const struct reg_subscription *s)
{
	struct directory *d = arg;
	struct address *grown = realloc(d->address, (d->addresses + 1) * sizeof *grown);

	if (!grown)
		return;
	d->address = grown;
	strcpy(grown[d->addresses].host, s->host);
	strcpy(grown[d->addresses++].url, s->url);
}

static void add_place(void *arg, const struct reg_entry *e)
{
	struct directory *d = arg;
	struct place *grown = realloc(d->place, (d->places + 1) * sizeof *grown);

	if (!grown)
		return;
	d->place = grown;
	grown[d->places].vguid = e->vguid;
	strcpy(grown[d->places++].host, e->at.host);
}

static int by_vguid(const void *a, const void *b) /* as registry_each() has them */
{
	const struct place *x = a, *y = b;

	return x->vguid < y->vguid ? -1 : x->vguid > y->vguid;
}

static void directory_read(struct ops *o, struct directory *d)
{
	*d = (struct directory){0};
	registry_each_subscription(o->registry, add_address, d);
	registry_each(o->registry, add_place, d);
}

static void directory_free(struct directory *d)
{
	free(d->address);
	free(d->place);
}

static const char *url_of(const struct directory *d, const char *host)
{
	for (size_t i = 0; i < d->addresses; i++)
		if (!strcmp(d->address[i].host, host))
			return d->address[i].url;
	return NULL;
}

/* Since a guest moves with what it holds, the registry's word counts before the asker's. */
static const char *host_of(const struct directory *d, uint64_t sguid, const char *asker)
{
	struct place key = {.vguid = sguid};
	const struct place *p = d->places ? bsearch(&key, d->place, d->places, sizeof key, by_vguid)
					  : NULL;

	return p ? p->host : asker;
}

/* ---- messages ---- */

/* Posts a message. A host that cannot be told has to forget all as soon as it is back. */
static void post(struct reroute *r, const struct directory *d, const char *host,
		 struct json_object *body, struct told *t)
{
	const char *url = url_of(d, host);

	outbox_wait(r->o->outbox, ON_WAY_MAX, ROOM_MS);
	if (url && outbox_post(r->o->outbox, host, url, body))
		t->messages++;
	else
		interest_lost(r->o->interest, host);
}

/* Bids all hosts ask for what they hold, or forget it. */
static void tell_everyone(struct reroute *r, bool forget, struct told *t)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	struct directory d;

	json_set_bool(body, "all", true);
	json_set_bool(body, "forget", forget);
	directory_read(r->o, &d);
	for (size_t i = 0; i < d.addresses; i++)
		post(r, &d, d.address[i].host, body, t);
	t->hosts = (unsigned)d.addresses;
	directory_free(&d);
}

void reroute_host_back(struct ops *o, const char *host, const char *url)
{
	struct json_object *body AUTO_JSON = NULL;

	if (!interest_found(o->interest, host))
		return;
	body = json_object_new_object();
	json_set_bool(body, "all", true);
	json_set_bool(body, "forget", true);
	if (!outbox_post(o->outbox, host, url, body))
		interest_lost(o->interest, host);
}

struct json_object *reroute_record(const struct path_key *k, const struct path_value *v)
{
	struct json_object *o = json_object_new_object();
	char pkey[8];

	json_set_guid(o, "sguid", k->sguid);
	json_set_guid(o, "dguid", k->dguid);
	snprintf(pkey, sizeof pkey, "0x%04x", k->pkey);
	json_set_str(o, "pkey", pkey);
	if (v->none) {
		json_set_bool(o, "gone", true);
		return o;
	}
	json_set_u64(o, "dlid", v->dlid);
	json_set_u64(o, "slid", v->slid);
	json_set_u64(o, "sl", v->sl);
	json_set_u64(o, "mtu", notice_mtu_bytes(v->mtu));
	json_set_u64(o, "rate", v->rate);
	return o;
}

/* ---- a pass: held records are read anew ---- */

struct change {
	const char *host; /* borrowed from the directory or for good */
	struct path_key key;
	struct path_value value;
};

struct changes {
	struct change *list; /* owned */
	size_t count, room;
};

static int add_change(struct changes *c, const struct change *one)
{
	size_t room = c->room ? 2 * c->room : 256;
	struct change *grown;

	if (c->count == c->room) {
		if (!(grown = realloc(c->list, room * sizeof *grown)))
			return -ENOMEM;
		c->list = grown;
		c->room = room;
	}
	c->list[c->count++] = *one;
	return 0;
}

static int by_host(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	int rc = strcmp(x->host, y->host);

	if (!rc)
		rc = x->key.sguid < y->key.sguid ? -1 : x->key.sguid > y->key.sguid;
	return rc ? rc : x->key.dguid < y->key.dguid ? -1 : x->key.dguid > y->key.dguid;
}

static int judge(struct reroute *r, const struct directory *d, const struct path_key *k,
		 const struct sm_record *s, struct changes *c)
{
	const struct path_value v = {s->error != 0, s->dlid, s->slid, s->pkey,
				     s->sl,         s->mtu,  s->rate};
	bool known = !s->error || s->error == -ENOENT;
	struct change one = {.key = *k, .value = v};

	if (interest_compare(r->o->interest, k, known ? &v : NULL, &one.host) != INTEREST_CHANGED)
		return 0;
	one.host = host_of(d, k->sguid, one.host);
	return add_change(c, &one);
}

/* Reads all held records anew. What differs is noted as told by then: it has to be told even where
 * this ends early. */
static int compare(struct reroute *r, const struct directory *d, struct changes *c, struct told *t)
{
	struct sm_records_reply *now AUTO_FREE = malloc(sizeof *now);
	struct path_key key[SM_RECORDS_MAX];
	struct sm_record_key ask[SM_RECORDS_MAX] = {0};
	char text[BACKEND_ERROR_MAX];
	size_t at = 0, n;
	int rc = now ? 0 : -ENOMEM;

	interest_begin(r->o->interest);
	while (!rc && (n = interest_list(r->o->interest, &at, 0, key, SM_RECORDS_MAX))) {
		for (size_t i = 0; i < n; i++)
			ask[i] = (struct sm_record_key){
				key[i].sguid, key[i].dguid, key[i].pkey, {0}};
		if ((rc = backend_records(r->backend, ask, (unsigned)n, now, text)))
			break;
		for (size_t i = 0; !rc && i < n; i++)
			rc = judge(r, d, &key[i], &now->record[i], c);
		t->compared += n;
	}
	return rc;
}

static void tell_changes(struct reroute *r, const struct directory *d, struct changes *c,
			 struct told *t)
{
	size_t at_once = r->mode == SIGNALLING_REPATH_ONLY ? 1 : MESSAGE_MAX;

	if (c->count)
		qsort(c->list, c->count, sizeof *c->list, by_host);
	for (size_t i = 0; i < c->count;) {
		struct json_object *body AUTO_JSON = json_object_new_object();
		struct json_object *list = json_object_new_array();
		const struct change *first = &c->list[i];

		t->hosts += !i || strcmp(first->host, first[-1].host);
		for (size_t k = 0; k < at_once && i < c->count; k++, i++) {
			if (strcmp(c->list[i].host, first->host))
				break;
			json_object_array_add(list,
					      reroute_record(&c->list[i].key, &c->list[i].value));
		}
		json_set(body, "records", list);
		post(r, d, first->host, body, t);
	}
	t->records = c->count;
}

static void pass(struct reroute *r, const struct sm_reroute_reply *of, struct told *t)
{
	struct changes c = {0};
	const struct backend_epoch seen = {of->instance, of->generation};
	struct directory d;

	/* Before the pass begins: who asks in it must find no record of before in the cache. */
	path_service_saw(r->o->paths, &seen);
	directory_read(r->o, &d);
	r->again = compare(r, &d, &c, t);
	tell_changes(r, &d, &c, t);
	directory_free(&d);
	free(c.list);
}

/* ---- the thread ---- */

static bool is_quiet(const struct sm_reroute_reply *c)
{
	return !c->changed && !c->all && !c->ports_changed && !c->gone && !c->back;
}

/* first: we have just begun, and nobody knows what hosts hold. */
static void tell(struct reroute *r, const struct sm_reroute_reply *c, bool first, struct told *t)
{
	bool quiet = is_quiet(c) && !r->again;

	if (first)
		tell_everyone(r, true, t);
	else if (r->mode == SIGNALLING_WILDCARD || (r->mode == SIGNALLING_HYBRID && !quiet))
		tell_everyone(r, false, t);
	else if (r->mode != SIGNALLING_HYBRID && !quiet)
		pass(r, c, t);
	if (!quiet && !first)
		log_info("rerouting %" PRIu64 ": %" PRIu64 " of %" PRIu64
			 " paths changed%s, %u ports others, %u gone, %u back; %u hosts told in %u "
			 "messages",
			 c->number, c->changed, c->pairs, c->all ? " or more" : "",
			 c->ports_changed, c->gone, c->back, t->hosts, t->messages);
}

/* False: to stop. */
static bool pause_or_stop(struct reroute *r)
{
	struct pollfd p = {.fd = r->stop_fd, .events = POLLIN};

	return poll(&p, 1, RECONNECT_MS) == 0;
}

static void keep(struct reroute *r, const struct sm_reroute_reply *c, const struct told *t)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->lock);

	r->last = *c;
	r->told = *t;
}

/* A pass that was cut short (OpenSM's plugin serves a batch that waits for a sweep) may be the last
 * for long: the next rerouting is the next fault. */
static void *run(void *arg)
{
	struct reroute *r = arg;
	struct sm_reroute_request after = {0};
	struct sm_reroute_reply *c AUTO_FREE = malloc(sizeof *c);
	char text[BACKEND_ERROR_MAX];

	while (c) {
		int rc = backend_reroute(r->backend, &after, r->stop_fd, c, text);
		struct told t = {0};
		uint64_t since_us = now_us();

		if (rc == -ECANCELED)
			break;
		if (rc) {
			if (!pause_or_stop(r))
				break;
			continue;
		}
		tell(r, c, !after.instance, &t);
		t.elapsed_us = now_us() - since_us;
		keep(r, c, &t);
		after.instance = c->instance;
		after.after = r->again ? 0 : c->number; /* 0: the same comparison, at once */
		if (r->again && !pause_or_stop(r))
			break;
	}
	return NULL;
}

int reroute_new(const struct backend_kind *kind, const struct backend_conf *conf, struct ops *o,
		enum signalling mode, struct reroute **ret_reroute)
{
	struct reroute *r = calloc(1, sizeof *r);
	int rc = 0;

	if (!r)
		return -ENOMEM;
	r->o = o;
	r->mode = mode;
	pthread_mutex_init(&r->lock, NULL);
	r->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (r->stop_fd < 0)
		rc = -errno;
	if (!rc && kind->reroute && kind->records && !(rc = backend_new(kind, conf, &r->backend))) {
		rc = -pthread_create(&r->thread, NULL, run, r);
		r->started = !rc;
	}
	if (rc) {
		reroute_free(r);
		return rc;
	}
	*ret_reroute = r;
	return 0;
}

void reroute_free(struct reroute *r)
{
	if (!r)
		return;
	if (r->started) {
		eventfd_write(r->stop_fd, 1);
		pthread_join(r->thread, NULL);
	}
	backend_free(r->backend);
	if (r->stop_fd >= 0)
		close(r->stop_fd);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* ---- what is shown ---- */

static struct json_object *change_json(const struct sm_change *c)
{
	static const char *const kind[] = {
		[SM_CHANGE_SWITCHES] = "switches", [SM_CHANGE_SWITCH_PORT] = "switch-port",
		[SM_CHANGE_PORTS] = "ports",       [SM_CHANGE_PORT] = "port",
		[SM_CHANGE_GONE] = "gone",         [SM_CHANGE_BACK] = "back",
	};
	struct json_object *o = json_object_new_object();

	json_set_str(o, "kind", c->kind < ARRAY_SIZE(kind) ? kind[c->kind] : "?");
	if (c->from)
		json_set_guid(o, "from", c->from);
	json_set_guid(o, "to", c->to);
	if (c->kind > SM_CHANGE_PORTS)
		return o;
	json_set_bool(o, "none", c->none);
	json_set_u64(o, "sl_before", c->sl_was);
	json_set_u64(o, "sl", c->sl);
	return o;
}

/* More of the list, from the plugin; it may be of a later comparison by now: then nothing. */
static int more(struct reroute *r, uint32_t first, struct sm_reroute_reply *c)
{
	struct sm_reroute_request req = {
		.instance = c->instance, .after = c->number, .first = first};
	char text[BACKEND_ERROR_MAX];

	return backend_reroute(r->o->backend, &req, -1, c, text);
}

static struct json_object *told_json(const struct told *t)
{
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "hosts", t->hosts);
	json_set_u64(o, "messages", t->messages);
	json_set_u64(o, "records_compared", t->compared);
	json_set_u64(o, "records_changed", t->records);
	json_set_u64(o, "elapsed_us", t->elapsed_us);
	return o;
}

struct json_object *reroute_json(struct reroute *r, uint32_t first)
{
	static const char *const unit[] = {"all", "switches", "ports"};
	struct sm_reroute_reply *c AUTO_FREE = malloc(sizeof *c);
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct told t;

	if (!c || !o || !list)
		return NULL;
	pthread_mutex_lock(&r->lock);
	*c = r->last;
	t = r->told;
	pthread_mutex_unlock(&r->lock);
	json_set_str(o, "signalling", signalling_name(r->mode));
	json_set_u64(o, "number", c->number);
	json_set_u64(o, "pairs", c->pairs);
	json_set_u64(o, "changed", c->changed);
	json_set_bool(o, "all", c->all);
	json_set_u64(o, "ports_changed", c->ports_changed);
	json_set_u64(o, "gone", c->gone);
	json_set_u64(o, "back", c->back);
	json_set_str(o, "sources", unit[c->unit[0] % ARRAY_SIZE(unit)]);
	json_set_str(o, "destinations", unit[c->unit[1] % ARRAY_SIZE(unit)]);
	json_set_u64(o, "elapsed_us", c->elapsed_us);
	json_set_u64(o, "bytes", c->bytes);
	json_set(o, "told", told_json(&t));
	json_set_u64(o, "listed", c->total);
	if (first && first < c->total && more(r, first, c))
		c->count = 0;
	for (uint32_t i = 0; i < c->count && first < c->total; i++)
		json_object_array_add(list, change_json(&c->change[i]));
	json_set(o, "changes", list);
	return o;
}
