/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A batch on its way: LIDs to the ports (PortInfo), LFT blocks to the switches, and their answers.
 * The gate is held by the caller of all. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_DELIVER_H
#define IBVMIG_SM_HELPER_PLUGIN_DELIVER_H

#include "sm-helper/plugin/lfts.h"
#include "sm-helper/plugin/tables.h"

struct delivery {
	struct plugin *p;            /* borrowed, as all here */
	struct lfts *lfts;           /* turned: everything goes back */
	struct place *place;         /* `count` of them */
	struct lock_time *lock_time; /* of the batch */
	unsigned count, port_infos;  /* port_infos: sent by the last deliver_lids() */
	bool ordered;                /* somebody sends to these LIDs */
};

/* Sends the place's port its LID, and waits for nothing. Tables locked. 0, or -EIO: OpenSM could
 * not send it. */
int deliver_lid(struct plugin *p, struct place *place, uint16_t lid);
/* The same for each place whose LID is another one afterwards; back: what it was before. */
int deliver_lids(struct delivery *d, bool back);

/* Waits until OpenSM waits for no answer any more. 0, or -ETIMEDOUT after deadline_us
 * (CLOCK_MONOTONIC). */
int deliver_await(struct plugin *p, uint64_t deadline_us);
/* Sends the LFT blocks, and waits for the answers to all that was sent. An ordered batch first
 * waits for those of the ports: before the first packet is led to a new place, that has its LID.
 * The way back waits for nobody, as half of the switches may lead packets to where the LID is no
 * more. Without the lock. 0, -EIO or -ETIMEDOUT. */
int deliver_lfts(struct delivery *d, uint64_t deadline_us);
/* Makes sure that every SMP was answered and accepted. 0, or -EIO with reason. */
int deliver_check(const struct delivery *d, struct sm_reply_head *h);

#endif
