/* SPDX-License-Identifier: GPL-2.0-or-later */
/* XRC: a QP that only sends (the initiator) names a shared receive queue of the other end in each
 * request. The QP there (the target) has no queues, PD or CQs, and is known by its domain.
 *
 * A domain may have the name of a file, so that processes share it. Then the target's process does
 * not see the completions of others, and nobody knows what has arrived. So a domain that another
 * process has is refused, and ours is open in a way (O_EXCL) that tells the second by the kernel.
 *
 * Numbers of queues are virtual, as keys are: the hardware's, as long as that is free. One whose
 * queue was destroyed is given out again only for the same number of the hardware, because peers
 * may still know what it stood for. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/refuse.h"
#include "guest-agent/shim/verbs/srq.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* Between the look for a file's domain and its opening, or closing, nobody else opens or closes
 * one. Inside a control verb. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

void xrc_forget_all(void)
{
	pthread_mutex_init(&opening, NULL);
}

/* In place of none, which libibverbs does not expect. */
static struct ibv_xrcd_init_attr nothing;

static struct ibv_xrcd *open_real(struct shim_context *c, struct ibv_xrcd_init_attr *init)
{
	struct ibv_xrcd *real;

	errno = 0; /* libibverbs does not always say why */
	real = ibv_open_xrcd(c->real, init);
	if (!real && !errno)
		errno = EINVAL;
	return real;
}

/* The domain of that file, where this process has it on c. */
static struct shim_xrcd *opened_before(const struct shim_context *c, const struct stat *file)
{
	struct shim_xrcd *x, *found = NULL;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (x, &shim.xrcds, link)
		if (x->ctx == c && x->fd >= 0 && x->device == file->st_dev &&
		    x->inode == file->st_ino)
			found = x;
	if (found)
		found->opens++;
	pthread_mutex_unlock(&shim.ctl);
	return found;
}

static struct ibv_xrcd *open_new(struct shim_context *c, struct ibv_xrcd_init_attr *init,
				 const struct stat *file)
{
	struct ibv_xrcd_init_attr alone = *init;
	struct shim_xrcd *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->ctx = c;
	x->fd = -1;
	x->opens = 1;
	x->v.context = &c->verbs.context;
	if (file) {
		alone.oflags |= O_EXCL;
		x->device = file->st_dev;
		x->inode = file->st_ino;
		x->fd = fcntl(init->fd, F_DUPFD_CLOEXEC, 0);
	}
	x->real = file && x->fd < 0 ? NULL : open_real(c, &alone);
	if (!x->real) {
		int error = errno;

		if (x->fd >= 0)
			close(x->fd);
		free(x);
		errno = error;
		return NULL;
	}
	pthread_mutex_lock(&shim.ctl);
	list_add(&shim.xrcds, &x->link);
	pthread_mutex_unlock(&shim.ctl);
	return &x->v;
}

struct ibv_xrcd *shim_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *init)
{
	const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct shim_context *c = to_context(context);
	struct shim_xrcd *x = NULL;
	struct ibv_xrcd *xrcd;
	struct stat file;
	bool named;
	int error;

	if (!init)
		init = &nothing;
	named = init->comp_mask == both && !fstat(init->fd, &file);
	ctl_enter();
	pthread_mutex_lock(&opening);
	if (named && !(init->oflags & O_EXCL))
		x = opened_before(c, &file);
	xrcd = x ? &x->v : open_new(c, init, named ? &file : NULL);
	error = errno;
	pthread_mutex_unlock(&opening);
	ctl_exit();
	errno = error;
	/* The kernel's answer to O_EXCL where there is one (ib_uverbs_open_xrcd). */
	if (!xrcd && named && error == EINVAL && !(init->oflags & O_EXCL))
		refuse_shared_xrc("ibv_open_xrcd");
	return xrcd;
}

int shim_close_xrcd(struct ibv_xrcd *xrcd)
{
	struct shim_xrcd *x = to_xrcd(xrcd);
	bool last;
	int rc = 0;

	ctl_enter();
	pthread_mutex_lock(&opening);
	pthread_mutex_lock(&shim.ctl);
	last = x->opens == 1;
	x->opens -= !last;
	pthread_mutex_unlock(&shim.ctl);
	if (last)
		rc = ibv_close_xrcd(x->real);
	if (last && !rc) {
		pthread_mutex_lock(&shim.ctl);
		list_del(&x->link);
		pthread_mutex_unlock(&shim.ctl);
		if (x->fd >= 0)
			close(x->fd);
		free(x);
	}
	pthread_mutex_unlock(&opening);
	ctl_exit();
	return rc;
}

void xrc_release(const struct shim_context *c)
{
	struct shim_xrcd *x;

	list_for_each (x, &shim.xrcds, link)
		if (x->ctx == c && x->real)
			ibv_close_xrcd(TAKE(x->real));
}

int xrc_rebuild(void)
{
	struct shim_xrcd *x;

	list_for_each (x, &shim.xrcds, link) {
		struct ibv_xrcd_init_attr init = {.comp_mask = IBV_XRCD_INIT_ATTR_FD |
							       IBV_XRCD_INIT_ATTR_OFLAGS,
						  .fd = x->fd,
						  .oflags = x->fd < 0 ? O_CREAT : O_CREAT | O_EXCL};

		if (!x->ctx->in_job || x->real)
			continue;
		x->real = open_real(x->ctx, &init);
		if (!x->real)
			return -errno;
	}
	return 0;
}

static uint64_t gone(uint32_t real_srqn)
{
	return (uint64_t)real_srqn << 1 | SRQN_GONE;
}

/* True if nobody can know it for anything else than that number of the hardware. */
static bool is_free(uint32_t srqn, uint32_t real_srqn)
{
	uint64_t e = table_get(&shim.srqns, srqn);

	return !e || e == gone(real_srqn);
}

int xrc_number_srq(struct shim_srq *s)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.ctl);
	uint32_t n = s->real_srqn;

	/* From the end, where those of the hardware hardly come. */
	while (!is_free(n, s->real_srqn)) {
		if (shim.srqns_changed == SRQN_NONE)
			return -ENOSPC;
		n = SRQN_NONE - 1 - shim.srqns_changed++;
	}
	s->srqn = n;
	s->number = shim.srq_count++;
	return table_set(&shim.srqns, n, (uintptr_t)s, TABLE_MAX / TABLE_CHUNK);
}

void xrc_forget_srq(struct shim_srq *s)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->holds_srq == s)
			q->holds_srq = NULL;
	lock_take(&s->cq->lock);
	table_set(&shim.srqns, s->srqn, gone(s->real_srqn), TABLE_MAX / TABLE_CHUNK);
	lock_give(&s->cq->lock);
}

int shim_get_srq_num(struct ibv_srq *ibsrq, uint32_t *number)
{
	struct shim_srq *s = to_srq(ibsrq);

	if (!s->xrcd)
		return EOPNOTSUPP;
	*number = s->srqn;
	return 0;
}

void xrc_harvest(const struct shim_qp *q)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.ctl);
	struct shim_srq *s;

	list_for_each (s, &shim.srqs, link)
		if (s->xrcd && s->xrcd == q->xrcd)
			cq_harvest(s->cq);
}

void xrc_forget_qp(const struct shim_qp *q)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.ctl);
	struct shim_srq *s;

	list_for_each (s, &shim.srqs, link)
		if (s->xrcd && s->xrcd == q->xrcd)
			cq_forget_qp(s->cq, q);
}
