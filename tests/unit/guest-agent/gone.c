/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A mover that dies in a migration, seen by a peer: the shim as it is shipped, with its helper
 * thread, on a played device. The peer's QPs to the dead VM are given up after a while, and then
 * fail as with any dead peer. The peer's other QPs work meanwhile, and it takes part in the next
 * migration. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/guest-agent/pair.h"

#define ANOTHER (FAKE_GUID + 1)

static struct end lost, mover; /* ours, and the one that the VM takes with it */
static struct end near, far;   /* the shim knows no VM of these */
static uint64_t migration;

static int order(uint16_t type, uint64_t vguid, struct shim_report *r)
{
	return said(r, type, fake_agent_order_peer(type, migration, vguid, r));
}

static bool takes_part_in_the_next(void)
{
	struct shim_report r;

	migration++;
	return !order(SHIM_SUSPEND, ANOTHER, &r) && !order(SHIM_RELEASE, ANOTHER, &r) &&
	       !order(SHIM_RESUME, ANOTHER, &r) && message(&near, &far);
}

static bool begin(void)
{
	struct shim_report r;

	fake_agent_lose_ways(false);
	migration++;
	return make_pair(&lost, &mover, 0, true) && message(&lost, &mover) &&
	       !order(SHIM_SUSPEND, FAKE_GUID, &r) && r.qps == 2;
}

/* When the peers have been suspended; then they are told that the migration has ended. */
static bool dies_in_the_switch(void)
{
	struct shim_report r;

	if (!begin() || order(SHIM_RELEASE, FAKE_GUID, &r))
		return false;
	fake_agent_lose_ways(true);
	if (!send_one(&lost) || !message(&near, &far) || order(SHIM_RESUME, FAKE_GUID, &r) ||
	    ibv_destroy_qp(mover.qp))
		return false;
	return ends_with(&lost) == IBV_WC_RETRY_EXC_ERR && !ibv_destroy_qp(lost.qp) &&
	       takes_part_in_the_next();
}

/* Before they have: the suspend is given up, and whether the other end has kept its QP is asked. */
static bool dies_in_the_suspend(void)
{
	struct shim_report r;

	if (!begin())
		return false;
	fake_agent_lose_ways(true);
	if (!send_one(&lost) || order(SHIM_ABORT, FAKE_GUID, &r) != -ECANCELED ||
	    ibv_destroy_qp(mover.qp))
		return false;
	return message(&near, &far) && takes_part_in_the_next() &&
	       ends_with(&lost) == IBV_WC_RETRY_EXC_ERR && takes_part_in_the_next();
}

static atomic_bool stop;

static void *modify(void *arg)
{
	struct ibv_qp_attr a = {.min_rnr_timer = 12};
	bool ok = true;

	(void)arg;
	while (ok && !atomic_load(&stop))
		ok = !ibv_modify_qp(lost.qp, &a, IBV_QP_MIN_RNR_TIMER);
	return ok ? NULL : &stop;
}

/* A suspend is given up, and the other end has another QP by now: ours is built anew, but not while
 * the program is inside a verb. */
static bool is_connected_anew(void)
{
	struct shim_report r;
	pthread_t thread;
	void *bad;
	bool ok;

	if (!begin())
		return false;
	fake_agent_connect_anew(true);
	atomic_store(&stop, false);
	if (pthread_create(&thread, NULL, modify, NULL))
		return false;
	ok = order(SHIM_ABORT, FAKE_GUID, &r) == -ECANCELED && message(&lost, &mover);
	atomic_store(&stop, true);
	pthread_join(thread, &bad);
	fake_agent_connect_anew(false);
	return ok && !bad && message(&mover, &lost) && takes_part_in_the_next() &&
	       !ibv_destroy_qp(lost.qp) && !ibv_destroy_qp(mover.qp);
}

static bool open_all(void)
{
	void (*end_retries)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "fake_end_retries");

	if (!open_device() || !end_retries)
		return false;
	end_retries();
	return make_pair(&near, &far, 0, false) && message(&near, &far);
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "the shim opens the played device"},
		{is_connected_anew, "a QP whose other end was connected anew is built anew"},
		{dies_in_the_switch, "a mover that dies after the suspend is given up"},
		{dies_in_the_suspend, "and one that dies before it was through"},
	};

	(void)argc;
	setenv(FAKE_CALL_ENV, "2000", 1);
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
