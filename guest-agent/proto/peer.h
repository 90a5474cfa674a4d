/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the shims of two processes that share QPs: the body of `relay` (docs/wire.md).
 *
 * The path is shim, agent, host, host, agent, shim, and any of them may be another build, so the
 * version comes first. Numbers are little-endian, as all platforms are that the shim runs on. The
 * receiver believes nothing: indices are checked against its own tables. Packets between two
 * processes keep their order. */
#ifndef IBVMIG_GUEST_AGENT_PROTO_PEER_H
#define IBVMIG_GUEST_AGENT_PROTO_PEER_H

#include <stddef.h>
#include <stdint.h>

#define PEER_PROTO_VERSION 1
#define PEER_BODY_MAX      (48u << 10)

enum peer_msg_type {
	/* peer_qp: who has .dst_vqpn? .src_vqpn is the asker's. Answer: PEER_KEYS, PEER_RESOLVED */
	PEER_RESOLVE = 1,
	PEER_RESOLVED, /* peer_qp: .qpn is the hardware's number of .src_vqpn */
	PEER_GONE, /* head only: no process has what the packet .about was for; .src_vqpn 0: for any
		    * of its QPs */
	PEER_KEY_GET, /* peer_key: .vkey is unknown to the sender; answer PEER_KEYS */
	PEER_KEYS,    /* peer_key: the hardware's keys of the sender's regions; 0: no such region */
	PEER_KEYS_DROP, /* head only: forget all keys and numbers of shared receive queues that I
			 * told from this GID, new ones follow */
	PEER_DRAINED,   /* peer_qp: my sends have ended; you have received .sent of them; I have
			 * received .received of yours. PEER_STUCK: the rest waits for receives.
			 * PEER_PSN (UC): the packet after my last would be .psn */
	PEER_FREEZE,   /* peer_qp: my sends do not end. Stop posting receives and say how many. XRC:
			* the queue that is meant is .srqn, .recv_posted messages were before */
	PEER_FROZEN,   /* peer_qp: .recv_posted is final, or UINT64_MAX: not known yet */
	PEER_ABORT,    /* peer_qp: I go on with the QP that I had */
	PEER_CONNECT,  /* peer_qp: my new QP is .qpn and starts at .psn */
	PEER_READY,    /* peer_qp: my QP takes your packets */
	PEER_BUSY,     /* peer_qp: PEER_RESOLVED will come when a migration of mine is over */
	PEER_PREPARED, /* peer_qp: what PEER_CONNECT will say when my resume is asked for */
	PEER_SRQ_GET,  /* peer_key: of a shared receive queue's number; answer PEER_SRQS */
	PEER_SRQS,     /* peer_key: the hardware's numbers of the sender's XRC shared receive
			* queues; more than 24 bits, or all of them: no such queue */
	PEER_CM_DISCONNECT = 32, /* peer_qp: rdma_disconnect() of a connection that has migrated */

	/* A path has changed, and the QPs of a connection take it at both ends. head.migration is
	 * the number of the attempt. */
	PEER_PATH_HOLD = 40, /* peer_qp: I hold my sends, or shall when you do */
	PEER_PATH_DRAINED,   /* peer_qp: mine have ended, .sent of them for your receives; I begin
			      * anew at .psn, with the MTU in .flags. Answer when it is done:
			      * PEER_PATH_READY */
	PEER_PATH_READY,     /* peer_qp: my QP takes packets that begin at your .psn */
	PEER_PATH_ABORT,     /* peer_qp: I go on with the QP as it was */

	/* Datagrams: between processes, that is: slots. PEER_UD_RESOLVE is for the process that
	 * has .dst_vqpn; but for it .dst_slot and .dst_instance are set. */
	PEER_UD_RESOLVE =
		48,       /* peer_qp: QP .src_vqpn, at the hardware .qpn, will send to .dst_vqpn */
	PEER_UD_RESOLVED, /* peer_qp: .qpn is the hardware's number of .src_vqpn */
	PEER_UD_BUSY,     /* peer_qp: PEER_UD_RESOLVED will come when a migration is over */
	PEER_UD_BYE,      /* peer_qp: .src_vqpn is no more */
	PEER_UD_DRAINED,  /* head only: my sends to you have ended and are held */
	PEER_UD_ABORT,    /* head only: they are not held any more */
	PEER_UD_NUMBERS,  /* peer_qp: .qpn of each .src_vqpn; with a migration: they take your
			   * datagrams. Answer PEER_UD_HAVE */
	PEER_UD_HAVE,     /* head only: I know your numbers */
	PEER_UD_ASK,      /* head only: tell me your numbers if they are settled */
	PEER_UD_ENDED,    /* only as .about of a PEER_GONE for all processes of a guest: the
			   * process that sends it has ended */
};

struct peer_head {
	uint16_t version;
	uint16_t type;
	uint16_t count;    /* entries that follow */
	uint16_t dst_slot; /* 0: the process that has dst_vqpn */
	uint16_t src_slot;
	uint16_t about;    /* PEER_GONE: type of the packet */
	uint32_t dst_vqpn; /* PEER_GONE: the same as in the packet */
	uint32_t src_vqpn; /* PEER_GONE: the same as in the packet */
	/* Packets about numbers of datagrams: the LID of the sender's port now, and the one that
	 * its program knows; PEER_RESOLVE and PEER_RESOLVED: the latter. 0: not told, or not
	 * InfiniBand. */
	uint16_t src_lid, src_vlid;
	uint64_t dst_instance; /* 0: not known yet */
	uint64_t src_instance;
	uint64_t migration;
	uint8_t sgid[16], dgid[16];
};

/* Messages are counted since the QP was set up, on both sides. */
struct peer_qp {
	uint32_t dst_vqpn, src_vqpn;
	uint32_t qpn, psn;
	uint32_t flags; /* enum peer_qp_flags */
	uint32_t srqn;  /* the receiver's virtual number of a shared receive queue of its own */
	uint64_t recv_posted; /* receives that the hardware was given */
	uint64_t sent;        /* messages that consumed one of the receiver's */
	uint64_t received;    /* receives that were consumed */
};

enum peer_qp_flags {
	PEER_STUCK = 1,
	PEER_REPLY = 4,       /* PEER_ABORT: my QP is live, answer no more */
	PEER_UNCONNECTED = 2, /* PEER_CONNECT: my program has not connected to you yet */
	PEER_PSN = 8,         /* PEER_DRAINED: .psn is valid */
	PEER_COUNTED = 16,    /* PEER_FROZEN: your first .received messages were executed */
	PEER_MTU = 0x700,     /* PEER_PATH_DRAINED: enum ibv_mtu, from bit PEER_MTU_SHIFT on */
};

#define PEER_MTU_SHIFT 8

struct peer_key {
	uint32_t vkey, key;
};

/* The size of one of the entries behind a head of that type. */
static inline size_t peer_entry_bytes(uint16_t type)
{
	switch (type) {
	case PEER_GONE:
	case PEER_KEYS_DROP:
		return 0;
	case PEER_KEY_GET:
	case PEER_KEYS:
	case PEER_SRQ_GET:
	case PEER_SRQS:
		return sizeof(struct peer_key);
	default:
		return sizeof(struct peer_qp);
	}
}

_Static_assert(sizeof(struct peer_head) == 80, "layout on the wire");
_Static_assert(sizeof(struct peer_qp) == 48, "layout on the wire");

#endif
