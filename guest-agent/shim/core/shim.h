/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libibvmig.so: the verbs that a program calls, on shadow objects of our own, so that the device
 * below can be given back and taken anew without the program's knowledge. What the shim's files do
 * for each other; the objects and their locks are in shim/core/objects.h. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_SHIM_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_SHIM_H

#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden) /* the verbs are exported, this is ours */
/* shim/core/dl.c: dlopen() without our own libraries in between. */
void *shim_dlopen_real(const char *name, int flags);

/* shim/core/real.c: the verbs below us. */
struct shim_real {
#define REAL_VERB(ret, name, version, ...) ret (*name)(__VA_ARGS__);
#include "guest-agent/shim/core/real.def"
#undef REAL_VERB
};
/* Loaded on first use; a verb that this libibverbs lacks is a stub that fails with EOPNOTSUPP. */
const struct shim_real *shim_real(void);
#define real_verbs (*shim_real())

/* Whether the context is one of our shadows; all others pass through. */
bool shim_ours(const struct ibv_context *context);

/* shim/core/fork.c */
/* Before the first device is opened. 0 or -1. */
int fork_watch(void);
/* A descriptor of the device or of ours, which children must not use. */
void fork_keep_fd(int fd);
void fork_drop_fd(int fd); /* before it is closed */
/* What polls an inherited CQ: -EBADF. */
int fork_no_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

/* shim/core/link.c: the agent and the helper thread. */
/* As before the first call; what there was is left where it is. */
void shim_reset(void);
/* Connects once per process. false: there is no agent, step aside. */
bool shim_start(void);
void shim_send(const void *packet);
/* Sends packet and waits for the answer of the same type, at most bytes of it. 0 or -errno (of
 * the call or the answer's status); -ECONNRESET: the agent has gone. Not from the helper thread. */
int shim_call(void *packet, void *answer, size_t bytes, unsigned timeout_ms);
/* An agent that has gone is mostly one that is started again: waits until it is there. false: not
 * within ms. Not from the helper thread. */
#define SHIM_AGENT_BACK_MS 10000
bool shim_await_agent(unsigned ms);
void shim_wake_helper(void);
/* A line in the agent's log; never on the program's streams. */
void shim_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void shim_set_uncovered(const char *why);
void shim_unset_uncovered(void);
uint32_t shim_cookie(void);

/* shim/job/describe.c: the answer to the agent's query. */
void shim_describe(uint32_t cookie);

/* Around each control verb: waits while a job runs. One inside another does nothing; nor does one
 * in the helper thread. */
void ctl_enter(void);
/* The same for who opens or looks for devices: waits also while the guest is suspended, although
 * nothing of this process is. Whether it has waited. */
bool ctl_enter_device(void);
void ctl_exit(void);

/* shim/verbs/context.c */
int context_open(struct shim_context *c, struct ibv_device *device);
void context_close(struct shim_context *c);
bool context_has_guid(const struct shim_context *c, const struct shim_order *o,
		      unsigned *ret_index);
int context_query_gids(struct shim_context *c);
/* Events that the program has not taken yet are kept for it: the objects below them go. */
void context_keep_events(struct shim_context *c);
/* Under ctl: no event names that object (of the program's) any more. */
void context_forget_events(struct shim_context *c, const void *object);

/* shim/verbs/mr.c */
int mr_register(struct shim_mr *m);
/* It has no memory any more: what uses it fails. */
void mr_give_up(struct shim_mr *m);

/* shim/job/region.c: the job's regions. Suspend of the mover, nothing is held yet: 0; -EAGAIN, look
 * again soon, where one could not be registered again; that is an error, and has failed the job,
 * from job.lost_until_us on. */
int regions_check(void);
/* Resume: PDs are there. 0 or -errno. */
int regions_rebuild(void);

/* shim/verbs/dirty.c: writes each page that the HCA may have written, without changing it. Bytes.
 * What is no longer mapped is left out. */
uint64_t dirty_region(const struct shim_mr *m);
/* Of all contexts that take part in the job; pages that are in several regions once. */
uint64_t dirty_job(void);

/* shim/core/sleep.c: until fd is readable. 0, or -errno: -EINTR where a read() would say so, after
 * a signal whose handler was installed without SA_RESTART. */
int shim_sleep(int fd);

/* Whether the program is to have an event. PERHAPS: it may have been given before the program's
 * arming what it is for. EXTRA: the second one for an arming, which the program may have seen in
 * its descriptor; it has it, unless it arms anew before. perftest takes an event without a
 * completion for an error. */
enum cq_due { CQ_NO, CQ_PERHAPS, CQ_EXTRA, CQ_YES };

/* shim/verbs/channel.c */
int channel_open(struct shim_channel *ch);
void channel_close(struct shim_channel *ch);
/* A job begins: the helper takes the hardware's events from now on, the program sees ours. What it
 * may have seen becomes ours. */
void channel_detach(struct shim_channel *ch);
/* The job ends, for the channel first, then for each of its CQs: the program sees the hardware's
 * events again, where these are what it asked for (else as soon as it asks, channel_arm()). */
void channel_unhelp(struct shim_channel *ch);
void channel_go_on(struct shim_channel *ch, struct shim_cq *cq);
/* An event of ours. */
void channel_push(struct shim_channel *ch, struct shim_cq *cq, enum cq_due due);
/* The program has polled and left completions behind: an event, if it waits for one and nobody has
 * taken them meanwhile. */
void channel_left(struct shim_channel *ch, struct shim_cq *cq);
/* One that was only CQ_PERHAPS is taken back, since the program has polled all: it waits on. */
void channel_retract(struct shim_channel *ch, struct shim_cq *cq);
void channel_forget(struct shim_channel *ch, struct shim_cq *cq);
/* ibv_req_notify_cq() where events may be on their way that are none for this arming. errno. */
int channel_arm(struct shim_channel *ch, struct shim_cq *cq, int solicited_only);
/* For the helper: what has come of the hardware, to the program as far as it waits for it. */
void channel_take_events(struct shim_channel *ch);
/* The same where no program waits. */
void channel_drop_events(struct ibv_comp_channel *real);

/* shim/core/batch.c: the same call for many objects, several at a time. */
struct shim_batch {
	int (*run)(void *object); /* in any thread; 0 or -errno */
	bool long_calls;          /* worth threads, without a trial */
	void **object;            /* owned */
	size_t count, room;
	_Atomic(size_t) next;
	_Atomic(int) error; /* the first, and whose it was */
	void *failed;
};
void batch_add(struct shim_batch *b, void *object);
/* For all that were added; the batch is empty after it. 0 or the first error. */
int batch_run(struct shim_batch *b);

/* shim/verbs/cq.c */
/* On a shadow. NULL and errno. */
struct ibv_cq *cq_create(struct ibv_context *context, int cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int vector);
int cq_create_real(struct shim_cq *cq);
/* Under the CQ's lock: the real CQ, which the caller destroys, or NULL. */
struct ibv_cq *cq_take_real(struct shim_cq *cq);
/* Completions of q's real QP that are still there belong to nobody any more. cq may be NULL. */
void cq_forget_qp(struct shim_cq *cq, const struct shim_qp *q);
/* All completions of the hardware into the software queue. */
void cq_harvest(struct shim_cq *cq);
void cq_harvest_locked(struct shim_cq *cq); /* under its lock */
/* Under its lock: wc at the end of the software queue. false: no memory. */
bool cq_add(struct shim_cq *cq, const struct ibv_wc *wc);
int shim_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc);

/* shim/verbs/arm.c: which events the program gets. */
/* All completions of the hardware into the software queue, and an event of ours if the program
 * waits for one: the real CQ is gone. */
void cq_announce(struct shim_cq *cq);
/* A job begins: as cq_harvest(), of what may be older than the program's arming. */
void cq_harvest_old(struct shim_cq *cq);
/* Under channel.lock: an event of the hardware has come. seen: the program may have seen it. */
enum cq_due cq_event(struct shim_cq *cq, bool seen);
/* A completion that the hardware will not make. */
void cq_push(struct shim_cq *cq, const struct ibv_wc *wc);
/* The helper wants the next event. */
void cq_watch(struct shim_cq *cq);
/* Under channel.lock, after a job: the program's arming, on the CQ that there is now.
 * ret_clean: whether the hardware makes events for the program only. */
enum cq_due cq_go_on(struct shim_cq *cq, bool *ret_clean);
/* Under channel.lock: the program has polled all before it took its event, and waits on (CQ_NO), if
 * there is nothing else by now. */
enum cq_due cq_wait_on(struct shim_cq *cq);
/* Under channel.lock: what channel_left() asks. */
enum cq_due cq_left(struct shim_cq *cq);
/* For channel_arm(): errno. */
int cq_arm_anew(struct shim_cq *cq, int solicited_only);
int shim_req_notify_cq(struct ibv_cq *ibcq, int solicited_only);

/* shim/verbs/qp.c */
/* A QP on a shadow; *init is updated. pd: NULL for the target of an XRC connection. ex: NULL for a
 * plain one. NULL and errno. */
struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_pd *pd,
			 struct ibv_qp_init_attr *init, const struct shim_qp_ex *ex);
void qp_forget_all(void); /* in a child: they are the parent's */
int qp_create_real(struct shim_qp *q);
void qp_destroy_real(struct shim_qp *q);
struct shim_qp *qp_by_vqpn(uint32_t vqpn); /* under ctl */
/* Why a migration must be refused while such a QP exists, or NULL. */
const char *qp_type_uncovered(const struct ibv_qp_init_attr *init);
/* The index of that GID at the port, or -errno. */
int gid_index(struct shim_context *c, uint8_t port, const uint8_t gid[16]);
int qp_to_init(struct shim_qp *q);
/* The device's GID table may have changed: it is looked at anew; keep: and then once for each GID,
 * as long as a resume takes. */
void qp_keep_gids(struct shim_context *c, bool keep);
int qp_to_connected(struct shim_qp *q);
/* A request of ours has failed and with it the real QP, which keeps its number: back to INIT, to be
 * connected once more. 0 or -errno. */
int qp_start_over(struct shim_qp *q);

/* shim/verbs/post.c */
int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int shim_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int queue_init(struct shim_queue *q, uint32_t cap, uint32_t max_sge, uint32_t max_inline,
	       bool send);
void queue_free(struct shim_queue *q);
void queue_reset(struct shim_queue *q);
/* Under the queue's lock: whether posts go to the log only. */
void queue_hold(struct shim_queue *q, bool on);
/* Under the queue's lock: posts take the long way, and .posted is right. */
void queue_leave_direct(struct shim_queue *q);
/* Under the queue's lock: hands the log's rest to the hardware. */
void send_flush(struct shim_qp *q);
void recv_flush(struct shim_qp *q);
/* Of a send in the log: whether it consumes a receive of the peer. */
bool send_takes_receive(const struct shim_qp *q, uint64_t number);
bool send_signalled(const struct shim_qp *q, uint64_t number);
/* All of the list (n long) or nothing: 0 or errno. */
int send_post_all(struct shim_qp *q, struct ibv_send_wr *wr, uint32_t n);
int send_post_marker(struct shim_qp *q);

/* shim/verbs/ex_qp.c: ibv_create_qp_ex and ibv_wr_* */
struct ibv_qp *shim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
/* For a QP that was created with send_ops; its queues exist. 0 or -errno. */
int builder_init(struct shim_qp *q);
void builder_free(struct shim_builder *b);

/* shim/verbs/ex_cq.c: ibv_create_cq_ex, ibv_start_poll, ibv_wc_read_* */
struct ibv_cq_ex *shim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *init);

/* shim/verbs/refuse.c: the operations that fail with EOPNOTSUPP. These return it and set errno. */
void refuse_set_ops(struct verbs_context *v);
int refuse_devx(const char *verb);
int refuse_shared_xrc(const char *verb); /* with another process */
int refuse_cm_xrc(const char *verb);
int refuse_srq_type(const char *verb);

/* shim/verbs/domain.c */
struct ibv_td *shim_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *init);
int shim_dealloc_td(struct ibv_td *td);
struct ibv_pd *shim_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *init);
void parent_domain_free(struct shim_pd *pd);

/* shim/verbs/srq.c */
int shim_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Under the lock of the CQ: the receive in that slot has completed on q, which counts it. false:
 * there is none. */
bool srq_take(struct shim_srq *s, uint32_t slot, struct shim_qp *q, uint64_t *ret_wr_id);
/* Posts to s, which q takes from, go to the log only until each QP that holds it has let go. A QP
 * holds one at a time. */
void srq_hold(struct shim_qp *q, struct shim_srq *s);
void srq_unhold(struct shim_qp *q);
/* Whether all receives that the hardware was given have completed. */
bool srq_is_empty(struct shim_srq *s);
/* The virtual number of the sender of a datagram into that slot; before srq_take(). */
uint32_t srq_source(struct shim_srq *s, uint32_t slot, const struct ibv_wc *wc);
void srq_release(struct shim_srq *s);
/* The real queue with all that was not consumed, oldest first, and its limit. 0 or -errno. */
int srq_rebuild(struct shim_srq *s);

struct ibv_srq *shim_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *init);

/* shim/verbs/xrc.c: XRC domains, numbers of shared receive queues, and what a target has received.
 */
struct ibv_xrcd *shim_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *init);
int shim_close_xrcd(struct ibv_xrcd *xrcd);
int shim_get_srq_num(struct ibv_srq *srq, uint32_t *number);
/* Of a queue that has its .real and .real_srqn: gives it its virtual number. 0 or -errno. */
int xrc_number_srq(struct shim_srq *s);
/* It has been destroyed. */
void xrc_forget_srq(struct shim_srq *s);
/* All completions of receives that q has taken from shared queues, into software queues. */
void xrc_harvest(const struct shim_qp *q);
/* Its real QP goes: no CQ remembers it. */
void xrc_forget_qp(const struct shim_qp *q);
void xrc_forget_all(void); /* in a child */
/* The device goes, has come: domains. 0 or -errno. */
void xrc_release(const struct shim_context *c);
int xrc_rebuild(void);

/* shim/verbs/mw.c */
struct ibv_mw *shim_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int shim_dealloc_mw(struct ibv_mw *mw);
int shim_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *ibmw, struct ibv_mw_bind *bind);
/* Under the queue's lock: hands IBV_WR_BIND_MW or IBV_WR_LOCAL_INV, logged as number, to the
 * hardware. 0 or errno. */
int mw_hand_over(struct shim_qp *q, uint64_t number, const struct ibv_send_wr *wr);
/* The peer may have invalidated a key of ours: gives the completion the virtual one. */
void mw_invalidated(struct shim_context *ctx, struct ibv_wc *wc);
/* Requests of q from number on have failed. */
void mw_failed(struct shim_qp *q, uint64_t number);
/* Its log ends; what has not completed has failed. */
void mw_reset_qp(struct shim_qp *q);
void mw_forget_qp(struct shim_qp *q);
void mw_forget_mr(struct shim_mr *m);
void mw_forget_all(void); /* in a child: they are the parent's */
/* Why the windows of a device could not be bound again, or NULL. */
const char *mw_uncovered(const struct shim_context *ctx);
/* Before the job's QPs go, once it is known what of theirs was executed. device: it goes as well.
 */
void mw_release(bool device);
/* Allocates those that have gone; 0 or -errno. */
int mw_rebuild(void);
/* QPs that are .connecting are in RTS again: binds what belongs to them. Where that is not done,
 * .connect_error says why (-EINPROGRESS: it takes longer), .unbound for which window. */
void mw_bind_again(void);
/* The real QP goes, or has come to its end. */
void mw_stop_binding(struct shim_qp *q);
/* The real QP goes back to RESET: its windows of type 2 are to be bound once more. In any thread.
 */
void mw_start_over(struct shim_qp *q);
/* Whether it has bound some since mw_told(). */
bool mw_bound_again(void);
void mw_told(void);
/* Fills in keys of a device's windows that peers may use, from *skip on, which moves on: those that
 * have been bound again for this peer, or (NULL) all. How many. */
unsigned mw_keys(const struct shim_context *ctx, const struct shim_peer *again,
		 struct peer_key *keys, unsigned room, unsigned *skip);
/* *ret_key is changed where rkey is a window's. false: it will be, and is told then. */
bool mw_key(uint32_t rkey, uint32_t *ret_key);

/* shim/peer/peer.c */
#define RESOLVE_MS      2000
#define RESOLVE_BUSY_MS 120000
int peer_connect(struct shim_qp *q);
/* In a child: nobody has said anything. */
void peer_reset(void);
void ud_forget_all(void);
void peer_delivered(const struct shim_relay *r);
void peer_unreachable(const uint8_t dgid[16]);
/* One packet for one QP, at once; or, in the helper thread, together with others like it until
 * peer_flush(). */
void peer_send_qp(struct shim_qp *q, uint16_t type, uint64_t migration);
void peer_queue_qp(struct shim_qp *q, uint16_t type, uint64_t migration);
void peer_flush(void);
/* At once, to the other end of q: q has no part in the migration, and is not to be waited for. */
void peer_send_gone(const struct shim_qp *q, uint64_t migration);
void peer_answer_deferred(void);

/* shim/verbs/keys.c: what peers know of our keys. A resume begins: all may be new. */
void peer_begin_keys(void);
/* q's peer forgets what it knows of that GID of ours, and is told all on q's device; once. */
void peer_tell_keys(struct shim_qp *q);
/* Windows that are bound again, to all who may use them. */
void peer_tell_windows(void);
/* Asks q's peer for q->wanted, under its send.lock. */
void peer_want(struct shim_qp *q);
/* Helper thread: asks again who has not answered, also where the agent or the peer's has gone with
 * the question. Milliseconds until then, -1: nobody waits. */
void peer_want_again(void);
int peer_want_timeout(void);

/* shim/peer/route.c: path records, from the agent's cache. */
/* The route, made if it is not there yet. NULL without memory, or above ROUTES_MAX. */
#define ROUTES_MAX 65536u
struct shim_route *route_get(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey);
/* route_answered() will be called. reconnect: at a resume; the agent's counters keep that apart. */
void route_ask(struct shim_route *r, bool reconnect);
/* The agent has gone with the questions that are open: the new one is asked. */
void routes_ask_again(void);
void route_answered(const struct shim_path *p);
/* The largest MTU that a path of so many bytes can carry. */
enum ibv_mtu route_mtu(unsigned bytes);
/* What the record says, into the attributes for RTR. On InfiniBand only: on RoCE there is no path
 * beyond the GIDs. r NULL or not known: no change. */
void route_apply(const struct shim_route *r, struct ibv_qp_attr *a);

/* shim_cm*.c: librdmacm (shim/cm/id.h) */
struct cm_ends;
/* Whether librdmacm opens a device: it gets the same context again, after a migration too. */
bool cm_opens_device(const void *return_address);
/* The program destroys a QP that an id may have. Inside a control verb. */
void cm_forget_qp(const struct ibv_qp *qp);
/* Whether connections that the job concerns are being made (under ctl), and what they wait for. */
bool cm_making(char *ret_why, size_t bytes);
/* Whether connections of this process, with or without a QP of ours, lead to what moves. */
bool cm_concerned(void);
/* Whether what moves has connections with this process, so that it may make one more. */
bool cm_may_be_asked(void);
/* The job's ids: before QPs are destroyed, when devices are open again, when all is connected. */
void cm_forget_all(void); /* in a child: a thread of its own starts with its first call */
void cm_release(void);
void cm_rebuild(void);
void cm_resumed(void);
void cm_peer_disconnected(const struct peer_head *h, const struct peer_qp *e);
/* The GIDs of the connection that q is for. */
bool cm_find_gids(const struct shim_qp *q, uint32_t dqpn, uint8_t ret_sgid[16],
		  uint8_t ret_dgid[16]);
/* how: SHIM_SEND at once, SHIM_WILL when the process has ended, SHIM_WILL_DROP not any more. */
void peer_send_disconnect(const struct cm_ends *ends, uint16_t how);
/* What an agent must know of connections that have migrated: after it was started again. */
void cm_tell_agent(void);

/* Datagrams (shim/verbs/ud.h). On the data path, under send.lock: the hardware's address handle and
 * number into wr; false: the number is being asked for. */
bool ud_translate(struct shim_qp *q, struct ibv_send_wr *wr);
/* The virtual number of the sender; the receive's buffers begin with the GRH. */
uint32_t ud_source(const struct ibv_wc *wc, const struct ibv_sge *sge, int num_sge);
/* Fills in the rest of a marker. 0, or errno. */
int ud_marker(struct shim_qp *q, struct ibv_send_wr *wr);
/* What that took; not while a marker is under way. */
void ud_drop_marker(struct shim_qp *q);
/* Questions that are not answered in time end. Milliseconds until then, -1: there are none. */
void ud_step(void);
int ud_timeout(void);
/* Suspend: whether partners take part; whether all is done, but for QPs that are not drained. */
bool ud_choose(void);
bool ud_quiet(void);
bool ud_broken(const struct shim_qp *q);
void ud_abort(void);
void ud_leave_groups(struct shim_qp *q);
void ud_release(struct shim_context *c);
/* Resume: from INIT to where the program had it. 0 or -errno. */
int ud_connect(struct shim_qp *q);
void ud_tell_partners(void);
bool ud_ready(void);
void ud_job_end(void);

#pragma GCC visibility pop

#endif
