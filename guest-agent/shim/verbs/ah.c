/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Address handles and multicast groups: remembered, so that they can be made again on another
 * device. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/peer/lid.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/port/lid.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/ud.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define AH_STAYS_US 200000 /* much longer than a datagram is under way on the device */

static bool names(const struct shim_qp *q, const struct shim_ah *ah)
{
	const struct shim_queue *s = &q->send;

	for (uint64_t i = s->posted; i < s->head; i++)
		if (s->send[i & s->mask].wr.wr.ud.ah == &ah->v)
			return true;
	return false;
}

/* Sends that are not handed over yet need it, whatever the program has done. */
static bool in_use(const struct shim_ah *ah)
{
	struct shim_qp *q;
	bool used = false;

	list_for_each (q, &shim.qps, link) {
		if (!q->ud || used)
			continue;
		lock_take(&q->send.lock);
		used = names(q, ah);
		lock_give(&q->send.lock);
	}
	return used;
}

void ah_release(struct shim_ah *ah)
{
	if (ah->real)
		real_verbs.destroy_ah(TAKE(ah->real));
	if (ah->old)
		real_verbs.destroy_ah(TAKE(ah->old));
}

/* Frees those to other ports that its LID may stand for, too. */
static void ah_free(struct shim_ah *ah)
{
	while (ah) {
		struct shim_ah *next = ah->alt;

		list_del(&ah->link);
		ah_release(ah);
		free(ah);
		ah = next;
	}
}

void ah_reap(void)
{
	struct list *at = shim.ahs.next;

	while (shim.dead_ahs && at != &shim.ahs) {
		struct shim_ah *ah = list_entry(at, struct shim_ah, link);

		at = at->next;
		if (!ah->dead || in_use(ah))
			continue;
		ah_free(ah);
		shim.dead_ahs--;
		at = shim.ahs.next; /* the next one may be gone, too */
	}
}

/* Senders that hold the old one just now are done when they let go of their locks. */
static void wait_for_senders(void)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link) {
		if (!q->ud)
			continue;
		lock_take(&q->send.lock);
		lock_give(&q->send.lock);
	}
}

static int create_real(struct shim_ah *ah, struct ibv_ah_attr *attr, struct ibv_ah **ret_old)
{
	struct ibv_ah *real = real_verbs.create_ah(ah->pd->real, attr);

	if (!real)
		return -errno;
	*ret_old = __atomic_exchange_n(&ah->real, real, __ATOMIC_ACQ_REL);
	ah->built = *attr;
	if (ah->node)
		node_at_lid(ah->node, attr->dlid, ah->attr.dlid, false);
	if (*ret_old)
		wait_for_senders();
	return 0;
}

/* Looks what the real handle has to be now. 1: it is; 0: *ret_attr says; -errno. */
static int look_up(const struct shim_ah *ah, struct ibv_ah_attr *ret_attr)
{
	struct ibv_qp_attr a = {.ah_attr = ah->attr, .path_mtu = IBV_MTU_4096};
	int index;

	if (ah->attr.is_global) {
		index = gid_index(ah->pd->ctx, ah->attr.port_num, ah->sgid);
		if (index < 0)
			return index;
		a.ah_attr.grh.sgid_index = (uint8_t)index;
	}
	if (ah->node)
		route_apply(route_get(ah->sgid, ah->node->gid, ah->pkey), &a);
	*ret_attr = a.ah_attr;
	return ah->real && !memcmp(&a.ah_attr, &ah->built, sizeof(a.ah_attr));
}

int ah_build(struct shim_ah *ah)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *old = NULL;
	int rc = look_up(ah, &attr);

	if (!rc)
		rc = create_real(ah, &attr, &old);
	if (old)
		real_verbs.destroy_ah(old);
	return rc < 0 ? rc : 0;
}

/* rdma_rxe looks the handle up when it sends, so the old one stays for a while. */
int ah_take_path(struct shim_ah *ah)
{
	uint64_t now = now_us();
	struct ibv_ah_attr attr;
	int rc = ah->real ? look_up(ah, &attr) : 1;

	if (rc)
		return rc < 0 ? rc : 0;
	if (ah->old && now - ah->old_us < AH_STAYS_US)
		return -EAGAIN;
	if (ah->old)
		real_verbs.destroy_ah(TAKE(ah->old));
	ah->old_us = now;
	return create_real(ah, &attr, &ah->old);
}

/* The GID that it leads to. NULL: a group, or no GID is known. */
static const uint8_t *destination(const struct shim_ah *ah, const uint8_t *lid_end)
{
	return ah->multicast ? NULL : ah->attr.is_global ? ah->attr.grh.dgid.raw : lid_end;
}

/* The path, which on InfiniBand is waited for: the LID that the program was told may have changed.
 * A path that is found by LID is there. NULL: nobody knows one. */
static struct shim_route *find_route(const struct shim_ah *ah, const uint8_t *dgid)
{
	struct shim_route *r = dgid ? route_get(ah->sgid, dgid, ah->pkey) : NULL;

	if (r && ah->attr.dlid && ah->attr.is_global)
		route_renew(r);
	else if (r && r->state == ROUTE_NONE)
		route_ask(r, false);
	return r;
}

/* The program's own index, as the device's. -errno: the port has that GID no more. */
static int own_gid(const struct shim_ah *ah)
{
	return ah->attr.is_global ? gid_index_at_device(ah->pd->ctx, ah->attr.port_num,
							ah->attr.grh.sgid_index)
				  : 0;
}

/* lid_end: the GID of the port that the LID stands for; NULL: there is a GRH, or no GID is known.
 */
static int ah_set_up(struct shim_ah *ah, const uint8_t *lid_end)
{
	struct shim_context *c = ah->pd->ctx;
	struct ibv_ah_attr a = ah->attr;
	const uint8_t *dgid;
	struct shim_route *r;
	union ibv_gid gid;
	int index = own_gid(ah);

	if (index < 0)
		return index;
	ah->pkey = pkey_value(c, a.port_num, 0);
	if (!real_verbs.query_gid(c->real, a.port_num, index, &gid))
		memcpy(ah->sgid, gid.raw, 16);
	ah->multicast = a.is_global ? a.grh.dgid.raw[0] == 0xff /* IBA 1.4, 4.1.1 */
				    : a.dlid >= LID_MULTICAST;
	dgid = destination(ah, lid_end);
	r = find_route(ah, dgid);
	index = own_gid(ah); /* a move may have come while the path was waited for */
	if (index < 0)
		return index;
	if (a.is_global)
		a.grh.sgid_index = (uint8_t)index;
	lid_translate(c, r, &a);
	pthread_mutex_lock(&shim.ctl);
	ah->node = dgid ? node_get(dgid) : NULL;
	pthread_mutex_unlock(&shim.ctl);
	return create_real(ah, &a, &ah->old); /* there is no old one */
}

/* A handle that is in no list yet. */
static struct shim_ah *ah_one(struct ibv_pd *pd, const struct ibv_ah_attr *attr,
			      const uint8_t *lid_end)
{
	struct shim_ah *ah = calloc(1, sizeof(*ah));
	int rc;

	if (!ah)
		return NULL;
	list_init(&ah->link);
	ah->pd = to_pd(pd);
	ah->attr = *attr;
	rc = ah_set_up(ah, lid_end);
	if (rc) {
		free(ah);
		errno = -rc;
		return NULL;
	}
	ah->v = *ah->real;
	ah->v.context = pd->context;
	ah->v.pd = pd;
	return ah;
}

/* Adds those to the other ports that the LID may stand for, and one to the LID as it is. */
static int add_alternatives(struct shim_ah *ah, const struct lid_ends *ends)
{
	struct shim_ah *last = ah;
	unsigned n = ends->count + ends->shared;

	for (unsigned i = 1; i < n; i++) {
		last->alt = ah_one(ah->v.pd, &ah->attr, i < ends->count ? ends->dgid[i] : NULL);
		if (!last->alt)
			return -errno;
		last = last->alt;
	}
	return 0;
}

/* Under ctl. An alternative is no reason to call a QP uncovered: the port that is meant may be
 * another one. */
static void enlist(struct shim_ah *ah)
{
	struct shim_node *sole = ah_sole_node(ah);

	if (sole)
		sole->ahs++;
	for (; ah; ah = ah->alt)
		list_add(&shim.ahs, &ah->link);
}

static struct shim_ah *ah_new(struct ibv_pd *pd, const struct ibv_ah_attr *attr)
{
	struct shim_context *c = to_pd(pd)->ctx;
	struct lid_ends ends = {.count = 0};
	struct shim_ah *ah;
	int rc;

	if (!attr->is_global && lid_is_unicast(attr->dlid))
		lid_find_ends(c, attr->port_num, attr->dlid, pkey_value(c, attr->port_num, 0),
			      false, &ends); /* or the QPs that use it are not covered */
	ah = ah_one(pd, attr, ends.count ? ends.dgid[0] : NULL);
	if (!ah)
		return NULL;
	rc = add_alternatives(ah, &ends);
	if (rc) {
		ah_free(ah);
		errno = -rc;
		return NULL;
	}
	pthread_mutex_lock(&shim.ctl);
	ah_reap();
	enlist(ah);
	pthread_mutex_unlock(&shim.ctl);
	return ah;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct shim_ah *ah;

	if (!shim_ours(pd->context))
		return real_verbs.create_ah(pd, attr);
	ctl_enter();
	ah = ah_new(pd, attr);
	ctl_exit();
	return ah ? &ah->v : NULL;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port)
{
	struct shim_ah *ah = NULL;
	struct ibv_ah_attr attr;

	if (!shim_ours(pd->context))
		return real_verbs.create_ah_from_wc(pd, wc, grh, port);
	memset(&attr, 0, sizeof(attr));
	ctl_enter();
	if (!real_verbs.init_ah_from_wc(to_pd(pd)->ctx->real, port, wc, grh, &attr)) {
		if (attr.is_global)
			attr.grh.sgid_index = (uint8_t)gid_index_of_device(to_pd(pd)->ctx, port,
									   attr.grh.sgid_index);
		ah = ah_new(pd, &attr);
	}
	ctl_exit();
	return ah ? &ah->v : NULL;
}

int ibv_destroy_ah(struct ibv_ah *ibah)
{
	struct shim_node *sole;
	struct shim_ah *ah;

	if (!shim_ours(ibah->context))
		return real_verbs.destroy_ah(ibah);
	ah = to_ah(ibah);
	ctl_enter();
	pthread_mutex_lock(&shim.ctl);
	sole = ah_sole_node(ah);
	if (sole && !--sole->ahs)
		ud_check_all_covered();
	ah->dead = true;
	shim.dead_ahs++;
	ah_reap();
	pthread_mutex_unlock(&shim.ctl);
	ctl_exit();
	return 0;
}

static struct shim_group *group_of(const struct shim_ud *u, const union ibv_gid *gid, uint16_t lid)
{
	for (unsigned i = 0; i < u->group_count; i++)
		if (u->groups[i].lid == lid && !memcmp(&u->groups[i].gid, gid, sizeof(*gid)))
			return &u->groups[i];
	return NULL;
}

static int group_add(struct shim_ud *u, const union ibv_gid *gid, uint16_t lid)
{
	struct shim_group *grown;

	if (u->group_count == UD_GROUPS_MAX)
		return ENOMEM;
	grown = realloc(u->groups, (u->group_count + 1) * sizeof(*grown));
	if (!grown)
		return ENOMEM;
	u->groups = grown;
	u->groups[u->group_count++] = (struct shim_group){*gid, lid};
	return 0;
}

int ibv_attach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid)
{
	struct shim_qp *q;
	int rc;

	if (!shim_ours(ibqp->context))
		return real_verbs.attach_mcast(ibqp, gid, lid);
	q = to_qp(ibqp);
	ctl_enter();
	rc = real_verbs.attach_mcast(q->real, gid, lid);
	if (!rc && q->ud && !group_of(q->ud, gid, lid)) {
		rc = group_add(q->ud, gid, lid);
		if (rc)
			real_verbs.detach_mcast(q->real, gid, lid);
	}
	ctl_exit();
	return rc;
}

int ibv_detach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid)
{
	struct shim_group *g;
	struct shim_qp *q;
	int rc;

	if (!shim_ours(ibqp->context))
		return real_verbs.detach_mcast(ibqp, gid, lid);
	q = to_qp(ibqp);
	ctl_enter();
	rc = real_verbs.detach_mcast(q->real, gid, lid);
	g = !rc && q->ud ? group_of(q->ud, gid, lid) : NULL;
	if (g)
		*g = q->ud->groups[--q->ud->group_count];
	ctl_exit();
	return rc;
}
