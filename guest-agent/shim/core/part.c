/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Asks the parts of a job, one after the other, in the order of their table. */
#include "guest-agent/shim/core/part.h"

/* Runs the statement for each part that has the hook; macros, since hooks differ in what they take.
 */
#define WITH(hook, statement)                                                                      \
	for (const struct shim_part *const *p = shim_parts; p && *p; p++)                          \
		if ((*p)->hook) {                                                                  \
			statement;                                                                 \
		}
#define CALL(hook, ...)   WITH(hook, (*p)->hook(__VA_ARGS__))
#define IF_ANY(hook, ...) WITH(hook, if ((*p)->hook(__VA_ARGS__)) return true)

bool parts_making(char *ret_why, size_t bytes)
{
	IF_ANY(making, ret_why, bytes);
	return false;
}

bool parts_may_be_asked(void)
{
	IF_ANY(may_be_asked);
	return false;
}

bool parts_hold(struct shim_qp *q)
{
	IF_ANY(holds, q);
	return false;
}

bool parts_concerned(void)
{
	bool any = false;

	WITH(concerned, any |= (*p)->concerned());
	return any;
}

bool parts_quiet(void)
{
	bool all = true;

	WITH(quiet, all &= (*p)->quiet());
	return all;
}

void parts_abort(void)
{
	CALL(abort);
}

void parts_release(void)
{
	CALL(release);
}

void parts_release_qp(struct shim_qp *q)
{
	CALL(release_qp, q);
}

void parts_released_qp(struct shim_qp *q)
{
	CALL(released_qp, q);
}

void parts_release_device(struct shim_context *c)
{
	CALL(release_device, c);
}

int parts_rebuild_qp(struct shim_qp *q)
{
	int rc = 0;

	WITH(rebuild_qp, rc = rc ? rc : (*p)->rebuild_qp(q));
	return rc;
}

void parts_rebuild(void)
{
	CALL(rebuild);
}

void parts_tell(void)
{
	CALL(tell);
}

bool parts_ready(void)
{
	bool all = true;

	WITH(ready, all &= (*p)->ready());
	return all;
}

void parts_resumed(void)
{
	CALL(resumed);
}

void parts_ended(void)
{
	CALL(ended);
}

void parts_answer(void)
{
	CALL(answer);
}

void parts_describe(uint32_t cookie)
{
	CALL(describe, cookie);
}

void parts_agent_again(void)
{
	CALL(agent_again);
}

void parts_step(void)
{
	CALL(step);
}

int parts_timeout(void)
{
	int ms = -1;

	WITH(timeout, ms = sooner(ms, (*p)->timeout()));
	return ms;
}

void parts_qp_gone(const struct ibv_qp *qp)
{
	CALL(qp_gone, qp);
}

bool parts_find_gids(const struct shim_qp *q, uint32_t dqpn, uint8_t ret_sgid[16],
		     uint8_t ret_dgid[16])
{
	IF_ANY(find_gids, q, dqpn, ret_sgid, ret_dgid);
	return false;
}

void parts_forget(void)
{
	CALL(forget);
}
