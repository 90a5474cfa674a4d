/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Backend "ufm": UFM Enterprise manages the subnet. Its SM sees by itself that a vGUID is at
 * another place and gives it a LID; what is left to do is to see to its partition and to wait until
 * UFM lists the virtual port where the VM is. Nothing is planned here and no SMP is sent. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/batch.h"
#include "sm-helper/moves/ufm_http.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define VPORTS_MAX 262144u
#define FRESH_MS   10000 /* the list of vports, for the allocation of vGUIDs */
#define WAIT_MS    8000  /* until UFM lists a vGUID where it is now; daemons wait 10 s */
#define POLL_US    250000
#define PKEY_FULL  0x8000
#define PKEY_BASE  0x7fff /* the default partition: UFM has it by itself */

struct ufm {
	struct ufm_http *http; /* owned */
	bool pkeys;
	uint64_t instance;
};

/* A virtual port as UFM lists it. */
struct vport {
	uint64_t guid, port_guid; /* port_guid: of the physical port that it is on */
	uint16_t lid;
	uint8_t port;
	bool active;
};

static int ufm_open(const struct backend_conf *conf, void **ret_self)
{
	char error[UFM_ERROR_MAX];
	struct ufm *u = calloc(1, sizeof *u);
	int rc;

	if (!u)
		return -ENOMEM;
	if ((rc = ufm_http_new(&conf->ufm, &u->http, error))) {
		log_error("%s", error);
		free(u);
		return rc;
	}
	u->pkeys = conf->ufm.pkeys;
	u->instance = wall_ms();
	*ret_self = u;
	return 0;
}

static void ufm_close(void *self)
{
	struct ufm *u = self;

	ufm_http_free(u->http);
	free(u);
}

/* 16 hex digits, with or without 0x. */
static int parse_guid(const char *text, uint64_t *ret_guid)
{
	char full[IB_GUID_TEXT];

	if (strlen(text) == 16) {
		snprintf(full, sizeof full, "0x%s", text);
		text = full;
	}
	return ib_guid_parse(text, ret_guid);
}

static int read_vport(struct json_object *o, struct vport *v)
{
	uint64_t lid = json_opt_u64(o, "virtual_port_lid", 0);
	uint64_t port = json_opt_u64(o, "physical_port_number", 0);

	if (parse_guid(json_opt_str(o, "virtual_port_guid", ""), &v->guid) ||
	    parse_guid(json_opt_str(o, "port_guid", ""), &v->port_guid) || !port || port > 254)
		return -EINVAL;
	v->port = (uint8_t)port;
	v->lid = (uint16_t)(lid <= IB_LID_UCAST_MAX ? lid : 0);
	v->active = str_eq(json_opt_str(o, "virtual_port_state", ""), "Active");
	return 0;
}

/* All vports; what is not one is left out. *ret_list is owned by the caller. */
static int list_vports(struct ufm *u, uint64_t deadline_us, struct vport **ret_list, size_t *ret_n,
		       char *error)
{
	struct json_object *answer AUTO_JSON = NULL;
	struct vport *list;
	size_t n = 0, room;
	int rc = ufm_http_call(u->http, "GET", "/resources/vports", NULL, deadline_us, &answer,
			       error);

	if (rc)
		return rc;
	if (!json_object_is_type(answer, json_type_array) ||
	    (room = json_object_array_length(answer)) > VPORTS_MAX) {
		snprintf(error, UFM_ERROR_MAX, "UFM: its list of vports is not one");
		return -EBADMSG;
	}
	if (!(list = calloc(room + 1, sizeof *list))) {
		snprintf(error, UFM_ERROR_MAX, "no memory for %zu vports", room);
		return -ENOMEM;
	}
	for (size_t i = 0; i < room; i++)
		n += !read_vport(json_object_array_get_idx(answer, i), &list[n]);
	*ret_list = list;
	*ret_n = n;
	return 0;
}

static int ufm_status(void *self, struct sm_status_reply *ret_status, char *error)
{
	struct json_object *answer AUTO_JSON = NULL;
	struct ufm *u = self;
	int rc = ufm_http_call(u->http, "GET", "/app/ufm_version", NULL, 0, &answer, error);

	if (rc) /* what ops know as "nobody there" */
		return rc == -ETIMEDOUT ? rc : -ECONNREFUSED;
	snprintf(ret_status->opensm_version, sizeof ret_status->opensm_version, "%s",
		 json_opt_str(answer, "opensm", ""));
	snprintf(ret_status->plugin_version, sizeof ret_status->plugin_version, "%s",
		 json_opt_str(answer, "ufm_release_version", ""));
	ret_status->instance = u->instance;
	ret_status->generation = now_ms() / FRESH_MS + 1;
	ret_status->sm_state = SM_STATE_MASTER; /* UFM speaks for the one that is */
	ret_status->ready = 1;
	return 0;
}

/* The vports, attached to nothing: which GUIDs there are. */
static int ufm_fabric(void *self, struct fabric *f, struct client_epoch *ret_epoch, char *error)
{
	struct vport *list AUTO_FREE = NULL;
	struct ufm *u = self;
	uint64_t generation = now_ms() / FRESH_MS + 1;
	size_t n;
	int rc = list_vports(u, 0, &list, &n, error);

	if (rc)
		return rc;
	fabric_clear(f);
	for (size_t i = 0; !rc && i < n; i++) {
		const struct fabric_end end = {
			.node_guid = list[i].guid,
			.port_guid = list[i].guid,
			.port = list[i].port,
		};

		rc = fabric_add_end(f, &end);
		if (rc == -EEXIST) /* many may share a LID, none a GUID; it is said at its bind */
			rc = 0;
	}
	*ret_epoch = (struct client_epoch){u->instance, generation};
	return rc;
}

static int fail_ufm(struct op_error *e, int rc, const char *text)
{
	bool away = rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -EPROTO;

	return ops_fail(e, rc, away ? 503 : 500, away ? "sm-unavailable" : "sm-failed", "%s", text);
}

/* The one vport that shows this GUID. -ENOENT; -EEXIST: several. */
static int find_vport(struct ufm *u, uint64_t guid, uint64_t deadline_us, struct vport *ret_vport,
		      struct op_error *e)
{
	struct vport *list AUTO_FREE = NULL;
	char error[UFM_ERROR_MAX];
	unsigned found = 0;
	size_t n;
	int rc = list_vports(u, deadline_us, &list, &n, error);

	if (rc)
		return fail_ufm(e, rc, error);
	for (size_t i = 0; i < n; i++)
		if (list[i].guid == guid && ++found)
			*ret_vport = list[i];
	if (found == 1)
		return 0;
	return ops_fail(e, found ? -EEXIST : -ENOENT, found ? 409 : 503,
			found ? "guid-in-fabric" : "sm-busy",
			"UFM lists %u virtual ports with GUID 0x%016" PRIx64, found, guid);
}

/* Until UFM lists the vGUID, active and with a LID, and not on the physical port `not_on` (0: any);
 * at most until now_ms() is give_up_ms, but looks once; UFM itself has until deadline_us. */
static int await_vport(struct ufm *u, uint64_t guid, uint64_t not_on, uint64_t give_up_ms,
		       uint64_t deadline_us, struct vport *ret_vport, struct op_error *e)
{
	struct vport v = {0};
	int rc;

	do {
		rc = find_vport(u, guid, deadline_us, &v, e);
		if (rc && rc != -ENOENT && rc != -EEXIST)
			return rc;
		if (!rc && v.active && v.lid && v.port_guid != not_on) {
			*ret_vport = v;
			return 0;
		}
	} while (now_ms() < give_up_ms && !usleep(POLL_US));
	if (rc)
		return rc;
	return ops_fail(e, -EAGAIN, 503, "sm-busy",
			"UFM lists vGUID 0x%016" PRIx64 " on port 0x%016" PRIx64
			", %s, LID %u, for %d ms",
			guid, v.port_guid, v.active ? "active" : "not active", v.lid, WAIT_MS);
}

/* ---- partitions ---- */

/* Whether the partition lists the GUID with this membership. A PKey that UFM does not know has no
 * members. */
static int is_member(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us,
		     bool *ret_member, char *error)
{
	struct json_object *answer AUTO_JSON = NULL, *list;
	const char *membership = pkey & PKEY_FULL ? "full" : "limited";
	char path[64];
	uint64_t g;
	int rc;

	*ret_member = false;
	snprintf(path, sizeof path, "/resources/pkeys/0x%x?guids_data=true", pkey & PKEY_BASE);
	rc = ufm_http_call(u->http, "GET", path, NULL, deadline_us, &answer, error);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	list = json_opt(answer, "guids");
	for (size_t i = 0;
	     json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (!parse_guid(json_opt_str(o, "guid", ""), &g) && g == guid)
			*ret_member = str_eq(json_opt_str(o, "membership", ""), membership);
	}
	return 0;
}

static int join(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us,
		struct op_error *e)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *guids;
	struct json_object *answer AUTO_JSON = NULL;
	char error[UFM_ERROR_MAX], text[IB_GUID_TEXT];
	bool member;
	int rc;

	if (!u->pkeys || (pkey & PKEY_BASE) == PKEY_BASE)
		return 0;
	if ((rc = is_member(u, pkey, guid, deadline_us, &member, error)))
		return fail_ufm(e, rc, error);
	if (member)
		return 0;
	guids = json_object_new_array();
	snprintf(text, sizeof text, "%016" PRIx64, guid);
	json_object_array_add(guids, json_object_new_string(text));
	json_set(body, "guids", guids);
	snprintf(text, sizeof text, "0x%x", pkey & PKEY_BASE);
	json_set_str(body, "pkey", text);
	json_set_bool(body, "index0", true);
	json_set_bool(body, "ip_over_ib", true);
	json_set_str(body, "membership", pkey & PKEY_FULL ? "full" : "limited");
	rc = ufm_http_call(u->http, "POST", "/resources/pkeys/", body, deadline_us, &answer, error);
	return rc ? fail_ufm(e, rc, error) : 0;
}

static int leave(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us,
		 struct op_error *e)
{
	struct json_object *answer AUTO_JSON = NULL;
	char error[UFM_ERROR_MAX], path[80];
	int rc;

	if (!u->pkeys || (pkey & PKEY_BASE) == PKEY_BASE)
		return 0;
	snprintf(path, sizeof path, "/resources/pkeys/0x%x/guids/%016" PRIx64, pkey & PKEY_BASE,
		 guid);
	rc = ufm_http_call(u->http, "DELETE", path, NULL, deadline_us, &answer, error);
	return rc && rc != -ENOENT ? fail_ufm(e, rc, error) : 0;
}

/* ---- operations ---- */

/* When the outcome must be known; 0, as in ops.h, is OPS_ANSWER_MS from now. */
static uint64_t deadline_of(uint64_t deadline_us)
{
	return deadline_us ? deadline_us : now_us() + OPS_ANSWER_MS * 1000ull;
}

static uint64_t give_up_ms_of(uint64_t deadline_us)
{
	uint64_t wait = now_ms() + WAIT_MS;

	return wait < deadline_us / 1000 ? wait : deadline_us / 1000;
}

/* *x: what is to be written when UFM shows it. */
static int check_bind(struct ops *o, const struct reg_entry *want, struct reg_entry *x,
		      struct op_error *e)
{
	int rc = ops_check_free(o, want, x, e);

	if (!rc) {
		*x = *want;
		x->since_ms = wall_ms();
	}
	return rc < 0 ? rc : 0;
}

static void take_place(struct reg_entry *x, const struct vport *v)
{
	x->at.switch_guid = v->port_guid;
	x->at.switch_port = v->port;
	x->lid = v->lid;
}

static int ufm_bind(void *self, struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		    uint16_t *ret_lid, struct op_error *e)
{
	uint64_t until_us = deadline_of(deadline_us);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct ufm *u = self;
	struct reg_entry x;
	struct vport v;
	int rc;

	if ((rc = check_bind(o, want, &x, e)) ||
	    (rc = join(u, want->pkey, want->vguid, until_us, e)) ||
	    (rc = await_vport(u, want->vguid, 0, give_up_ms_of(until_us), until_us, &v, e)))
		return rc;
	take_place(&x, &v);
	if ((rc = registry_put(o->registry, &x)))
		return ops_fail_registry(e, rc);
	*ret_lid = x.lid;
	return 0;
}

static int ufm_unbind(void *self, struct ops *o, uint64_t vguid, const char *vm,
		      const struct reg_vf *from, uint64_t deadline_us, struct op_error *e)
{
	uint64_t until_us = deadline_of(deadline_us);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct reg_entry x;
	int rc = ops_check_vm(o, vguid, vm, &x, e);

	if (rc == -ENOENT)
		return 0; /* again */
	if (rc || (from && (rc = ops_check_at(&x, from, e))) ||
	    (rc = leave(self, x.pkey, vguid, until_us, e)))
		return rc;
	rc = registry_delete(o->registry, vguid);
	return rc ? ops_fail_registry(e, rc) : 0;
}

/* Moves on their way. Large: on the heap. */
struct ufm_moves {
	struct reg_entry x[OPS_MOVES_MAX]; /* what the registry says, then what it shall say */
	struct move_result res;
};

static int check_moves(struct ops *o, const struct move_request *m, unsigned count,
		       struct reg_entry *ret_x, struct op_error *e)
{
	int rc = batch_check(m, count, e);

	for (unsigned i = 0; rc >= 0 && i < count; i++)
		rc = batch_check_move(o, &m[i], NULL, 0, &ret_x[i], e);
	return rc < 0 ? rc : 0;
}

/* Until UFM lists it where it is now, which goes into x and *ret_moved. Between hosts it is another
 * physical port; which one, only UFM knows. */
static int await_move(struct ufm *u, const struct move_request *m, uint64_t give_up_ms,
		      uint64_t deadline_us, struct reg_entry *x, struct moved *ret_moved,
		      struct op_error *e)
{
	uint64_t not_on = strcmp(x->at.host, m->to.host) ? x->at.switch_guid : 0;
	struct vport v;
	int rc = await_vport(u, m->vguid, not_on, give_up_ms, deadline_us, &v, e);

	if (rc)
		return rc;
	*ret_moved = (struct moved){.vguid = x->vguid, .lid_before = x->lid, .lid_after = v.lid};
	if (!reg_same_vf(&x->at, &m->to)) {
		x->at = m->to;
		x->since_ms = wall_ms();
		ret_moved->paths_changed = 1; /* at least; UFM does not tell which */
	}
	take_place(x, &v);
	return 0;
}

static void log_moves(struct ops *o, const struct ufm_moves *b)
{
	for (unsigned i = 0; i < b->res.moves; i++) {
		const struct moved *moved = &b->res.move[i];
		const struct reg_entry *x = &b->x[i];

		if (moved->paths_changed)
			atomic_fetch_add(&o->moves, 1);
		log_info("move: vGUID 0x%016" PRIx64
			 " of %s to VF %s of %s, LID %u -> %u, as UFM lists it",
			 x->vguid, x->name, x->at.vf, x->at.host, moved->lid_before,
			 moved->lid_after);
	}
}

/* In turn: what is waited for, UFM does by itself. The registry has all of them or none. */
static int await_moves(struct ufm *u, struct ops *o, const struct move_request *m, unsigned count,
		       uint64_t deadline_us, struct ufm_moves *b, struct move_result *ret_result,
		       struct op_error *e)
{
	uint64_t start = now_us(), give_up_ms = give_up_ms_of(deadline_us);
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++)
		rc = await_move(u, &m[i], give_up_ms, deadline_us, &b->x[i], &b->res.move[i], e);
	if (!rc && registry_put_all(o->registry, b->x, count))
		rc = ops_fail_registry(e, -EIO);
	if (rc)
		return rc;
	b->res.moves = count;
	b->res.verified = true;
	b->res.elapsed_us = now_us() - start;
	log_moves(o, b);
	*ret_result = b->res;
	return 0;
}

static int ufm_move(void *self, struct ops *o, const struct move_request *m, unsigned count,
		    uint64_t deadline_us, struct move_result *ret_result, struct op_error *e)
{
	uint64_t until_us = deadline_of(deadline_us);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct ufm_moves *b AUTO_FREE = calloc(1, sizeof *b);
	int rc;

	if (!b)
		return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	rc = check_moves(o, m, count, b->x, e);
	if (!rc && ret_result)
		rc = await_moves(self, o, m, count, until_us, b, ret_result, e);
	return rc;
}

const struct backend backend_ufm = {
	.name = "ufm",
	.open = ufm_open,
	.close = ufm_close,
	.status = ufm_status,
	.fabric = ufm_fabric,
	.bind = ufm_bind,
	.unbind = ufm_unbind,
	.move = ufm_move,
};
