/* SPDX-License-Identifier: GPL-2.0-or-later */
/* POST /v1/memberships, /v1/partitions: what the subnet manager's partitions give a GUID, and who
 * is to be a member of one. */
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/rest/rest_int.h"
#include "sm-helper/watch/rights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#define PAGES_MAX 4096 /* of the backend's list: more than there can be */
#define SHOWN_MS  2000 /* some ports may be silent */

static struct json_object *pkey_json(uint16_t pkey)
{
	char text[8];

	snprintf(text, sizeof text, "0x%04x", pkey);
	return json_object_new_string(text);
}

static const char *membership_text(unsigned as)
{
	static const char *const text[] = {NULL, "limited", "full", "both"};

	return as < ARRAY_SIZE(text) ? text[as] : NULL;
}

/* ---- what GUIDs have a right to ---- */

static struct json_object *told_json(const struct sm_memberships *m)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < m->count && i < SM_PKEYS_MAX; i++)
		json_object_array_add(list, pkey_json(m->pkey[i]));
	return list;
}

static struct json_object *keys_json(const struct pkeys *keys)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < keys->count; i++)
		json_object_array_add(list, pkey_json(keys->key[i]));
	return list;
}

/* Adds what the ports have that show the GUIDs now; null where none does, or none answers in time.
 */
static void add_shown(struct ops *o, const uint64_t *guids, struct json_object *list)
{
	struct pkeys *keys AUTO_FREE = calloc(1, sizeof *keys);
	char ignored[BACKEND_ERROR_MAX];
	uint64_t give_up_ms = now_ms() + SHOWN_MS;
	struct op_error e = {0};
	bool fresh;

	pthread_mutex_lock(&o->lock);
	fresh = keys && !ops_refresh(o, &e);
	pthread_mutex_unlock(&o->lock);
	for (size_t i = 0; i < json_count(list); i++) {
		bool seen = fresh && now_ms() < give_up_ms &&
			    !rights_shown(o, guids[i], keys, ignored);

		json_set(json_object_array_get_idx(list, i), "shown",
			 seen ? keys_json(keys) : NULL);
	}
}

/* A list of 1 to RIGHTS_MAX GUIDs, or its error. */
static unsigned read_guids(struct json_reader *r, uint64_t guid[static RIGHTS_MAX])
{
	struct json_object *list = json_need_array(r, "guids");
	size_t count = json_count(list);

	if (!r->error && (count < 1 || count > RIGHTS_MAX)) {
		r->error = -EINVAL;
		snprintf(r->message, sizeof r->message,
			 "field \"guids\" has %zu entries; allowed is 1 to %d", count, RIGHTS_MAX);
	}
	for (size_t i = 0; !r->error && i < count; i++) {
		const char *text = json_object_get_string(json_object_array_get_idx(list, i));

		if (text && !ib_guid_parse(text, &guid[i]))
			continue;
		r->error = -EINVAL;
		snprintf(r->message, sizeof r->message,
			 "guids[%zu] is \"%.40s\"; it must be 0x and 16 hex digits", i,
			 text ? text : "null");
	}
	return (unsigned)count;
}

static struct json_object *memberships_json(struct ops *o, const uint64_t *guid, unsigned count,
					    struct rights *r)
{
	struct json_object *list = json_object_new_array();

	rights_of(o, guid, count, r);
	for (unsigned i = 0; i < count; i++) {
		struct json_object *one = json_object_new_object();

		json_set_guid(one, "guid", guid[i]);
		json_set(one, "pkeys", r->known[i] ? told_json(&r->told.of[i]) : NULL);
		json_object_array_add(list, one);
	}
	return list;
}

static void tell_memberships(struct rest_call *call, const uint64_t *guid, unsigned count)
{
	struct rights *rights AUTO_FREE = calloc(1, sizeof *rights);
	struct ops *o = call->rest->ops;
	struct json_object *list;

	if (!rights) {
		ops_fail(&call->error, -ENOMEM, 500, "no-memory", "no memory");
		return;
	}
	list = memberships_json(o, guid, count, rights);
	if (json_opt_bool(call->body, "shown", false))
		add_shown(o, guid, list);
	call->reply = json_object_new_object();
	json_set_str(call->reply, "by", rights->seen ? "table" : "policy");
	json_set_bool(call->reply, "joins", action_joins(o));
	json_set_str(call->reply, "why", *rights->why ? rights->why : NULL);
	json_set(call->reply, "guids", list);
}

static void run_memberships(struct rest_call *call)
{
	uint64_t guid[RIGHTS_MAX];
	struct json_reader r;
	unsigned count;

	json_reader_init(&r, call->body);
	count = read_guids(&r, guid);
	if (r.error)
		rest_bad_request(call, r.message);
	else
		tell_memberships(call, guid, count);
}

void rest_post_memberships(struct http_request *req)
{
	rest_submit_question(req, run_memberships);
}

/* ---- the partitions and their members ---- */

static struct json_object *find_partition(struct json_object *partitions, uint16_t pkey,
					  const char *name)
{
	struct json_object *text AUTO_JSON = pkey_json(pkey & PKEY_BASE), *o;

	o = json_find(partitions, "pkey", json_object_get_string(text));
	if (o)
		return o;
	o = json_object_new_object();
	json_set(o, "pkey", json_object_get(text));
	json_set_str(o, "name", *name ? name : NULL);
	json_set(o, "guids", json_object_new_array());
	json_object_array_add(partitions, o);
	return o;
}

/* Members that a policy names by a word in place of a GUID. */
static const char *who_text(unsigned who)
{
	static const char *const text[] = {NULL, "all", "cas", "switches", "routers", "self"};

	return who < ARRAY_SIZE(text) ? text[who] : NULL;
}

static void add_entry(struct json_object *partitions, const struct sm_partition_entry *e)
{
	struct json_object *o, *guids;
	char name[sizeof e->name + 1];

	snprintf(name, sizeof name, "%.*s", (int)sizeof e->name, e->name);
	guids = json_opt(find_partition(partitions, e->pkey, name), "guids");
	if (e->who == SM_WHO_NOBODY)
		return;
	o = json_object_new_object();
	if (e->who == SM_WHO_GUID)
		json_set_guid(o, "guid", e->guid);
	else
		json_set_str(o, "who", who_text(e->who));
	json_set_str(o, "membership", membership_text(e->as));
	json_set_str(o, "source", e->ours ? "ibvmig" : "policy");
	json_object_array_add(guids, o);
}

/* *ret_bad_line: the subnet manager gives its file up there; 0: it does not. */
static int list_partitions(struct backend *b, struct json_object *partitions,
			   unsigned *ret_bad_line, char *error)
{
	struct sm_partitions_reply *r AUTO_FREE = calloc(1, sizeof *r);
	uint32_t first = 0;
	int rc = r ? 0 : backend_fail(error, -ENOMEM, "no memory");

	for (unsigned page = 0; !rc && page < PAGES_MAX; page++) {
		rc = backend_partitions(b, first, r, error);
		for (uint32_t i = 0; !rc && i < r->count && i < SM_PARTITIONS_MAX; i++)
			add_entry(partitions, &r->entry[i]);
		if (rc || !r->count || (first += r->count) >= r->total)
			break;
	}
	*ret_bad_line = rc ? 0 : r->bad_line;
	return rc;
}

static void run_partitions(struct rest_call *call)
{
	struct json_object *list = json_object_new_array();
	char error[BACKEND_ERROR_MAX];
	unsigned bad_line;
	int rc = list_partitions(call->rest->ops->backend, list, &bad_line, error);

	if (rc)
		ops_fail_plugin(&call->error, rc, error);
	call->reply = json_object_new_object();
	json_set(call->reply, "partitions", list);
	if (bad_line)
		json_set_u64(call->reply, "bad_line", bad_line);
}

void rest_get_partitions(struct http_request *req)
{
	rest_submit_read(req, run_partitions, NULL);
}

/* ---- a change ---- */

struct change {
	uint16_t pkey;
	struct sm_member member[SM_ASSIGN_MAX];
	unsigned count;
};

static void refuse_entry(struct json_reader *r, const char *list, size_t i, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void refuse_entry(struct json_reader *r, const char *list, size_t i, const char *fmt, ...)
{
	char text[120];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	r->error = -EINVAL;
	snprintf(r->message, sizeof r->message, "%s[%zu]: %s", list, i, text);
}

/* {guid, membership?}, or the GUID alone. */
static void read_member(struct json_reader *r, const char *list, size_t i, struct json_object *in,
			struct sm_member *m)
{
	bool object = json_object_is_type(in, json_type_object);
	const char *text = object ? json_opt_str(in, "guid", "") : json_object_get_string(in);
	const char *as = object ? json_opt_str(in, "membership", "full") : "full";

	if (!text || ib_guid_parse(text, &m->guid))
		refuse_entry(r, list, i, "guid is \"%.40s\"; it must be 0x and 16 hex digits",
			     text ? text : "null");
	else if (str_eq(as, "limited"))
		m->as = SM_MEMBER_LIMITED;
	else if (str_eq(as, "full"))
		m->as = SM_MEMBER_FULL;
	else
		refuse_entry(r, list, i, "membership is \"%.20s\"; allowed is full, limited", as);
}

static bool has_guid(const struct change *c, uint64_t guid)
{
	for (unsigned i = 0; i < c->count; i++)
		if (c->member[i].guid == guid)
			return true;
	return false;
}

static void read_list(struct json_reader *r, const char *key, bool remove, struct change *c)
{
	struct json_object *list = json_opt(r->obj, key) ? json_need_array(r, key) : NULL;

	for (size_t i = 0; !r->error && i < json_count(list); i++) {
		struct sm_member m = {0};

		read_member(r, key, i, json_object_array_get_idx(list, i), &m);
		if (!r->error && has_guid(c, m.guid))
			refuse_entry(r, key, i, "0x%016" PRIx64 " stands in the lists twice",
				     m.guid);
		else if (!r->error && c->count == SM_ASSIGN_MAX)
			refuse_entry(r, key, i, "a call has at most %d GUIDs", SM_ASSIGN_MAX);
		if (r->error)
			return;
		if (remove)
			m.as = SM_MEMBER_NONE;
		c->member[c->count++] = m;
	}
}

static bool read_change(struct rest_call *call, struct change *c)
{
	struct json_reader r;

	if (ib_pkey_parse(call->arg[0], &c->pkey)) {
		ops_fail(
			&call->error, -EINVAL, 400, "bad-request",
			"the P_Key in the path is \"%.20s\"; allowed is 0x0001 to 0x7fff, and with "
			"0x8000 as full members have it",
			call->arg[0]);
		return false;
	}
	c->pkey &= PKEY_BASE;
	json_reader_init(&r, call->body);
	read_list(&r, "add", false, c);
	if (!r.error)
		read_list(&r, "remove", true, c);
	if (!r.error && !c->count) {
		r.error = -EINVAL;
		snprintf(r.message, sizeof r.message,
			 "neither \"add\" nor \"remove\" has a GUID: give "
			 "{\"add\":[{\"guid\",\"membership\"}]} or "
			 "{\"remove\":[GUID]}");
	}
	if (r.error)
		rest_bad_request(call, r.message);
	return !r.error;
}

static int fail_change(struct op_error *e, int rc, const char *text)
{
	if (rc == -EINVAL)
		return ops_fail(e, rc, 400, "bad-request", "%s", text);
	if (rc == -EEXIST)
		return ops_fail(e, rc, 409, "member-by-policy", "%s", text);
	if (rc == -EACCES)
		return ops_fail(e, rc, 409, "port-of-sm", "%s", text);
	if (rc == -ENOENT)
		return ops_fail(e, rc, 404, "no-partition", "%s", text);
	if (rc == -ENOSPC)
		return ops_fail(e, rc, 409, "table-full", "%s", text);
	return ops_fail_plugin(e, rc, text);
}

static struct json_object *changed_json(const struct change *c, const struct sm_members_reply *r)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	json_set(o, "pkey", pkey_json(c->pkey));
	json_set_u64(o, "changed", r->changed);
	json_set_u64(o, "pkey_smps", r->pkey_smps);
	for (unsigned i = 0; i < c->count; i++) {
		struct json_object *one = json_object_new_object();

		json_set_guid(one, "guid", c->member[i].guid);
		json_set_str(one, "membership", membership_text(c->member[i].as));
		json_object_array_add(list, one);
	}
	json_set(o, "guids", list);
	return o;
}

/* flags: enum sm_members_flag. */
static void change_partition(struct rest_call *call, const struct change *c, unsigned flags)
{
	struct ops *o = call->rest->ops;
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock); /* no VF moves in the meantime */
	char text[BACKEND_ERROR_MAX] = "";
	struct sm_members_reply r = {0};
	int rc = ops_start(o, rest_deadline_us(call), &call->error);

	if (rc)
		return;
	rc = backend_members(o->backend, c->pkey, c->member, c->count, flags, ops_left_ms(o), &r,
			     text);
	if (rc) {
		fail_change(&call->error, rc, text);
		return;
	}
	path_service_expire(o->paths);
	log_notice("partition 0x%04x: %u of %u GUIDs have another membership than before", c->pkey,
		   r.changed, c->count);
	call->reply = changed_json(c, &r);
}

/* The other OpenSM hears of it at once; one that is away asks later (watch/members.h). */
static void tell_standby(struct rest_call *call, const struct change *c)
{
	struct twin *twin = call->rest->ops->twin;
	char path[64], text[BACKEND_ERROR_MAX] = "";

	if (!twin || call->error.status)
		return;
	snprintf(path, sizeof path, "/v1/peer/partitions/0x%04x/guids", c->pkey);
	if (twin_pass(twin, path, call->body, text))
		log_warn("partition 0x%04x: the standby's OpenSM is not told: %s", c->pkey, text);
	json_set_str(call->reply, "standby_error", *text ? text : NULL);
}

static void run_change(struct rest_call *call)
{
	struct change *c AUTO_FREE = calloc(1, sizeof *c);

	if (!c) {
		call->error = (struct op_error){500, "no-memory", "no memory"};
	} else if (read_change(call, c) && !rest_refuse_follower(call)) {
		change_partition(call, c, 0);
		tell_standby(call, c);
	}
}

static void run_store(struct rest_call *call)
{
	struct change *c AUTO_FREE = calloc(1, sizeof *c);

	if (!c)
		call->error = (struct op_error){500, "no-memory", "no memory"};
	else if (read_change(call, c))
		change_partition(call, c, SM_MEMBERS_STORE);
}

void rest_post_stored_members(struct http_request *req)
{
	rest_submit(req, run_store, (const char *[REST_ARGS_MAX]){req->param});
}

void rest_post_partition(struct http_request *req)
{
	rest_submit_slow(req, run_change, (const char *[REST_ARGS_MAX]){req->param});
}
