/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/twin/twin.h"
#include "common/http/client.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/registry/replica.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define TELL_MS    2000
#define PULL_MS    10000
#define LOOK_MS    1000
#define TWIN_PATH  "/v1/peer"
#define WHOLE_PATH "/v1/peer/registry"

struct twin {
	char *url;                 /* owned */
	struct registry *registry; /* borrowed, as the next */
	struct backend *backend;
	pthread_mutex_t lock; /* guards all below; held during calls, which keeps them in order */
	bool leading;
	bool in_sync;      /* on the side that leads: the other one has all of the registry */
	bool followed;     /* the other one has led and told us all, and since then our OpenSM has
			      lived, so that it could not go alone */
	uint64_t instance; /* process of our OpenSM; 0: it is not there */
	uint64_t seen_ms;
	char error[BACKEND_ERROR_MAX]; /* why not in_sync; "" */
	struct json_object *sm;        /* owned: what it last said of its OpenSM; or NULL */
};

int twin_new(const char *url, struct registry *registry, struct backend *backend,
	     struct twin **ret_twin)
{
	struct twin *p = calloc(1, sizeof *p);

	if (!p || !(p->url = strdup(url))) {
		free(p);
		return -ENOMEM;
	}
	p->registry = registry;
	p->backend = backend;
	pthread_mutex_init(&p->lock, NULL);
	*ret_twin = p;
	return 0;
}

void twin_free(struct twin *p)
{
	if (!p)
		return;
	json_object_put(p->sm);
	free(p->url);
	free(p);
}

/* ---- messages ---- */

static void set_hex(struct json_object *o, const char *key, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof text, "0x%016" PRIx64, v);
	json_set_str(o, key, text);
}

static int set_blob(struct json_object *o, const struct replica_blob *b)
{
	char *text AUTO_FREE = base64_encode(b->data, (size_t)b->bytes);

	if (!text)
		return -ENOMEM;
	json_set_str(o, "changes", text);
	set_hex(o, "sum", checksum64(b->data, (size_t)b->bytes));
	return 0;
}

/* *ret_data: owned by the caller. */
static int get_blob(struct json_object *o, uint8_t **ret_data, size_t *ret_bytes, char *error)
{
	const char *text = json_opt_str(o, "changes", ""), *sum = json_opt_str(o, "sum", "");
	size_t room = strlen(text) / 4 * 3 + 3;
	uint8_t *data AUTO_FREE = malloc(room);
	uint64_t want;

	if (!data)
		return backend_fail(error, -ENOMEM, "no memory");
	if (room > TWIN_BLOB_MAX || base64_decode(text, data, room, ret_bytes) ||
	    parse_u64(sum, 0, UINT64_MAX, &want) || want != checksum64(data, *ret_bytes))
		return backend_fail(error, -EINVAL, "the changes of the registry are damaged");
	*ret_data = TAKE(data);
	return 0;
}

static struct json_object *target_json(const struct sm_target *t)
{
	struct json_object *o = json_object_new_object();

	json_set_guid(o, "switch", t->switch_guid);
	json_set_u64(o, "port", t->switch_port);
	json_set_guid(o, "node_guid", t->node_guid);
	json_set_guid(o, "guid", t->port_guid);
	json_set_u64(o, "lid", t->lid);
	set_hex(o, "parked", t->parked_guid);
	set_hex(o, "was_guid", t->was_guid);
	json_set_u64(o, "was_lid", t->was_lid);
	json_set_u64(o, "own_lid", t->own_lid);
	return o;
}

static int target_parse(struct json_object *o, struct sm_target *t, char *error)
{
	struct json_reader r;
	uint64_t was = 0, parked = 0;

	json_reader_init(&r, o);
	*t = (struct sm_target){
		.switch_guid = json_need_guid(&r, "switch"),
		.switch_port = (uint8_t)json_need_u64(&r, "port", 1, 254),
		.node_guid = json_need_guid(&r, "node_guid"),
		.port_guid = json_need_guid(&r, "guid"),
		.lid = (uint16_t)json_need_u64(&r, "lid", 0, IB_LID_UCAST_MAX),
		.was_lid = (uint16_t)json_need_u64(&r, "was_lid", 0, IB_LID_UCAST_MAX),
		.own_lid = (uint16_t)json_need_u64(&r, "own_lid", 0, IB_LID_UCAST_MAX),
	};
	if (parse_u64(json_need_str(&r, "was_guid"), 0, UINT64_MAX, &was) && !r.error)
		return backend_fail(error, -EINVAL, "field \"was_guid\" is no GUID");
	if (parse_u64(json_need_str(&r, "parked"), 0, UINT64_MAX, &parked) && !r.error)
		return backend_fail(error, -EINVAL, "field \"parked\" is no GUID");
	t->was_guid = was;
	t->parked_guid = parked;
	return r.error ? backend_fail(error, r.error, "%s", r.message) : 0;
}

/* ---- who leads ---- */

static int lost(struct twin *p, int rc, const char *why)
{
	if (p->in_sync || !*p->error)
		log_warn("peer %s: %s", p->url, why);
	p->in_sync = false;
	snprintf(p->error, sizeof p->error, "%s", why);
	return rc;
}

static void found(struct twin *p)
{
	if (!p->in_sync)
		log_notice("peer %s has all of the registry and is told of each batch", p->url);
	p->in_sync = true;
	*p->error = '\0';
}

static int call(struct twin *p, const char *method, const char *path, struct json_object *body,
		unsigned ms, struct json_object **ret_answer, char *error)
{
	char text[HTTP_ERROR_MAX] = "";
	int rc = http_call(p->url, method, path, body, ms, ret_answer, text);
	struct json_object *sm;

	snprintf(error, BACKEND_ERROR_MAX, "%s", text);
	if (!rc && (sm = json_opt(*ret_answer, "sm"))) {
		json_object_put(p->sm);
		p->sm = json_object_get(sm);
	}
	return rc;
}

int twin_pass(struct twin *p, const char *path, struct json_object *body,
	      char error[static BACKEND_ERROR_MAX])
{
	struct json_object *answer AUTO_JSON = NULL;
	char text[HTTP_ERROR_MAX] = "";
	int rc = http_call(p->url, "POST", path, body, TELL_MS, &answer, text);

	return rc ? backend_fail(error, rc, "%s", text) : 0;
}

int twin_fetch(struct twin *p, const char *path, unsigned ms, struct json_object **ret_answer,
	       char error[static BACKEND_ERROR_MAX])
{
	char text[HTTP_ERROR_MAX] = "";
	int rc = http_call(p->url, "GET", path, NULL, ms, ret_answer, text);

	return rc ? backend_fail(error, rc, "%s", text) : 0;
}

static bool leads(struct json_object *state)
{
	uint64_t is = json_opt_u64(json_opt(state, "sm"), "state", 0);

	return is == SM_STATE_MASTER || is == SM_STATE_DISCOVERING;
}

/* Replaces our registry by all of the other one's. p->lock may be held: the other one does not
 * wait for us, for it answers this call without its own lock. */
static int pull(struct twin *p, char *error)
{
	struct json_object *answer AUTO_JSON = NULL;
	uint8_t *data AUTO_FREE = NULL;
	size_t bytes;
	int rc = call(p, "GET", WHOLE_PATH, NULL, PULL_MS, &answer, error);

	if (rc || (rc = get_blob(answer, &data, &bytes, error)))
		return rc;
	rc = registry_import(p->registry, data, bytes);
	return rc ? backend_fail(error, rc, "the registry of %s cannot be taken over", p->url) : 0;
}

static int post(struct twin *p, const struct sm_target *t, unsigned count, bool whole,
		const struct replica_blob *changes, char *error)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;
	struct json_object *list = json_object_new_array();
	int rc;

	json_set(body, "batch", list);
	for (unsigned i = 0; i < count; i++)
		json_object_array_add(list, target_json(&t[i]));
	json_set_bool(body, "whole", whole);
	if (changes->data && (rc = set_blob(body, changes)))
		return backend_fail(error, rc, "no memory");
	rc = call(p, "POST", TWIN_PATH, body, whole ? PULL_MS : TELL_MS, &answer, error);
	if (!rc && leads(answer))
		return backend_fail(error, -EPERM, "its own OpenSM is master");
	if (!rc && count && json_opt(answer, "batch_error"))
		return backend_fail(error, -ENOTCONN, "its OpenSM has not taken the batch: %s",
				    json_opt_str(answer, "batch_error", ""));
	return rc;
}

/* The other one is there: the side with the newer registry gives it to the other. */
static int meet(struct twin *p, struct json_object *state, char *error)
{
	struct replica_mark mine;
	uint64_t theirs = json_opt_u64(state, "seq", 0);
	int rc;

	if (leads(state))
		return backend_fail(error, -EPERM, "its own OpenSM is master");
	if ((rc = registry_mark(p->registry, &mine)))
		return backend_fail(error, rc, "the registry cannot be read");
	if (mine.alone && json_opt_bool(state, "alone", false))
		log_error("peer %s: both registries have been changed without the other one; the "
			  "one with more changes stays (%" PRIu64 " here, %" PRIu64 " there)",
			  p->url, mine.seq, theirs);
	if (theirs > mine.seq && (rc = pull(p, error)))
		return rc;
	if ((rc = registry_set_alone(p->registry, false)) || (rc = registry_track(p->registry)))
		return backend_fail(error, rc, "the registry cannot be written");
	return post(p, NULL, 0, true, &(struct replica_blob){0}, error);
}

static int look(struct twin *p, char *error)
{
	struct json_object *state AUTO_JSON = NULL;
	struct replica_mark mine = {0};
	int rc = call(p, "GET", TWIN_PATH, NULL, TELL_MS, &state, error);

	p->seen_ms = now_ms();
	if (!rc && p->leading && p->in_sync && json_opt_bool(state, "followed", false) &&
	    !registry_mark(p->registry, &mine) && json_opt_u64(state, "seq", 0) == mine.seq)
		return leads(state) ? backend_fail(error, -EPERM, "its own OpenSM is master") : 0;
	rc = rc ? rc : meet(p, state, error);
	if (rc)
		return lost(p, rc, error);
	found(p);
	return 0;
}

static int lead(struct twin *p, char *error)
{
	char why[BACKEND_ERROR_MAX];
	struct replica_mark mine = {0};
	int rc = look(p, why);

	if (rc == -EPERM)
		return backend_fail(error, rc, "the OpenSM beside %s is master too", p->url);
	if (rc && (registry_mark(p->registry, &mine) || (!mine.alone && !p->followed)))
		return backend_fail(error, -EAGAIN,
				    "the registry at %s may be newer than ours and cannot be asked "
				    "(%.300s); if it is lost for good, take `peer` out of the "
				    "configuration",
				    p->url, why);
	p->leading = true;
	return 0;
}

int twin_lead(struct twin *p, char error[static BACKEND_ERROR_MAX])
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);

	return p->leading ? 0 : lead(p, error);
}

void twin_sm(struct twin *p, uint64_t instance, bool master)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);

	if (instance != p->instance)
		p->followed = false;
	p->instance = instance;
	p->leading = p->leading && master;
}

void twin_mend(struct twin *p)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);
	char error[BACKEND_ERROR_MAX];

	if (p->leading && now_ms() >= p->seen_ms + LOOK_MS)
		look(p, error);
}

bool twin_ready(struct twin *p)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);

	return p->leading && p->in_sync && json_opt_bool(p->sm, "plugin", false);
}

uint64_t twin_standby(struct twin *p)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);

	return p->sm && json_opt_u64(p->sm, "state", 0) == SM_STATE_STANDBY
		       ? json_opt_u64(p->sm, "instance", 0)
		       : 0;
}

int twin_tell(struct twin *p, const struct sm_target *targets, unsigned count,
	      char error[static BACKEND_ERROR_MAX])
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);
	struct replica_blob changes = {0};
	int rc;

	if (!count && !p->leading)
		return 0; /* news from the other one */
	if (!p->in_sync && (rc = look(p, error)))
		return rc;
	if ((rc = registry_take(p->registry, &changes)))
		return backend_fail(error, rc, "the registry cannot be read");
	rc = changes.data || count ? post(p, targets, count, false, &changes, error) : 0;
	registry_blob_free(&changes);
	return rc && rc != -ENOTCONN ? lost(p, rc, error) : rc;
}

int twin_go_alone(struct twin *p)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);

	return p->in_sync ? 0 : registry_set_alone(p->registry, true);
}

/* ---- what the other one asks ---- */

/* Called without p->lock: the other one may hold its own while it asks. */
static struct json_object *own_state(struct twin *p)
{
	struct json_object *o = json_object_new_object(), *sm = json_object_new_object();
	struct sm_status_reply s = {0};
	char error[BACKEND_ERROR_MAX] = "";
	struct replica_mark mark = {0};
	int rc = backend_status(p->backend, &s, error);

	json_set_bool(sm, "plugin", !rc);
	json_set_u64(sm, "state", s.sm_state);
	json_set_u64(sm, "instance", s.instance);
	json_set_guid(sm, "guid", s.sm_guid);
	json_set_str(sm, "error", rc ? error : NULL);
	json_set(o, "sm", sm);
	if (!registry_mark(p->registry, &mark)) {
		json_set_u64(o, "seq", mark.seq);
		json_set_bool(o, "alone", mark.alone);
	}
	return o;
}

struct json_object *twin_state(struct twin *p)
{
	struct json_object *o = own_state(p);

	json_set_bool(o, "followed", __atomic_load_n(&p->followed, __ATOMIC_RELAXED));
	return o;
}

int twin_export(struct twin *p, struct json_object **ret_answer,
		char error[static BACKEND_ERROR_MAX])
{
	struct json_object *o = json_object_new_object();
	struct replica_blob b = {0};
	int rc = registry_export(p->registry, &b);

	if (!rc)
		rc = b.bytes > (int)TWIN_BLOB_MAX ? -EFBIG : set_blob(o, &b);
	registry_blob_free(&b);
	if (rc) {
		json_object_put(o);
		return backend_fail(error, rc, "the registry cannot be given: %s", strerror(-rc));
	}
	*ret_answer = o;
	return 0;
}

static int hear_registry(struct twin *p, struct json_object *body, char *error)
{
	uint8_t *data AUTO_FREE = NULL;
	size_t bytes;
	int rc;

	if (json_opt_bool(body, "whole", false))
		return pull(p, error);
	if (!json_opt(body, "changes"))
		return 0;
	if ((rc = get_blob(body, &data, &bytes, error)))
		return rc;
	rc = registry_apply(p->registry, data, bytes);
	return rc == -ESTALE ? pull(p, error) : rc;
}

static int hear_batch(struct twin *p, struct json_object *list, char *error)
{
	struct sm_target t[SM_ASSIGN_MAX];
	size_t n = json_count(list);
	int rc;

	if (n > SM_ASSIGN_MAX)
		return backend_fail(error, -EINVAL, "a batch of %zu places; at most %u", n,
				    SM_ASSIGN_MAX);
	for (size_t i = 0; i < n; i++)
		if ((rc = target_parse(json_object_array_get_idx(list, i), &t[i], error)))
			return rc;
	return backend_intent(p->backend, t, (unsigned)n, error);
}

int twin_heard(struct twin *p, struct json_object *body, struct json_object **ret_answer,
	       char error[static BACKEND_ERROR_MAX])
{
	struct json_object *state AUTO_JSON = own_state(p), *list = json_opt(body, "batch");
	char why[BACKEND_ERROR_MAX];
	int rc;

	if (!json_object_is_type(list, json_type_array))
		return backend_fail(error, -EINVAL, "field \"batch\" is no array");
	if (leads(state)) /* said without the lock: two that lead do not wait for each other */
		return backend_fail(error, -EPERM, "the OpenSM beside this ibvmig-sm is master");
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);
	if ((rc = hear_registry(p, body, error)))
		return rc;
	p->leading = false;
	p->followed = p->instance != 0;
	rc = hear_batch(p, list, why);
	if (rc == -EPERM || rc == -EINVAL)
		return backend_fail(error, rc, "%s", why);
	json_set_str(state, "batch_error", rc ? why : NULL);
	*ret_answer = TAKE(state);
	return 0;
}

struct json_object *twin_status(struct twin *p)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->lock);
	struct json_object *o = json_object_new_object();
	struct replica_mark mark = {0};

	json_set_str(o, "url", p->url);
	json_set_str(o, "role", p->leading ? "leader" : "follower");
	json_set_bool(o, "in_sync", p->leading ? p->in_sync : p->followed);
	json_set_str(o, "error", *p->error ? p->error : NULL);
	if (!registry_mark(p->registry, &mark))
		json_set_u64(o, "registry_seq", mark.seq);
	if (p->sm)
		json_set(o, "sm", json_object_get(p->sm));
	return o;
}
