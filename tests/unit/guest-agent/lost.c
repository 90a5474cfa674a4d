/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program that unmaps memory and deregisters it a moment later, as registration caches do, meets
 * a suspend in between. The shim is the shipped one, with its helper thread, on a played device. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/rig.h"

#define BYTES 65536
/* Far from where the kernel places mappings: else the next one, a thread's stack, may fill the gap.
 */
#define ALONE ((void *)(1ul << 45))
/* The suspend waits for a second: a machine that stands still for longer may try again. */
#define TRIES 10

static struct ibv_context *context;
static struct ibv_pd *pd;
static uint64_t migration;
static atomic_bool reported;
static const char waits[] = "the suspend waits for it";

static struct ibv_mr *lose(void)
{
	void *p = mmap(ALONE, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = p == MAP_FAILED ? NULL
					    : ibv_reg_mr(pd, p, BYTES, IBV_ACCESS_LOCAL_WRITE);

	if (!mr || munmap(p, BYTES)) {
		perror("# a region");
		exit(1);
	}
	return mr;
}

/* Deregisters the region only when the suspend has looked at it. */
static void *deregister(void *mr)
{
	while (!fake_agent_heard(waits) && !atomic_load(&reported))
		usleep(1000);
	return ibv_dereg_mr(mr) ? mr : NULL;
}

static int suspend(struct shim_report *ret)
{
	return fake_agent_order(SHIM_SUSPEND, ++migration, ret);
}

static bool go_through(void)
{
	struct shim_report r;

	return !fake_agent_order(SHIM_RELEASE, migration, &r) &&
	       !fake_agent_order(SHIM_RESUME, migration, &r);
}

/* -EFAULT: it was not waited for, or in vain. */
static int deregistered_meanwhile(void)
{
	struct ibv_mr *mr = lose();
	struct shim_report r;
	void *bad = NULL;
	pthread_t thread;
	bool heard;
	int rc;

	atomic_store(&reported, false);
	fake_agent_forget_log();
	if (pthread_create(&thread, NULL, deregister, mr))
		return -EIO;
	rc = suspend(&r);
	heard = fake_agent_heard(waits);
	atomic_store(&reported, true);
	if (!rc && !go_through()) /* before the thread, which it may keep out */
		rc = -EIO;
	pthread_join(thread, &bad);
	if (bad || (!rc && !heard))
		return -EIO;
	return rc == -EFAULT && heard ? -EAGAIN : rc;
}

static bool is_waited_for(void)
{
	int rc = -EAGAIN;

	for (int i = 0; i < TRIES && rc == -EAGAIN; i++)
		rc = deregistered_meanwhile();
	if (rc)
		printf("# %s\n", strerror(-rc));
	return !rc;
}

static bool is_named_in_the_end(void)
{
	struct ibv_mr *mr = lose();
	struct shim_report r;
	int rc = suspend(&r);

	if (rc != -EFAULT || !strstr(r.why, "deregister it or end the program")) {
		printf("# %d: %s\n", rc, r.why);
		return false;
	}
	return !ibv_dereg_mr(mr) && !suspend(&r) && go_through();
}

static bool open_all(void)
{
	struct ibv_device **list = fake_agent_start() ? NULL : ibv_get_device_list(NULL);

	context = list ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	ibv_free_device_list(list);
	return pd;
}

int main(int argc, char **argv)
{
	static const struct {
		bool (*run)(void);
		const char *name;
	} tests[] = {
		{open_all, "the shim opens the played device"},
		{is_waited_for,
		 "a suspend waits for a region that is deregistered after its memory"},
		{is_named_in_the_end, "and names one that is not"},
	};
	bool ok = !rig_exec(argv, true);

	(void)argc;
	for (unsigned i = 0; i < ARRAY_SIZE(tests); i++) {
		ok = ok && tests[i].run();
		printf("%sok %u - %s\n", ok ? "" : "not ", i + 1, tests[i].name);
	}
	printf("1..%zu\n", ARRAY_SIZE(tests));
	fflush(stdout);
	_exit(!ok); /* threads of the shim live on */
}
