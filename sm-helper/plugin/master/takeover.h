/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs of ports when an OpenSM becomes master: pure, no OpenSM in it. Truth is what the ports have,
 * for OpenSM's file may be older than what another master did. Only the places of a batch that was
 * cut short are told by its intent record (docs/fabric.md, "Fail-over"). */
#ifndef IBVMIG_SM_HELPER_PLUGIN_TAKEOVER_H
#define IBVMIG_SM_HELPER_PLUGIN_TAKEOVER_H

#include "sm-helper/proto/plugin.h"

/* An end port or a switch's port 0, as the sweep has found it. */
struct takeover_port {
	uint64_t guid;
	uint64_t switch_guid; /* the switch that it hangs on; 0: none */
	uint8_t switch_port;
	uint16_t lids;  /* how many it has with its LMC, at least 1: all below are the first */
	uint16_t lid;   /* in its PortInfo; 0: none */
	uint16_t known; /* in OpenSM's file; 0: none */
	uint16_t gets;  /* out; 0: whichever OpenSM chooses */
};

enum takeover_intent {
	TAKEOVER_NONE,   /* there is no record */
	TAKEOVER_WHOLE,  /* places of the batch are in order as they are */
	TAKEOVER_MENDED, /* places get what was wanted, or what they had before */
	TAKEOVER_PAST    /* places have moved on since: the record says nothing */
};

struct takeover_result {
	enum takeover_intent intent;
	unsigned kept;    /* ports whose own LID stands against OpenSM's file */
	unsigned doubled; /* ports whose LID another port has as well, intents aside */
};

/* Fills gets of all ports, no LID twice. intent: of a batch, count of them, 0 for none; a GUID or
 * LID of 0 is not known. 0 or -ENOMEM. */
int takeover_settle(struct takeover_port *ports, unsigned n, const struct sm_target *intent,
		    unsigned count, struct takeover_result *ret_result);

#endif
