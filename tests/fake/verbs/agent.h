/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A thread of the test that plays ibvmig-agent for the shim in the same process. The thread gives
 * out a slot, brings packets for peers back to the sender, and orders suspends and resumes. */
#ifndef IBVMIG_TESTS_FAKE_AGENT_H
#define IBVMIG_TESTS_FAKE_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "guest-agent/proto/shim.h"

/* Listens on a socket of its own and sets IBVMIG_SOCKET to it, before a device is opened.
 * 0 or -errno. */
int fake_agent_start(void);
/* The agent ends, and is started again: it listens, and knows nothing of before. 0 or -errno. */
void fake_agent_leave(void);
int fake_agent_return(void);
/* Sends an order about the played device and waits for the report that answers it; an answer that
 * never comes is the caller's deadline. The report's status, or -errno. */
int fake_agent_order(uint16_t type, uint64_t migration, struct shim_report *ret_report);
/* The same, to a peer of the VM with that vGUID. */
int fake_agent_order_peer(uint16_t type, uint64_t migration, uint64_t vguid,
			  struct shim_report *ret_report);
/* The played device is there, its port is not ACTIVE yet; not there: it has gone again. */
void fake_agent_build(uint64_t migration, bool there);
/* While they are lost, no packet arrives: its sender hears that nobody has a way to that GID. */
void fake_agent_lose_ways(bool lose);
/* A peer that says that it goes on with the QP that it had is heard as if it had been connected
 * anew. */
void fake_agent_connect_anew(bool anew);
/* Path records lead to this LID from now on, and nothing else is in them; 0, as at first: not even
 * that. How many have been asked for. */
unsigned fake_agent_paths(unsigned dlid);
/* The LID is of the ports with these GUIDs (16 at most), from now on; any other one is nobody's,
 * as all are at first. Paths there are those of fake_agent_paths(). How many questions have been
 * asked. */
unsigned fake_agent_lid(unsigned lid, unsigned count, const uint64_t *guids);
/* A process that does not ask anew hears of that port alone; 0: of all. */
void fake_agent_stale_lid(uint64_t guid);
/* Packets to that GUID find nobody who has the QP. */
void fake_agent_stranger(uint64_t guid);
/* Another process of the guest has named each number that a QP could have, from now on. */
void fake_agent_take_numbers(bool take);
/* Processes that start from now on are told that InfiniBand ports want GRHs. */
void fake_agent_require_grh(void);
/* The record of the way from one port of the played device to another is now this one (mtu in
 * bytes; the LID is that of fake_agent_paths()). */
void fake_agent_repath(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu);
/* The same, and nobody is told, but that the agent knows no record any more. */
void fake_agent_forget_paths(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu);
/* Its record is now another one, and nobody is told. */
void fake_agent_set_path(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu);
/* Packets of that type (proto/peer.h, below 64) do not arrive any more; 0: all do. */
void fake_agent_lose(uint16_t type);
/* While they are kept, who asks for a path record gets no answer. */
void fake_agent_keep_paths(bool keep);
/* While they are kept, no question for a peer's key arrives. */
void fake_agent_keep_questions(bool keep);
/* How many packets of that type (proto/peer.h, below 64) have been brought, or kept, since the
 * start. */
unsigned fake_agent_brought(uint16_t type);
/* Waits until these are more than before, ms (whole seconds) at most. */
bool fake_agent_await_more(uint16_t type, unsigned before, unsigned ms);
/* Returns whether a line of the shim's log has contained the text since the last order, or since
 * its lines were forgotten. */
bool fake_agent_heard(const char *text);
void fake_agent_forget_log(void);

#endif
