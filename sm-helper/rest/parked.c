/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Leftovers of a failed batch in the status, and POST /v1/parked, the way out of them. */
#include "common/util.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/rest/rest_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define TOLD_MAX 1024 /* entries, those that are not settled first */

static void set_place(struct json_object *o, const char *key, const struct reg_vf *vf)
{
	struct json_object *at = json_object_new_object();

	json_set_str(at, "host", vf->host);
	json_set_str(at, "vf", vf->vf);
	json_set(o, key, at);
}

static struct json_object *moves_json(const struct parked *k)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < k->moves; i++) {
		struct json_object *o = json_object_new_object();

		json_set_guid(o, "vguid", k->move[i].vguid);
		json_set_str(o, "vm", k->move[i].vm);
		set_place(o, "from", &k->move[i].from);
		set_place(o, "to", &k->move[i].to);
		json_object_array_add(list, o);
	}
	return list;
}

/* A port's LID; or an LFT entry, which may lead nowhere. */
static void set_held(struct json_object *o, const char *key, const struct parked_entry *e,
		     uint16_t value)
{
	if (e->of.lid && value == VSWITCH_NO_PATH)
		json_set(o, key, NULL);
	else
		json_set_u64(o, key, value);
}

static struct json_object *entry_json(const struct parked_entry *e)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "switch", *e->name ? e->name : NULL);
	json_set_guid(o, "switch_guid", e->of.switch_guid);
	json_set_str(o, "state", parked_state_name(parked_state(e)));
	json_set_u64(o, e->of.lid ? "lid" : "port", e->of.lid ? e->of.lid : e->of.switch_port);
	if (e->read)
		set_held(o, "holds", e, e->holds);
	set_held(o, "before", e, e->of.before);
	set_held(o, "after", e, e->of.after);
	set_held(o, "wanted", e, e->of.wanted);
	json_set_bool(o, "settled", e->of.settled);
	json_set_bool(o, "gone", e->of.gone);
	return o;
}

/* The LFT entries, or the ports. */
static struct json_object *entries_json(const struct parked *k, bool ports)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < k->entries; i++)
		if (!k->entry[i].of.lid == ports && json_object_array_length(list) < TOLD_MAX)
			json_object_array_add(list, entry_json(&k->entry[i]));
	return list;
}

static void set_guid(struct json_object *o, const char *key, uint64_t guid)
{
	if (guid)
		json_set_guid(o, key, guid);
	else
		json_set(o, key, NULL);
}

static struct json_object *guids_json(const struct parked *k)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < k->guids; i++) {
		const struct parked_guid *g = &k->guid[i];
		struct json_object *o = json_object_new_object();

		json_set_guid(o, "port_guid", g->at.switch_guid);
		json_set_u64(o, "guid_index", g->at.switch_port);
		json_set_str(o, "host", g->at.host);
		json_set_str(o, "vf", g->at.vf);
		json_set_str(o, "state", parked_state_name(parked_guid_state(g)));
		if (g->read)
			set_guid(o, "holds", g->holds);
		set_guid(o, "before", g->before);
		set_guid(o, "after", g->after);
		json_object_array_add(list, o);
	}
	return list;
}

static struct json_object *counts_json(const struct parked *k)
{
	struct json_object *o = json_object_new_object();
	uint64_t n[PARKED_STATES] = {0};

	for (uint32_t i = 0; i < k->entries; i++)
		n[parked_state(&k->entry[i])]++;
	for (unsigned i = 0; i < k->guids; i++)
		n[parked_guid_state(&k->guid[i])]++;
	for (unsigned s = 0; s < PARKED_STATES; s++)
		json_set_u64(o, parked_state_name(s), n[s]);
	return o;
}

struct json_object *rest_parked_json(struct parked *k)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&k->lock);
	struct json_object *o;

	if (!k->entries && !k->moves)
		return NULL;
	o = json_object_new_object();
	json_set_str(o, "why", k->why);
	json_set_u64(o, "since_ms", k->since_ms);
	json_set_u64(o, "looked_ms", k->looked_ms);
	json_set(o, "moves", moves_json(k));
	json_set(o, "counts", counts_json(k));
	json_set(o, "entries", entries_json(k, false));
	json_set(o, "ports", entries_json(k, true));
	json_set(o, "guids", guids_json(k));
	return o;
}

/* Large: on the heap. */
struct again {
	struct move_request m[OPS_MOVES_MAX];
	struct move_result res;
};

/* The moves once more, forward or as their hosts undo them; the VFs must show the GUIDs for that.
 */
static void move_again(struct rest_call *call, bool back, struct again *a)
{
	struct ops *o = call->rest->ops;
	unsigned count = parked_moves(&o->parked, a->m);

	if (!count && back)
		return;
	if (!count) {
		call->error = (struct op_error){
			409, "nothing-parked",
			"no move is parked; one that its host has taken back is to be asked for "
			"anew (POST /v1/moves)"};
		return;
	}
	for (unsigned i = 0; back && i < count; i++) {
		struct reg_vf from = a->m[i].from;

		a->m[i].from = a->m[i].to;
		a->m[i].to = from;
	}
	if (!action_move(o, a->m, count, 0, &a->res, &call->error))
		notice_moved(o, &a->res);
}

static void resolve(struct rest_call *call, bool back)
{
	struct again *a AUTO_FREE = calloc(1, sizeof *a);

	if (!a)
		call->error = (struct op_error){500, "no-memory", "no memory"};
	else if (!parked_settle(call->rest->ops, &call->error))
		move_again(call, back, a);
}

static void run_parked(struct rest_call *call)
{
	struct json_reader r;
	const char *action;

	json_reader_init(&r, call->body);
	action = json_need_str(&r, "action");
	if (r.error)
		rest_bad_request(call, r.message);
	else if (str_eq(action, "undo") || str_eq(action, "commit"))
		resolve(call, str_eq(action, "undo"));
	else
		rest_bad_request(call, "field \"action\" must be \"undo\" or \"commit\"");
	if (call->error.status)
		return;
	call->reply = json_object_new_object();
	json_set(call->reply, "parked", rest_parked_json(&call->rest->ops->parked));
}

void rest_post_parked(struct http_request *req)
{
	rest_submit_slow(req, run_parked, NULL);
}
