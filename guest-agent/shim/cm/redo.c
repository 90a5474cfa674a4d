/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Ids without a connection (listeners, bound and resolved ones, members of multicast groups) are
 * made again when their device has been replaced: the same address, the same calls. */
#include "guest-agent/shim/cm/id.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#define NO_LEVEL 0x7f /* the kernel has no such level of options */

bool cm_alive(struct cm_id *id)
{
	int none = 0;

	/* A closed id says EIO, before it looks at what is asked. */
	return real_cm.set_option(id->real, NO_LEVEL, 0, &none, sizeof(none)) && errno == ENOSYS;
}

/* A link-local address names its interface by number, which the new NIC has another of. */
static void find_scope(struct sockaddr *addr)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)(void *)addr;
	struct ifaddrs *list = NULL;

	if (addr->sa_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr) ||
	    getifaddrs(&list))
		return;
	for (struct ifaddrs *i = list; i; i = i->ifa_next) {
		const struct sockaddr_in6 *a = (const void *)i->ifa_addr;

		if (a && a->sin6_family == AF_INET6 &&
		    !memcmp(&a->sin6_addr, &sin6->sin6_addr, sizeof(a->sin6_addr)))
			sin6->sin6_scope_id = if_nametoindex(i->ifa_name);
	}
	freeifaddrs(list);
}

static void copy_scope(const struct sockaddr *from, struct sockaddr *to)
{
	const struct sockaddr_in6 *f = (const void *)from;
	struct sockaddr_in6 *t = (void *)to;

	if (f->sin6_family == AF_INET6 && t->sin6_family == AF_INET6 && t->sin6_scope_id)
		t->sin6_scope_id = f->sin6_scope_id;
}

static int join_again(struct cm_id *id, struct rdma_cm_id *real)
{
	struct cm_join *j;

	list_for_each (j, &id->joins, link) {
		struct sockaddr *addr = (struct sockaddr *)&j->addr;
		struct rdma_cm_join_mc_attr_ex ex = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
								  RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
						     .join_flags = j->flags,
						     .addr = addr};

		copy_scope(&real->route.addr.src_addr, addr);
		j->again = true;
		if (j->flags == RDMA_MC_JOIN_FLAG_FULLMEMBER
			    ? real_cm.join_multicast(real, addr, j->context)
			    : real_cm.join_multicast_ex(real, &ex, j->context))
			return -errno;
	}
	return 0;
}

/* Repeats what the program had done with the id. */
static int repeat(struct cm_id *id, struct rdma_cm_id *real)
{
	struct rdma_addr addr = id->real->route.addr;

	find_scope(&addr.src_addr);
	copy_scope(&addr.src_addr, &addr.dst_addr);
	for (unsigned i = 0; i < id->option_count; i++) {
		struct cm_option *o = &id->option[i];

		real_cm.set_option(real, o->level, o->name, o->value, o->bytes);
	}
	if (id->state == CM_RESOLVED && id->joins.next == &id->joins) {
		cm_lock();
		id->resolving = true; /* before its events can come */
		cm_unlock();
		return real_cm.resolve_addr(real, &addr.src_addr, &addr.dst_addr, id->timeout_ms)
			       ? -errno
			       : 0;
	}
	if (real_cm.bind_addr(real, &addr.src_addr))
		return -errno;
	if (id->state == CM_LISTENING)
		return real_cm.listen(real, id->backlog) ? -errno : 0;
	return join_again(id, real);
}

int cm_redo(struct cm_id *id)
{
	struct rdma_cm_id *real, *old = id->real;
	bool used;
	int rc;

	cm_lock();
	used = id->calls;
	cm_unlock();
	if (used)
		return -EAGAIN;
	if (real_cm.create_id(id->channel->real, &real, id, id->v.ps))
		return -errno;
	rc = repeat(id, real);
	cm_lock();
	if (!rc && id->calls)
		rc = -EAGAIN; /* some are at the old one */
	if (rc) {
		id->resolving = false;
		cm_unlock();
		real_cm.destroy_id(real);
		return rc;
	}
	id->real = real;
	id->redo = id->resolving;
	id->moves = false;
	if (!id->first)
		id->first = TAKE(old);
	pthread_cond_broadcast(&cm.changed);
	cm_unlock();
	if (old)
		real_cm.destroy_id(old);
	return 0;
}
