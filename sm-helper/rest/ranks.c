/* SPDX-License-Identifier: GPL-2.0-or-later */
/* POST /v1/ranks: what a move of each VM to each of some free VFs would cost. Changes nothing. */
#include "common/util.h"
#include "sm-helper/fabric/lft_reader.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/rest/rest_int.h"
#include "sm-helper/watch/verify.h"
#include "vswitch/cost/rank.h"

#include <errno.h>

#define RANKS_VMS_MAX 1024
#define RANKS_VFS_MAX 4096
#define LFT_BLOCKS    ((IB_LID_UCAST_MAX + 1) / IB_LFT_BLOCK)

static uint64_t guid_at(struct json_object *list, size_t i)
{
	const char *text = json_object_get_string(json_object_array_get_idx(list, i));
	uint64_t guid = 0;

	return text && !ib_guid_parse(text, &guid) ? guid : 0;
}

/* The fabric as the nodes tell it, read for one call: without ops' lock, so that no move waits for
 * it. A move that happens meanwhile makes the ranks a little wrong, and nothing else. */
struct ranking {
	struct verify v;
	bool *busy, *may, *block; /* owned: CA ports with VMs; free VFs; LFT blocks that matter */
};

static void mark_busy(void *arg, const struct reg_entry *x)
{
	struct ranking *g = arg;
	uint32_t end = fabric_find_end(&g->v.f, x->vguid);

	if (end != FABRIC_NONE)
		g->busy[end] = true;
}

static void mark_free(struct ranking *g, struct json_object *free_vfs)
{
	for (size_t i = 0; i < json_count(free_vfs); i++) {
		uint32_t end = fabric_find_end(&g->v.f, guid_at(free_vfs, i));

		if (end != FABRIC_NONE && !g->busy[end])
			g->may[end] = true;
	}
}

/* The blocks of all LIDs that a move or a load speaks of. A dynamic LID is copied from a PF's. */
static void mark_blocks(struct ranking *g)
{
	const struct fabric *f = &g->v.f;

	for (uint32_t i = 0; i < f->ends; i++) {
		if (!g->busy[i] && !g->may[i])
			continue;
		g->block[f->end[i].lid / IB_LFT_BLOCK] = true;
		g->block[f->end[address_host(f, i)].lid / IB_LFT_BLOCK] = true;
	}
}

static int read_blocks(struct ranking *g, struct op_error *e)
{
	struct lft_reader reader = {g->v.m, g->v.own_guid};
	struct walk_block *want AUTO_FREE = malloc(g->v.f.switches * sizeof *want + 1);

	if (!want)
		return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	for (unsigned b = 0; b < LFT_BLOCKS; b++) {
		for (uint32_t i = 0; g->block[b] && i < g->v.f.switches; i++)
			want[i] = (struct walk_block){.sw = i, .block = b};
		if (g->block[b])
			lft_fetch(&reader, &g->v.f, want, g->v.f.switches);
	}
	return 0;
}

static int ranking_begin(struct ranking *g, struct ops *o, struct json_object *free_vfs,
			 struct op_error *e)
{
	char text[PROBE_ERROR_MAX];
	int rc;

	if (action_sm_moves(o))
		return ops_fail(e, -EOPNOTSUPP, 503, "no-umad", "backend %s sees no LFTs",
				backend_kind(o->backend)->name);
	if ((rc = verify_begin(&g->v, o->eyes, NULL, 0, text)))
		return ops_fail(e, rc, 503, "no-umad", "%s", text);
	g->busy = calloc(g->v.f.ends + 1u, 1);
	g->may = calloc(g->v.f.ends + 1u, 1);
	g->block = calloc(LFT_BLOCKS, 1);
	if (!g->busy || !g->may || !g->block)
		return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	if (registry_each(o->registry, mark_busy, g))
		return ops_fail_registry(e, -EIO);
	ops_judge_vswitches(o, &g->v.f);
	mark_free(g, free_vfs);
	mark_blocks(g);
	return read_blocks(g, e);
}

static void ranking_end(struct ranking *g)
{
	verify_end(&g->v);
	free(g->busy);
	free(g->may);
	free(g->block);
}

static struct json_object *rank_json(const struct fabric *f, const struct rank *r)
{
	struct json_object *o = json_object_new_object();

	json_set_guid(o, "parked_guid", f->end[r->end].port_guid);
	json_set_u64(o, "switches", r->switches);
	json_set_u64(o, "smps", r->smps + r->smps_inside);
	json_set_u64(o, "load", r->load);
	json_set_bool(o, "same_leaf", r->same_leaf);
	return o;
}

/* Nothing is said of a vGUID that is bound to nothing, or on no port just now. */
static int rank_one(struct ranking *g, struct ops *o, uint64_t vguid, struct json_object *ret_list,
		    struct op_error *e)
{
	uint32_t vm = fabric_find_end(&g->v.f, vguid);
	struct rank *r AUTO_FREE = NULL;
	struct fabric_error text = {0};
	struct reg_entry x;
	unsigned count = 0;
	int rc = registry_find(o->registry, vguid, &x);

	if (rc == -ENOENT || (!rc && vm == FABRIC_NONE))
		return 0;
	if (rc)
		return ops_fail_registry(e, rc);
	rc = rank_hosts(&g->v.f, vm, g->busy, g->may, x.mode == ADDRESS_DYNAMIC, MOVES_ALL, &r,
			&count, &text);
	if (rc)
		return ops_fail(e, rc, 500, "not-ranked", "%s", text.text);
	for (unsigned i = 0; i < count; i++)
		json_object_array_add(ret_list, rank_json(&g->v.f, &r[i]));
	return 0;
}

static void run_ranks(struct rest_call *call)
{
	struct json_object *list = json_object_new_array(), *vguids, *free_vfs;
	struct ranking g = {0};
	struct json_reader r;

	call->reply = json_object_new_object();
	json_set(call->reply, "ranks", list);
	json_reader_init(&r, call->body);
	vguids = json_need_array(&r, "vguids");
	free_vfs = json_need_array(&r, "free");
	if (r.error) {
		rest_bad_request(call, r.message);
		return;
	}
	if (json_count(vguids) > RANKS_VMS_MAX || json_count(free_vfs) > RANKS_VFS_MAX) {
		char text[128];

		snprintf(text, sizeof text, "at most %d vguids and %d free VFs in one call",
			 RANKS_VMS_MAX, RANKS_VFS_MAX);
		rest_bad_request(call, text);
		return;
	}
	ranking_begin(&g, call->rest->ops, free_vfs, &call->error);
	for (size_t i = 0; !call->error.status && i < json_count(vguids); i++) {
		struct json_object *o = json_object_new_object(), *to = json_object_new_array();

		json_set_guid(o, "vguid", guid_at(vguids, i));
		json_set(o, "to", to);
		json_object_array_add(list, o);
		rank_one(&g, call->rest->ops, guid_at(vguids, i), to, &call->error);
	}
	ranking_end(&g);
}

void rest_post_ranks(struct http_request *req)
{
	rest_submit_question(req, run_ranks);
}
