/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which LID a VM has, and what a move does with it, in each of the three ways. */
#ifndef IBVMIG_VSWITCH_MOVES_ADDRESS_H
#define IBVMIG_VSWITCH_MOVES_ADDRESS_H

#include "vswitch/model/lids.h"
#include "vswitch/moves/moves.h"

enum address_mode {
	ADDRESS_PREPOPULATED, /* each VF has one; VM and destination exchange theirs */
	ADDRESS_DYNAMIC,      /* a VM gets the next free one and takes it along */
	ADDRESS_SHARED_PORT,  /* LIDs belong to hosts: the VM's changes with every move */
	ADDRESS_MODES
};

struct address {
	enum address_mode mode;
	struct lids lids;
};

/* What has to be done for a VM: its LID afterwards, and the moves of a plan, if any. */
struct address_change {
	uint16_t lid;
	unsigned moves;
	struct move move[2];
};

const char *address_mode_name(enum address_mode m);
/* 0 or -EINVAL. */
int address_mode_parse(const char *name, enum address_mode *ret_mode, struct fabric_error *e);

/* Dynamic LIDs come from first to last; 0: from just above the highest that anybody has, so that
 * the tables get few blocks more, and up to 0xBFFF. What the fabric's ports have is held, so a
 * restart loses none; LIDs of VMs that are on no port just now are held with lids_hold(). */
int address_init(struct address *a, enum address_mode mode, const struct fabric *f, unsigned first,
		 unsigned last, struct fabric_error *e);

/* A VM starts on VF `vf`. 0; -ENOSPC (dynamic: none is free; *e says how many are), -ENODATA
 * (prepopulated, and this VF has none; or its host has none), -EBUSY (the VF has a dynamic one). A
 * dynamic LID, the first of 2^LMC of the VF, is held from now on: address_forget() if the change is
 * not made. */
int address_start(struct address *a, const struct fabric *f, uint32_t vf,
		  struct address_change *ret_change, struct fabric_error *e);
/* The VM on VF `from` goes to `to`. Errors as above; holds nothing. */
int address_move(const struct address *a, const struct fabric *f, uint32_t from, uint32_t to,
		 struct address_change *ret_change, struct fabric_error *e);
/* The VM on `vf` ends. The LID is held until address_forget(), when the change has been made. */
int address_stop(const struct address *a, const struct fabric *f, uint32_t vf,
		 struct address_change *ret_change, struct fabric_error *e);
void address_forget(struct address *a, uint16_t lid, unsigned lmc);

/* The PF beside a VF, or the port itself where it has none. */
uint32_t address_host(const struct fabric *f, uint32_t vf);

#endif
