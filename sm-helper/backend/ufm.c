/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Backend "ufm": UFM Enterprise manages the subnet, and tells through its REST API which virtual
 * ports there are. No SMP is sent, so switches and LFTs stay unknown. */
#include "sm-helper/backend/ufm.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/backend/ufm_http.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define VPORTS_MAX 262144u
#define FRESH_MS   10000 /* the list of vports, for the allocation of vGUIDs */
#define PKEY_FULL  0x8000
#define PKEY_BASE  0x7fff /* the default partition: UFM has it by itself */

struct ufm {
	struct ufm_http *http; /* owned */
	bool pkeys;
	uint64_t instance;
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

static int read_vport(struct json_object *o, struct ufm_vport *v)
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

/* Lists all vports; entries that are none are left out. *ret_list is owned by the caller. */
static int list_vports(struct ufm *u, uint64_t deadline_us, struct ufm_vport **ret_list,
		       size_t *ret_n, char *error)
{
	struct json_object *answer AUTO_JSON = NULL;
	struct ufm_vport *list;
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

	if (rc) /* ops know this as "nobody there" */
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
static int ufm_fabric(void *self, struct fabric *f, struct backend_epoch *ret_epoch, char *error)
{
	struct ufm_vport *list AUTO_FREE = NULL;
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
	*ret_epoch = (struct backend_epoch){u->instance, generation};
	return rc;
}

int ufm_list_vports(struct ufm *u, struct ufm_vport **ret_list, size_t *ret_n, char *error)
{
	return list_vports(u, 0, ret_list, ret_n, error);
}

int ufm_find_vport(struct ufm *u, uint64_t guid, uint64_t deadline_us, struct ufm_vport *ret_vport,
		   unsigned *ret_found, char *error)
{
	struct ufm_vport *list AUTO_FREE = NULL;
	size_t n;
	int rc = list_vports(u, deadline_us, &list, &n, error);

	*ret_found = 0;
	for (size_t i = 0; !rc && i < n; i++)
		if (list[i].guid == guid && ++*ret_found)
			*ret_vport = list[i];
	return rc;
}

/* ---- partitions ---- */

bool ufm_joins(const struct ufm *u)
{
	return u->pkeys;
}

static int list_pkeys(struct ufm *u, uint64_t deadline_us, struct json_object **ret_list,
		      char *error)
{
	int rc = ufm_http_call(u->http, "GET", "/resources/pkeys?guids_data=true", NULL,
			       deadline_us, ret_list, error);

	if (!rc && !json_object_is_type(*ret_list, json_type_object))
		return backend_fail(error, -EBADMSG, "UFM: its list of P_Keys is not one");
	return rc;
}

static bool is_limited(struct json_object *member)
{
	return str_eq(json_opt_str(member, "membership", ""), "limited");
}

/* The member of a partition that has this GUID, or NULL. */
static struct json_object *find_member(struct json_object *partition, uint64_t guid)
{
	struct json_object *list = json_opt(partition, "guids");
	uint64_t g;

	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (!parse_guid(json_opt_str(o, "guid", ""), &g) && g == guid)
			return o;
	}
	return NULL;
}

/* o: an entry of a partition's list, or NULL. */
static struct ufm_member member_of(struct json_object *o)
{
	if (!o)
		return (struct ufm_member){.as = SM_MEMBER_NONE};
	return (struct ufm_member){
		.as = is_limited(o) ? SM_MEMBER_LIMITED : SM_MEMBER_FULL,
		.index0 = json_opt_bool(o, "index0", false),
	};
}

static void add_pkey(struct sm_memberships *m, uint64_t base, bool limited)
{
	if (m->count < SM_PKEYS_MAX)
		m->pkey[m->count++] = (uint16_t)(base | (limited ? 0 : PKEY_FULL));
}

/* The default partition has all ports as members, whether or not it lists them. */
static void take_guid(struct sm_memberships *m, struct json_object *pkeys, uint64_t guid)
{
	bool has_default = false;
	uint64_t base;

	m->count = 0;
	json_object_object_foreach(pkeys, key, partition)
	{
		struct json_object *o = find_member(partition, guid);

		if (!o || parse_u64(key, 1, PKEY_BASE, &base))
			continue;
		has_default |= base == PKEY_BASE;
		add_pkey(m, base, is_limited(o));
	}
	if (!has_default)
		add_pkey(m, PKEY_BASE, false);
}

static int ufm_memberships(void *self, const uint64_t *guids, unsigned count,
			   struct sm_memberships_reply *ret_reply, char *error)
{
	struct json_object *pkeys AUTO_JSON = NULL;
	int rc = list_pkeys(self, 0, &pkeys, error);

	for (unsigned i = 0; !rc && i < count && i < SM_RECORDS_MAX; i++)
		take_guid(&ret_reply->of[i], pkeys, guids[i]);
	if (!rc)
		ret_reply->count = count;
	return rc;
}

/* The list is cut into pages as a plugin's is: total counts what there is. */
static void list_entry(struct sm_partitions_reply *r, uint32_t first,
		       const struct sm_partition_entry *e)
{
	if (r->total++ >= first && r->count < SM_PARTITIONS_MAX)
		r->entry[r->count++] = *e;
}

static void list_partition(struct sm_partitions_reply *r, uint32_t first, uint16_t base,
			   struct json_object *o)
{
	struct sm_partition_entry e = {.pkey = base, .who = SM_WHO_NOBODY};
	struct json_object *list = json_opt(o, "guids");

	snprintf(e.name, sizeof e.name, "%s", json_opt_str(o, "partition", ""));
	list_entry(r, first, &e);
	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *m = json_object_array_get_idx(list, i);

		e.who = SM_WHO_GUID;
		e.as = is_limited(m) ? SM_MEMBER_LIMITED : SM_MEMBER_FULL;
		if (!parse_guid(json_opt_str(m, "guid", ""), &e.guid))
			list_entry(r, first, &e);
	}
}

static int ufm_partitions(void *self, uint32_t first, struct sm_partitions_reply *ret_reply,
			  char *error)
{
	struct json_object *pkeys AUTO_JSON = NULL;
	int rc = list_pkeys(self, 0, &pkeys, error);
	uint64_t base;

	if (rc)
		return rc;
	ret_reply->total = ret_reply->count = 0;
	json_object_object_foreach(pkeys, key, partition)
	{
		if (!parse_u64(key, 1, PKEY_BASE, &base))
			list_partition(ret_reply, first, (uint16_t)base, partition);
	}
	return 0;
}

/* The partition's word on the GUID. A P_Key that UFM does not know has no members. */
static int read_member(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us,
		       struct ufm_member *ret_member, char *error)
{
	struct json_object *answer AUTO_JSON = NULL;
	char path[64];
	int rc;

	snprintf(path, sizeof path, "/resources/pkeys/0x%x?guids_data=true", pkey & PKEY_BASE);
	rc = ufm_http_call(u->http, "GET", path, NULL, deadline_us, &answer, error);
	if (rc && rc != -ENOENT)
		return rc;
	*ret_member = member_of(rc ? NULL : find_member(answer, guid));
	return 0;
}

/* A port has one P_Key at index 0: what a GUID has there stays there. */
static bool has_index0(struct json_object *pkeys, uint64_t guid)
{
	uint64_t base;

	json_object_object_foreach(pkeys, key, partition)
	{
		if (!parse_u64(key, 1, PKEY_BASE - 1, &base) &&
		    member_of(find_member(partition, guid)).index0)
			return true;
	}
	return false;
}

/* before: as UFM has it. A new member gets index 0 where nothing else of the GUID is there. */
static int add_guid(struct ufm *u, uint16_t pkey, uint64_t guid, struct ufm_member before,
		    uint64_t deadline_us, char *error)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *guids;
	struct json_object *answer AUTO_JSON = NULL, *pkeys AUTO_JSON = NULL;
	char text[IB_GUID_TEXT];
	int rc = before.as ? 0 : list_pkeys(u, deadline_us, &pkeys, error);

	if (rc)
		return rc;
	guids = json_object_new_array();
	snprintf(text, sizeof text, "%016" PRIx64, guid);
	json_object_array_add(guids, json_object_new_string(text));
	json_set(body, "guids", guids);
	snprintf(text, sizeof text, "0x%x", pkey & PKEY_BASE);
	json_set_str(body, "pkey", text);
	json_set_bool(body, "index0", before.as ? before.index0 : !has_index0(pkeys, guid));
	json_set_bool(body, "ip_over_ib", true);
	json_set_str(body, "membership", pkey & PKEY_FULL ? "full" : "limited");
	return ufm_http_call(u->http, "POST", "/resources/pkeys/", body, deadline_us, &answer,
			     error);
}

static int remove_guid(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us,
		       char *error)
{
	struct json_object *answer AUTO_JSON = NULL;
	char path[80];
	int rc;

	snprintf(path, sizeof path, "/resources/pkeys/0x%x/guids/%016" PRIx64, pkey & PKEY_BASE,
		 guid);
	rc = ufm_http_call(u->http, "DELETE", path, NULL, deadline_us, &answer, error);
	return rc == -ENOENT ? 0 : rc;
}

static bool is_ours(const struct ufm *u, uint16_t pkey)
{
	return u->pkeys && (pkey & PKEY_BASE) != PKEY_BASE;
}

static enum sm_member_as wanted_as(uint16_t pkey)
{
	return pkey & PKEY_FULL ? SM_MEMBER_FULL : SM_MEMBER_LIMITED;
}

/* UFM may have done what it was asked for: its answer was lost, or cannot be read. */
static bool is_unknown(int rc)
{
	return rc == -ETIMEDOUT || rc == -EIO || rc == -EBADMSG;
}

int ufm_join(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us,
	     struct ufm_member *ret_before, bool *ret_changed, char *error)
{
	int rc;

	*ret_before = (struct ufm_member){.as = SM_MEMBER_NONE};
	*ret_changed = false;
	if (!is_ours(u, pkey))
		return 0;
	if ((rc = read_member(u, pkey, guid, deadline_us, ret_before, error)) ||
	    ret_before->as == wanted_as(pkey))
		return rc;
	rc = add_guid(u, pkey, guid, *ret_before, deadline_us, error);
	*ret_changed = !rc || is_unknown(rc);
	return rc;
}

int ufm_leave(struct ufm *u, uint16_t pkey, uint64_t guid, enum sm_member_as before,
	      uint64_t deadline_us, char *error)
{
	struct ufm_member now;
	int rc;

	if (!is_ours(u, pkey) || before == wanted_as(pkey))
		return 0;
	if (before == SM_MEMBER_NONE)
		return remove_guid(u, pkey, guid, deadline_us, error);
	rc = read_member(u, pkey, guid, deadline_us, &now, error);
	if (rc || now.as == before || now.as == SM_MEMBER_NONE)
		return rc;
	return add_guid(u, pkey ^ PKEY_FULL, guid, now, deadline_us, error);
}

static int write_member(struct ufm *u, uint16_t pkey, const struct sm_member *m,
			struct ufm_member before, uint64_t deadline_us, char *error)
{
	if (m->as == SM_MEMBER_NONE)
		return remove_guid(u, pkey, m->guid, deadline_us, error);
	return add_guid(u, (uint16_t)(pkey | (m->as == SM_MEMBER_FULL ? PKEY_FULL : 0)), m->guid,
			before, deadline_us, error);
}

/* UFM has no call for all of a list at once: those before the one that fails stay as wanted. */
static int ufm_members(void *self, uint16_t pkey, const struct sm_member *members, unsigned count,
		       unsigned flags, unsigned deadline_ms, struct sm_members_reply *ret_reply,
		       char *error)
{
	uint64_t until_us = now_us() + deadline_ms * 1000ull;
	struct json_object *pkeys AUTO_JSON = NULL, *partition;
	char text[8];
	int rc = list_pkeys(self, until_us, &pkeys, error);

	(void)flags; /* UFM has its own standby */
	snprintf(text, sizeof text, "0x%x", pkey);
	partition = json_opt(pkeys, text);
	if (!rc && !partition)
		return backend_fail(error, -ENOENT, "UFM has no partition %s: make it there first",
				    text);
	ret_reply->changed = ret_reply->pkey_smps = 0;
	for (unsigned i = 0; !rc && i < count; i++) {
		struct ufm_member before = member_of(find_member(partition, members[i].guid));

		if (before.as == members[i].as)
			continue;
		rc = write_member(self, pkey, &members[i], before, until_us, error);
		ret_reply->changed += !rc;
	}
	return rc;
}

const struct backend_kind backend_ufm = {
	.name = "ufm",
	.open = ufm_open,
	.close = ufm_close,
	.status = ufm_status,
	.fabric = ufm_fabric,
	.memberships = ufm_memberships,
	.partitions = ufm_partitions,
	.members = ufm_members,
};
