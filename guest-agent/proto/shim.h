/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the verbs shim of a process and the agent: one struct a packet on an AF_UNIX
 * SOCK_SEQPACKET socket. Both come from the same build and the same host, so numbers are in host
 * order. A shim whose version differs is turned away, and the process goes on without cover. */
#ifndef IBVMIG_GUEST_AGENT_PROTO_SHIM_H
#define IBVMIG_GUEST_AGENT_PROTO_SHIM_H

#include <stdint.h>

#include "guest-agent/proto/peer.h"

#define SHIM_PROTO_VERSION 3
#define SHIM_SOCKET        "/run/ibvmig/agent.sock"
#define SHIM_SOCKET_ENV    "IBVMIG_SOCKET"
#define SHIM_MSG_MAX       (64u << 10)
#define SHIM_COMM_MAX      16
#define SHIM_TEXT_MAX      160
#define SHIM_SLOT_MAX      1023 /* slots are 1 to this */
#define SHIM_VGUIDS_MAX    16
#define SHIM_DEVICE_MAX    64
#define SHIM_ENDS_MAX      64        /* ports that share a LID */
#define SHIM_QPN_MAX       0xffffffu /* QPNs have 24 bits (IBA 1.4, 9.2) */

enum shim_msg_type {
	/* Shim to agent. A cookie that is not 0 asks for an answer of the same type. */
	SHIM_HELLO = 1, /* shim_hello, answer shim_welcome */
	SHIM_QP_ADD,    /* shim_qp_number; status -EADDRINUSE: another QP of this guest has it.
			 * vqpn 0 (no program's QP): any number that is free, which is answered */
	SHIM_QP_DEL,    /* shim_qp_number, no answer */
	SHIM_PATH,      /* shim_path */
	SHIM_SEND,      /* shim_relay: to the peer */
	SHIM_LOG,       /* shim_log, no answer */
	SHIM_PROCESS,   /* shim_process: before the QPs of a query; cookie of the query */
	SHIM_QP_INFO,   /* shim_qp_info: one per QP of a query */
	SHIM_QUERY_END, /* head only */
	SHIM_QUIET,     /* shim_report: the answer to SHIM_SUSPEND */
	SHIM_RELEASED,  /* shim_report: the answer to SHIM_RELEASE */
	SHIM_RESUMED,   /* shim_report: the answer to SHIM_RESUME */
	SHIM_ABORTED,   /* shim_report: a suspend ended after SHIM_QUIET, by the peer's doing */
	SHIM_WILL,      /* shim_relay with one peer_qp, no answer: to be sent when the process has
			 * ended */
	SHIM_WILL_DROP, /* the same packet: not any more */
	SHIM_PEER_INFO, /* shim_peer_info: in a query, one for each other end of datagrams */
	SHIM_LID,       /* shim_lid_ask, answer shim_lid */

	/* Agent to shim. */
	SHIM_DELIVER = 64, /* shim_relay: from the peer */
	SHIM_UNREACHABLE,  /* shim_relay without body: the host has no way to .dgid */
	SHIM_QUERY,        /* head only */
	SHIM_SUSPEND,      /* shim_order */
	SHIM_RELEASE,      /* shim_order: all processes are quiet, give the device back */
	SHIM_ABORT,        /* shim_order: go on as if nothing had been asked */
	SHIM_RESUME,       /* shim_order */
	SHIM_BUILD,        /* shim_order, no answer: the mover's devices are there, a port is not
			    * ACTIVE yet. What needs no packets may be built; without names: what was
			    * built so is given back, the devices have gone */
	SHIM_REPATH,       /* shim_path, no answer: the record of that way is now another one.
			    * .pkey is without the membership bit. Status -ESTALE: it is not known
			    * any more; without .dgid: none is */
};

struct shim_head {
	uint32_t bytes; /* the whole packet */
	uint16_t type;
	uint16_t reserved;
	uint32_t cookie;
	int32_t status; /* 0 or -errno */
};

struct shim_hello {
	struct shim_head head;
	uint32_t version;
	int32_t pid;
	char comm[SHIM_COMM_MAX];
	/* The numbers that an agent before this one has given us, by which peers know us. 0: none.
	 */
	uint64_t instance;
	uint16_t slot;
	uint16_t reserved[3];
	uint64_t suspended; /* the migration for which this process has released its QPs, 0: none */
};

struct shim_welcome {
	struct shim_head head;
	uint16_t slot;
	uint16_t fault; /* enum shim_fault of the agent */
	uint32_t held;  /* 1: a suspend runs; SHIM_SUSPEND follows, open no device before it ends */
	uint64_t instance; /* never the same for two processes, also after a slot is used again */
	uint32_t grh_required; /* 1: InfiniBand ports say that they want GRHs */
	uint32_t reserved;
};

/* Bits of IBVMIG_FAULT: faults for tests, see docs/guest.md. */
enum shim_fault {
	SHIM_FAULT_NO_MARKER = 1,
	SHIM_FAULT_NO_DIRTYING = 2,
	SHIM_FAULT_CACHE_OFF = 4,
	SHIM_FAULT_NO_COUNTS = 8,
	SHIM_FAULT_NO_SL = 16,
};

struct shim_qp_number {
	struct shim_head head;
	uint32_t vqpn;
	uint32_t reserved;
};

struct shim_path {
	struct shim_head head;
	uint8_t sgid[16], dgid[16];
	uint16_t dlid, slid, pkey;
	uint16_t mtu; /* bytes */
	uint8_t sl, rate;
	uint8_t reconnect; /* asked at a resume: the counters keep these apart */
	uint8_t reserved[5];
};

/* The question whose LID that is. */
struct shim_lid_ask {
	struct shim_head head;
	uint8_t sgid[16];
	uint16_t lid, pkey;
	uint32_t anew; /* 1: what the agent knows did not help */
};

/* The ports that programs mean by the LID: mostly one, several where VFs share the LID of their
 * host. Status -EHOSTUNREACH: nobody's. */
struct shim_lid {
	struct shim_head head;
	uint32_t count;
	uint32_t shared; /* 1: others may have it as well, with an agent or without */
	struct shim_end {
		uint8_t dgid[16];
		uint16_t dlid, slid, mtu; /* as in shim_path, of now */
		uint8_t sl, rate;
	} end[SHIM_ENDS_MAX];
};

struct shim_relay {
	struct shim_head head;
	uint8_t sgid[16], dgid[16];
	uint8_t body[]; /* struct peer_head and what follows it */
};

struct shim_log {
	struct shim_head head;
	uint32_t level; /* enum log_level */
	char text[SHIM_TEXT_MAX];
};

struct shim_process {
	struct shim_head head;
	uint64_t mr_bytes;
	uint32_t uncovered; /* true if .why says something */
	char why[SHIM_TEXT_MAX];
	uint32_t reserved;
};

struct shim_qp_info {
	struct shim_head head;
	uint32_t vqpn, dvqpn, qpn;
	uint8_t type, state; /* enum ibv_qp_type, ibv_qp_state */
	uint8_t connected;   /* sgid, dgid and dvqpn are valid */
	uint8_t uncovered;
	uint8_t sgid[16], dgid[16];
	uint64_t vguid;         /* the device that the QP is on */
	uint64_t unacked;       /* sends posted by the program and not completed */
	uint64_t unacked_bytes; /* of these */
	uint32_t dqpn;          /* the hardware's number of the other end, as far as we know */
	uint16_t pkey;          /* with the membership bit; 0: in no partition */
	uint16_t reserved;
};

struct shim_peer_info {
	struct shim_head head;
	uint8_t sgid[16], dgid[16];
};

enum shim_role { SHIM_ROLE_MOVER = 1, SHIM_ROLE_PEER = 2 };

struct shim_order {
	struct shim_head head;
	uint64_t migration; /* hash of the migration's UUID, the same at both ends */
	uint32_t role;
	uint32_t deadline_ms;
	uint32_t vguid_count;
	uint32_t moved;
	uint64_t vguid[SHIM_VGUIDS_MAX];
	/* SHIM_RESUME and SHIM_BUILD, mover: its new RDMA device */
	char device[SHIM_VGUIDS_MAX][SHIM_DEVICE_MAX];
	uint64_t sent_us; /* CLOCK_MONOTONIC, SHIM_RESUME: since then the device is back; 0: now */
};

/* Counts and times of one step; the agent adds the counts and takes the longest of the times. */
struct shim_report {
	struct shim_head head;
	uint64_t migration;
	uint32_t qps, unacked, markers, replayed;
	uint64_t dirtied_bytes;
	uint32_t drain_us, dirty_us, close_us, rebuild_us, connect_us;
	uint32_t before_us; /* work for the resume, done before it was ordered */
	uint32_t work_us;   /* work in the resume, without waits for others */
	uint32_t reserved;
	char why[SHIM_TEXT_MAX]; /* with a status other than 0 */
};

#endif
