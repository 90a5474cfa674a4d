/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fork(). A child has no part in its parent's objects: its calls on them fail (EBADF), and it
 * cannot reach the parent's device, because its descriptors lead nowhere. A device that it opens
 * itself is covered as any other, by an agent connection and a helper thread of its own.
 *
 * The handler touches no memory of the heap but contexts: after ibv_fork_init() a page that lies
 * beside a registered region may be missing in the child, which perhaps only wants to exec. */
#include "guest-agent/shim/core/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FDS_MAX   65536 /* higher descriptors stay open in a child */
#define WORD_BITS 64

static _Atomic(uint64_t) kept[FDS_MAX / WORD_BITS];
static int nowhere = -1; /* can neither be written nor asked by ioctl */

void fork_keep_fd(int fd)
{
	if (fd >= 0 && fd < FDS_MAX)
		atomic_fetch_or(&kept[fd / WORD_BITS], 1ull << (fd % WORD_BITS));
}

void fork_drop_fd(int fd)
{
	if (fd >= 0 && fd < FDS_MAX)
		atomic_fetch_and(&kept[fd / WORD_BITS], ~(1ull << (fd % WORD_BITS)));
}

/* Their numbers stay taken, so that the parent's objects, should they be used, meet nothing else.
 */
static void cut_fds(void)
{
	for (int i = 0; i < FDS_MAX / WORD_BITS; i++) {
		uint64_t word = atomic_exchange(&kept[i], 0);

		for (; word; word &= word - 1) {
			int fd = i * WORD_BITS + __builtin_ctzll(word);

			if (dup3(nowhere, fd, O_CLOEXEC) < 0)
				close(fd);
		}
	}
}

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

int fork_no_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq;
	(void)n;
	(void)wc;
	return -EBADF;
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

	cut_fds();
	cut_ops();
	if (shim.agent >= 0)
		close(shim.agent);
	if (shim.kick >= 0)
		close(shim.kick);
	shim_reset();
	memset(&job, 0, sizeof(job));
	peer_reset();
	ud_forget_all();
	mw_forget_all();
	xrc_forget_all();
	qp_forget_all();
	cm_forget_all();
	shim.generation = generation;
}

int fork_watch(void)
{
	static bool watched; /* a child has its parent's handlers */

	if (nowhere < 0)
		nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (!watched && pthread_atfork(NULL, NULL, in_child))
		return -1;
	watched = true;
	return 0;
}
