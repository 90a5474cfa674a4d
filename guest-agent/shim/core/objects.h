/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shadow objects of what the program sees, and what is known of the other ends.
 *
 * Locks, in the order in which they may be taken:
 *   shim.ctl      lists of objects, number of callers inside a control verb; held briefly
 *   queue.lock    a QP's send or receive queue: its log, the real QP's pointer
 *   channel.lock  a completion channel's queue of events
 *   cq.lock       a CQ: its software queue, the real CQ's pointer
 *   srq.lock      a shared receive queue's log, the real one's pointer
 *   shim.call     calls to the agent that wait for an answer
 * The helper thread changes real pointers; control verbs keep out while a job runs (ctl_enter). */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_OBJECTS_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_OBJECTS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/util.h"
#include "guest-agent/proto/list.h"
#include "guest-agent/shim/core/lock.h"
#include "guest-agent/proto/shim.h"
#include "guest-agent/shim/core/table.h"

#define SHIM_GIDS_MAX  16
#define SHIM_TOLD_MAX  1024
#define SHIM_GIDS_KEPT 256 /* of a port, by the program's indices */
#define SHIM_PKEYS_MAX 256 /* of a port; mlx5 has 128 */
#define SHIM_PORTS_MAX 2
#define PKEY_NOWHERE   UINT16_MAX /* in place of an index */

/* The meaning of a wr_id on the hardware's queues: which log and where in it. */
#define TAG_MASK   (3ull << 62)
#define TAG_SEND   (0ull << 62)
#define TAG_RECV   (1ull << 62)
#define TAG_MARKER (2ull << 62)
#define TAG_SRQ    (3ull << 62)

/* The P_Key table of a port, by the program's indices (shim/port/pkey.c). */
struct shim_pkeys {
	uint16_t seen[SHIM_PKEYS_MAX]; /* 0: the program has seen none there */
	uint16_t at[SHIM_PKEYS_MAX];   /* the device's index of it + 1; 0: not looked up */
	bool completed;                /* each P_Key of this device has an index */
};

/* The GID table of a port, by the program's indices (shim/port/gid.c). */
struct shim_gids {
	union ibv_gid seen[SHIM_GIDS_KEPT]; /* no interface id: the program has seen none there */
};

/* The LID of a port, as the program knows it (shim/port/lid.c). */
struct shim_lids {
	uint16_t seen; /* 0: the program has seen none */
	uint8_t lmc;
};

struct shim_context {
	struct list link;
	struct ibv_device device; /* the program sees this one, whatever device is below */
	uint64_t node_guid;       /* big-endian, as verbs has it */
	struct ibv_context *real; /* NULL while the device is given back */
	struct ibv_comp_channel *own_channel; /* real; of CQs that the program gave no channel */
	int async_fd;                         /* epoll: what the program sees; holds the real one */
	unsigned guid_count;
	uint64_t guid[SHIM_GIDS_MAX]; /* interface ids of its first GIDs */
	bool in_job, released;
	unsigned generation; /* shim.generation of the process that has opened it */
	struct list events;  /* struct shim_event: taken from a device that was given back */
	int soft_events;     /* eventfd, as a semaphore: one for each of them */
	unsigned cm_opens;   /* by librdmacm: then it stays until the process ends */
	struct shim_table qp_by_qpn; /* hardware's QPN to struct shim_qp * */
	struct {                     /* GIDs that were looked up in its table in this job */
		uint8_t gid[16], port;
		int index;
	} gid_at[SHIM_GIDS_MAX];
	unsigned gids_at;
	bool gids_kept;
	bool opened; /* once at least */
	bool moved;  /* .real is not the device that the program has opened */
	struct shim_pkeys pkeys[SHIM_PORTS_MAX];
	struct shim_gids gids[SHIM_PORTS_MAX];
	struct shim_lids lids[SHIM_PORTS_MAX];
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

/* An XRC domain. Only this process has it: shim/verbs/xrc.c. */
struct shim_xrcd {
	struct list link;
	struct shim_context *ctx; /* borrowed */
	struct ibv_xrcd *real;
	int fd;                 /* owned; of the file that names it, -1: none does */
	uint64_t device, inode; /* the file's */
	unsigned opens;         /* by the program, of the same file; under shim.ctl */
	struct ibv_xrcd v;
};

struct shim_mr {
	struct list link;
	struct shim_pd *pd; /* borrowed */
	struct ibv_mr *real;
	uint64_t number; /* grows with each registration */
	uint64_t iova;
	unsigned access;
	bool iova_given;
	bool gone; /* the memory was not there when it was to be registered again: no .real */
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
	struct ibv_cq *direct; /* .real once the program has polled all of .soft; else NULL */
	uint32_t last_qpn;     /* the hardware's, of the last completion */
	struct shim_qp *last_qp;
	struct ibv_wc *polled; /* by the poll under way; in memory as in struct shim_queue */
	struct ibv_wc *soft;   /* owned; ring of completions not yet polled by the program */
	uint32_t soft_room;    /* power of 2, or 0 */
	uint32_t soft_head, soft_tail;
	int cqe, vector; /* as asked for */
	/* Events: shim/verbs/arm.c */
	bool armed; /* the program waits for one */
	bool armed_solicited;
	bool unsolicited; /* so armed, all in .soft before .unsolicited_end has made no event */
	uint32_t unsolicited_end;
	bool asked;            /* and the hardware has been told so, and has made none since */
	bool stray;            /* the hardware may make one that the program has not asked for */
	_Atomic(bool) awaited; /* armed for the helper, and no event has come since */
	uint32_t mark;         /* in .soft: completions before it may be older than the arming */
	atomic_bool perhaps;   /* under channel.lock: all that .event is for may be older, too */
	bool extra;            /* under channel.lock: .event is the second one for an arming */
	struct list event;     /* in channel.events */
	uint32_t events;       /* given to the program; it acknowledges each */
	uint32_t async_events; /* likewise */
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
/* The opcode of a send that the hardware has refused when its program could hear of that by a
 * completion only. The program has that completion: nothing is sent for it, now or in a replay. */
#define SEND_REFUSED ((enum ibv_wr_opcode)0x7e5)

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
	uint64_t head;
	uint64_t posted;        /* while .direct is 0; else .head is meant */
	_Atomic(uint64_t) tail; /* moved under the lock of the CQ */
	/* A QP on a shared receive queue uses only .tail: receives completed. */
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

/* The wishes of ibv_create_qp_ex beyond those of ibv_create_qp. */
struct shim_qp_ex {
	uint32_t mask; /* enum ibv_qp_init_attr_mask, 0: a plain QP */
	uint32_t create_flags;
	uint64_t send_ops;
	struct ibv_xrcd *xrcd; /* the program's; NULL: not the target of an XRC connection */
};

enum route_state { ROUTE_NONE, ROUTE_ASKED, ROUTE_KNOWN, ROUTE_FAILED };

/* A way from a port of ours to a GID: its path record. Never freed, so a pointer stays good. */
struct shim_route {
	uint8_t sgid[16], dgid[16];
	uint16_t pkey;
	_Atomic(enum route_state) state; /* after .path */
	uint32_t cookie;
	bool reconnect;  /* the reason of the question */
	bool changed;    /* .path was told since: programs may know an older one */
	bool stale;      /* the agent does not know it any more: ask, if something is built on it */
	bool again;      /* and this was asked for that reason */
	uint8_t untaken; /* looks that are left, at what is built on it */
	uint64_t asked_us; /* when the last question was sent */
	struct shim_path path;
};

/* The part of our keys that a process at the other end knows. A process keeps keys by the GID that
 * we speak from. */
struct shim_told {
	const void *domain; /* the PD, or XRC domain, of its QPs; only compared: may be gone */
	uint8_t sgid[16];
	bool told;     /* the process knows regions before .next, and windows */
	uint64_t next; /* number of a region */
	uint64_t next_srq;
	unsigned pass; /* of peer_tell_windows() */
};

/* A process that QPs of ours are connected to. Freed when none is and another takes its place:
 * peer_used() in shim/peer/peer.c must know all who hold one. */
struct shim_peer {
	struct list link;
	uint8_t gid[16];
	uint16_t slot;
	uint64_t instance;
	struct shim_table keys; /* from its virtual keys to the hardware's */
	/* Owned; NULL before it has told one. Its virtual numbers of shared receive queues: the
	 * hardware's, and SRQN_KNOWN. */
	_Atomic(struct shim_table *) srqns;
	bool stops;             /* the process has said so, or has gone */
	struct shim_told *told; /* owned; at most SHIM_TOLD_MAX */
	unsigned told_count;
};

/* The memory that a memory window gives access to. */
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
	uint32_t index;          /* the index of both keys */
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
	struct shim_xrcd *xrcd;     /* borrowed; NULL: a basic one, without what follows */
	struct shim_cq *cq;         /* borrowed; of its completions, whatever QP they are of */
	uint32_t srqn, real_srqn;   /* the virtual number and the hardware's */
	uint64_t number;            /* grows with each that is created */
	uint32_t async_events;      /* given to the program; it acknowledges each */
	struct ibv_srq v;
};

/* The state of a bind request of our own. */
enum bind_state { BIND_WAITS, BIND_DONE, BIND_FAILED };

/* The path that a connected QP was built with. */
struct shim_way {
	uint16_t dlid;
	uint8_t sl, static_rate;
	enum ibv_mtu mtu;
};

/* How far a connection is that takes another path (shim/repath/change.c). Each state is behind the
 * one before it: the other end was asked; sends are held; they have ended, and it knows; the QP is
 * connected anew. */
enum change_state { CHANGE_NONE, CHANGE_ASKED, CHANGE_HELD, CHANGE_DRAINED, CHANGE_TURNED };

/* Under ctl. */
struct shim_change {
	struct list link; /* in none while there is nothing to do */
	enum change_state state;
	bool wanted;      /* the path record is another one than the QP was built with */
	bool ended;       /* its program destroys the QP: no more attempts */
	unsigned asks;    /* without an answer */
	uint64_t round;   /* number of the last attempt, the same at both ends */
	uint64_t done;    /* the last round that both ends have gone through */
	uint64_t next_us; /* the earliest time of the next attempt */
	uint64_t told_us; /* when the other end was told last */
	uint64_t progress_us, progress_tail;
	uint32_t psn;     /* ours from now on */
	enum ibv_mtu mtu; /* as both ends have it from now on; 0: as the record says */
	struct {          /* words of the other end */
		bool drained, ready;
		uint64_t sent;
		uint32_t psn;
		enum ibv_mtu mtu;
	} said;
};

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
	struct ibv_qp_attr attr; /* as modify_qp has set it */
	int attr_mask;
	uint16_t pkey_at;    /* the real QP's index: the device's, or PKEY_NOWHERE */
	struct shim_way way; /* since RTR: what the real QP was built with */
	struct shim_change change;
	struct shim_queue send, recv;
	struct shim_ud *ud;         /* owned; NULL: not UD */
	uint64_t others;            /* in the log so far that consume no receive of the peer */
	struct shim_xrcd *xrcd;     /* borrowed; NULL: not the target of an XRC connection */
	struct shim_srq *holds_srq; /* borrowed; by srq_hold() */
	/* recv.tail is not the number of the other end's messages that were executed: one has
	 * failed, or the other end counts from another time on. */
	atomic_bool uncounted;

	/* The other end. dvqpn is what the program was told, dqpn the hardware's number. */
	bool connected;        /* by modify_qp to RTR */
	bool resolved;         /* peer is known (also where only it has connected so far) */
	const char *uncovered; /* why, or NULL */
	uint8_t sgid[16], dgid[16];
	uint16_t pkey; /* the partition's, as the device has it; 0: unknown */
	uint32_t dvqpn, dqpn;
	uint16_t asked_lid;     /* the program's name for the other end, where others may have had
				 * it; 0: a GID, or a LID that is one port's */
	struct shim_peer *peer; /* borrowed */
	struct list untold;     /* in shim.untold: the keys of its domain are to be told */
	enum { RESOLVE_NONE, RESOLVE_WAITS, RESOLVE_DONE, RESOLVE_GONE } resolve;
	bool dqpn_old;         /* dqpn must be asked for again */
	bool resolve_busy;     /* the peer will answer when its migration is over */
	struct {               /* posts wait for this number of the peer's */
		uint16_t type; /* PEER_KEY_GET, PEER_SRQ_GET; 0: for nothing */
		uint32_t number;
		uint64_t asked_us; /* when the peer was asked for it last */
	} wanted;

	/* One migration. */
	enum qp_phase phase;
	bool in_job;
	atomic_bool marker; /* posted, not completed */
	_Atomic(enum bind_state) bind_state;
	uint64_t marker_at; /* sends before this number have ended when it completes */
	bool paired;        /* the other end takes part */
	bool drained, stuck, told_drained, told_received, asked_freeze, told_frozen, told_executed;
	bool local_up;           /* takes the peer's packets again */
	bool connecting;         /* in the batch that is under way */
	bool joined;             /* the real QP is where qp_to_connected() brings it */
	bool start_over;         /* first to INIT again: the other end has another QP by now */
	int connect_error;       /* the last try's, -errno */
	struct shim_mw *unbound; /* borrowed; that error is about this window */
	struct shim_mw *binding; /* borrowed; a request of ours is under way for it */
	bool psn_override;       /* the peer expects .psn when the program goes to RTS */
	uint64_t stuck_at;  /* first send that the peer cannot take; .posted: all are executed */
	uint64_t sent_all;  /* messages at the hardware when the hold began */
	uint64_t sent;      /* .sent_all as far as executed in the end */
	uint64_t next_at;   /* XRC, asked_freeze: messages before the one that is asked about */
	uint32_t next_srqn; /* and the virtual number of the queue that it is for */
	uint64_t progress_tail, progress_us;
	uint64_t arrival_tail, arrival_us; /* UC: the last message that came, and when */
	uint64_t recv_lost;                /* UC: messages that were sent and never came */
	uint32_t arrival_psn;
	uint32_t end_psn; /* UC: of the packet after the last one sent */
	bool end_psn_known;
	uint64_t again_us;                 /* earliest time to connect again after an error */
	uint64_t asked_us, unreachable_us; /* when the other end was told last; since when there
					    * has been no way to it, 0: there is */
	uint64_t waits_for;                /* QP_WAIT_PEER: the migration */
	uint32_t psn;
	struct { /* words of the peer, valid where .by is the job's migration */
		uint64_t drained_by, freeze_by, frozen_by, abort_by, connect_by, ready_by,
			prepared_by;
		uint64_t sent, received, recv_posted;
		uint64_t executed; /* at least, of our messages; with .frozen_by */
		uint64_t next_at;  /* XRC, with .freeze_by: its .next_at, and .next_srqn */
		uint32_t next_srqn;
		uint32_t qpn, psn, end_psn;
		bool end_psn_known;
		bool stuck, unconnected, gone, unreachable;
	} said;
	uint32_t async_events; /* given to the program; it acknowledges each */
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
	unsigned generation;   /* 0, and one more in each child of a fork */
	int agent;             /* socket, -1: none: all verbs pass through */
	bool agent_lost;       /* the agent has gone and is looked for; under .call, as the next */
	unsigned agent_losses; /* how often it has gone */
	uint16_t slot;
	uint64_t instance;
	unsigned fault;
	bool grh_required; /* the agent's word: InfiniBand ports say that they want GRHs */
	pthread_t helper;
	int kick; /* eventfd: wakes the helper */

	pthread_mutex_t ctl;
	pthread_cond_t ctl_changed;
	unsigned users;   /* callers inside a control verb */
	bool busy;        /* a job runs: new callers wait */
	bool no_connects; /* rdma_connect() waits, other verbs do not */
	bool held;        /* this guest is suspended, or will be: no device may be opened */
	struct list contexts, pds, xrcds, mrs, channels, cqs, srqs, qps, ahs, peers, partners;
	struct list untold;           /* QPs that have been connected just now */
	struct shim_table keys;       /* our virtual keys to the hardware's lkeys */
	struct shim_table srqns;      /* virtual SRQ numbers: srq_by_number() */
	struct shim_table qp_by_vqpn; /* to struct shim_qp *; under ctl */
	uint32_t key_start;
	unsigned dead_ahs;         /* destroyed ones that are still in .ahs */
	_Atomic(unsigned) ud_asks; /* questions that posts wait for */
	_Atomic(bool) wants;       /* some QP's posts wait for a number of its peer's */
	_Atomic(bool) ud_moved;    /* some partner's number is not the hardware's */
	_Atomic(bool) odd_iova;    /* some region has addresses of its own */
	unsigned peer_chunks;      /* in all peers' tables of keys */
	uint64_t mr_count;         /* regions ever registered */
	uint64_t srq_count;        /* numbered shared receive queues ever created */
	uint32_t srqns_changed;    /* how many of them could not have the hardware's number */
	unsigned uncovered_objects;
	char uncovered_why[SHIM_TEXT_MAX];

	pthread_mutex_t call;
	pthread_cond_t call_done;
	struct list calls;
	uint32_t last_cookie;
};

#pragma GCC visibility push(hidden) /* the verbs are exported, this is ours */
extern struct shim shim;

struct shim_qp *qp_by_vqpn(uint32_t vqpn); /* under ctl */
/* True if the order is about the port with that GID. */
bool gid_in_order(const uint8_t gid[16], const struct shim_order *o);

#define to_context(p) container_of(p, struct shim_context, verbs.context)
#define to_mr(p)      container_of(p, struct shim_mr, v)
#define to_channel(p) container_of(p, struct shim_channel, v)
#define to_cq(p)      container_of(p, struct shim_cq, v)
#define to_qp(p)      container_of(p, struct shim_qp, v)
#define to_mw(p)      container_of(p, struct shim_mw, v)
#define to_srq(p)     container_of(p, struct shim_srq, v)
#define to_xrcd(p)    container_of(p, struct shim_xrcd, v)

/* As in libibverbs, who destroys an object waits until the program has acknowledged all events of
 * it that it was given. Outside a control verb, and when no more can come; mutex, cond and acked
 * are the object's own. */
static inline void await_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *given,
			      const uint32_t *acked)
{
	pthread_mutex_lock(mutex);
	while (*acked != *given)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

/* True if the context is the parent's: calls on it fail with EBADF. */
static inline bool shim_inherited(const struct shim_context *c)
{
	return __builtin_expect(shim.generation != 0, 0) && c->generation != shim.generation;
}

/* A parent domain is another name of its PD. NULL for none, which a QP may have. */
static inline struct shim_pd *to_pd(struct ibv_pd *p)
{
	struct shim_pd *pd = p ? container_of(p, struct shim_pd, v) : NULL;

	return pd && pd->base ? pd->base : pd;
}

/* Under shim.call: whether the agent that was there at so many losses has gone, and with it what it
 * was asked. */
static inline bool shim_agent_left(unsigned losses)
{
	return shim.agent_lost || shim.agent_losses != losses;
}

/* Virtual numbers of XRC shared receive queues, as keys are (shim/core/table.h). An entry of ours
 * is the queue, or, with SRQN_GONE, what is left of one that was destroyed: the hardware's number,
 * which peers may still know for it. */
#define SRQN_NONE  SHIM_QPN_MAX /* no queue has it */
#define SRQN_GONE  1ull
#define SRQN_KNOWN (1ull << 32)

/* Under the lock of the queue's CQ, shim.ctl, or in a job: it stays as long. NULL: there is none.
 */
static inline struct shim_srq *srq_by_number(uint32_t srqn)
{
	uint64_t e = table_get(&shim.srqns, srqn);

	return e & SRQN_GONE ? NULL : (struct shim_srq *)(uintptr_t)e;
}

/* The queue that a completion on q is of; number: its wr_id without the tag. */
static inline struct shim_srq *srq_of(const struct shim_qp *q, uint64_t number)
{
	return q->v.srq  ? to_srq(q->v.srq)
	       : q->xrcd ? srq_by_number((uint32_t)(number >> 32))
			 : NULL;
}

#pragma GCC visibility pop

#endif
