/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A libibverbs with one device that is played in memory, for tests and measurements of the shim
 * without hardware. The device has two data paths. By default a post completes at once, in a few
 * instructions. With FAKE_VERBS_WIRE in the environment a thread plays the device and moves
 * messages between the QPs of the process. */
#ifndef IBVMIG_TESTS_FAKE_VERBS_H
#define IBVMIG_TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_WIRE_ENV "FAKE_VERBS_WIRE"
#define FAKE_DEVICE   "fake0"
#define FAKE_GUID     0x0002c90300000001ull
#define FAKE_RING     4096 /* entries of a CQ, sends and receives of a QP; a power of 2 */
#define FAKE_QPS      8192
#define FAKE_MRS      8192
#define FAKE_GUID_ENV "FAKE_VERBS_GUID" /* hexadecimal, in place of FAKE_GUID */
/* The time of a call that changes the hardware: microseconds of sleep, as for firmware to
 * answer. */
#define FAKE_CALL_ENV "FAKE_VERBS_CALL_US"
void fake_slow_calls(unsigned us); /* from now on so long */

/* Calls so far, as fake_calls() tells (found by dlsym(): no libibverbs but this one has it). */
struct fake_calls {
	uint64_t create_qp, modify_qp, query_gid;
};
struct fake_calls fake_calls(void);
/* The device that is open has an asynchronous event (found by dlsym(), too): of the port, or, with
 * IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR and IBV_EVENT_QP_FATAL, of the newest such object. 0, or
 * -ENODEV: none is open. */
int fake_event(enum ibv_event_type type);
/* The LID of its port, which is 1 at first; lid not 0: from now on this. With the wire, a QP that
 * is connected to another LID, but 0, reaches nobody. */
unsigned fake_lid(unsigned lid);
/* The P_Key table of its port, which begins with the default key alone: from now on this one. */
#define FAKE_PKEYS 4
void fake_pkeys(const uint16_t table[FAKE_PKEYS]);
/* The attributes of the last address handle. */
struct ibv_ah_attr fake_last_ah(void);
/* The LID of the alternate path that was set last. */
unsigned fake_alt_dlid(void);
/* How many QPs have the index of that P_Key, as the table was when they were told it. */
unsigned fake_qps_in(uint16_t pkey);
/* The GUIDs of its port beside the first, by index: none at first, from now on these. How many QPs
 * are connected from that one, as the table was then. */
#define FAKE_GIDS 4
void fake_aliases(const uint64_t guids[FAKE_GIDS]);
unsigned fake_qps_from(uint64_t guid);
/* How many QPs are connected with that SL; with that MTU. */
unsigned fake_qps_on(unsigned sl);
unsigned fake_qps_at_mtu(enum ibv_mtu mtu);
/* With the wire: while they are lost, sends are executed, and their sender does not know. */
void fake_lose_acks(bool lose);
/* With the wire: while it is held, nothing is executed. */
void fake_hold_wire(bool hold);
/* With the wire: from now on a send to a QP that does not exist fails as after all retries, and its
 * QP with it; else it waits for one. */
void fake_end_retries(void);
/* Sets whether a QP that goes to RESET takes its completions out of its CQs, as with mlx5; with
 * rdma_rxe they stay. */
void fake_clean_on_reset(bool clean);
/* XRC. The next queues have the lowest free numbers from that on; another process has the domain of
 * that file, -1: of none. 0 or -1. */
void fake_srqns_from(uint32_t number);
int fake_open_elsewhere(int fd);
/* To open or close a domain takes so long, after it is done. */
void fake_slow_xrcd(unsigned us);

#define FAKE_GRH 40 /* bytes in front of a datagram */

struct fake_cq {
	struct ibv_cq v;
	uint32_t head, tail;
	bool armed, solicited_only;
	struct ibv_wc ring[FAKE_RING];
};

struct fake_ah {
	struct ibv_ah v;
	struct ibv_ah_attr attr;
};

struct fake_send {
	struct ibv_send_wr wr;
	struct ibv_ah_attr ah; /* UD: the address handle's, as it was */
	struct ibv_sge sge;    /* a single one is enough */
	enum ibv_wc_status status;
};

struct fake_recv {
	uint64_t wr_id;
	struct ibv_sge sge;
};

struct fake_qp {
	struct ibv_qp v;
	uint32_t dest;
	uint16_t dlid, pkey_index, pkey; /* pkey 0: it has none yet */
	uint8_t sgid_index;
	uint64_t from; /* the GUID at that index; 0: not connected */
	uint8_t sl;
	enum ibv_mtu mtu;
	unsigned slot;
	uint32_t send_head, send_tail, recv_head, recv_tail;
	uint32_t acked; /* sends before this one are known to have ended; up to .send_tail */
	bool sig_all;
	_Atomic(int) inside; /* calls that change it */
	struct ibv_xrcd *xrcd;
	struct fake_send send[FAKE_RING];
	struct fake_recv recv[FAKE_RING];
};

struct fake_srq {
	struct ibv_srq v;
	uint32_t number, head, tail;
	struct ibv_xrcd *xrcd; /* NULL: a basic one, which has no number and no CQ */
	struct fake_cq *cq;
	struct fake_recv recv[FAKE_RING];
};

struct fake_channel {
	struct ibv_comp_channel v;
	struct ibv_cq *event[FAKE_RING];
	uint32_t head, tail;
};

/* Below the lock; they may be gone. */
extern struct fake_newest {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
} fake_newest;

/* Everything below the lock of the device. */
void fake_lock(void);
void fake_unlock(void);
/* The QP with that number, or NULL; the region with that key, if it holds the range. */
struct fake_qp *fake_qp_by_number(uint32_t qpn);
struct ibv_mr *fake_mr_by_key(uint32_t key, uint64_t addr, uint64_t length);
struct fake_qp *fake_qp_at(unsigned slot);
/* A completion, and the event for who waits for one, as errors and solicited messages are. */
void fake_complete(struct fake_cq *cq, const struct ibv_wc *wc, bool solicited);

/* xrcd: of the target of an XRC connection, which has no pd. NULL and errno. */
struct ibv_qp *fake_create_qp(struct ibv_context *c, struct ibv_pd *pd,
			      struct ibv_qp_init_attr *init, struct ibv_xrcd *xrcd);

/* verbs_xrc.c */
struct fake_srq *fake_srq_by_number(uint32_t number);
void fake_use_xrcd(struct ibv_xrcd *xrcd, int change); /* NULL: none */
bool fake_xrc_mask_ok(enum ibv_qp_type type, const struct ibv_qp_attr *attr, int mask);
void fake_xrc_set_ops(struct verbs_context *v);

/* The GRH of a datagram from the port itself, and the flag for it. */
void fake_write_grh(uint8_t grh[FAKE_GRH], struct ibv_wc *wc);

/* verbs_wire.c */
void fake_wire_start(void);
void fake_wire_kick(void);
int fake_wire_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_wire_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_wire_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

#endif
