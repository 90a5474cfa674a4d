/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program whose two ends tell each other their LID and GID, as verbs programs do, and a move that
 * gives the port another LID. So it is where VFs share the LID of their host. The shim is the
 * shipped one, with its helper thread, on a played device that delivers to the right LID only. */
#include <dlfcn.h>

#include "tests/unit/guest-agent/pair.h"

static struct end left, right;
static uint64_t migration;
static unsigned (*port_lid)(unsigned lid); /* fake_lid() */

static bool make_told_pair(struct end *a, struct end *b)
{
	struct ibv_port_attr port;

	return !ibv_query_port(context, 1, &port) && port.lid && make_pair(a, b, port.lid, true);
}

static int order(uint16_t type, struct shim_report *r)
{
	return said(r, type, fake_agent_order(type, migration, r));
}

/* The VM and its peer are in this process: the LID of both ends is another one afterwards. */
static bool move_to(unsigned lid)
{
	struct shim_report r;

	migration++;
	if (order(SHIM_SUSPEND, &r) || order(SHIM_RELEASE, &r))
		return false;
	port_lid(lid);
	fake_agent_paths(lid);
	return !order(SHIM_RESUME, &r);
}

static bool both_ways(const struct end *a, const struct end *b)
{
	return message(a, b) && message(b, a);
}

static bool open_all(void)
{
	if (!open_device())
		return false;
	port_lid = (unsigned (*)(unsigned))dlsym(RTLD_DEFAULT, "fake_lid");
	return port_lid;
}

static bool talk(void)
{
	port_lid(7);
	fake_agent_paths(7);
	return make_told_pair(&left, &right) && both_ways(&left, &right);
}

static bool go_on(void)
{
	return move_to(10) && both_ways(&left, &right);
}

/* Back to where the LID is as before, and on again: the address is always the present one. */
static bool go_on_again(void)
{
	return move_to(7) && both_ways(&left, &right) && move_to(11) && both_ways(&left, &right);
}

static bool asks_for_it(void)
{
	unsigned before = fake_agent_paths(11);

	return move_to(12) && both_ways(&left, &right) && fake_agent_paths(12) > before;
}

/* The port says the LID that it has, so what is told after a move is right for everybody. */
static bool connect_anew(void)
{
	struct end a, b;

	return make_told_pair(&a, &b) && both_ways(&a, &b) && move_to(13) && both_ways(&a, &b) &&
	       both_ways(&left, &right);
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "the shim opens the played device"},
		{talk, "two ends that have told each other their LIDs"},
		{go_on, "go on after a move that changed the LIDs of both"},
		{go_on_again, "and after more of them"},
		{asks_for_it, "each move asks for the path once more"},
		{connect_anew, "new connections have the new LID, and move as well"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
