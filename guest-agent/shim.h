/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libibvmig.so: the verbs that a program calls, on shadow objects of our own, so that the device
 * below can be given back and taken anew without the program's knowledge.
 *
 * Locks, in the order in which they may be taken:
 *   shim.ctl      lists of objects, number of callers inside a control verb; held briefly
 *   queue.lock    a QP's send or receive queue: its log, the real QP's pointer
 *   channel.lock  a completion channel's queue of events
 *   cq.lock       a CQ: its software queue, the real CQ's pointer
 *   srq.lock      a shared receive queue's log, the real one's pointer
 *   shim.call     calls to the agent that wait for an answer
 * The helper thread changes real pointers; control verbs keep out while a job runs (ctl_enter). */
#ifndef IBVMIG_SHIM_H
#define IBVMIG_SHIM_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/util.h"
#include "guest-agent/list.h"
#include "guest-agent/shim_lock.h"
#include "guest-agent/shim_proto.h"
#include "guest-agent/shim_table.h"

#define SHIM_GIDS_MAX 16

/* What a wr_id means on the hardware's queues: which log and where in it. */
#define TAG_MASK   (3ull << 62)
#define TAG_SEND   (0ull << 62)
#define TAG_RECV   (1ull << 62)
#define TAG_MARKER (2ull << 62)
#define TAG_SRQ    (3ull << 62)

struct shim_context {
	struct list link;
	struct ibv_device device;             /* what the program sees, whatever device is below */
	uint64_t node_guid;                   /* big-endian, as verbs has it */
	struct ibv_context *real;             /* NULL while the device is given back */
	struct ibv_comp_channel *own_channel; /* real; of CQs that the program gave no channel */
	int async_fd;                         /* epoll: what the program sees; holds the real one */
	unsigned guid_count;
	uint64_t guid[SHIM_GIDS_MAX]; /* interface ids of its first GIDs */
	bool in_job, released;
	unsigned generation; /* of the process that has opened it */
	struct list events;  /* struct shim_event: taken from a device that was given back */
	int soft_events;     /* eventfd, as a semaphore: one for each of them */
	unsigned cm_opens;   /* of librdmacm: then it stays until the process ends */
	struct shim_table qp_by_qpn; /* hardware's QPN to struct shim_qp * */
	struct {                     /* what was looked up in its GID table in this job */
		uint8_t gid[16], port;
		int index;
	} gid_at[SHIM_GIDS_MAX];
	unsigned gids_at;
	bool gids_kept;
	struct verbs_context verbs; /* the last: it may grow */
};

/* An asynchronous event that waits for the program. */
struct shim_event {
	struct list link;
	struct ibv_async_event event; /* as the program will see it */
};

struct shim_pd {
	struct list link;
	struct shim_context *ctx; /* borrowed */
	struct ibv_pd *real;
	struct shim_pd *base; /* borrowed; a parent domain: the PD that it stands for */
	struct ibv_td *td;    /* borrowed; a parent domain's, or NULL */
	unsigned parents;     /* parent domains of this PD; under shim.ctl */
	struct ibv_pd v;
};

struct shim_mr {
	struct list link;
	struct shim_pd *pd; /* borrowed */
	struct ibv_mr *real;
	uint64_t number; /* grows with each registration */
	uint64_t iova;
	unsigned access;
	bool iova_given;
	bool gone; /* its memory was not there when it was to be registered again: no .real */
	struct ibv_mr v;
};

/* A completion channel. .v.fd is an epoll descriptor that holds the real channel and .soft. What
 * the program can see there, ibv_get_cq_event() must give. */
struct shim_channel {
	struct list link;
	struct shim_context *ctx; /* borrowed */
	struct ibv_comp_channel *real;
	pthread_mutex_t lock;
	atomic_bool attached; /* the program sees the hardware's events */
	bool helped;          /* the helper takes them: a migration is under way */
	int soft;             /* eventfd, as a semaphore: one for each element of .events */
	struct list events;   /* struct shim_cq.event */
	struct ibv_comp_channel v;
};

struct shim_cq {
	struct shim_lock lock;
	struct list link;
	struct shim_context *ctx;     /* borrowed */
	struct shim_channel *channel; /* borrowed; NULL: none */
	struct ibv_cq *real;
	struct ibv_cq *direct; /* .real while nothing is in .soft; else NULL */
	uint32_t last_qpn;     /* the hardware's, of the last completion */
	struct shim_qp *last_qp;
	struct ibv_wc *polled; /* by the poll under way; in memory as in struct shim_queue */
	struct ibv_wc *soft;   /* owned; ring of completions not yet polled by the program */
	uint32_t soft_room;    /* power of 2, or 0 */
	uint32_t soft_head, soft_tail;
	int cqe, vector; /* as asked for */
	/* Events: shim_arm.c */
	bool armed; /* the program waits for one */
	bool armed_solicited;
	bool asked;            /* and the hardware has been told so, and has made none since */
	bool stray;            /* the hardware may make one that the program has not asked for */
	_Atomic(bool) awaited; /* armed for the helper, and no event has come since */
	uint32_t mark;         /* in .soft: completions before it may be older than the arming */
	atomic_bool perhaps;   /* under channel.lock: all that .event is for may be older, too */
	struct list event;     /* in channel.events */
	uint32_t events;       /* given to the program; it acknowledges each */
	/* The completion between ibv_start_poll and ibv_end_poll, which hold the lock. */
	pthread_mutex_t poll_lock;
	struct ibv_wc now;
	union {
		struct ibv_cq v;
		struct ibv_cq_ex vex;
	};
};

struct shim_send {
	struct ibv_send_wr wr; /* sg_list points into queue.sge, .next is NULL */
};

struct shim_recv {
	uint64_t wr_id;
	struct ibv_sge *sge; /* in queue.sge */
	int num_sge;
};

/* The log of a send or receive queue. Numbers only grow; the place is number & mask.
 *   tail <= posted <= head: completed, at the hardware, only here. */
struct shim_queue {
	struct shim_lock lock;
	bool held;       /* posts go to the log only; set by queue_hold() */
	uint64_t direct; /* posts below this number take the short way; 0: none */
	uint32_t cap, mask, max_sge, max_inline;
	uint64_t head, posted;
	_Atomic(uint64_t) tail; /* moved under the lock of the CQ */
	/* Of a QP on a shared receive queue only tail means something: receives completed. */
	union {
		struct shim_send *send;
		struct shim_recv *recv;
	};
	struct ibv_sge *sge;        /* max_sge for each entry */
	struct ibv_sge *translated; /* max_sge: scratch for the hardware's keys */
	char *inline_data;          /* max_inline for each entry */
	_Atomic(uint64_t) *lkey;    /* borrowed from shim.keys: entry of the last key */
	struct ibv_sge hw_sge;
	/* The short way: what the hardware is given, and what the program gave. In memory, since
	 * registers would have to be saved for the sake of errors that hardly ever come. */
	union {
		struct {
			struct ibv_send_wr hw_send, *plain_send, **plain_bad_send;
		};
		struct {
			struct ibv_recv_wr hw_recv, *plain_recv, **plain_bad_recv;
		};
	};
};

/* Work requests between ibv_wr_start and ibv_wr_complete, which hold the lock. */
struct shim_builder {
	pthread_mutex_t lock;
	int error;              /* errno, of the first that is wrong */
	uint32_t count;         /* the last one is the one that setters change */
	struct ibv_send_wr *wr; /* owned; send.cap */
	struct ibv_sge *sge;    /* owned; send.max_sge for each */
	char *inline_data;      /* owned; send.max_inline for each */
};

/* What ibv_create_qp_ex has asked for beyond ibv_create_qp. */
struct shim_qp_ex {
	uint32_t mask; /* enum ibv_qp_init_attr_mask, 0: a plain QP */
	uint32_t create_flags;
	uint64_t send_ops;
};

enum route_state { ROUTE_NONE, ROUTE_ASKED, ROUTE_KNOWN, ROUTE_FAILED };

/* One way from a port of ours to a GID: its path record. Never freed, so a pointer stays good. */
struct shim_route {
	uint8_t sgid[16], dgid[16];
	uint16_t pkey;
	_Atomic(enum route_state) state; /* after .path */
	uint32_t cookie;
	struct shim_path path;
};

/* What a process at the other end knows of our keys: it keeps them by the GID that we speak from.
 */
struct shim_told {
	const struct shim_context *ctx; /* only compared: may be gone */
	uint8_t sgid[16];
	bool told;     /* it knows regions before .next, and windows */
	uint64_t next; /* number of a region */
	unsigned pass; /* of peer_tell_windows() */
};

/* A process that QPs of ours are connected to. Freed when none is and another takes its place:
 * peer_used() in shim_peer.c must know all who hold one. */
struct shim_peer {
	struct list link;
	uint8_t gid[16];
	uint16_t slot;
	uint64_t instance;
	struct shim_table keys; /* its virtual keys to the hardware's */
	bool stops;             /* it has said so, or has gone */
	struct shim_told told[SHIM_GIDS_MAX];
	unsigned told_count;
};

/* What a memory window gives access to. */
struct shim_binding {
	bool bound;
	struct shim_qp *q;  /* borrowed; that it was bound on, NULL: it is gone */
	struct shim_mr *mr; /* borrowed */
	uint64_t addr, length;
	unsigned access;
	uint32_t rkey, real_rkey; /* virtual, and the hardware's */
};

struct shim_mw {
	struct list link;
	struct shim_pd *pd; /* borrowed */
	struct ibv_mw *real;
	uint32_t index;          /* of its keys */
	struct shim_binding now; /* when all that was posted is done */
	bool placed;             /* now.bound: the hardware has it so */
	bool untold;             /* bound again, and peers do not know */
	bool stale;              /* the hardware may have something else: allocate it anew */
	struct shim_qp *on;      /* borrowed; .binding of it is this */
	struct ibv_mw v;
};

struct shim_srq_recv {
	uint64_t wr_id;
	uint64_t number; /* 1, 2, 3 … in the order of the posts; 0: the slot is free */
	int num_sge;
};

/* The log of a shared receive queue: by slots, because its completions come in any order. */
struct shim_srq {
	struct list link;
	struct shim_pd *pd; /* borrowed */
	struct ibv_srq *real;
	struct shim_lock lock;
	unsigned holds;               /* QPs that hold it: posts go to the log only */
	uint32_t cap, max_sge, limit; /* limit: armed, 0: not */
	uint32_t slots, free_count, at_hardware;
	uint64_t last, posted;      /* numbers: of the newest, of the newest at the hardware */
	struct shim_srq_recv *log;  /* owned; slots of them */
	uint32_t *free_slots;       /* owned */
	uint32_t *order;            /* owned; scratch */
	struct ibv_sge *sge;        /* owned; max_sge for each slot */
	struct ibv_sge *translated; /* owned; max_sge: scratch for the hardware's keys */
	struct ibv_srq v;
};

/* Of a request of our own. */
enum bind_state { BIND_WAITS, BIND_DONE, BIND_FAILED };

enum qp_phase { QP_LIVE, QP_DRAINING, QP_QUIET, QP_RELEASED, QP_CONNECTING, QP_WAIT_PEER };

struct shim_qp {
	struct list link;
	struct shim_context *ctx; /* borrowed */
	struct shim_cq *send_cq, *recv_cq;
	struct ibv_qp *real;
	bool registered; /* the agent knows .v.qp_num */
	struct ibv_qp_init_attr init;
	struct shim_qp_ex ex;
	struct shim_builder *builder; /* owned; NULL: no ibv_wr_* */
	struct ibv_ece ece;           /* as set by the program */
	bool ece_set;
	struct ibv_qp_attr attr; /* what modify_qp has set */
	int attr_mask;
	struct shim_queue send, recv;
	struct shim_ud *ud; /* owned; NULL: not UD */
	uint64_t messages;  /* in the log so far that consume a receive of the peer */
	bool holds_srq;     /* by srq_hold() */

	/* The other end. dvqpn is what the program was told, dqpn the hardware's number. */
	bool connected;        /* by modify_qp to RTR */
	bool resolved;         /* peer is known (also where only it has connected so far) */
	const char *uncovered; /* why, or NULL */
	uint8_t sgid[16], dgid[16];
	uint16_t pkey; /* of the partition, as the device has it; 0: unknown */
	uint32_t dvqpn, dqpn;
	struct shim_peer *peer; /* borrowed */
	enum { RESOLVE_NONE, RESOLVE_WAITS, RESOLVE_DONE, RESOLVE_GONE } resolve;
	bool dqpn_old;       /* dqpn must be asked for again */
	bool resolve_busy;   /* the peer will answer when its migration is over */
	uint32_t key_wanted; /* posts wait for this key of the peer */

	/* One migration. */
	enum qp_phase phase;
	bool in_job;
	atomic_bool marker; /* posted, not completed */
	_Atomic(enum bind_state) bind_state;
	uint64_t marker_at; /* sends before this number have ended when it completes */
	bool paired;        /* the other end takes part */
	bool drained, stuck, told_drained, told_received, asked_freeze, told_frozen;
	bool local_up;           /* takes the peer's packets again */
	bool connecting;         /* in the batch that is under way */
	bool joined;             /* the real QP is where qp_to_connected() brings it */
	int connect_error;       /* of the last try, -errno */
	struct shim_mw *unbound; /* borrowed; that error is about this window */
	struct shim_mw *binding; /* borrowed; a request of ours is under way for it */
	bool psn_override;       /* the peer expects .psn when the program goes to RTS */
	uint64_t stuck_at;       /* first send that the peer cannot take */
	uint64_t sent_all;       /* messages at the hardware when the hold began */
	uint64_t sent;           /* of these, executed in the end */
	uint64_t progress_tail, progress_us;
	uint64_t arrival_tail, arrival_us; /* UC: the last message that came, and when */
	uint64_t recv_lost;                /* UC: messages that were sent and never came */
	uint32_t arrival_psn;
	uint32_t end_psn; /* UC: of the packet after the last one sent */
	bool end_psn_known;
	uint64_t again_us;                 /* not before this time: connect again after an error */
	uint64_t asked_us, unreachable_us; /* when the other end was told last; resume: since when
					    * there has been no way to it, 0: there is */
	uint64_t waits_for;                /* QP_WAIT_PEER: the migration */
	uint32_t psn;
	struct { /* what the peer said, valid where .by is the job's migration */
		uint64_t drained_by, freeze_by, frozen_by, abort_by, connect_by, ready_by,
			prepared_by;
		uint64_t sent, received, recv_posted;
		uint32_t qpn, psn, end_psn;
		bool end_psn_known;
		bool stuck, unconnected, gone, unreachable;
	} said;
	union {
		struct ibv_qp v;
		struct ibv_qp_ex vex;
	};
};

/* A call to the agent that waits for its answer. */
struct shim_call {
	struct list link;
	uint32_t cookie;
	bool done;
	void *answer; /* room for bytes */
	size_t bytes;
};

struct shim {
	unsigned generation; /* 0, and one more in each child of a fork */
	int agent;           /* socket, -1: none: all verbs pass through */
	bool agent_lost;
	uint16_t slot;
	uint64_t instance;
	unsigned fault;
	pthread_t helper;
	int kick; /* eventfd: wakes the helper */

	pthread_mutex_t ctl;
	pthread_cond_t ctl_changed;
	unsigned users;   /* callers inside a control verb */
	bool busy;        /* a job runs: new callers wait */
	bool no_connects; /* rdma_connect() waits, other verbs do not */
	bool held;        /* this guest is suspended, or will be: no device may be opened */
	struct list contexts, pds, mrs, channels, cqs, srqs, qps, ahs, peers, partners;
	struct shim_table keys;       /* our virtual keys to the hardware's lkeys */
	struct shim_table qp_by_vqpn; /* to struct shim_qp *; under ctl */
	uint32_t key_start;
	unsigned dead_ahs;         /* that are still in .ahs */
	_Atomic(unsigned) ud_asks; /* questions that posts wait for */
	_Atomic(bool) ud_moved;    /* some partner's number is not the hardware's */
	_Atomic(bool) odd_iova;    /* some region has addresses of its own */
	unsigned peer_chunks;      /* of all peers' tables of keys */
	uint64_t mr_count;         /* regions ever registered */
	unsigned uncovered_objects;
	char uncovered_why[SHIM_TEXT_MAX];

	pthread_mutex_t call;
	pthread_cond_t call_done;
	struct list calls;
	uint32_t last_cookie;
};

#pragma GCC visibility push(hidden) /* the verbs are exported, this is ours */
extern struct shim shim;

#define to_context(p) container_of(p, struct shim_context, verbs.context)
#define to_mr(p)      container_of(p, struct shim_mr, v)
#define to_channel(p) container_of(p, struct shim_channel, v)
#define to_cq(p)      container_of(p, struct shim_cq, v)
#define to_qp(p)      container_of(p, struct shim_qp, v)
#define to_mw(p)      container_of(p, struct shim_mw, v)
#define to_srq(p)     container_of(p, struct shim_srq, v)

/* Whether it is the parent's: calls on it fail with EBADF. */
static inline bool shim_inherited(const struct shim_context *c)
{
	return __builtin_expect(shim.generation != 0, 0) && c->generation != shim.generation;
}

/* A parent domain is another name of its PD. */
static inline struct shim_pd *to_pd(struct ibv_pd *p)
{
	struct shim_pd *pd = container_of(p, struct shim_pd, v);

	return pd->base ? pd->base : pd;
}

/* shim_dl.c: dlopen() without our own libraries in between. */
void *shim_dlopen_real(const char *name, int flags);

/* shim_real.c: the verbs below us. */
struct shim_real {
#define REAL_VERB(ret, name, version, ...) ret (*name)(__VA_ARGS__);
#include "guest-agent/shim_real.def"
#undef REAL_VERB
};
/* Loaded on first use; a verb that this libibverbs lacks is a stub that fails with EOPNOTSUPP. */
const struct shim_real *shim_real(void);
#define real_verbs (*shim_real())

/* Whether the context is one of our shadows; all others pass through. */
bool shim_ours(const struct ibv_context *context);

/* shim_fork.c */
/* Before the first device is opened. 0 or -1. */
int fork_watch(void);
/* A descriptor of the device or of ours, which children must not use. */
void fork_keep_fd(int fd);
void fork_drop_fd(int fd); /* before it is closed */
/* What polls an inherited CQ: -EBADF. */
int fork_no_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

/* shim_link.c: the agent and the helper thread. */
/* As before the first call; what there was is left where it is. */
void shim_reset(void);
/* Connects once per process. false: there is no agent, step aside. */
bool shim_start(void);
void shim_send(const void *packet);
/* Sends packet and waits for the answer of the same type, at most bytes of it. 0 or -errno (of
 * the call or the answer's status). Not from the helper thread. */
int shim_call(void *packet, void *answer, size_t bytes, unsigned timeout_ms);
void shim_wake_helper(void);
/* A line in the agent's log; never on the program's streams. */
void shim_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void shim_set_uncovered(const char *why);
void shim_unset_uncovered(void);
uint32_t shim_cookie(void);

/* shim_describe.c: the answer to the agent's query. */
void shim_describe(uint32_t cookie);

/* Around each control verb: waits while a job runs. One inside another does nothing; nor does one
 * in the helper thread. */
void ctl_enter(void);
/* The same for who opens or looks for devices: waits also while the guest is suspended, although
 * nothing of this process is. Whether it has waited. */
bool ctl_enter_device(void);
void ctl_exit(void);

/* shim_context.c */
int context_open(struct shim_context *c, struct ibv_device *device);
void context_close(struct shim_context *c);
void context_attach_async(struct shim_context *c);
bool context_has_guid(const struct shim_context *c, const struct shim_order *o,
		      unsigned *ret_index);
int context_query_gids(struct shim_context *c);
/* Events that the program has not taken yet are kept for it: the objects below them go. */
void context_keep_events(struct shim_context *c);
/* Under ctl: no event names that object (of the program's) any more. */
void context_forget_events(struct shim_context *c, const void *object);

/* shim_mr.c */
int mr_register(struct shim_mr *m);
/* It has no memory any more: what uses it fails. */
void mr_give_up(struct shim_mr *m);

/* shim_region.c: the job's regions. Suspend: fails the job, and returns -EFAULT, where one could
 * not be registered again. */
int regions_check(void);
/* Resume: PDs are there. 0 or -errno. */
int regions_rebuild(void);

/* shim_dirty.c: writes each page that the HCA may have written, without changing it. Bytes. What is
 * no longer mapped is left out. */
uint64_t dirty_region(const struct shim_mr *m);
/* Of all contexts that take part in the job; pages that are in several regions once. */
uint64_t dirty_job(void);

/* Whether the program is to have an event. PERHAPS: it may have been given before the program's
 * arming what it is for. perftest takes an event without a completion for an error. */
enum cq_due { CQ_NO, CQ_PERHAPS, CQ_YES };

/* shim_channel.c */
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
/* One that was only CQ_PERHAPS is taken back, since the program has polled all: it waits on. */
void channel_retract(struct shim_channel *ch, struct shim_cq *cq);
void channel_forget(struct shim_channel *ch, struct shim_cq *cq);
/* ibv_req_notify_cq() where events may be on their way that are none for this arming. errno. */
int channel_arm(struct shim_channel *ch, struct shim_cq *cq, int solicited_only);
/* For the helper: what has come of the hardware, to the program as far as it waits for it. */
void channel_take_events(struct shim_channel *ch);
/* The same where no program waits. */
void channel_drop_events(struct ibv_comp_channel *real);

/* shim_batch.c: the same call for many objects, several at a time. */
struct shim_batch {
	int (*run)(void *object); /* in any thread; 0 or -errno */
	void **object;            /* owned */
	size_t count, room;
	_Atomic(size_t) next;
	_Atomic(int) error; /* the first, and whose it was */
	void *failed;
};
void batch_add(struct shim_batch *b, void *object);
/* For all that were added; the batch is empty after it. 0 or the first error. */
int batch_run(struct shim_batch *b);

/* shim_cq.c */
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

/* shim_arm.c: which events the program gets. */
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
/* For channel_arm(): errno. */
int cq_arm_anew(struct shim_cq *cq, int solicited_only);
int shim_req_notify_cq(struct ibv_cq *ibcq, int solicited_only);

/* shim_qp.c */
/* A QP on a shadow's domain; *init is updated. ex: NULL for a plain one. NULL and errno. */
struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *init,
			 const struct shim_qp_ex *ex);
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

/* shim_post.c */
int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int shim_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int queue_init(struct shim_queue *q, uint32_t cap, uint32_t max_sge, uint32_t max_inline,
	       bool send);
void queue_free(struct shim_queue *q);
void queue_reset(struct shim_queue *q);
/* Under the queue's lock: whether posts go to the log only. */
void queue_hold(struct shim_queue *q, bool on);
/* Under the queue's lock: hands the log's rest to the hardware. */
void send_flush(struct shim_qp *q);
void recv_flush(struct shim_qp *q);
/* Of a send in the log: whether it consumes a receive of the peer. */
bool send_takes_receive(const struct shim_qp *q, uint64_t number);
bool send_signalled(const struct shim_qp *q, uint64_t number);
/* All of the list (n long) or nothing: 0 or errno. */
int send_post_all(struct shim_qp *q, struct ibv_send_wr *wr, uint32_t n);
int send_post_marker(struct shim_qp *q);

/* shim_ex_qp.c: ibv_create_qp_ex and ibv_wr_* */
struct ibv_qp *shim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
/* For a QP that was created with send_ops; its queues exist. 0 or -errno. */
int builder_init(struct shim_qp *q);
void builder_free(struct shim_builder *b);

/* shim_ex_cq.c: ibv_create_cq_ex, ibv_start_poll, ibv_wc_read_* */
struct ibv_cq_ex *shim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *init);

/* shim_refuse.c: the operations that fail with EOPNOTSUPP. */
void refuse_set_ops(struct verbs_context *v);
void refuse_devx(const char *verb); /* sets errno */

/* shim_domain.c */
struct ibv_td *shim_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *init);
int shim_dealloc_td(struct ibv_td *td);
struct ibv_pd *shim_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *init);
void parent_domain_free(struct shim_pd *pd);

/* shim_srq.c */
int shim_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Under the lock of the CQ: the receive in that slot has completed on q, which counts it. false:
 * there is none. */
bool srq_take(struct shim_srq *s, uint32_t slot, struct shim_qp *q, uint64_t *ret_wr_id);
/* Posts to q's shared queue go to the log only until each QP that holds it has let go. */
void srq_hold(struct shim_qp *q);
void srq_unhold(struct shim_qp *q);
/* Whether all receives that the hardware was given have completed. */
bool srq_is_empty(struct shim_srq *s);
/* The virtual number of the sender of a datagram into that slot; before srq_take(). */
uint32_t srq_source(struct shim_srq *s, uint32_t slot, const struct ibv_wc *wc);
void srq_release(struct shim_srq *s);
/* The real queue with all that was not consumed, oldest first, and its limit. 0 or -errno. */
int srq_rebuild(struct shim_srq *s);

/* shim_mw.c */
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
/* Whether it has bound some since mw_told(). */
bool mw_bound_again(void);
void mw_told(void);
/* Fills in keys of a device's windows that peers may use, from *skip on, which moves on: those that
 * have been bound again for this peer, or (NULL) all. How many. */
unsigned mw_keys(const struct shim_context *ctx, const struct shim_peer *again,
		 struct peer_key *keys, unsigned room, unsigned *skip);
/* *ret_key is changed where rkey is a window's. false: it will be, and is told then. */
bool mw_key(uint32_t rkey, uint32_t *ret_key);

/* shim_peer.c */
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
void peer_answer_deferred(void);

/* shim_keys.c: what peers know of our keys. A resume begins: all may be new. */
void peer_begin_keys(void);
/* q's peer forgets what it knows of that GID of ours, and is told all on q's device; once. */
void peer_tell_keys(struct shim_qp *q);
/* Windows that are bound again, to all who may use them. */
void peer_tell_windows(void);
void peer_want_key(struct shim_qp *q, uint32_t vkey);

/* shim_route.c: path records, from the agent's cache. */
/* The route, made if it is not there yet. NULL without memory, or above ROUTES_MAX. */
#define ROUTES_MAX 65536u
struct shim_route *route_get(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey);
/* route_answered() will be called. reconnect: at a resume; the agent's counters keep that apart. */
void route_ask(struct shim_route *r, bool reconnect);
void route_answered(const struct shim_path *p);
/* The largest MTU that a path of so many bytes can carry. */
enum ibv_mtu route_mtu(unsigned bytes);
/* What the record says, into the attributes for RTR. On InfiniBand only: on RoCE there is no path
 * beyond the GIDs. r NULL or not known: no change. */
void route_apply(const struct shim_route *r, struct ibv_qp_attr *a);

/* shim_cm*.c: librdmacm (shim_cm.h) */
struct cm_ends;
/* Whether librdmacm opens a device: it gets the same context again, after a migration too. */
bool cm_opens_device(const void *return_address);
/* The program destroys a QP that an id may have. Inside a control verb. */
void cm_forget_qp(const struct ibv_qp *qp);
/* Whether connections that the job concerns are being made (under ctl). */
bool cm_making(void);
/* Whether connections of this process, with or without a QP of ours, lead to what moves. */
bool cm_concerned(void);
/* The job's ids: before QPs are destroyed, when devices are open again, when all is connected. */
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

#define CONNECT_AGAIN_US 50000
#define RESUME_TICK_MS   1000    /* while other ends are waited for */
#define ASK_PEER_US      1000000 /* who has not answered is asked again: it may have died */
#define OPEN_AGAIN_MS    5

/* shim_job.c, shim_suspend.c, shim_resume.c: in the helper thread only. */
enum job_state {
	JOB_IDLE,
	JOB_ENTER,
	JOB_DRAIN,
	JOB_QUIET,
	JOB_RELEASED,
	JOB_REBUILD,
	JOB_CONNECT
};

struct shim_job {
	enum job_state state;
	uint64_t migration;
	unsigned role;
	uint64_t start_us, step_us, deadline_us;
	struct shim_order order;
	struct shim_report report;
	int error;
	bool empty;   /* concerns nothing of this process */
	bool waiting; /* QPs are in QP_WAIT_PEER */
	bool again;   /* a QP is to be connected again after an error */
	bool making;  /* JOB_ENTER waits for connections of librdmacm, or for the mover */
	uint64_t mover_first_us; /* until then */
	bool built;              /* all QPs are */
	bool more;               /* QPs are to be built or connected at once */
	uint32_t before_us;      /* what was done for the resume before it was asked for */
};

extern struct shim_job job;

void job_order(const struct shim_order *o);
void job_step(void);
/* Milliseconds until job_step() must be called again, -1: never. */
int job_timeout(void);
/* Notes what the peer said (under ctl); job_step() acts on it. type 0: it cannot be reached. */
void job_qp_event(struct shim_qp *q, unsigned type, uint64_t migration, const struct peer_qp *e);
void job_send_report(uint16_t type);
bool gid_in_order(const uint8_t gid[16], const struct shim_order *o);
void job_fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether the other end of q has a part in the job. */
bool takes_part(const struct shim_qp *q);
bool gid_in_order(const uint8_t gid[16], const struct shim_order *o);
void job_end(void);
void job_end_empty(void); /* of a job that concerned nothing here */
void qp_unhold(struct shim_qp *q);
void job_release(void);
void suspend_enter(void);
void suspend_drain(void);
/* Events of the hardware, while the program does not see them. */
void suspend_take_events(void);
/* What the drain still waits for. */
void suspend_why(char *text, size_t max);
bool job_wants_channels(void);
/* A suspend that nobody can end any more is undone. */
void job_agent_gone(void);
/* The migration for which this process has released its QPs, 0: none. */
uint64_t job_suspended(void);
/* Whether a connection of q with that GID would be part of the job: not now, then. */
bool job_concerns(const struct shim_qp *q, const uint8_t dgid[16]);
void resume_start(const struct shim_order *o);
void resume_rebuild(void);
void resume_prepare(void);
void resume_step(void);

/* Datagrams (shim_ud.h). On the data path, under send.lock: the hardware's address handle and
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
