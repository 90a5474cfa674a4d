/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A provider is the source of this host's VFs. The daemon knows providers by these functions only.
 *
 * They block: call them from workers, or before the loop runs. Calls about different VFs may run at
 * the same time. The same call twice has the effect of one. 0 or -errno; error then says in one
 * line what failed, why, and what to do. */
#ifndef IBVMIG_DAEMON_VF_PROVIDER_H
#define IBVMIG_DAEMON_VF_PROVIDER_H

#include "common/http/client.h"

#include <errno.h>
#include <stdint.h>

#define PROVIDER_DEADLINE_MS 10000
#define PROVIDER_ANSWER_MAX  (1u << 20)

struct provider {
	const struct provider_ops *ops;
};

/* Objects are those of docs/wire.md, "VF provider"; answers are owned by the caller. */
struct provider_ops {
	/* The first call, once; VFs may get their parked GUIDs in it. */
	int (*inventory)(struct provider *p, struct json_object **ret_out, char *error);
	/* in: borrowed */
	int (*prepare)(struct provider *p, struct json_object *in, struct json_object **ret_out,
		       char *error);
	/* node and port GUID */
	int (*set_guid)(struct provider *p, const char *vf, uint64_t guid, char *error);
	/* undoes prepare; the GUID stays */
	int (*release)(struct provider *p, const char *vf, char *error);
	/* For doctor; both change nothing. NULL: only the provider itself knows. */
	/* 0: a VM could have this VF, which none has. Else error says what is in the way */
	int (*check)(struct provider *p, const char *vf, char *error);
	/* {VF: its port GUID now}, all-zero where it never got one; without those that the host
	 * does not tell */
	int (*guids)(struct provider *p, struct json_object **ret_guids);
	void (*free)(struct provider *p);
};

static inline int provider_inventory(struct provider *p, struct json_object **ret_out,
				     char error[static HTTP_ERROR_MAX])
{
	return p->ops->inventory(p, ret_out, error);
}

static inline int provider_prepare(struct provider *p, struct json_object *in,
				   struct json_object **ret_out, char error[static HTTP_ERROR_MAX])
{
	return p->ops->prepare(p, in, ret_out, error);
}

static inline int provider_set_guid(struct provider *p, const char *vf, uint64_t guid,
				    char error[static HTTP_ERROR_MAX])
{
	return p->ops->set_guid(p, vf, guid, error);
}

static inline int provider_release(struct provider *p, const char *vf,
				   char error[static HTTP_ERROR_MAX])
{
	return p->ops->release(p, vf, error);
}

/* -ENOSYS: it cannot be asked; error is untouched then. */
static inline int provider_check(struct provider *p, const char *vf,
				 char error[static HTTP_ERROR_MAX])
{
	return p->ops->check ? p->ops->check(p, vf, error) : -ENOSYS;
}

/* -ENOSYS: it cannot be asked. */
static inline int provider_guids(struct provider *p, struct json_object **ret_guids)
{
	return p->ops->guids ? p->ops->guids(p, ret_guids) : -ENOSYS;
}

static inline void provider_free(struct provider *p)
{
	if (p)
		p->ops->free(p);
}

/* A program of the user's, a process per call, that has deadline_ms for each; what it has started
 * does not outlive the call. program: borrowed. 0 or -ENOMEM. */
int provider_exec_new(const char *program, unsigned deadline_ms, struct provider **ret_provider);

#endif
