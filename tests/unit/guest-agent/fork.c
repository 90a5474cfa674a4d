/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fork() under the shim as it is shipped, on the played device. A child cannot use what it has
 * inherited. The child opens devices of its own, which are covered, and its parent notices
 * nothing. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/rig.h"

static unsigned n, failed;
static struct rig rig;
static struct ibv_comp_channel *channel;

static void result(bool ok, const char *what)
{
	failed += !ok;
	printf("%s %u - %s\n", ok ? "ok" : "not ok", ++n, what);
}

static int post(struct rig *r)
{
	struct ibv_sge sge = {(uintptr_t)r->buffer, 8, r->mr->lkey};
	struct ibv_send_wr *bad = NULL, wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1};
	int rc;

	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	rc = ibv_post_send(r->qp, &wr, &bad);
	return rc && bad != &wr ? -1 : rc;
}

static int receive(struct rig *r)
{
	struct ibv_recv_wr *bad = NULL, wr = {.wr_id = 7};

	return ibv_post_recv(r->qp, &wr, &bad);
}

static bool works(struct rig *r)
{
	struct ibv_wc wc;

	return !post(r) && ibv_poll_cq(r->cq, 1, &wc) == 1 && wc.wr_id == 7 &&
	       wc.qp_num == r->qp->qp_num;
}

/* In RESET: the rig's QP has no GID, and with a connection could not. */
static bool migrates(struct rig *r, uint64_t migration)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct shim_report report;
	uint32_t qpn = r->qp->qp_num;

	return !ibv_modify_qp(r->qp, &reset, IBV_QP_STATE) &&
	       !fake_agent_order(SHIM_SUSPEND, migration, &report) && report.qps == 1 &&
	       !fake_agent_order(SHIM_RELEASE, migration, &report) &&
	       !fake_agent_order(SHIM_RESUME, migration, &report) && r->qp->qp_num == qpn &&
	       works(r);
}

/* The parent's objects are refused, whatever is done with them. */
static bool inherited_is_refused(void)
{
	struct ibv_cq *cq;
	struct ibv_async_event event;
	struct ibv_wc wc;
	void *arg;

	return post(&rig) == EBADF && receive(&rig) == EBADF && ibv_poll_cq(rig.cq, 1, &wc) < 0 &&
	       ibv_req_notify_cq(rig.cq, 0) == EBADF && !ibv_alloc_mw(rig.pd, IBV_MW_TYPE_1) &&
	       errno == EBADF && ibv_get_cq_event(channel, &cq, &arg) == -1 && errno == EBADF &&
	       ibv_get_async_event(rig.context, &event) == -1 && errno == EBADF &&
	       ibv_destroy_comp_channel(channel) == EBADF && ibv_close_device(rig.context) == EBADF;
}

/* How many threads of this process take librdmacm's events, once it has been used. */
static unsigned cm_threads(void)
{
	void *(*create)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "rdma_create_event_channel");
	char path[300], comm[32] = "";
	DIR *dir = opendir("/proc/self/task");
	struct dirent *d;
	unsigned found = 0;

	if (create)
		create(); /* there is no device for it here: it fails, when the thread is there */
	while (dir && (d = readdir(dir))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		f = fopen(path, "re");
		found += f && fgets(comm, sizeof(comm), f) && !strcmp(comm, "ibvmig-cm\n");
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* The thread names itself a moment after it has been started. */
static bool has_cm_thread(void)
{
	time_t until = time(NULL) + 60; /* only a fault takes that long */
	unsigned found;

	while (!(found = cm_threads()) && time(NULL) < until)
		sched_yield();
	return found == 1;
}

/* Exit status: a bit for each thing that went wrong. */
static int child_main(bool by_context)
{
	static struct rig own;
	struct ibv_context *c;
	int bad = 0;

	if (!inherited_is_refused())
		bad |= 1;
	if (by_context) { /* the device is named by an inherited object */
		if (fake_agent_start())
			return 2;
		c = ibv_open_device(rig.context->device);
		return bad | (c && !ibv_close_device(c) ? 0 : 4);
	}
	if (rig_open(&own) || !rig_has_shim(&own) || !works(&own))
		return bad | 8;
	if (!migrates(&own, 0x77))
		bad |= 16;
	if (post(&rig) != EBADF) /* still */
		bad |= 32;
	if (!has_cm_thread())
		bad |= 64;
	return bad;
}

static int status_of(pid_t child)
{
	int status = 0;

	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int in_child(bool by_context)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (!child)
		_exit(child_main(by_context));
	status = status_of(child);
	if (status)
		printf("# the child ends with %d\n", status);
	return status;
}

int main(int argc, char **argv)
{
	struct ibv_comp_channel *own;
	int status;

	(void)argc;
	if (rig_exec(argv, true) || rig_open(&rig)) {
		printf("not ok 1 - the rig opens\n1..1\n");
		return 1;
	}
	channel = ibv_create_comp_channel(rig.context);
	result(channel && works(&rig) && has_cm_thread(), "a program works");
	result(in_child(false) == 0,
	       "a child is refused what is its parent's, its own device is covered");
	result(works(&rig), "the parent works on");
	result(in_child(true) == 0, "a child may name the device by its parent's");
	fflush(stdout);
	status = system("exit 7");
	result(WIFEXITED(status) && WEXITSTATUS(status) == 7,
	       "a child that only runs a program does so");
	own = ibv_create_comp_channel(rig.context);
	result(own && !ibv_destroy_comp_channel(own) && !ibv_destroy_comp_channel(channel) &&
		       works(&rig),
	       "and after all the parent's objects are as they were");
	result(migrates(&rig, 0x55), "and migrate");
	result(!rig_close(&rig), "and go");
	printf("1..%u\n", n);
	return failed ? 1 : 0;
}
