/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who may say what to whom: one row for each type of packet between shims (proto/peer.h).
 *
 * The sender's agent knows which process has which QP, so it checks .from. The receiver's agent
 * checks .to, and the receiver's shim checks .to and .bond. What a row does not allow is dropped by
 * the agents, and changes nothing at the shim. */
#ifndef IBVMIG_GUEST_AGENT_PROTO_SENDERS_H
#define IBVMIG_GUEST_AGENT_PROTO_SENDERS_H

#include <stdbool.h>

#include "guest-agent/proto/peer.h"

enum peer_from {
	PEER_FROM_HOLDER,  /* each QP in whose name it is said is the sender's */
	PEER_FROM_LAST,    /* the same, or the QP is nobody's any more: its program may destroy it
			    * while a word for many waits to be sent */
	PEER_FROM_PROCESS, /* names no QP of the sender, or one of its own */
	PEER_FROM_AGENT,   /* no process sends it */
};

enum peer_to {
	PEER_TO_HOLDER,  /* the process that is named, else the one that has the QP */
	PEER_TO_PROCESS, /* the process that is named, by slot and instance */
};

/* The receiver's reason to listen. */
enum peer_bond {
	PEER_BOND_FREE,      /* its QP is connected to nobody, or to the sender's */
	PEER_BOND_ASKED,     /* its QP has asked the sender's, and waits */
	PEER_BOND_END,       /* its QP's other end is the sender's */
	PEER_BOND_CONNECTED, /* the same, and its program has connected it */
	PEER_BOND_DATAGRAMS, /* it is a QP for datagrams, which anybody may send to */
	PEER_BOND_PARTNER,   /* both processes have exchanged numbers for datagrams */
	PEER_BOND_SAID,      /* the receiver has said .about to the sender before */
};

enum peer_entries { PEER_NO_ENTRY, PEER_ONE_ENTRY, PEER_ENTRIES };

struct peer_rule {
	uint16_t type;
	const char *name;
	enum peer_from from;
	enum peer_to to;
	enum peer_bond bond;
	enum peer_entries entries;
	bool will; /* a process may leave it for its end */
};

#define PEER_RULE(type, from, to, bond, entries, will)                                             \
	{                                                                                          \
		PEER_##type, #type, PEER_FROM_##from, PEER_TO_##to, PEER_BOND_##bond, entries,     \
			will                                                                       \
	}

static const struct peer_rule peer_rules[] = {
	PEER_RULE(RESOLVE, HOLDER, HOLDER, FREE, PEER_ONE_ENTRY, false),
	PEER_RULE(RESOLVED, HOLDER, PROCESS, ASKED, PEER_ONE_ENTRY, false),
	PEER_RULE(BUSY, HOLDER, PROCESS, ASKED, PEER_ONE_ENTRY, false),
	PEER_RULE(GONE, LAST, PROCESS, SAID, PEER_NO_ENTRY, false),
	PEER_RULE(KEY_GET, HOLDER, PROCESS, CONNECTED, PEER_ONE_ENTRY, false),
	PEER_RULE(KEYS, PROCESS, PROCESS, CONNECTED, PEER_ENTRIES, false),
	PEER_RULE(KEYS_DROP, PROCESS, PROCESS, CONNECTED, PEER_NO_ENTRY, false),
	PEER_RULE(DRAINED, HOLDER, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(FREEZE, HOLDER, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(FROZEN, HOLDER, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(ABORT, LAST, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(CONNECT, HOLDER, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(READY, HOLDER, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(PREPARED, HOLDER, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(SRQ_GET, HOLDER, PROCESS, CONNECTED, PEER_ONE_ENTRY, false),
	PEER_RULE(SRQS, PROCESS, PROCESS, CONNECTED, PEER_ENTRIES, false),
	PEER_RULE(CM_DISCONNECT, LAST, HOLDER, END, PEER_ONE_ENTRY, true),
	PEER_RULE(PATH_HOLD, LAST, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(PATH_DRAINED, LAST, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(PATH_READY, LAST, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(PATH_ABORT, LAST, PROCESS, END, PEER_ENTRIES, false),
	PEER_RULE(UD_RESOLVE, HOLDER, HOLDER, DATAGRAMS, PEER_ONE_ENTRY, false),
	PEER_RULE(UD_RESOLVED, HOLDER, PROCESS, ASKED, PEER_ONE_ENTRY, false),
	PEER_RULE(UD_BUSY, HOLDER, PROCESS, ASKED, PEER_ONE_ENTRY, false),
	PEER_RULE(UD_BYE, HOLDER, PROCESS, PARTNER, PEER_ONE_ENTRY, false),
	PEER_RULE(UD_DRAINED, PROCESS, PROCESS, PARTNER, PEER_NO_ENTRY, false),
	PEER_RULE(UD_ABORT, PROCESS, PROCESS, PARTNER, PEER_NO_ENTRY, false),
	PEER_RULE(UD_NUMBERS, HOLDER, PROCESS, PARTNER, PEER_ENTRIES, false),
	PEER_RULE(UD_HAVE, PROCESS, PROCESS, PARTNER, PEER_NO_ENTRY, false),
	PEER_RULE(UD_ASK, PROCESS, PROCESS, PARTNER, PEER_NO_ENTRY, false),
	PEER_RULE(UD_ENDED, AGENT, PROCESS, PARTNER, PEER_NO_ENTRY, false),
};
#undef PEER_RULE

#define PEER_RULES (sizeof(peer_rules) / sizeof(peer_rules[0]))

/* NULL: no type of this build. */
static inline const struct peer_rule *peer_rule_of(uint16_t type)
{
	for (size_t i = 0; i < PEER_RULES; i++)
		if (peer_rules[i].type == type)
			return &peer_rules[i];
	return NULL;
}

/* True if the size is that of the head and its entries, and there are as many as the rule says. */
static inline bool peer_fits(const struct peer_rule *r, const struct peer_head *h, size_t bytes)
{
	return bytes == sizeof(*h) + h->count * peer_entry_bytes(h->type) &&
	       (r->entries == PEER_NO_ENTRY ? h->count == 0
					    : r->entries != PEER_ONE_ENTRY || h->count == 1);
}

#endif
