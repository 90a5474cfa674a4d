/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The line to the agent, and the gate of control verbs, which is shut while a job runs. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_LINK_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_LINK_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* The thread that reads the socket and does all of a job. As with main(), the lowest floor knows
 * its name, and the highest one what it does (shim/helper.c). Weak, as the table of parts is. */
struct shim_helper {
	/* Connects, says hello and starts the thread; where that fails, shim.agent stays -1. */
	void (*start)(void);
};
extern const struct shim_helper shim_helper __attribute__((weak));

/* Connects once per process. false: there is no agent, step aside. */
bool shim_start(void);
/* In a child: as before the first call; what there was is left where it is. */
void shim_reset(void);
void shim_send(const void *packet);
/* Sends packet and waits for the answer of the same type, at most bytes of it. Returns 0 or -errno,
 * of the call or the answer's status. -ECONNRESET: the agent has gone. Not from the helper thread.
 */
int shim_call(void *packet, void *answer, size_t bytes, unsigned timeout_ms);
/* The agent's answer, to who waits for it in shim_call(). */
void shim_call_answered(const struct shim_head *h);
/* The socket broke: calls that wait are over, and what follows waits for the next agent. */
void shim_agent_lost(void);
void shim_agent_found(void);
/* An agent that has gone is mostly started again: waits until there is one. false: not within ms.
 * Not from the helper thread. */
#define SHIM_AGENT_BACK_MS 10000
bool shim_await_agent(unsigned ms);
void shim_wake_helper(void);
/* A line in the agent's log; never on the program's streams. */
void shim_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void shim_set_uncovered(const char *why);
void shim_unset_uncovered(void);
uint32_t shim_cookie(void);

/* The gate, around each control verb: waits while a job runs. A verb inside another does not wait
 * again, and the helper thread never does. */
void ctl_enter(void);
/* The same for who opens or looks for devices: waits also while the guest is suspended, although
 * nothing of this process is. Returns whether it has waited. */
bool ctl_enter_device(void);
void ctl_exit(void);
/* The calling thread is the helper: the job is its own, and it never waits at the gate. */
void ctl_is_helper(void);
#pragma GCC visibility pop

#endif
