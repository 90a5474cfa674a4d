/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/backend/client.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"

#include <errno.h>
#include <string.h>

static const struct backend *const backends[] = {
	&backend_plugin,
	&backend_umad,
	&backend_ufm,
	&backend_none,
};

struct client {
	const struct backend *backend; /* borrowed */
	void *self;                    /* owned */
};

const struct backend *backend_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	return NULL;
}

void backend_names(char *text, size_t room)
{
	size_t at = 0;

	*text = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(backends) && at < room; i++)
		at += (size_t)snprintf(text + at, room - at, "%s%s", i ? ", " : "",
				       backends[i]->name);
}

int client_new(const struct backend *backend, const struct backend_conf *conf,
	       struct client **ret_client)
{
	struct client *c = calloc(1, sizeof *c);
	int rc = c ? 0 : -ENOMEM;

	if (!rc && backend->open)
		rc = backend->open(conf, &c->self);
	if (rc) {
		free(c);
		return rc;
	}
	c->backend = backend;
	*ret_client = c;
	return 0;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	if (c->backend->close)
		c->backend->close(c->self);
	free(c);
}

const struct backend *client_backend(const struct client *c)
{
	return c->backend;
}

void *client_self(const struct client *c)
{
	return c->self;
}

/* The backend cannot do what was asked for. */
static int refuse(const struct client *c, const char *what, char *error)
{
	snprintf(error, CLIENT_ERROR_MAX, "backend %s cannot %s", c->backend->name, what);
	return -ECONNREFUSED;
}

int client_status(struct client *c, struct sm_status_reply *ret_status,
		  char error[static CLIENT_ERROR_MAX])
{
	memset(ret_status, 0, sizeof *ret_status);
	return c->backend->status(c->self, ret_status, error);
}

int client_look(struct client *c, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		char error[static CLIENT_ERROR_MAX])
{
	*ret_age_ms = 0;
	memset(ret_status, 0, sizeof *ret_status);
	return c->backend->look ? c->backend->look(c->self, ret_status, ret_age_ms, error)
				: c->backend->status(c->self, ret_status, error);
}

int client_assign(struct client *c, const struct sm_target *targets, unsigned count, uint32_t flags,
		  unsigned deadline_ms, struct sm_assign_reply *ret_reply,
		  char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->assign)
		return refuse(c, "change addresses", error);
	return c->backend->assign(c->self, targets, count, flags, deadline_ms, ret_reply, error);
}

int client_guids(struct client *c, const struct sm_slot *slots, unsigned count,
		 unsigned deadline_ms, struct sm_guids_reply *ret_reply,
		 char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->guids)
		return refuse(c, "write GUID tables of ports", error);
	return c->backend->guids(c->self, slots, count, deadline_ms, ret_reply, error);
}

int client_sweep(struct client *c, char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->sweep)
		return refuse(c, "ask for a sweep", error);
	return c->backend->sweep(c->self, error);
}

int client_fabric(struct client *c, struct fabric *f, struct client_epoch *ret_epoch,
		  char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->fabric)
		return refuse(c, "read the topology", error);
	return c->backend->fabric(c->self, f, ret_epoch, error);
}

int client_intent(struct client *c, const struct sm_target *targets, unsigned count,
		  char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->intent)
		return refuse(c, "hand a batch over", error);
	return c->backend->intent(c->self, targets, count, error);
}

int client_parked(struct client *c, uint32_t first, uint32_t flags,
		  struct sm_parked_reply *ret_reply, char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->parked)
		return refuse(c, "park a batch", error);
	return c->backend->parked(c->self, first, flags, ret_reply, error);
}

int client_records(struct client *c, const struct sm_record_key *keys, unsigned count,
		   struct sm_records_reply *ret_reply, char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->records)
		return refuse(c, "compute path records", error);
	return c->backend->records(c->self, keys, count, ret_reply, error);
}

int client_watch(struct client *c, struct client_epoch *epoch, int stop_fd,
		 char error[static CLIENT_ERROR_MAX])
{
	if (!c->backend->watch)
		return refuse(c, "watch the subnet", error);
	return c->backend->watch(c->self, epoch, stop_fd, error);
}
