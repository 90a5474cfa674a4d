/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the files of rest. */
#ifndef IBVMIG_SM_HELPER_REST_REST_INT_H
#define IBVMIG_SM_HELPER_REST_REST_INT_H

#include "common/json.h"
#include "sm-helper/rest/rest.h"

/* ---- rest/call.c ---- */

#define REST_ARGS_MAX 4

/* A call on its way through a worker. */
struct rest_call {
	struct rest_call *next; /* next of the calls that wait (rest/moves.c) */
	struct rest *rest;
	struct http_exchange *exchange;
	void (*run)(struct rest_call *call);
	struct json_object *body; /* owned; NULL without one */
	char arg[REST_ARGS_MAX][HTTP_PARAM_MAX];
	struct json_object *reply; /* owned until it is sent */
	struct op_error error;     /* status 0: none */
	unsigned roles;            /* enum rest_role: those of the client */
	uint64_t arrived_us;       /* CLOCK_MONOTONIC */
	bool asks;                 /* a body that changes nothing: there is no news for the peer */
	bool reads;                /* counts in rest->reading */
	uint64_t gone;             /* vGUID to tell the hosts of when the answer is out; 0: none */
};

/* A call that is not submitted; NULL: the request has its error. rest_call_done() in the loop's
 * thread answers it and frees it. */
struct rest_call *rest_call_new(struct http_request *req, void (*run)(struct rest_call *call),
				const char *const arg[REST_ARGS_MAX]);
void rest_call_done(void *arg);
/* arg: up to REST_ARGS_MAX strings of the request, NULL for one that is not there. */
void rest_submit(struct http_request *req, void (*run)(struct rest_call *call),
		 const char *const arg[REST_ARGS_MAX]);
/* The same for a question of a host, which comes with a body. */
void rest_submit_question(struct http_request *req, void (*run)(struct rest_call *call));
/* The same for one without a body, which others may ask too: those only look. */
void rest_submit_host(struct http_request *req, void (*run)(struct rest_call *call),
		      const char *const arg[REST_ARGS_MAX]);
/* For who only looks: such calls wait for each other alone, and REST_READS_MAX of them at most. */
void rest_submit_read(struct http_request *req, void (*run)(struct rest_call *call),
		      const char *const arg[REST_ARGS_MAX]);
/* For changes by operators that ask others first, who may be silent. */
void rest_submit_slow(struct http_request *req, void (*run)(struct rest_call *call),
		      const char *const arg[REST_ARGS_MAX]);
/* The same in a pool of the caller's choice. */
void rest_submit_to(struct work_pool *pool, struct http_request *req,
		    void (*run)(struct rest_call *call), const char *const arg[REST_ARGS_MAX]);
/* Time by which a change is to be answered, the time included that it has waited for others. */
static inline uint64_t rest_deadline_us(const struct rest_call *call)
{
	return call->arrived_us + OPS_ANSWER_MS * 1000ull;
}

void rest_bad_request(struct rest_call *call, const char *text);
void rest_registry_broken(struct rest_call *call);
/* Refuses a change where the other ibvmig-sm leads: only the one that leads may change the
 * registry. call->error is filled then. */
bool rest_refuse_follower(struct rest_call *call);
/* And where the registry may change nothing (moves/own.h). */
bool rest_refuse_change(struct rest_call *call);
/* A required string of 1 to REG_TEXT_MAX - 1 bytes. */
void rest_need_text(struct json_reader *r, const char *key, char to[static REG_TEXT_MAX]);

/* host, vf and parked_guid of an object; url where the object has it and it is wanted; the entry of
 * a GUID table, where it is said. */
void rest_need_vf(struct json_reader *r, bool url, struct reg_vf *vf);
/* {"host","vf","parked_guid"[,"url"]} below key, and the partition. */
void rest_need_vf_at(struct json_reader *r, const char *key, bool url, struct reg_vf *vf);
uint16_t rest_need_pkey(struct json_reader *r);

/* rest/vguids.c */
void rest_get_vguids(struct http_request *req);
void rest_get_vguid(struct http_request *req);
void rest_post_vguid(struct http_request *req);
void rest_post_release(struct http_request *req);
void rest_post_reconcile(struct http_request *req);
struct json_object *rest_entry_json(const struct reg_entry *e);
/* rest/verify.c */
void rest_get_verify(struct http_request *req);
/* rest/fence.c */
void rest_post_fence(struct http_request *req);
/* rest/rebuild.c */
void rest_post_rebuild(struct http_request *req);
/* rest/moves.c */
void rest_post_moves(struct http_request *req);
void rest_post_moves_check(struct http_request *req);
/* rest/parked.c */
void rest_post_parked(struct http_request *req);
struct json_object *rest_parked_json(struct parked *k); /* NULL: nothing is parked */
/* rest/paths.c */
void rest_get_path(struct http_request *req);
/* A record, without its ends' GIDs. */
struct json_object *rest_path_json(const struct path_value *p);
/* True if who asks may keep the answer. A host that has said its name is noted as its holder (NULL,
 * "": it has not); pass: interest_pass() of before the look-up. */
bool rest_may_keep(struct rest *rest, const char *host, uint64_t pass, const struct path_query *q,
		   const struct path_value *v);
/* The name that the asker says, or NULL: it is no host. */
const char *rest_asking_host(struct http_request *req);
void rest_post_held(struct http_request *req);
void rest_get_reroutes(struct http_request *req);
/* rest/loads.c */
void rest_get_loads(struct http_request *req);
/* rest/ranks.c */
void rest_post_ranks(struct http_request *req);
/* rest/lids.c */
void rest_get_path_to_lid(struct http_request *req);
/* rest/partitions.c */
void rest_post_memberships(struct http_request *req);
void rest_get_partitions(struct http_request *req);
void rest_post_partition(struct http_request *req);
void rest_post_stored_members(struct http_request *req);
/* rest/twin.c */
void rest_get_twin(struct http_request *req);
void rest_get_twin_registry(struct http_request *req);
void rest_post_twin(struct http_request *req);

/* 0, or -EEXIST (another VM has claimed it) or -EIO with call->error filled. */
int rest_check_claim(struct rest_call *call, uint64_t vguid, const char *vm);

#endif
