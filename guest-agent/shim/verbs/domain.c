/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Thread domains and parent domains. They promise that one thread at a time uses an object; our
 * locks are there all the same, so a parent domain is another name of its PD. */
#include "guest-agent/shim/verbs/mr.h"

#include <errno.h>

struct shim_td {
	unsigned users; /* parent domains; under shim.ctl */
	struct ibv_td v;
};

#define to_td(p) container_of(p, struct shim_td, v)

struct ibv_td *shim_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *init)
{
	struct shim_td *td;

	if (init->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->v.context = context;
	return &td->v;
}

int shim_dealloc_td(struct ibv_td *td)
{
	bool used;

	pthread_mutex_lock(&shim.ctl);
	used = to_td(td)->users > 0;
	pthread_mutex_unlock(&shim.ctl);
	if (used)
		return EBUSY;
	free(to_td(td));
	return 0;
}

struct ibv_pd *shim_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *init)
{
	struct shim_pd *pd;

	if (!init->pd || init->pd->context != context ||
	    (init->td && init->td->context != context)) {
		errno = EINVAL;
		return NULL;
	}
	/* Allocators of the program's own would have to outlive the device's objects. */
	if (init->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->base = to_pd(init->pd);
	pd->td = init->td;
	pd->ctx = pd->base->ctx;
	pd->v = pd->base->v;
	pthread_mutex_lock(&shim.ctl);
	pd->base->parents++;
	if (pd->td)
		to_td(pd->td)->users++;
	pthread_mutex_unlock(&shim.ctl);
	return &pd->v;
}

void parent_domain_free(struct shim_pd *pd)
{
	pthread_mutex_lock(&shim.ctl);
	pd->base->parents--;
	if (pd->td)
		to_td(pd->td)->users--;
	pthread_mutex_unlock(&shim.ctl);
	free(pd);
}
