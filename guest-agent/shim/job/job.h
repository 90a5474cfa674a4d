/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The job of the helper thread: a suspend or a resume. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_JOB_JOB_H
#define IBVMIG_GUEST_AGENT_SHIM_JOB_JOB_H

#include "guest-agent/proto/peer.h"
#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
#define FREEZE_AFTER_US  100000 /* without progress, in a drain */
#define CONNECT_AGAIN_US 50000
#define RESUME_TICK_MS   1000    /* while other ends are waited for */
#define ASK_PEER_US      1000000 /* an end that has not answered is asked again: it may have died */
#define OPEN_AGAIN_MS    5

/* shim/job/job.c, shim/job/suspend.c, shim/job/resume.c: in the helper thread only. */
enum job_state {
	JOB_IDLE,
	JOB_ENTER,
	JOB_DRAIN,
	JOB_QUIET,
	JOB_RELEASED,
	JOB_REBUILD,
	JOB_CONNECT
};

struct shim_job {
	enum job_state state;
	uint64_t migration;
	unsigned role;
	uint64_t start_us, step_us, deadline_us;
	struct shim_order order;
	struct shim_report report;
	int error;
	bool empty;   /* concerns nothing of this process */
	bool waiting; /* QPs are in QP_WAIT_PEER */
	bool again;   /* a QP is to be connected again after an error */
	bool making;  /* JOB_ENTER waits for connections of librdmacm, the mover, or lost regions */
	uint64_t mover_first_us; /* until then */
	uint64_t lost_until_us;  /* regions without memory are waited for */
	bool lost_told;          /* a missing one has been named in the agent's log */
	bool built;              /* every QP is built */
	bool more;               /* QPs are to be built or connected at once */
	uint32_t before_us;      /* work for the resume before the mover's device was back */
	bool ahead; /* mover: .order's devices are open, and all that is not UD is built */
	uint64_t ahead_us[2]; /* when that was begun and done */
	bool mover_ahead;     /* peer: of the mover only what it has built ahead is known */
};

extern struct shim_job job;

/* While it still waits for connections that are being made, it holds nothing. */
static inline bool job_holds(void)
{
	return job.state != JOB_IDLE && (job.state != JOB_ENTER || shim.busy);
}

void job_order(const struct shim_order *o);
void job_step(void);
/* Milliseconds until job_step() must be called again, -1: never. */
int job_timeout(void);
/* Notes what the peer said (under ctl); job_step() acts on it. type 0: it cannot be reached. */
void job_qp_event(struct shim_qp *q, unsigned type, uint64_t migration, const struct peer_qp *e);
/* True if nobody has known a way to the other end of q, and nothing of it has come, for so long: it
 * is gone, then. Under ctl, or in a resume. */
bool job_lost_peer(struct shim_qp *q, uint64_t now, uint64_t after_us);
void job_send_report(uint16_t type);
void job_fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* True if the other end of q has a part in the job. */
bool takes_part(const struct shim_qp *q);
/* The answer to the agent's query (job/describe.c). */
void shim_describe(uint32_t cookie);
void job_end(void);
void job_end_empty(void); /* for a job that concerned nothing here */
void job_release(void);
/* Release a QP in a job, and a context without QPs. */
int release_qp(void *qp);
void release_device(struct shim_context *c);
void suspend_enter(void);
void suspend_drain(void);
/* Events of the hardware, while the program does not see them. */
void suspend_take_events(void);
/* shim/job/stuck.c. By the counts that the peer has told: where q's sends stop; .stuck says whether
 * that is known. Fails the job where an atomic operation may have been executed. */
void stuck_find(struct shim_qp *q);
/* Asks the peer for its counts, if nothing moves. */
void stuck_ask(struct shim_qp *q, uint64_t now);
/* The peer's question: no more receives are handed over, and it is told the counts. */
void stuck_freeze(struct shim_qp *q);
/* In the release, of a QP that is .stuck: sends that the peer has executed are done, behind all
 * completions that the hardware has made. */
void stuck_retire(struct shim_qp *q);
/* Says what the drain still waits for. */
void suspend_why(char *text, size_t max);
bool job_wants_channels(void);
/* A suspend that nobody can end any more is undone. */
void job_agent_gone(void);
/* The migration for which this process has released its QPs, 0: none. */
uint64_t job_suspended(void);
/* True if a connection of q with that GID would be part of the job, so that it has to wait. */
bool job_concerns(const struct shim_qp *q, const uint8_t dgid[16]);
void resume_start(const struct shim_order *o);
void resume_rebuild(void);
void resume_step(void);
/* The devices that job.order names. 0, or -errno: they are not complete yet. */
int resume_open_contexts(void);
/* job/pkeys.c: 0; or -EADDRNOTAVAIL and job.report.why, the new device lacks a P_Key. */
int resume_check_pkeys(void);
/* Builds the objects that QPs need; 0, or -errno and what failed. */
int resume_build_objects(const char **ret_what);
/* The real QP as far as it can come without the other end: INIT, with its receives. 0 or -errno. */
int resume_build_qp(void *qp);

/* shim/job/ahead.c: what is built before the resume. The peer's QPs, while the mover has no device.
 */
void ahead_peer(void);
/* The mover's objects, on SHIM_BUILD. */
void ahead_mover(const struct shim_order *o);
/* Before a resume: what was built ahead is kept if it is on the devices that *o names. Accounts for
 * the time that it took. */
void ahead_end(const struct shim_order *o);
/* Nobody will say any more whether the devices are still there. */
void ahead_give_back(void);

#pragma GCC visibility pop

#endif
