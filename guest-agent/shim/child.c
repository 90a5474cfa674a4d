/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The start of a child of a fork. Its calls on its parent's objects fail (EBADF), and it cannot
 * reach the parent's device, because its descriptors lead nowhere. A device that it opens itself is
 * covered as any other, by an agent connection and a helper thread of its own.
 *
 * The handler touches no memory of the heap but contexts. After ibv_fork_init() a page that lies
 * beside a registered region may be missing in the child, which perhaps only wants to exec. */
#include "guest-agent/shim/child.h"
#include "guest-agent/shim/core/fork.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/srq.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The data path of inherited objects, and memory windows, which are called the same way. */
static int no_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	*bad = wr;
	return EBADF;
}

static int no_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	*bad = wr;
	return EBADF;
}

static int no_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	*bad = wr;
	return EBADF;
}

static int no_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return EBADF;
}

static struct ibv_mw *no_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	(void)pd;
	(void)type;
	errno = EBADF;
	return NULL;
}

static int no_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	(void)qp;
	(void)mw;
	(void)bind;
	errno = EBADF;
	return EBADF;
}

static int no_dealloc_mw(struct ibv_mw *mw)
{
	(void)mw;
	return EBADF;
}

/* Contexts have pages of their own (context_new), which no registration takes from a child. So the
 * data path itself need not ask whose process it is in. */
static void cut_ops(void)
{
	struct shim_context *c;

	list_for_each (c, &shim.contexts, link) {
		struct ibv_context_ops *ops = &c->verbs.context.ops;

		ops->post_send = no_post_send;
		ops->post_recv = no_post_recv;
		ops->post_srq_recv = no_post_srq_recv;
		ops->poll_cq = fork_no_poll_cq;
		ops->req_notify_cq = no_req_notify_cq;
		ops->alloc_mw = no_alloc_mw;
		ops->bind_mw = no_bind_mw;
		ops->dealloc_mw = no_dealloc_mw;
	}
}

static void in_child(void)
{
	unsigned generation = shim.generation + 1;

	fork_cut_fds();
	cut_ops();
	if (shim.agent >= 0)
		close(shim.agent);
	if (shim.kick >= 0)
		close(shim.kick);
	shim_reset();
	memset(&job, 0, sizeof(job));
	peer_reset();
	routes_forget_all();
	mw_forget_all();
	xrc_forget_all();
	qp_forget_all();
	pkeys_forget_all();
	gids_forget_all();
	parts_forget();
	shim.generation = generation;
}

int fork_watch(void)
{
	static bool watched; /* a child has its parent's handlers */

	fork_prepare();
	if (!watched && pthread_atfork(NULL, NULL, in_child))
		return -1;
	watched = true;
	return 0;
}
