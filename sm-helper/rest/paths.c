/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records, who holds them, and what a rerouting has changed of them. */
#include "common/json.h"
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/notify/reroute.h"
#include "sm-helper/paths/interest.h"
#include "sm-helper/rest/rest_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELD_VGUIDS_MAX 256
#define HELD_MAX        32768 /* records of an answer, of which a daemon takes 8 MiB */
#define HELD_TRIES      3

struct json_object *rest_path_json(const struct path_value *p)
{
	struct json_object *o = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", p->pkey);
	json_set_u64(o, "dlid", p->dlid);
	json_set_u64(o, "slid", p->slid);
	json_set_u64(o, "sl", p->sl);
	json_set_u64(o, "mtu", notice_mtu_bytes(p->mtu));
	json_set_u64(o, "rate", p->rate);
	json_set_str(o, "pkey", pkey);
	return o;
}

static struct json_object *path_json(const struct path_value *p, bool cacheable)
{
	struct json_object *o = rest_path_json(p);

	json_set_bool(o, "cacheable", cacheable);
	return o;
}

/* The line that says what is wrong, or NULL. */
static const char *read_path_query(const char *const arg[REST_ARGS_MAX], struct path_query *q)
{
	const char *sgid = arg[0], *dgid = arg[1], *pkey = arg[2];

	*q = (struct path_query){0};
	if (!sgid || !dgid || ib_gid_parse(sgid, &q->sgid) || ib_gid_parse(dgid, &q->dgid))
		return "sgid and dgid must be GIDs such as fe80::0002:c903:0000:0001";
	if (pkey && *pkey && ib_pkey_parse(pkey, &q->pkey))
		return "pkey must be 0x0001 to 0xffff without 0x8000";
	return NULL;
}

bool rest_may_keep(struct rest *rest, const char *host, uint64_t pass, const struct path_query *q,
		   const struct path_value *v)
{
	const struct path_key key = {q->sgid.guid, q->dgid.guid, q->pkey};
	uint64_t prefix = path_service_prefix(rest->ops->paths);

	if (!rest->caching)
		return false;
	if (!host || !*host)
		return !rest->holders;
	return q->sgid.prefix == prefix && q->dgid.prefix == prefix &&
	       interest_note(rest->ops->interest, host, pass, &key, v);
}

/* A client that may only look must not take a record from the host that holds it. */
const char *rest_asking_host(struct http_request *req)
{
	return req->roles & REST_PEER ? http_query(req->exchange, "host") : NULL;
}

/* No word of a fault: two limited members have none, as it must be. */
#define NO_PATH                                                                                    \
	"the subnet manager gives no path between the two: is each in the fabric, and have they "  \
	"a partition in common of which one is a full member?"

static void run_path(struct rest_call *call)
{
	const char *arg[REST_ARGS_MAX] = {call->arg[0], call->arg[1], call->arg[2], call->arg[3]};
	struct ops *o = call->rest->ops;
	uint64_t pass = interest_pass(o->interest);
	struct path_answer a = {.error = -EAGAIN};
	char text[BACKEND_ERROR_MAX];
	struct path_query q;

	read_path_query(arg, &q);
	path_service_fill(o->paths, &q, 1, &a, text);
	if (!a.error) {
		call->reply = path_json(&a.path,
					rest_may_keep(call->rest, arg[3], pass, &q, &a.path));
		return;
	}
	call->error = (struct op_error){503, "sa-unavailable", ""};
	if (a.error == -ENOENT)
		call->error = (struct op_error){404, "no-path", NO_PATH};
	else
		snprintf(call->error.detail, sizeof call->error.detail, "%s", text);
}

/* A path that is in the cache is answered here, at once. */
void rest_get_path(struct http_request *req)
{
	struct rest *rest = req->user;
	const char *arg[REST_ARGS_MAX] = {
		http_query(req->exchange, "sgid"),
		http_query(req->exchange, "dgid"),
		http_query(req->exchange, "pkey"),
		rest_asking_host(req),
	};
	uint64_t pass = interest_pass(rest->ops->interest);
	struct path_query q;
	struct path_answer a;
	const char *wrong = read_path_query(arg, &q);

	if (http_query(req->exchange, "dlid"))
		rest_get_path_to_lid(req);
	else if (wrong)
		http_fail(req->exchange, 400, "bad-request", "%s", wrong);
	else if (!path_service_lookup(rest->ops->paths, &q, 1, &a) && !a.error)
		http_reply(req->exchange, 200,
			   path_json(&a.path, rest_may_keep(rest, arg[3], pass, &q, &a.path)));
	else if (a.error == -ENOENT)
		http_fail(req->exchange, 404, "no-path", NO_PATH);
	else
		rest_submit_host(req, run_path, arg);
}

/* ---- what a host's guests hold ---- */

/* An answer of one pass of comparisons (paths/interest.h). After a later pass it would come to
 * guests as news, with values of before. */
struct held {
	struct ops *ops;
	uint64_t pass;
	bool dropped;             /* some are held no more: a second answer would not name them */
	struct json_object *list; /* borrowed from the reply */
};

/* The records of some keys as they are now; a record that cannot be told is not kept. False: a pass
 * has begun. */
static bool add_held(struct held *h, const struct path_key *key, unsigned n)
{
	uint64_t prefix = path_service_prefix(h->ops->paths);
	struct path_query q[SM_RECORDS_MAX];
	struct path_answer a[SM_RECORDS_MAX];
	char text[BACKEND_ERROR_MAX];
	bool all = true;

	for (unsigned i = 0; i < n; i++)
		q[i] = (struct path_query){
			{prefix, key[i].sguid}, {prefix, key[i].dguid}, key[i].pkey};
	if (path_service_lookup(h->ops->paths, q, n, a))
		path_service_fill(h->ops->paths, q, n, a, text);
	for (unsigned i = 0; all && i < n; i++) {
		bool known = !a[i].error || a[i].error == -ENOENT;

		if (a[i].error)
			a[i].path = (struct path_value){.none = true};
		h->dropped |= !known;
		all = interest_tell(h->ops->interest, h->pass, &key[i], known ? &a[i].path : NULL);
		json_object_array_add(h->list, reroute_record(&key[i], &a[i].path));
	}
	return all;
}

/* True: done, or call has its error. */
static bool add_all_held(struct rest_call *call, struct held *h, const uint64_t *guid, size_t count)
{
	struct path_key key[SM_RECORDS_MAX];
	size_t n;

	for (size_t i = 0; i < count; i++)
		for (size_t at = 0;
		     (n = interest_list(h->ops->interest, &at, guid[i], key, SM_RECORDS_MAX));) {
			if (json_count(h->list) + n > HELD_MAX) {
				ops_fail(&call->error, -E2BIG, 409, "too-many",
					 "the vGUIDs hold more than %d records: ask for fewer",
					 HELD_MAX);
				return true;
			}
			if (!add_held(h, key, (unsigned)n))
				return false;
		}
	return interest_pass(h->ops->interest) == h->pass;
}

static void tell_held(struct rest_call *call, const uint64_t *guid, size_t count)
{
	struct held h = {.ops = call->rest->ops};
	bool done = false;

	for (unsigned i = 0; !done && !h.dropped && i < HELD_TRIES; i++) {
		json_object_put(call->reply);
		call->reply = json_object_new_object();
		json_set(call->reply, "paths", h.list = json_object_new_array());
		h.pass = interest_pass(h.ops->interest);
		done = add_all_held(call, &h, guid, count);
	}
	if (!done)
		ops_fail(&call->error, -EAGAIN, 503, "sm-busy",
			 "OpenSM routes anew all the time: ask again");
}

static void run_held(struct rest_call *call)
{
	struct json_object *vguids = json_opt(call->body, "vguids");
	size_t count = json_count(vguids), n = 0;
	uint64_t guid[HELD_VGUIDS_MAX];

	for (; n < count && n < HELD_VGUIDS_MAX; n++) {
		const char *text = json_object_get_string(json_object_array_get_idx(vguids, n));

		if (ib_guid_parse(text ? text : "", &guid[n]))
			break;
	}
	if (!n || n < count)
		rest_bad_request(call, "vguids must be a list of 1 to 256 GUIDs");
	else
		tell_held(call, guid, n);
}

void rest_post_held(struct http_request *req)
{
	rest_submit_question(req, run_held);
}

/* ---- reroutes ---- */

static void run_reroutes(struct rest_call *call)
{
	call->reply = reroute_json(call->rest->ops->reroute,
				   (uint32_t)strtoul(call->arg[0], NULL, 10));
}

void rest_get_reroutes(struct http_request *req)
{
	const char *arg[REST_ARGS_MAX] = {http_query(req->exchange, "first")};

	rest_submit_read(req, run_reroutes, arg);
}
