/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Asks the parts of a job, one after the other, in the order of their table. */
#include "guest-agent/shim/core/part.h"

bool parts_making(char *ret_why, size_t bytes)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->making && shim_parts[i]->making(ret_why, bytes))
			return true;
	return false;
}

bool parts_may_be_asked(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->may_be_asked && shim_parts[i]->may_be_asked())
			return true;
	return false;
}

bool parts_hold(struct shim_qp *q)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->holds && shim_parts[i]->holds(q))
			return true;
	return false;
}

bool parts_concerned(void)
{
	bool any = false;

	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->concerned)
			any |= shim_parts[i]->concerned();
	return any;
}

bool parts_quiet(void)
{
	bool all = true;

	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->quiet)
			all &= shim_parts[i]->quiet();
	return all;
}

void parts_abort(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->abort)
			shim_parts[i]->abort();
}

void parts_release(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->release)
			shim_parts[i]->release();
}

void parts_release_qp(struct shim_qp *q)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->release_qp)
			shim_parts[i]->release_qp(q);
}

void parts_released_qp(struct shim_qp *q)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->released_qp)
			shim_parts[i]->released_qp(q);
}

void parts_release_device(struct shim_context *c)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->release_device)
			shim_parts[i]->release_device(c);
}

int parts_rebuild_qp(struct shim_qp *q)
{
	int rc = 0;

	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->rebuild_qp && !rc)
			rc = shim_parts[i]->rebuild_qp(q);
	return rc;
}

void parts_rebuild(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->rebuild)
			shim_parts[i]->rebuild();
}

void parts_tell(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->tell)
			shim_parts[i]->tell();
}

bool parts_ready(void)
{
	bool all = true;

	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->ready)
			all &= shim_parts[i]->ready();
	return all;
}

void parts_resumed(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->resumed)
			shim_parts[i]->resumed();
}

void parts_ended(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->ended)
			shim_parts[i]->ended();
}

void parts_answer(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->answer)
			shim_parts[i]->answer();
}

void parts_describe(uint32_t cookie)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->describe)
			shim_parts[i]->describe(cookie);
}

void parts_agent_again(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->agent_again)
			shim_parts[i]->agent_again();
}

void parts_step(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->step)
			shim_parts[i]->step();
}

int parts_timeout(void)
{
	int ms = -1;

	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->timeout)
			ms = sooner(ms, shim_parts[i]->timeout());
	return ms;
}

void parts_qp_gone(const struct ibv_qp *qp)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->qp_gone)
			shim_parts[i]->qp_gone(qp);
}

bool parts_find_gids(const struct shim_qp *q, uint32_t dqpn, uint8_t ret_sgid[16],
		     uint8_t ret_dgid[16])
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->find_gids &&
		    shim_parts[i]->find_gids(q, dqpn, ret_sgid, ret_dgid))
			return true;
	return false;
}

void parts_forget(void)
{
	for (unsigned i = 0; shim_parts[i]; i++)
		if (shim_parts[i]->forget)
			shim_parts[i]->forget();
}
