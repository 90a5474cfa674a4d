/* SPDX-License-Identifier: GPL-2.0-or-later */
/* VFs and the VF provider, ibvmig-sm and its registry, of simulated hosts (world.h; docs/wire.md).
 */
#include "tests/sim/world.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/vf/provider.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define CALL_US   (10 * SIM_MS) /* a program started, before and after what it does */
#define LATE_US   (2 * SIM_S)
#define FIRST_LID 20

enum sim_replies sim_provider_replies;
struct sim_fabric sim_fabric = {.sm = {.name = "ibvmig-sm"}};

/* ---- VFs ---- */

static struct sim_vf *vf_named(const char *name)
{
	for (unsigned h = 0; h < sim_size.hosts; h++)
		for (unsigned i = 0; i < sim_size.vfs; i++)
			if (str_eq(sim_hosts[h].vfs[i].name, name))
				return &sim_hosts[h].vfs[i];
	return NULL;
}

unsigned sim_vfs_with(uint64_t guid)
{
	unsigned n = 0;

	for (unsigned h = 0; h < sim_size.hosts; h++)
		for (unsigned i = 0; i < sim_size.vfs; i++)
			n += sim_hosts[h].vfs[i].guid == guid;
	return n;
}

static struct json_object *inventory(struct sim_host *h)
{
	struct json_object *o = json_object_new_object(), *pfs = NULL,
			   *vfs = json_object_new_array();
	static const char pf[] = "{\"l\":[{\"name\":\"pf0\",\"guid\":\"0x00fab0fffe000100\","
				 "\"pkeys\":[\"0xffff\"]},"
				 "{\"name\":\"pf1\",\"guid\":\"0x00fab0fffe000200\","
				 "\"pkeys\":[\"0xffff\"]}]}";

	json_parse(pf, strlen(pf), &pfs);
	json_set(o, "pfs", json_object_get(json_opt(pfs, "l")));
	json_object_put(pfs);
	for (unsigned i = 0; i < sim_size.vfs; i++) {
		struct json_object *v = json_object_new_object();

		json_set_str(v, "name", h->vfs[i].name);
		json_set_str(v, "pf", i < sim_size.vfs / 2 ? "pf0" : "pf1");
		json_set_u64(v, "index", i % (sim_size.vfs / 2) + 1);
		json_set_guid(v, "parked_guid", h->vfs[i].parked_guid);
		json_set_guid(v, "guid", h->vfs[i].guid);
		json_object_array_add(vfs, v);
	}
	json_set(o, "vfs", vfs);
	return o;
}

static struct json_object *prepare(struct sim_vf *vf)
{
	static const char getfd[] =
		"{\"execute\":\"getfd\",\"file\":\"/dev/null\",\"arguments\":{}},";
	struct json_object *o = NULL;
	char *text AUTO_FREE = strf(
		"{\"attach\":[%s{\"execute\":\"netdev_add\",\"arguments\":{\"id\":\"%s\"}},"
		"{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"vfio-pci\",\"vf\":\"%s\"},"
		"\"migrates_state\":%s,\"needs_group\":%s}],"
		"\"detach\":[{\"execute\":\"netdev_del\",\"arguments\":{\"id\":\"%s\"}}]}",
		sim_mover.by_descriptor ? getfd : "", vf->name, vf->name,
		sim_mover.migrates_state ? "true" : "false",
		sim_mover.by_descriptor ? "true" : "false", vf->name);

	vf->prepared = true;
	json_parse(text, strlen(text), &o);
	return o;
}

static struct sim_host *own_host(void)
{
	for (unsigned i = 0; i < sim_size.hosts; i++)
		if (sim_self == &sim_hosts[i].proc)
			return &sim_hosts[i];
	return NULL;
}

/* The two VFs of a VM take as long as one, so that the moments of a migration are the same. */
static void pass_time(void)
{
	sim_sleep(CALL_US / sim_rails(&sim_guests[0]));
}

/* A call about one VF: what it does comes between two waits. NULL: it has failed. */
static struct sim_vf *vf_call(const char *op, const char *name, char *error)
{
	struct sim_vf *vf = vf_named(name);

	pass_time();
	if (sim_provider_replies == REPLIES_LATE)
		sim_sleep(LATE_US);
	if (sim_provider_replies == REPLIES_REFUSED) {
		snprintf(error, HTTP_ERROR_MAX, "the VF provider failed in \"%s\": played", op);
		return NULL;
	}
	if (vf && !vf->vanished)
		return vf;
	snprintf(error, HTTP_ERROR_MAX, "the VF provider failed in \"%s\": no such VF", op);
	return NULL;
}

/* Gives the provider's answer to a call that has done what it was to do. */
static int end_call(const char *op, char *error)
{
	pass_time();
	if (sim_provider_replies != REPLIES_LOST)
		return 0;
	snprintf(error, HTTP_ERROR_MAX, "the VF provider gave no answer to \"%s\"", op);
	return -EREMOTEIO;
}

static int do_inventory(struct provider *p, struct json_object **ret_out, char *error)
{
	(void)p;
	(void)error;
	*ret_out = inventory(own_host());
	return 0;
}

static int do_prepare(struct provider *p, struct json_object *in, struct json_object **ret_out,
		      char *error)
{
	struct sim_vf *vf = vf_call("prepare", json_opt_str(in, "vf", ""), error);
	struct json_object *out AUTO_JSON = NULL;
	int rc;

	(void)p;
	if (!vf)
		return -EREMOTEIO;
	if (vf->unfit) {
		snprintf(error, HTTP_ERROR_MAX, "it shares its IOMMU group");
		return -EREMOTEIO;
	}
	out = prepare(vf);
	rc = end_call("prepare", error);
	if (!rc)
		*ret_out = TAKE(out);
	return rc;
}

static int do_set_guid(struct provider *p, const char *name, uint64_t guid, char *error)
{
	struct sim_vf *vf = vf_call("set-guid", name, error);

	(void)p;
	if (!vf)
		return -EREMOTEIO;
	vf->guid = guid;
	return end_call("set-guid", error);
}

static int do_release(struct provider *p, const char *name, char *error)
{
	struct sim_vf *vf = vf_call("release", name, error);

	(void)p;
	if (!vf)
		return -EREMOTEIO;
	vf->prepared = false;
	return end_call("release", error);
}

static void do_free(struct provider *p)
{
	(void)p;
}

int provider_exec_new(const char *program, unsigned deadline_ms, struct provider **ret_provider)
{
	static const struct provider_ops ops = {
		.inventory = do_inventory,
		.prepare = do_prepare,
		.set_guid = do_set_guid,
		.release = do_release,
		.free = do_free,
	};
	static struct provider played = {.ops = &ops};

	(void)program;
	(void)deadline_ms;
	*ret_provider = &played;
	return 0;
}

/* ---- ibvmig-sm ---- */

static uint64_t guid_of(struct json_object *o, const char *key)
{
	uint64_t guid = 0;

	ib_guid_parse(json_opt_str(o, key, ""), &guid);
	return guid;
}

struct sim_binding *sim_binding(uint64_t vguid)
{
	for (unsigned i = 0; i < ARRAY_SIZE(sim_fabric.bindings); i++)
		if (sim_fabric.bindings[i].bound && sim_fabric.bindings[i].vguid == vguid)
			return &sim_fabric.bindings[i];
	return NULL;
}

static unsigned refuse(char *error, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static unsigned refuse(char *error, unsigned status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, HTTP_ERROR_MAX, fmt, ap);
	va_end(ap);
	return status;
}

static struct json_object *binding_json(const struct sim_binding *b)
{
	struct json_object *o = json_object_new_object();

	json_set_guid(o, "vguid", b->vguid);
	json_set_str(o, "vm", b->vm);
	json_set_str(o, "name", b->name);
	json_set_str(o, "host", b->host);
	json_set_str(o, "url", b->url);
	json_set_str(o, "vf", b->vf);
	json_set_u64(o, "lid", b->lid);
	json_set_str(o, "addresses", "prepopulated");
	return o;
}

static void fill(struct sim_binding *b, struct json_object *end)
{
	snprintf(b->host, sizeof b->host, "%s", json_opt_str(end, "host", ""));
	snprintf(b->url, sizeof b->url, "%s", json_opt_str(end, "url", ""));
	snprintf(b->vf, sizeof b->vf, "%s", json_opt_str(end, "vf", ""));
	b->parked_guid = guid_of(end, "parked_guid");
}

/* The VF must show the vGUID before the SM gives it the LID. */
static bool shows(const char *vf_name, uint64_t vguid)
{
	struct sim_vf *vf = vf_named(vf_name);

	return vf && !vf->vanished && vf->guid == vguid && sim_vfs_with(vguid) == 1;
}

static struct sim_binding *new_binding(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(sim_fabric.bindings); i++) {
		struct sim_binding *b = &sim_fabric.bindings[i];

		if (b->bound)
			continue;
		*b = (struct sim_binding){.bound = true, .lid = FIRST_LID + i};
		return b;
	}
	return NULL;
}

static unsigned sm_bind(struct json_object *body, struct json_object **ret, char *error)
{
	struct sim_binding *b = sim_binding(guid_of(body, "vguid"));

	if (b && strcmp(b->vm, json_opt_str(body, "vm", "")))
		return refuse(error, 409, "vguid belongs to VM %s", b->name);
	if (b && b->parked_guid != guid_of(body, "parked_guid"))
		return refuse(error, 409, "the vGUID is bound on host %s", b->host);
	if (!shows(json_opt_str(body, "vf", ""), guid_of(body, "vguid")))
		return refuse(error, 409, "the VF does not show the GUID yet");
	if (!b)
		b = new_binding();
	if (!b)
		return refuse(error, 500, "the registry is full");
	b->vguid = guid_of(body, "vguid");
	snprintf(b->vm, sizeof b->vm, "%s", json_opt_str(body, "vm", ""));
	snprintf(b->name, sizeof b->name, "%s", json_opt_str(body, "name", ""));
	fill(b, body);
	*ret = binding_json(b);
	return 200;
}

static unsigned check_move(struct json_object *move, char *error)
{
	struct json_object *from = json_opt(move, "from"), *to = json_opt(move, "to");
	struct sim_binding *b = sim_binding(guid_of(move, "vguid"));

	if (!b)
		return refuse(error, 404, "the vGUID is not bound");
	if (strcmp(b->vm, json_opt_str(move, "vm", "")))
		return refuse(error, 409, "vguid belongs to VM %s", b->name);
	if (b->parked_guid == guid_of(to, "parked_guid"))
		return 200;
	if (b->parked_guid != guid_of(from, "parked_guid"))
		return refuse(error, 409, "the vGUID is bound on host %s", b->host);
	if (guid_of(to, "parked_guid") == sim_fabric.unseen_guid)
		return refuse(error, 409, "OpenSM sees no port of VF %s of %s",
			      json_opt_str(to, "vf", ""), json_opt_str(to, "host", ""));
	return 200;
}

static unsigned check_shows(struct json_object *move, char *error)
{
	struct json_object *to = json_opt(move, "to");
	struct sim_binding *b = sim_binding(guid_of(move, "vguid"));

	return b->parked_guid == guid_of(to, "parked_guid") ||
			       shows(json_opt_str(to, "vf", ""), b->vguid)
		       ? 200
		       : refuse(error, 409, "the VF does not show the GUID yet");
}

/* The VF that the vGUID leaves must answer, too, by its parked GUID. */
static unsigned check_left(struct json_object *move, char *error)
{
	struct sim_binding *b = sim_binding(guid_of(move, "vguid"));
	struct sim_vf *left = vf_named(b->vf);

	return b->parked_guid == guid_of(json_opt(move, "to"), "parked_guid") ||
			       (left && !left->vanished)
		       ? 200
		       : refuse(error, 503, "VF %s of %s: no answer", b->vf, b->host);
}

static struct json_object *do_move(struct json_object *move)
{
	struct json_object *to = json_opt(move, "to"), *o = json_object_new_object();
	struct sim_binding *b = sim_binding(guid_of(move, "vguid"));

	if (b->parked_guid != guid_of(to, "parked_guid")) {
		sim_fabric.moves++;
		sim_fabric.moves_alive += json_opt_bool(move, "senders_alive", false);
		fill(b, to);
	}
	json_set_guid(o, "vguid", b->vguid);
	json_set_u64(o, "lid_before", b->lid);
	json_set_u64(o, "lid_after", b->lid);
	json_set_u64(o, "paths_changed", 0);
	return o;
}

static unsigned check_moves(struct json_object *moves, char *error)
{
	unsigned status = json_count(moves) ? 200 : refuse(error, 400, "no moves");

	for (size_t i = 0; status == 200 && i < json_count(moves); i++)
		status = check_move(json_object_array_get_idx(moves, i), error);
	return status;
}

static unsigned sm_check_moves(struct json_object *body, struct json_object **ret, char *error)
{
	unsigned status = check_moves(json_opt(body, "moves"), error);

	if (status == 200)
		*ret = json_object_new_object();
	return status;
}

/* Makes all of the moves, or none. */
static unsigned sm_moves(struct json_object *body, struct json_object **ret, char *error)
{
	struct json_object *moves = json_opt(body, "moves"), *list;
	unsigned status = check_moves(moves, error);

	for (size_t i = 0; status == 200 && i < json_count(moves); i++)
		status = check_shows(json_object_array_get_idx(moves, i), error);
	for (size_t i = 0; status == 200 && i < json_count(moves); i++)
		status = check_left(json_object_array_get_idx(moves, i), error);
	if (status != 200)
		return status;
	list = json_object_new_array();
	for (size_t i = 0; i < json_count(moves); i++)
		json_object_array_add(list, do_move(json_object_array_get_idx(moves, i)));
	*ret = json_object_new_object();
	json_set(*ret, "moves", list);
	return 200;
}

static unsigned sm_unbind(struct json_object *body, struct json_object **ret, char *error)
{
	struct sim_binding *b = sim_binding(guid_of(body, "vguid"));
	struct json_object *from = json_opt(body, "from");

	if (b && strcmp(b->vm, json_opt_str(body, "vm", "")))
		return refuse(error, 409, "vguid belongs to VM %s", b->name);
	if (b && from &&
	    (strcmp(b->host, json_opt_str(from, "host", "")) ||
	     b->parked_guid != guid_of(from, "parked_guid")))
		return refuse(error, 409, "the vGUID is bound on host %s", b->host);
	if (b)
		b->bound = false;
	*ret = json_object_new_object();
	return 200;
}

/* The operator is believed that the host is off; sm-helper/rest/fence.c asks host and fabric. */
static unsigned sm_fence(struct json_object *body, struct json_object **ret, char *error)
{
	const char *host = json_opt_str(body, "host", "");

	for (size_t i = 0; i < ARRAY_SIZE(sim_fabric.bindings); i++) {
		struct sim_binding *b = &sim_fabric.bindings[i];

		if (!b->bound || strcmp(b->vm, json_opt_str(body, "vm", "")))
			continue;
		if (strcmp(b->host, host))
			return refuse(error, 409, "the vGUID is bound on host %s", b->host);
		b->bound = false;
	}
	*ret = json_object_new_object();
	return 200;
}

static struct json_object *sm_status_json(bool up)
{
	struct json_object *o = json_object_new_object(), *sm = json_object_new_object();

	json_set_str(sm, "state", up ? "master" : "down");
	json_set_bool(sm, "plugin", up);
	json_set_str(sm, "error", up ? NULL : "OpenSM's plugin does not answer");
	json_set(o, "sm", sm);
	json_set_bool(o, "caching", up);
	return o;
}

static unsigned pf_of(uint64_t parked_guid)
{
	return (parked_guid & 0xff) <= sim_size.vfs / 2 ? 0 : 1;
}

/* Tells what a move to each free VF would cost: the same for all of a PF. */
static unsigned sm_ranks(struct json_object *body, struct json_object **ret)
{
	struct json_object *vguids = json_opt(body, "vguids"), *free_vfs = json_opt(body, "free");
	struct json_object *ranks = json_object_new_array();

	for (size_t i = 0; i < json_count(vguids); i++) {
		struct json_object *one = json_object_new_object(), *to = json_object_new_array();

		for (size_t k = 0; k < json_count(free_vfs); k++) {
			struct json_object *r = json_object_new_object();
			uint64_t guid = 0;

			ib_guid_parse(
				json_object_get_string(json_object_array_get_idx(free_vfs, k)),
				&guid);
			json_set_guid(r, "parked_guid", guid);
			json_set_u64(r, "switches", 3);
			json_set_u64(r, "smps", pf_of(guid) ? 7 : 5);
			json_object_array_add(to, r);
		}
		json_set(one, "vguid", json_object_get(json_object_array_get_idx(vguids, i)));
		json_set(one, "to", to);
		json_object_array_add(ranks, one);
	}
	*ret = json_object_new_object();
	json_set(*ret, "ranks", ranks);
	return 200;
}

static struct json_object *rights_json(struct json_object *guid)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	json_object_array_add(list, json_object_new_string("0xffff"));
	if (sim_fabric.rights != RIGHTS_NONE)
		json_object_array_add(
			list, json_object_new_string(
				      sim_fabric.rights == RIGHTS_LIMITED ? "0x0001" : "0x8001"));
	json_set(o, "guid", json_object_get(guid));
	json_set(o, "pkeys", list);
	return o;
}

static unsigned sm_memberships(struct json_object *body, struct json_object **ret, char *error)
{
	struct json_object *guids = json_opt(body, "guids"), *list;

	sim_fabric.rights_asked++;
	if (sim_fabric.rights == RIGHTS_OLD)
		return refuse(error, 404,
			      "http://10.0.0.9:7610 has no /v1/memberships: another "
			      "version of ibvmig runs there");
	list = json_object_new_array();
	for (size_t i = 0; i < json_count(guids); i++)
		json_object_array_add(list, rights_json(json_object_array_get_idx(guids, i)));
	*ret = json_object_new_object();
	json_set_bool(*ret, "joins", false);
	json_set_str(*ret, "why", NULL);
	json_set(*ret, "guids", list);
	return 200;
}

/* A host's link and the ports of its VFs; out_mbps is what the host sends. */
static struct json_object *link_json(const struct sim_host *h)
{
	struct json_object *o = json_object_new_object(), *ports = json_object_new_array();
	uint64_t out = sim_fabric.loads.others[h - sim_hosts];

	for (unsigned i = 0; i < sim_size.vfs / 2; i++) {
		struct json_object *port = json_object_new_object();
		bool sends = h->vfs[i].guid == sim_guests[0].vguids[0];

		json_set_guid(port, "guid", h->vfs[i].guid);
		json_set_u64(port, "in_mbps", 0);
		json_set_u64(port, "out_mbps", sends ? sim_fabric.loads.mover : 0);
		json_object_array_add(ports, port);
		out += sends ? sim_fabric.loads.mover : 0;
	}
	json_set_u64(o, "mbps", sim_fabric.loads.mbps);
	json_set_u64(o, "in_mbps", 0);
	json_set_u64(o, "out_mbps", out);
	json_set(o, "ports", ports);
	return o;
}

static unsigned sm_loads(struct json_object **ret, char *error)
{
	struct json_object *links = json_object_new_array();

	if (!sim_fabric.loads.mbps) {
		json_object_put(links);
		return refuse(error, 503, "switch leaf0, port 1: no answer about its counters");
	}
	for (int h = 0; h < (int)sim_size.hosts; h++)
		json_object_array_add(links, link_json(&sim_hosts[h]));
	*ret = json_object_new_object();
	json_set(*ret, "links", links);
	return 200;
}

unsigned sim_sm_request(const char *method, const char *path, struct json_object *body,
			struct json_object **ret_answer, char *error)
{
	bool up = sim_fabric.opensm_down_until_us <= sim_us() &&
		  sim_fabric.opensm_stopped_until_us <= sim_us();
	struct sim_binding *b;
	uint64_t guid = 0;

	if (!strcmp(path, "/v1/status")) {
		*ret_answer = sm_status_json(up);
		return 200;
	}
	if (!strcmp(path, "/v1/subscriptions")) {
		*ret_answer = json_object_new_object();
		json_set_bool(*ret_answer, "caching", up);
		return 200;
	}
	if (!strcmp(method, "GET") && !strncmp(path, "/v1/vguids/", 11)) {
		b = ib_guid_parse(path + 11, &guid) ? NULL : sim_binding(guid);
		if (!b)
			return refuse(error, 404, "%s is not bound to a VM", path + 11);
		*ret_answer = binding_json(b);
		return 200;
	}
	if (!up)
		return refuse(error, 503, "OpenSM's plugin does not answer");
	if (!strcmp(path, "/v1/memberships"))
		return sm_memberships(body, ret_answer, error);
	if (!strcmp(path, "/v1/bind"))
		return sm_bind(body, ret_answer, error);
	if (!strcmp(path, "/v1/moves"))
		return sm_moves(body, ret_answer, error);
	if (!strcmp(path, "/v1/moves/check"))
		return sm_check_moves(body, ret_answer, error);
	if (!strcmp(path, "/v1/unbind"))
		return sm_unbind(body, ret_answer, error);
	if (!strcmp(path, "/v1/fence"))
		return sm_fence(body, ret_answer, error);
	if (!strcmp(path, "/v1/loads"))
		return sm_loads(ret_answer, error);
	if (!strcmp(path, "/v1/ranks"))
		return sm_ranks(body, ret_answer);
	return refuse(error, 404, "unknown");
}
