/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Datagrams (UD QPs): where they go and come from, and how both ends keep each other's numbers.
 *
 * A send names a QPN that programs exchanged, so a virtual one. Before the first datagram of a QP
 * to a number its holder is asked (PEER_UD_RESOLVE); the question tells it the asker's number, the
 * answer brings its own. From then on the two processes are partners: when one of them moves, the
 * other holds its sends to it, and both tell each other their new numbers. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_UD_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_UD_H

#include "guest-agent/proto/peer.h"
#include "guest-agent/shim/core/objects.h"

#define UD_NODES_MAX    4096 /* GIDs, for the life of a process */
#define UD_PARTNERS_MAX 4096
#define UD_GROUPS_MAX   256 /* multicast groups of a QP */

/* A GID that datagrams lead to or come from. Never freed, so readers take no lock. */
struct shim_node {
	uint8_t gid[16];
	unsigned index;            /* in shim_nodes */
	struct shim_table real;    /* from its virtual QPNs to node entries */
	struct shim_table virtual; /* the hardware's QPNs to NODE_KNOWN | virtual one */
	unsigned ahs;              /* handles that lead there; under ctl */
	bool alone;                /* no agent answers there; under ctl */
	/* LIDs of the port, 0: not known: the present one, and the first that was known, which
	 * programs here may use as its name. */
	_Atomic(uint16_t) lid, vlid;
	bool lid_told; /* .lid is the word of a process there */
	_Atomic(uint64_t) asked_us;
};

/* Entries of .real: one of these, the slot of the process that has the number, and the hardware's
 * number. But for NODE_KNOWN that is the virtual one itself, and is asked for again from time to
 * time. */
#define NODE_KNOWN      (1ull << 32)
#define NODE_NOBODY     (1ull << 33) /* an agent says that it is nobody's: no shim there */
#define NODE_ENDED      (1ull << 34) /* the number was known; that QP or process has ended */
#define NODE_ALONE      (1ull << 35) /* nobody answered */
#define NODE_SLOT_SHIFT 40

/* Another process, as seen by one GID of ours. Under ctl; only the helper thread removes one. */
struct shim_partner {
	struct list link;
	struct shim_node *node;
	uint8_t sgid[16]; /* ours */
	uint16_t slot;
	uint64_t instance;
	unsigned numbers; /* how many numbers of it are known */
	bool in_job, gone;
	bool silent; /* no way to its guest; until it is heard again */
	uint64_t probed_us;
	bool told_drained;
	uint64_t told_us; /* when it was last told numbers, or asked for them */
	struct {          /* by which migration it said so last */
		uint64_t drained_by, numbers_by, have_by;
	} said;
};

struct shim_ah {
	struct list link;
	struct shim_pd *pd;       /* borrowed */
	struct ibv_ah_attr attr;  /* as the program gave it */
	struct ibv_ah_attr built; /* as .real has it */
	uint16_t pkey;            /* for the path record */
	uint8_t sgid[16];
	struct shim_node
		*node;       /* borrowed; NULL: multicast, or by a LID of which no GID is known */
	struct shim_ah *alt; /* owned; to another port that its LID may stand for; the last has no
			      * node where others than VMs may have the LID */
	bool multicast;
	bool due;            /* the path record has changed, and .real is of before */
	bool dead;           /* destroyed by the program, but a held send names it */
	struct ibv_ah *real; /* NULL while the device is given back */
	struct ibv_ah *old;  /* owned; of before its path changed: sends under way may name it */
	uint64_t old_us;     /* since when */
	struct ibv_ah v;
};

struct shim_group {
	union ibv_gid gid;
	uint16_t lid;
};

/* The part of a UD QP that other QPs do not have; under its send.lock. */
struct shim_ud {
	uint64_t *told; /* owned; set of ud_key(): numbers that know this QP, or do not exist */
	uint32_t told_room, told_count;
	uint64_t last; /* key that was found last */
	bool by_lid;   /* the QP has sent to a LID of which no GID is known */
	bool unclear;  /* the QP has sent to a number that several ports of a LID have */

	/* A QP asks one question at a time, because posts wait in order. */
	bool asks;                  /* and posts wait */
	struct shim_node *ask_node; /* NULL: none */
	uint8_t ask_sgid[16];
	uint32_t ask_vqpn, ask_qpn; /* theirs, and ours as it was told */
	uint64_t ask_until_us;

	struct ibv_qp *sink; /* the marker goes there */
	struct ibv_ah *home;
	struct shim_group *groups; /* owned; under ctl_enter */
	unsigned group_count;
};

#define to_ah(p) container_of(p, struct shim_ah, v)

/* The only port that is known for the handle, or NULL: there are several, or none. */
static inline struct shim_node *ah_sole_node(const struct shim_ah *ah)
{
	return ah->alt && ah->alt->node ? NULL : ah->node;
}

static inline uint64_t ud_key(const struct shim_node *n, uint32_t vqpn)
{
	return 1ull << 63 | (uint64_t)n->index << 24 | vqpn;
}

#pragma GCC visibility push(hidden)
extern struct shim_node *_Atomic shim_nodes[UD_NODES_MAX];

/* Forgets all, in a child of a fork. */
void nodes_reset(void);

/* shim/verbs/ud.c: nodes and numbers; all but ud_translate() and ud_source() under ctl. */
struct shim_node *node_find(const uint8_t gid[16]);
/* NULL: too many, or no memory. */
struct shim_node *node_get(const uint8_t gid[16]);
/* The process there that has the number, as far as is known; NULL: none. */
struct shim_partner *node_holder(struct shim_node *n, uint32_t vqpn);
/* 0 or -errno. -EADDRINUSE: another process there has the number, and has not ended. */
int node_learn(struct shim_node *n, struct shim_partner *p, uint32_t vqpn, uint32_t qpn);
void node_forget(struct shim_node *n, uint32_t vqpn, uint64_t why);
/* The port has that LID now (0: not known); shown: as its program, or ours, knows it. told: a
 * process there says so, and with that all that came from the old one has been taken. */
void node_at_lid(struct shim_node *n, uint16_t lid, uint16_t shown, bool told);
struct shim_partner *partner_find(const struct peer_head *h);
struct shim_partner *partner_get(const struct peer_head *h);
/* Asks whether it is still there, at most every 10 s: an agent answers for a process that is not,
 * and a host for a VM that is not. Of one that was destroyed nobody tells. */
void partner_probe(struct shim_partner *p);
/* The process has gone. */
void partner_end(struct shim_partner *p);
/* Frees those that are gone; not while a job runs. */
void partners_reap(void);
/* On the data path, under send.lock: the hardware's address handle and number into wr. false: the
 * number is being asked for. */
bool ud_translate(struct shim_qp *q, struct ibv_send_wr *wr);
/* The sender's number and LID in wc become those that programs know; the receive's buffers begin
 * with the GRH. */
void ud_source(struct ibv_wc *wc, const struct ibv_sge *sge, int num_sge);
bool ud_told(const struct shim_ud *u, uint64_t key);
int ud_tell(struct shim_ud *u, uint64_t key);

int ud_init(struct shim_qp *q);
void ud_free(struct shim_qp *q);
/* RESET: it starts anew. */
void ud_reset(struct shim_qp *q);
/* True if q has sent to a GID that the order is about. */
bool ud_sends_to(struct shim_qp *q, const struct shim_order *o);
/* Sets q->uncovered, or takes it back. */
void ud_check_covered(struct shim_qp *q);
void ud_check_all_covered(void);
/* True if the port with that GID is the context's, so that partners know its QPs by it. A program
 * may have opened the device several times. */
bool ud_shows(const struct shim_context *c, const uint8_t sgid[16]);
/* The first of these. NULL: none of ours. */
struct shim_context *ud_context(const uint8_t sgid[16]);
void ud_describe(uint32_t cookie);

/* Between the shims of two processes (verbs/ud_send.c). */
struct ud_packet {
	struct shim_relay relay;
	struct peer_head head;
	struct peer_qp qps[];
};

struct one_qp {
	struct ud_packet p;
	struct peer_qp qp;
};

/* Writes the LIDs of a port of ours into a packet that tells numbers of QPs on it. */
void ud_tell_lids(struct peer_head *h, const struct shim_context *c, uint8_t port);
/* Sends head.count QPs. The receiver is in head.dst_slot, or has head.dst_vqpn. */
void ud_send_packet(const uint8_t sgid[16], const uint8_t dgid[16], struct ud_packet *p,
		    uint16_t type);
/* Asks for that number at the GID; under the send.lock of q, whose posts may wait for it. */
void ud_ask(struct shim_qp *q, struct shim_node *n, const uint8_t sgid[16], uint32_t vqpn);
void ud_send_head(struct shim_partner *p, uint16_t type, uint64_t migration);
/* The program destroys q. */
void ud_bye(struct shim_qp *q);
/* Fills in the rest of a marker. 0, or errno. */
int ud_marker(struct shim_qp *q, struct ibv_send_wr *wr);
/* Frees what that took, but not while a marker is under way. */
void ud_drop_marker(struct shim_qp *q);

/* shim/verbs/ah.c. Under ctl: handles that only held sends kept. */
void ah_reap(void);
/* The real one, or a new one where the path has changed. 0 or -errno. */
int ah_build(struct shim_ah *ah);
/* The path record has changed. Under ctl, while nobody is inside a control verb: the handle takes
 * it, if it is another one. 0; -EAGAIN: a moment later, it has just done so; or -errno. */
int ah_take_path(struct shim_ah *ah);
/* The device's handles go. */
void ah_release(struct shim_ah *ah);

#pragma GCC visibility pop

#endif
