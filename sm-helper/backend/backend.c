/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/backend/backend.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

static const struct backend_kind *const kinds[] = {
	&backend_plugin,
	&backend_umad,
	&backend_ufm,
	&backend_none,
};

struct backend {
	const struct backend_kind *kind; /* borrowed */
	void *self;                      /* owned */
};

const struct backend_kind *backend_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i]->name, name))
			return kinds[i];
	return NULL;
}

void backend_names(char *text, size_t room)
{
	size_t at = 0;

	*text = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(kinds) && at < room; i++)
		at += (size_t)snprintf(text + at, room - at, "%s%s", i ? ", " : "", kinds[i]->name);
}

int backend_new(const struct backend_kind *kind, const struct backend_conf *conf,
		struct backend **ret_backend)
{
	struct backend *b = calloc(1, sizeof *b);
	int rc = b ? 0 : -ENOMEM;

	if (!rc && kind->open)
		rc = kind->open(conf, &b->self);
	if (rc) {
		free(b);
		return rc;
	}
	b->kind = kind;
	*ret_backend = b;
	return 0;
}

void backend_free(struct backend *b)
{
	if (!b)
		return;
	if (b->kind->close)
		b->kind->close(b->self);
	free(b);
}

const struct backend_kind *backend_kind(const struct backend *b)
{
	return b->kind;
}

void *backend_self(const struct backend *b)
{
	return b->self;
}

/* The backend cannot do what was asked for. */
static int refuse(const struct backend *b, const char *what, char *error)
{
	snprintf(error, BACKEND_ERROR_MAX, "backend %s cannot %s", b->kind->name, what);
	return -ECONNREFUSED;
}

int backend_status(struct backend *b, struct sm_status_reply *ret_status,
		   char error[static BACKEND_ERROR_MAX])
{
	memset(ret_status, 0, sizeof *ret_status);
	return b->kind->status(b->self, ret_status, error);
}

int backend_look(struct backend *b, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		 char error[static BACKEND_ERROR_MAX])
{
	*ret_age_ms = 0;
	memset(ret_status, 0, sizeof *ret_status);
	return b->kind->look ? b->kind->look(b->self, ret_status, ret_age_ms, error)
			     : b->kind->status(b->self, ret_status, error);
}

int backend_assign(struct backend *b, const struct sm_target *targets, unsigned count,
		   uint32_t flags, unsigned deadline_ms, struct sm_assign_reply *ret_reply,
		   char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->assign)
		return refuse(b, "change addresses", error);
	return b->kind->assign(b->self, targets, count, flags, deadline_ms, ret_reply, error);
}

int backend_guids(struct backend *b, const struct sm_slot *slots, unsigned count,
		  unsigned deadline_ms, struct sm_guids_reply *ret_reply,
		  char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->guids)
		return refuse(b, "write GUID tables of ports", error);
	return b->kind->guids(b->self, slots, count, deadline_ms, ret_reply, error);
}

int backend_sweep(struct backend *b, char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->sweep)
		return refuse(b, "ask for a sweep", error);
	return b->kind->sweep(b->self, error);
}

int backend_fabric(struct backend *b, struct fabric *f, struct backend_epoch *ret_epoch,
		   char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->fabric)
		return refuse(b, "read the topology", error);
	return b->kind->fabric(b->self, f, ret_epoch, error);
}

int backend_intent(struct backend *b, const struct sm_target *targets, unsigned count,
		   char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->intent)
		return refuse(b, "hand a batch over", error);
	return b->kind->intent(b->self, targets, count, error);
}

int backend_claim(struct backend *b, const struct sm_owner_request *want,
		  struct sm_owner *ret_owner, char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->claim)
		return refuse(b, "keep who may change the subnet", error);
	return b->kind->claim(b->self, want, ret_owner, error);
}

bool backend_claims(const struct backend *b)
{
	return b->kind->claim;
}

int backend_homes(struct backend *b, uint32_t first, struct sm_homes_reply *ret_reply,
		  char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->homes)
		return refuse(b, "tell which vGUIDs are bound", error);
	return b->kind->homes(b->self, first, ret_reply, error);
}

int backend_parked(struct backend *b, uint32_t first, uint32_t flags,
		   struct sm_parked_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->parked)
		return refuse(b, "park a batch", error);
	return b->kind->parked(b->self, first, flags, ret_reply, error);
}

int backend_records(struct backend *b, const struct sm_record_key *keys, unsigned count,
		    struct sm_records_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->records)
		return refuse(b, "compute path records", error);
	return b->kind->records(b->self, keys, count, ret_reply, error);
}

int backend_memberships(struct backend *b, const uint64_t *guids, unsigned count,
			struct sm_memberships_reply *ret_reply,
			char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->memberships)
		return refuse(b, "tell who is a member of a partition", error);
	return b->kind->memberships(b->self, guids, count, ret_reply, error);
}

int backend_partitions(struct backend *b, uint32_t first, struct sm_partitions_reply *ret_reply,
		       char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->partitions)
		return refuse(b, "list partitions", error);
	return b->kind->partitions(b->self, first, ret_reply, error);
}

int backend_members(struct backend *b, uint16_t pkey, const struct sm_member *members,
		    unsigned count, unsigned flags, unsigned deadline_ms,
		    struct sm_members_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->members)
		return refuse(b, "change a partition", error);
	return b->kind->members(b->self, pkey, members, count, flags, deadline_ms, ret_reply,
				error);
}

int backend_watch(struct backend *b, struct backend_epoch *epoch, int stop_fd,
		  char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->watch)
		return refuse(b, "watch the subnet", error);
	return b->kind->watch(b->self, epoch, stop_fd, error);
}

int backend_reroute(struct backend *b, const struct sm_reroute_request *after, int stop_fd,
		    struct sm_reroute_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	if (!b->kind->reroute)
		return refuse(b, "compare paths", error);
	return b->kind->reroute(b->self, after, stop_fd, ret_reply, error);
}
