/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Backend "opensm-plugin": the socket of libibvmigsm.so in OpenSM (sm-helper/proto/plugin.h). */
#include "sm-helper/backend/backend.h"
#include "sm-helper/backend/look.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define CALL_MS           5000
#define TOPOLOGY_MS       (SM_READ_WAIT_MS + CALL_MS)
#define DEADLINE_SLACK_MS 7000 /* an undo in the plugin may take 5 s more */
#define FABRIC_TRIES      5

struct plugin_link {
	char *path; /* owned */
	pthread_mutex_t lock;
	int fd; /* -1: not connected */
	uint32_t next_id;
	struct look *look;             /* owned */
	struct sm_owner_request claim; /* shown on each new connection; registry 0: none */
};

static void plugin_close(void *self)
{
	struct plugin_link *c = self;

	if (c->fd >= 0)
		close(c->fd);
	look_free(c->look);
	free(c->path);
	free(c);
}

static int plugin_open(const struct backend_conf *conf, void **ret_self)
{
	struct plugin_link *c = calloc(1, sizeof *c);

	if (!c)
		return -ENOMEM;
	pthread_mutex_init(&c->lock, NULL);
	c->fd = -1;
	if (!(c->path = strdup(conf->plugin_socket)) || !(c->look = look_new(c->path))) {
		plugin_close(c);
		return -ENOMEM;
	}
	*ret_self = c;
	return 0;
}

static void disconnect(struct plugin_link *c)
{
	close(c->fd);
	c->fd = -1;
}

static int transfer(struct plugin_link *c, struct sm_head *req, struct sm_reply_head *reply,
		    size_t room, unsigned wait_ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	ssize_t n;

	if (send(c->fd, req, req->bytes, MSG_NOSIGNAL) != (ssize_t)req->bytes)
		return -EPIPE;
	n = poll(&p, 1, (int)wait_ms);
	if (n <= 0)
		return n ? -EIO : -ETIMEDOUT;
	memset(reply, 0, room);
	n = recv(c->fd, reply, room, MSG_TRUNC);
	if (n < (ssize_t)sizeof *reply || n > (ssize_t)room)
		return n <= 0 ? -EIO : -EPROTO;
	return reply->head.magic == SM_PROTO_MAGIC && reply->head.id == req->id &&
			       (reply->head.version == SM_PROTO_VERSION || reply->error)
		       ? 0
		       : -EPROTO;
}

/* A new connection may change as much as the last one. A refusal is told by the first change. */
static int connect_again(struct plugin_link *c, char *error)
{
	struct sm_owner_reply reply;
	int rc = look_connect(c->path, &c->fd, error);

	if (rc || !c->claim.owner.registry)
		return rc;
	c->claim.head.id = ++c->next_id;
	if (!(rc = transfer(c, &c->claim.head, &reply.h, sizeof reply, CALL_MS)))
		return 0;
	disconnect(c);
	return look_fail(c->path, rc, error);
}

/* Fills the head, sends, waits. An old connection that turns out to be dead (OpenSM was restarted)
 * is replaced once: a request that could not be sent has not been executed. */
static int call(struct plugin_link *c, uint16_t op, struct sm_head *req, size_t bytes,
		struct sm_reply_head *reply, size_t room, unsigned wait_ms, char *error)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&c->lock);
	bool fresh = c->fd < 0;
	int rc;

	if (fresh && (rc = connect_again(c, error)))
		return rc;
	*req = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, op, ++c->next_id,
				(uint32_t)bytes};
	rc = transfer(c, req, reply, room, wait_ms);
	if (rc == -EPIPE && !fresh) {
		disconnect(c);
		if ((rc = connect_again(c, error)))
			return rc;
		req->id = ++c->next_id;
		rc = transfer(c, req, reply, room, wait_ms);
	}
	if (rc) {
		disconnect(c);
		return look_fail(c->path, rc, error);
	}
	return reply->error
		       ? backend_fail(error, reply->error, "%.*s", SM_REASON_MAX, reply->reason)
		       : 0;
}

static int plugin_status(void *self, struct sm_status_reply *ret_status,
			 char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_status_request req = {0};
	int rc = call(c, SM_OP_STATUS, &req.head, sizeof req, &ret_status->h, sizeof *ret_status,
		      CALL_MS, error);

	if (rc)
		memset(ret_status, 0, sizeof *ret_status);
	return rc;
}

static int plugin_look(void *self, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		       char *error)
{
	return look_status(((struct plugin_link *)self)->look, ret_status, ret_age_ms, error);
}

static int plugin_assign(void *self, const struct sm_target *targets, unsigned count,
			 uint32_t flags, unsigned deadline_ms, struct sm_assign_reply *ret_reply,
			 char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_assign_request req = {
		.flags = flags,
		.deadline_ms = deadline_ms,
		.count = count,
	};

	if (count > SM_ASSIGN_MAX)
		return backend_fail(error, -EINVAL, "a batch of %u; allowed is %u", count,
				    SM_ASSIGN_MAX);
	memcpy(req.target, targets, count * sizeof *targets);
	return call(c, SM_OP_ASSIGN, &req.head,
		    offsetof(struct sm_assign_request, target) + count * sizeof *targets,
		    &ret_reply->h, sizeof *ret_reply, deadline_ms + DEADLINE_SLACK_MS, error);
}

static int plugin_guids(void *self, const struct sm_slot *slots, unsigned count,
			unsigned deadline_ms, struct sm_guids_reply *ret_reply,
			char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_guids_request req = {.deadline_ms = deadline_ms, .count = count};

	if (count > SM_ASSIGN_MAX)
		return backend_fail(error, -EINVAL, "a batch of %u; allowed is %u", count,
				    SM_ASSIGN_MAX);
	memcpy(req.slot, slots, count * sizeof *slots);
	return call(c, SM_OP_GUIDS, &req.head,
		    offsetof(struct sm_guids_request, slot) + count * sizeof *slots, &ret_reply->h,
		    sizeof *ret_reply, deadline_ms + DEADLINE_SLACK_MS, error);
}

static int plugin_intent(void *self, const struct sm_target *targets, unsigned count,
			 char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_intent_request req = {.count = count};
	struct sm_intent_reply reply = {0};

	if (count > SM_ASSIGN_MAX)
		return backend_fail(error, -EINVAL, "%u places; allowed is 0 to %u", count,
				    SM_ASSIGN_MAX);
	if (count)
		memcpy(req.target, targets, count * sizeof *targets);
	return call(c, SM_OP_INTENT, &req.head,
		    offsetof(struct sm_intent_request, target) + count * sizeof *targets, &reply.h,
		    sizeof reply, CALL_MS, error);
}

static int plugin_claim(void *self, const struct sm_owner_request *want, struct sm_owner *ret_owner,
			char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_owner_request req = *want;
	struct sm_owner_reply reply = {0};
	int rc = call(c, SM_OP_OWNER, &req.head, sizeof req, &reply.h, sizeof reply, CALL_MS,
		      error);

	if (rc)
		return rc;
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&c->lock);
	c->claim = req;
	c->claim.owner = reply.owner;
	c->claim.was = reply.owner.grant;
	c->claim.flags = 0;
	*ret_owner = reply.owner;
	return 0;
}

static int plugin_homes(void *self, uint32_t first, struct sm_homes_reply *ret_reply,
			char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_page_request req = {.first = first};
	int rc = call(c, SM_OP_HOMES, &req.head, sizeof req, &ret_reply->h, sizeof *ret_reply,
		      TOPOLOGY_MS, error);

	if (!rc && ret_reply->count > SM_ENDPORTS_MAX)
		return backend_fail(error, -EPROTO, "the plugin's list of places is damaged");
	return rc;
}

static int plugin_parked(void *self, uint32_t first, uint32_t flags,
			 struct sm_parked_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_parked_request req = {.first = first, .flags = flags};
	int rc = call(c, SM_OP_PARKED, &req.head, sizeof req, &ret_reply->h, sizeof *ret_reply,
		      CALL_MS, error);

	if (!rc && ret_reply->count > SM_PARKED_MAX)
		return backend_fail(error, -EPROTO,
				    "the plugin's list of parked entries is damaged");
	return rc;
}

static int plugin_records(void *self, const struct sm_record_key *keys, unsigned count,
			  struct sm_records_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct sm_records_request req = {.count = count};
	int rc;

	if (count < 1 || count > SM_RECORDS_MAX)
		return backend_fail(error, -EINVAL, "%u records; allowed is 1 to %u", count,
				    SM_RECORDS_MAX);
	memcpy(req.key, keys, count * sizeof *keys);
	rc = call(c, SM_OP_RECORDS, &req.head,
		  offsetof(struct sm_records_request, key) + count * sizeof *keys, &ret_reply->h,
		  sizeof *ret_reply, CALL_MS, error);
	if (!rc && ret_reply->count != count)
		return backend_fail(error, -EPROTO, "the plugin's list of records is damaged");
	return rc;
}

static int plugin_memberships(void *self, const uint64_t *guids, unsigned count,
			      struct sm_memberships_reply *ret_reply, char *error)
{
	struct plugin_link *c = self;
	struct sm_memberships_request req = {.count = count};
	int rc;

	if (count < 1 || count > SM_RECORDS_MAX)
		return backend_fail(error, -EINVAL, "%u GUIDs; allowed is 1 to %u", count,
				    SM_RECORDS_MAX);
	memcpy(req.guid, guids, count * sizeof *guids);
	rc = call(c, SM_OP_MEMBERSHIPS, &req.head,
		  offsetof(struct sm_memberships_request, guid) + count * sizeof *guids,
		  &ret_reply->h, sizeof *ret_reply, CALL_MS, error);
	if (!rc && ret_reply->count != count)
		return backend_fail(error, -EPROTO, "the plugin's list of P_Keys is damaged");
	return rc;
}

static int plugin_partitions(void *self, uint32_t first, struct sm_partitions_reply *ret_reply,
			     char *error)
{
	struct sm_page_request req = {.first = first};
	int rc = call(self, SM_OP_PARTITIONS, &req.head, sizeof req, &ret_reply->h,
		      sizeof *ret_reply, CALL_MS, error);

	if (!rc && ret_reply->count > SM_PARTITIONS_MAX)
		return backend_fail(error, -EPROTO, "the plugin's list of partitions is damaged");
	return rc;
}

static int plugin_members(void *self, uint16_t pkey, const struct sm_member *members,
			  unsigned count, unsigned flags, unsigned deadline_ms,
			  struct sm_members_reply *ret_reply, char *error)
{
	struct plugin_link *c = self;
	struct sm_members_request req = {
		.pkey = pkey,
		.flags = (uint16_t)flags,
		.deadline_ms = deadline_ms,
		.count = count,
	};

	if (count > SM_ASSIGN_MAX)
		return backend_fail(error, -EINVAL, "%u members; allowed is 1 to %u", count,
				    SM_ASSIGN_MAX);
	memcpy(req.member, members, count * sizeof *members);
	return call(c, SM_OP_MEMBERS, &req.head,
		    offsetof(struct sm_members_request, member) + count * sizeof *members,
		    &ret_reply->h, sizeof *ret_reply, deadline_ms + DEADLINE_SLACK_MS, error);
}

/* The call is one of waiting: sent, then poll() for the answer or for stop_fd. Without a stop_fd it
 * is answered at once: the connection is not its own, and moves would wait for it. */
static int await_change(struct plugin_link *c, const struct sm_head *req, int stop_fd,
			struct sm_reply_head *reply, size_t room)
{
	struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
	ssize_t n;
	int ready;

	memset(reply, 0, room);
	if (send(c->fd, req, req->bytes, MSG_NOSIGNAL) != (ssize_t)req->bytes)
		return -EPIPE;
	while ((ready = poll(p, 2, stop_fd < 0 ? CALL_MS : -1)) < 0)
		if (errno != EINTR)
			return -EIO;
	if (!ready)
		return -ETIMEDOUT;
	if (p[1].revents)
		return -ECANCELED;
	n = recv(c->fd, reply, room, MSG_TRUNC);
	if (n < (ssize_t)sizeof *reply || n > (ssize_t)room)
		return -EIO;
	return reply->head.magic == SM_PROTO_MAGIC && reply->head.id == req->id ? 0 : -EPROTO;
}

/* Fills the head, sends, and waits as long as it takes. */
static int wait_call(struct plugin_link *c, uint16_t op, struct sm_head *req, size_t bytes,
		     int stop_fd, struct sm_reply_head *reply, size_t room, char *error)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&c->lock);
	int rc;

	if (c->fd < 0 && (rc = connect_again(c, error)))
		return rc;
	*req = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, op, ++c->next_id,
				(uint32_t)bytes};
	rc = await_change(c, req, stop_fd, reply, room);
	if (!rc && reply->error == -ESTALE)
		return backend_fail(error, -ESTALE, "%.*s", SM_REASON_MAX, reply->reason);
	if (!rc && !reply->error)
		return 0;
	disconnect(c);
	return rc == -ECANCELED ? rc
				: backend_fail(error, -ECONNRESET,
					       "the OpenSM plugin at %s watches no more", c->path);
}

static int plugin_watch(void *self, struct backend_epoch *epoch, int stop_fd,
			char error[static BACKEND_ERROR_MAX])
{
	struct sm_watch_request req = {
		.instance = epoch->instance,
		.generation = epoch->generation,
	};
	struct sm_watch_reply reply;
	int rc = wait_call(self, SM_OP_WATCH, &req.head, sizeof req, stop_fd, &reply.h,
			   sizeof reply, error);

	if (!rc)
		*epoch = (struct backend_epoch){reply.instance, reply.generation};
	return rc;
}

static int plugin_reroute(void *self, const struct sm_reroute_request *after, int stop_fd,
			  struct sm_reroute_reply *ret_reply, char *error)
{
	struct sm_reroute_request req = *after;
	int rc = wait_call(self, SM_OP_REROUTE, &req.head, sizeof req, stop_fd, &ret_reply->h,
			   sizeof *ret_reply, error);

	if (!rc && ret_reply->count > SM_CHANGES_MAX)
		return backend_fail(error, -EPROTO, "the plugin's list of changes is damaged");
	return rc;
}

static int plugin_sweep(void *self, char error[static BACKEND_ERROR_MAX])
{
	struct sm_sweep_request req = {0};
	struct sm_sweep_reply reply = {0};

	return call(self, SM_OP_SWEEP, &req.head, sizeof req, &reply.h, sizeof reply, CALL_MS,
		    error);
}

static int add_endport(struct fabric *f, const struct sm_endport *e)
{
	struct fabric_end end = {
		.node_guid = e->node_guid,
		.port_guid = e->port_guid,
		.lid = e->lid,
		.lmc = e->lmc,
		.port = e->port,
	};

	if (e->type == SM_NODE_SWITCH) {
		int rc = fabric_add_switch(f, e->node_guid, e->lid, e->ports, e->desc);

		return rc ? rc : fabric_set_switch_lmc(f, f->switches - 1, e->lmc);
	}
	memcpy(end.desc, e->desc, sizeof end.desc);
	return fabric_add_end(f, &end);
}

/* A page after the other, until all are there or the generation changes (-EAGAIN). The places of CA
 * ports are kept in attach: their switch may come later. */
static int read_endports(struct plugin_link *c, struct fabric *f, struct sm_endport **attach,
			 struct backend_epoch *epoch, char *error)
{
	struct sm_endports_reply *r AUTO_FREE = malloc(sizeof *r);
	struct sm_page_request req = {0};
	int rc = r ? 0 : -ENOMEM;

	while (!rc) {
		rc = call(c, SM_OP_ENDPORTS, &req.head, sizeof req, &r->h, sizeof *r, TOPOLOGY_MS,
			  error);
		if (rc)
			break;
		if (req.first &&
		    (r->instance != epoch->instance || r->generation != epoch->generation))
			return -EAGAIN;
		*epoch = (struct backend_epoch){r->instance, r->generation};
		if (r->count > SM_ENDPORTS_MAX || r->total > UINT16_MAX)
			return backend_fail(error, -EPROTO,
					    "the plugin's list of ports is damaged");
		for (uint32_t i = 0; !rc && i < r->count; i++) {
			uint32_t index = f->ends;

			rc = add_endport(f, &r->endport[i]);
			if (rc || f->ends == index)
				continue;
			struct sm_endport *grown = realloc(*attach, f->ends * sizeof *grown);
			if (!grown)
				return -ENOMEM;
			*attach = grown;
			grown[index] = r->endport[i];
		}
		req.first += r->count;
		if (!r->count || req.first >= r->total)
			break;
	}
	return rc;
}

static int read_links(struct plugin_link *c, struct fabric *f, const struct backend_epoch *epoch,
		      char *error)
{
	struct sm_links_reply *r AUTO_FREE = malloc(sizeof *r);
	struct sm_page_request req = {0};
	int rc = r ? 0 : -ENOMEM;

	while (!rc) {
		rc = call(c, SM_OP_LINKS, &req.head, sizeof req, &r->h, sizeof *r, TOPOLOGY_MS,
			  error);
		if (rc)
			break;
		if (r->instance != epoch->instance || r->generation != epoch->generation)
			return -EAGAIN;
		if (r->count > SM_LINKS_MAX)
			return backend_fail(error, -EPROTO,
					    "the plugin's list of links is damaged");
		for (uint32_t i = 0; !rc && i < r->count; i++)
			rc = fabric_link(f, r->link[i].guid[0], r->link[i].port[0],
					 r->link[i].guid[1], r->link[i].port[1]);
		req.first += r->count;
		if (!r->count || req.first >= r->total)
			break;
	}
	return rc;
}

static int read_fabric(struct plugin_link *c, struct fabric *f, struct backend_epoch *epoch,
		       char *error)
{
	struct sm_endport *attach AUTO_FREE = NULL;
	int rc = read_endports(c, f, &attach, epoch, error);

	if (!rc)
		rc = read_links(c, f, epoch, error);
	for (uint32_t i = 0; !rc && i < f->ends; i++)
		if (attach[i].peer_guid)
			rc = fabric_attach(f, i, attach[i].peer_guid, attach[i].peer_port);
	return rc;
}

static int plugin_fabric(void *self, struct fabric *f, struct backend_epoch *ret_epoch,
			 char error[static BACKEND_ERROR_MAX])
{
	struct plugin_link *c = self;
	struct fabric fresh = {0};
	int rc = -EAGAIN;

	for (int i = 0; rc == -EAGAIN && i < FABRIC_TRIES; i++) {
		fabric_clear(&fresh);
		*error = '\0';
		rc = read_fabric(c, &fresh, ret_epoch, error);
	}
	if (rc) {
		fabric_clear(&fresh);
		if (!*error)
			backend_fail(error, rc, "the topology in OpenSM cannot be read: %s",
				     strerror(-rc));
		return rc;
	}
	fabric_clear(f);
	*f = fresh;
	return 0;
}

const struct backend_kind backend_plugin = {
	.name = "opensm-plugin",
	.copies = true,
	.open = plugin_open,
	.close = plugin_close,
	.status = plugin_status,
	.look = plugin_look,
	.assign = plugin_assign,
	.guids = plugin_guids,
	.sweep = plugin_sweep,
	.fabric = plugin_fabric,
	.intent = plugin_intent,
	.claim = plugin_claim,
	.homes = plugin_homes,
	.parked = plugin_parked,
	.records = plugin_records,
	.memberships = plugin_memberships,
	.partitions = plugin_partitions,
	.members = plugin_members,
	.watch = plugin_watch,
	.reroute = plugin_reroute,
};
