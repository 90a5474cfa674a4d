/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Protection domains and memory regions. */
#include "guest-agent/shim/verbs/mr.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/mw.h"

#include <errno.h>
#include <string.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct shim_pd *pd;

	if (!shim_ours(context))
		return real_verbs.alloc_pd(context);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->ctx = to_context(context);
	ctl_enter();
	pd->real = real_verbs.alloc_pd(pd->ctx->real);
	if (pd->real) {
		pd->v = *pd->real;
		pd->v.context = context;
		pthread_mutex_lock(&shim.ctl);
		list_add(&shim.pds, &pd->link);
		pthread_mutex_unlock(&shim.ctl);
	} else {
		free(TAKE(pd));
	}
	ctl_exit();
	return pd ? &pd->v : NULL;
}

int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct shim_pd *pd;
	int rc;

	if (!shim_ours(ibpd->context))
		return real_verbs.dealloc_pd(ibpd);
	pd = container_of(ibpd, struct shim_pd, v);
	if (pd->base) {
		parent_domain_free(pd);
		return 0;
	}
	ctl_enter();
	pthread_mutex_lock(&shim.ctl);
	rc = pd->parents ? EBUSY : 0;
	pthread_mutex_unlock(&shim.ctl);
	if (!rc)
		rc = real_verbs.dealloc_pd(pd->real);
	if (!rc) {
		pthread_mutex_lock(&shim.ctl);
		list_del(&pd->link);
		pthread_mutex_unlock(&shim.ctl);
		free(pd);
	}
	ctl_exit();
	return rc;
}

/* The real region: at the start and after each migration. The virtual key stays. 0 or -errno. */
int mr_register(struct shim_mr *m)
{
	m->real = real_verbs.reg_mr_iova2(m->pd->real, m->v.addr, m->v.length, m->iova, m->access);
	if (!m->real)
		return -errno;
	if (!m->v.lkey)
		return 0;
	return table_set(&shim.keys, m->v.lkey >> 8, key_entry(m->v.lkey, m->real->lkey),
			 TABLE_MAX / TABLE_CHUNK);
}

void mr_give_up(struct shim_mr *m)
{
	m->gone = true;
	table_set(&shim.keys, m->v.lkey >> 8, key_entry(m->v.lkey, KEY_NONE),
		  TABLE_MAX / TABLE_CHUNK);
	mw_forget_mr(m);
}

void mr_leave(struct shim_mr *m)
{
	if (!m->gone)
		dirty_region(m);
	table_set(&shim.keys, m->v.lkey >> 8, 0, TABLE_MAX / TABLE_CHUNK);
	if (m->access & IBV_ACCESS_ON_DEMAND)
		shim.uncovered_objects--;
}

/* A region on demand keeps the program from moving as long as it is one. */
static void note_on_demand(unsigned before, unsigned now)
{
	bool was = before & IBV_ACCESS_ON_DEMAND, is = now & IBV_ACCESS_ON_DEMAND;

	if (is && !was)
		shim_set_uncovered("it registers memory on demand (IBV_ACCESS_ON_DEMAND)");
	else if (was && !is)
		shim_unset_uncovered();
}

static int mr_set_up(struct shim_mr *m)
{
	int rc = mr_register(m);

	if (rc)
		return rc;
	pthread_mutex_lock(&shim.ctl);
	rc = key_alloc(&shim.keys, m->real->lkey, &shim.key_start, &m->v.lkey);
	if (!rc) {
		m->number = shim.mr_count++;
		list_add(&shim.mrs, &m->link);
	}
	pthread_mutex_unlock(&shim.ctl);
	if (rc) {
		real_verbs.dereg_mr(m->real);
		return rc;
	}
	m->v.handle = m->real->handle;
	m->v.rkey = m->real->rkey ? m->v.lkey : 0;
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *ibpd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct shim_mr *m;
	int rc;

	if (!shim_ours(ibpd->context))
		return real_verbs.reg_mr_iova2(ibpd, addr, length, iova, access);
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->pd = to_pd(ibpd);
	m->iova = iova;
	if (iova != (uintptr_t)addr)
		atomic_store(&shim.odd_iova, true);
	m->access = access;
	m->v.context = ibpd->context;
	m->v.pd = ibpd;
	m->v.addr = addr;
	m->v.length = length;
	ctl_enter();
	rc = mr_set_up(m);
	ctl_exit();
	if (rc) {
		free(m);
		errno = -rc;
		return NULL;
	}
	note_on_demand(0, access);
	return &m->v;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!shim_ours(pd->context))
		return real_verbs.reg_mr(pd, addr, length, access);
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	if (!shim_ours(pd->context))
		return real_verbs.reg_mr_iova(pd, addr, length, iova, access);
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

/* A region that is gone has nothing that could be changed, but may be given other memory. Returns
 * as the verb does. */
static int rereg_gone(struct shim_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length,
		      int access)
{
	struct shim_pd *new_pd = flags & IBV_REREG_MR_CHANGE_PD && pd ? to_pd(pd) : m->pd;

	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		errno = EFAULT;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (!addr || !length || (flags & IBV_REREG_MR_CHANGE_PD && !pd)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	m->real = real_verbs.reg_mr_iova2(new_pd->real, addr, length, (uintptr_t)addr,
					  flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access
									     : m->access);
	m->gone = !m->real;
	return m->real ? 0 : IBV_REREG_MR_ERR_CMD;
}

int ibv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	struct ibv_pd *real_pd = NULL;
	struct shim_mr *m;
	int rc;

	if (!shim_ours(ibmr->context))
		return real_verbs.rereg_mr(ibmr, flags, pd, addr, length, access);
	m = to_mr(ibmr);
	ctl_enter();
	if (flags & IBV_REREG_MR_CHANGE_PD && pd) /* else it may be anything (pyverbs) */
		real_pd = to_pd(pd)->real;
	rc = m->gone ? rereg_gone(m, flags, pd, addr, length, access)
		     : real_verbs.rereg_mr(m->real, flags, real_pd, addr, length, access);
	if (!rc) {
		if (flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS))
			dirty_region(m);
		if (flags & IBV_REREG_MR_CHANGE_PD) {
			m->pd = to_pd(pd);
			m->v.pd = pd;
		}
		if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
			m->v.addr = addr;
			m->v.length = length;
			m->iova = (uintptr_t)addr;
		}
		if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
			note_on_demand(m->access, (unsigned)access);
			m->access = (unsigned)access;
		}
		table_set(&shim.keys, m->v.lkey >> 8, key_entry(m->v.lkey, m->real->lkey),
			  TABLE_MAX / TABLE_CHUNK);
		m->v.rkey = m->real->rkey ? m->v.lkey : 0;
		pthread_mutex_lock(&shim.ctl);
		list_del(&m->link); /* the newest now: peers are told its key again */
		m->number = shim.mr_count++;
		list_add(&shim.mrs, &m->link);
		pthread_mutex_unlock(&shim.ctl);
	}
	ctl_exit();
	return rc;
}

int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct shim_mr *m;
	int rc;

	if (!shim_ours(ibmr->context))
		return real_verbs.dereg_mr(ibmr);
	m = to_mr(ibmr);
	ctl_enter();
	rc = m->gone ? 0 : real_verbs.dereg_mr(m->real);
	if (!rc) {
		dirty_region(m);
		mw_forget_mr(m);
		pthread_mutex_lock(&shim.ctl);
		table_set(&shim.keys, m->v.lkey >> 8, 0, TABLE_MAX / TABLE_CHUNK);
		list_del(&m->link);
		pthread_mutex_unlock(&shim.ctl);
		note_on_demand(m->access, 0);
		free(m);
	}
	ctl_exit();
	return rc;
}
