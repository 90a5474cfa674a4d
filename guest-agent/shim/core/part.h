/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of a job: what the floors above job/ do in a suspend and a resume, and what they know
 * of QPs. Lower floors ask all parts through the functions at the end, and name none of them; the
 * table is in shim/parts.c. A hook that is NULL is one that the part has no use for.
 *
 * Hooks are called in the helper thread, without shim.ctl, where nothing else is said. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_PART_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_PART_H

#include "guest-agent/shim/core/objects.h"

struct shim_part {
	const char *name;

	/* Suspend, in this order. */

	/* Under ctl: connections that the job concerns are being made. ret_why: what they wait
	 * for. Nothing is held, and nobody kept out, meanwhile. */
	bool (*making)(char *ret_why, size_t bytes);
	/* Under ctl: what moves has connections with this process, so that it may make one more. */
	bool (*may_be_asked)(void);
	/* The job concerns q, a QP without one single other end (UD), though this process stays. */
	bool (*holds)(struct shim_qp *q);
	/* Chooses what takes part. true: there is something. */
	bool (*concerned)(void);
	/* Nothing of the part is under way any more; asked again until all parts are quiet. */
	bool (*quiet)(void);
	/* The suspend has failed, and what was held goes on. */
	void (*abort)(void);

	/* Release: before any QP is destroyed; before and after that QP is, in any thread; before
	 * the PDs of that device are deallocated. */
	void (*release)(void);
	void (*release_qp)(struct shim_qp *q);
	void (*released_qp)(struct shim_qp *q);
	void (*release_device)(struct shim_context *c);

	/* Resume. */

	/* A UD QP that is in INIT, in any thread: to where the program had it. 0 or -errno. */
	int (*rebuild_qp)(struct shim_qp *q);
	/* The devices are open and have what QPs need. */
	void (*rebuild)(void);
	/* Other ends may be told now: every QP is built. */
	void (*tell)(void);
	/* The part's other ends are ready, too; asked again until all are. */
	bool (*ready)(void);
	/* Every QP is connected, and the job is about to end. */
	void (*resumed)(void);

	/* Under ctl, after a suspend that failed and after a resume: the job is over. */
	void (*ended)(void);
	/* Under ctl: nothing is held now, so questions that were put off can be answered. */
	void (*answer)(void);

	/* At any time. */

	/* Under ctl: the agent has asked what there is. */
	void (*describe)(uint32_t cookie);
	/* An agent that was started again is told what the one before it knew. */
	void (*agent_again)(void);
	/* Work that is due when time has passed, and milliseconds until then, -1: none is. */
	void (*step)(void);
	int (*timeout)(void);
	/* Inside a control verb, in the program's thread: it destroys the QP. */
	void (*qp_gone)(const struct ibv_qp *qp);
	/* The GIDs of the connection that q is for, where the program has named none. */
	bool (*find_gids)(const struct shim_qp *q, uint32_t dqpn, uint8_t ret_sgid[16],
			  uint8_t ret_dgid[16]);
	/* In a child of a fork: forgets all. */
	void (*forget)(void);
};

/* The sooner of two times in milliseconds, -1: never. */
static inline int sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

#pragma GCC visibility push(hidden)
/* The parts in the order in which they are asked; NULL ends the table. Weak, because lower floors
 * can be linked without the higher ones, as tests do: then there are no parts. */
extern const struct shim_part *const shim_parts[] __attribute__((weak));

/* These functions ask the parts that have the hook of their name. */
bool parts_making(char *ret_why, size_t bytes);
bool parts_may_be_asked(void);
bool parts_hold(struct shim_qp *q);
bool parts_concerned(void); /* every part is asked: it chooses */
bool parts_quiet(void);
void parts_abort(void);
void parts_release(void);
void parts_release_qp(struct shim_qp *q);
void parts_released_qp(struct shim_qp *q);
void parts_release_device(struct shim_context *c);
int parts_rebuild_qp(struct shim_qp *q);
void parts_rebuild(void);
void parts_tell(void);
bool parts_ready(void);
void parts_resumed(void);
void parts_ended(void);
void parts_answer(void);
void parts_describe(uint32_t cookie);
void parts_agent_again(void);
void parts_step(void);
int parts_timeout(void);
void parts_qp_gone(const struct ibv_qp *qp);
bool parts_find_gids(const struct shim_qp *q, uint32_t dqpn, uint8_t ret_sgid[16],
		     uint8_t ret_dgid[16]);
void parts_forget(void);
#pragma GCC visibility pop

#endif
