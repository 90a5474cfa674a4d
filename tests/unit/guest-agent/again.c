/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The agent is started again while a program makes QPs and connects them: the shim as it is
 * shipped, on a played device. The program notices nothing, and what it has made is covered. */
#include "guest-agent/proto/peer.h"
#include "tests/unit/guest-agent/pair.h"

static struct end one, a, b;
static struct end old[2]; /* from before */

/* The old agent's question for the path is open when the agent goes: the next agent is asked,
 * too. */
static bool open_all(void)
{
	fake_agent_keep_paths(true);
	return open_device() && make_pair(&old[0], &old[1], 0, true) && message(&old[0], &old[1]);
}

static bool again(void)
{
	fake_agent_leave();
	fake_agent_keep_paths(false);
	return !fake_agent_return();
}

static bool is_created(void)
{
	return again() && make_end(&one);
}

static bool is_connected(void)
{
	return make_end(&a) && make_end(&b) && again() && connect_end(&a, &b, 0, true) && again() &&
	       connect_end(&b, &a, 0, true) && message(&a, &b);
}

static bool migrates(void)
{
	struct shim_report r;

	return !said(&r, SHIM_SUSPEND, fake_agent_order(SHIM_SUSPEND, 1, &r)) && r.qps == 5 &&
	       !said(&r, SHIM_RELEASE, fake_agent_order(SHIM_RELEASE, 1, &r)) &&
	       !said(&r, SHIM_RESUME, fake_agent_order(SHIM_RESUME, 1, &r)) && message(&a, &b) &&
	       message(&b, &a) && message(&old[0], &old[1]);
}

/* With a key of the peer's that nobody has told. */
static bool write_one(const struct end *e, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = (uintptr_t)buffer;
	wr.wr.rdma.rkey = rkey;
	return !ibv_post_send(e->qp, &wr, &bad);
}

/* The agent goes with the question for a key: the next one brings it. Then one is lost under way.
 */
static bool asks_again(void)
{
	for (unsigned i = 0; i < 2; i++) {
		unsigned before = fake_agent_brought(PEER_KEY_GET);

		fake_agent_keep_questions(true);
		if (!make_pair(&a, &b, 0, true) || !write_one(&a, mr->rkey + 0x100000 + i) ||
		    !fake_agent_await_more(PEER_KEY_GET, before, WAIT_MS) || (!i && !again()))
			return false;
		fake_agent_keep_questions(false);
		if (ends_with(&a) != IBV_WC_REM_ACCESS_ERR)
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "the shim opens the played device"},
		{is_created, "a QP is created"},
		{is_connected, "QPs are connected"},
		{migrates, "they migrate"},
		{asks_again, "a key that was asked for in vain is asked for again"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
