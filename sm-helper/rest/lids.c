/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /v1/paths?sgid=…&dlid=…: programs that use no GRH name their peers by LID alone, and their
 * agents ask whose it is. Where VFs share the LID of their host's port there are several answers.
 */
#include "sm-helper/rest/rest_int.h"
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/paths/interest.h"

#include <errno.h>
#include <string.h>

#define ENDS_MAX 64 /* VFs of a host; an agent takes no more */

struct lid_query {
	struct ib_gid sgid;
	uint16_t lid, pkey;
	uint64_t pass; /* of comparisons (paths/interest.h), when it began */
	bool keep;     /* who asks may keep all answers */
};

/* The ends that may be meant. */
struct lid_ends {
	uint16_t lid;
	bool shared; /* others may have it as well, by the next question */
	unsigned count;
	uint64_t guid[ENDS_MAX];
};

/* The line that says what is wrong, or NULL. */
static const char *read_query(const char *sgid, const char *dlid, const char *pkey,
			      struct lid_query *q)
{
	uint64_t lid;

	*q = (struct lid_query){.lid = 0};
	if (!sgid || ib_gid_parse(sgid, &q->sgid))
		return "sgid must be a GID such as fe80::0002:c903:0000:0001";
	if (parse_u64(dlid, IB_LID_UCAST_MIN, IB_LID_UCAST_MAX, &lid))
		return "dlid must be a LID from 1 to 49151";
	if (pkey && *pkey && ib_pkey_parse(pkey, &q->pkey))
		return "pkey must be 0x0001 to 0xffff without 0x8000";
	q->lid = (uint16_t)lid;
	return NULL;
}

/* A VM that shares its host's LID is meant by those that it had before, too. */
static void add_end(void *arg, const struct reg_entry *x)
{
	struct lid_ends *ends = arg;

	if (!reg_has_lid(x, ends->lid))
		return;
	ends->shared |= x->mode == ADDRESS_SHARED_PORT;
	if (ends->count < ENDS_MAX)
		ends->guid[ends->count] = x->vguid;
	ends->count++;
}

static void add_record(struct rest_call *call, struct lid_query *q, struct json_object *list,
		       const struct ib_gid *dgid, const struct path_value *p)
{
	const struct path_query one = {q->sgid, *dgid, q->pkey};
	struct json_object *o = rest_path_json(p);
	char text[IB_GID_TEXT];

	ib_gid_format(dgid, text);
	json_set_str(o, "dgid", text);
	json_object_array_add(list, o);
	q->keep &= rest_may_keep(call->rest, call->arg[3], q->pass, &one, p);
}

/* The record to that end. A vGUID with a LID for itself has it, or it is not meant: the subnet
 * manager has changed the LID. */
static void add_path(struct rest_call *call, struct lid_query *q, uint64_t guid, bool shared,
		     struct json_object *list)
{
	struct path_query p = {q->sgid, {q->sgid.prefix, guid}, q->pkey};
	struct path_answer a = {.error = -EAGAIN};
	char text[BACKEND_ERROR_MAX];

	if (path_service_lookup(call->rest->ops->paths, &p, 1, &a))
		path_service_fill(call->rest->ops->paths, &p, 1, &a, text);
	if (!a.error && (shared || a.path.dlid == q->lid))
		add_record(call, q, list, &p.dgid, &a.path);
}

/* An end without a vGUID of ours, or one of several LIDs of a port: the SA knows it. */
static void ask_sa(struct rest_call *call, struct lid_query *q, struct json_object *list)
{
	struct probe_path p;
	struct ib_gid dgid;
	char text[PROBE_ERROR_MAX];
	int rc = probe_path_to_lid(call->rest->ops->eyes, &q->sgid, q->lid, q->pkey, &p, &dgid,
				   text);

	if (!rc)
		add_record(
			call, q, list, &dgid,
			&(struct path_value){false, p.dlid, p.slid, p.pkey, p.sl, p.mtu, p.rate});
	else if (rc == -ENOENT)
		ops_fail(&call->error, rc, 404, "no-path",
			 "LID %u is nobody's, or has no path from there", q->lid);
	else
		ops_fail(&call->error, rc, 503, "sa-unavailable", "%s", text);
}

/* A host's own LID is one that VMs will share, though none is there yet. */
static bool is_shared(const struct ops *o, const struct lid_ends *ends)
{
	return ends->shared || (!ends->count && o->addresses == ADDRESS_SHARED_PORT);
}

static void run(struct rest_call *call)
{
	struct json_object *list = json_object_new_array();
	struct lid_query q;
	struct lid_ends ends = {.count = 0};

	read_query(call->arg[0], call->arg[1], call->arg[2], &q);
	q.keep = true;
	q.pass = interest_pass(call->rest->ops->interest);
	ends.lid = q.lid;
	call->reply = json_object_new_object();
	json_set(call->reply, "paths", list);
	if (registry_each(call->rest->ops->registry, add_end, &ends)) {
		rest_registry_broken(call);
		return;
	}
	if (ends.count > ENDS_MAX) {
		ops_fail(&call->error, -E2BIG, 409, "too-many",
			 "%u VMs share LID %u; at most %d can be told apart", ends.count, q.lid,
			 ENDS_MAX);
		return;
	}
	for (unsigned i = 0; i < ends.count; i++)
		add_path(call, &q, ends.guid[i], ends.shared, list);
	if (!json_object_array_length(list))
		ask_sa(call, &q, list);
	json_set_bool(call->reply, "shared", is_shared(call->rest->ops, &ends));
	json_set_bool(call->reply, "cacheable", q.keep);
}

void rest_get_path_to_lid(struct http_request *req)
{
	const char *arg[REST_ARGS_MAX] = {
		http_query(req->exchange, "sgid"),
		http_query(req->exchange, "dlid"),
		http_query(req->exchange, "pkey"),
		rest_asking_host(req),
	};
	struct lid_query q;
	const char *wrong = read_query(arg[0], arg[1], arg[2], &q);

	if (wrong)
		http_fail(req->exchange, 400, "bad-request", "%s", wrong);
	else
		rest_submit_host(req, run, arg);
}
