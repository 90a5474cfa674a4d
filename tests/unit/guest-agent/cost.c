/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The shim as it is shipped adds no system call and no allocation to the data path. The kernel
 * (syscall user dispatch, Linux 5.11) and an allocator of our own say so. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/fake/verbs/rig.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON           1
#endif
#define ALLOW  0
#define BLOCK  1
#define ROUNDS 10000
#define BURST  (RIG_WRS / 2)

static volatile char selector = ALLOW; /* read by the kernel at each system call */
static volatile unsigned syscalls, allocations;
static _Thread_local volatile bool
	counting; /* the work of a thread of the shim is not the data path */
static struct rig rig;

#ifndef __SANITIZE_ADDRESS__
/* The whole process allocates here; glibc's own are below other names. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
	allocations += counting;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t m)
{
	allocations += counting;
	return __libc_calloc(n, m);
}

void *realloc(void *p, size_t n)
{
	allocations += counting;
	return __libc_realloc(p, n);
}
#endif

/* The call itself is not made; none of those that could come here is needed for what follows. */
static void blocked(int signal)
{
	(void)signal;
	selector = ALLOW; /* the return from here is a call, too */
	syscalls++;
}

static void count_on(void)
{
	counting = true;
	selector = BLOCK;
}

static void count_off(void)
{
	selector = ALLOW;
	counting = false;
}

static int send_and_poll(unsigned opcode, unsigned flags)
{
	struct ibv_sge sge = {(uintptr_t)rig.buffer, 64, rig.mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 7,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = opcode,
				       .send_flags = flags};
	struct ibv_wc wc[BURST];
	int rc = 0, got = 0;

	for (int i = 0; i < BURST && !rc; i++)
		rc = ibv_post_send(rig.qp, &wr, &bad);
	while (!rc && got < BURST) {
		int n = ibv_poll_cq(rig.cq, BURST, wc);

		got += n;
		if (n <= 0 || wc[0].wr_id != 7)
			return -EIO;
	}
	return rc;
}

static int receive_and_poll(void)
{
	struct ibv_sge sge = {(uintptr_t)rig.buffer, 64, rig.mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1};
	struct ibv_wc wc;
	int rc = 0;

	for (int i = 0; i < BURST && !rc; i++)
		rc = ibv_post_recv(rig.qp, &wr, &bad);
	for (int i = 0; i < BURST && !rc; i++)
		if (ibv_poll_cq(rig.cq, 1, &wc) != 1 || wc.wr_id != 8)
			return -EIO;
	return rc || ibv_poll_cq(rig.cq, 1, &wc) ? -EIO : 0;
}

static void result(unsigned number, bool ok, const char *what)
{
	printf("%sok %u - %s\n", ok ? "" : "not ", number, what);
}

/* A system call and an allocation of our own must be counted. */
static bool counts_are_true(void)
{
	void *volatile p;

	count_on();
	getppid();
	p = malloc(1);
	count_off();
	free(p);
	return syscalls == 1 && allocations == 1;
}

static int measure(void)
{
	int rc = 0;

	syscalls = allocations = 0;
	count_on();
	for (unsigned i = 0; i < ROUNDS / BURST && !rc; i++) {
		rc = send_and_poll(IBV_WR_SEND, IBV_SEND_SIGNALED);
		rc = rc ? rc : send_and_poll(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
		rc = rc ? rc : send_and_poll(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
		rc = rc ? rc : receive_and_poll();
	}
	count_off();
	return rc;
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = blocked};
	int rc;

	(void)argc;
#ifdef __SANITIZE_ADDRESS__
	printf("1..1\nok 1 - the data path # skip a sanitizer's own calls would be counted\n");
	return 0;
#endif
	rc = rig_exec(argv, true);
	if (!rc)
		rc = rig_open(&rig);
	if (rc || !rig_has_shim(&rig)) {
		printf("1..1\nnot ok 1 - the shim is between (%d)\n", rc);
		return 1;
	}
	sigaction(SIGSYS, &sa, NULL);
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector)) {
		printf("1..1\nok 1 - the data path # skip this kernel cannot count system calls\n");
		return 0;
	}
	printf("1..4\n");
	result(1, counts_are_true(), "a system call and an allocation are seen");
	rc = measure();
	result(2, !rc, "posts and completions, each of its own number");
	printf("# syscalls: %u\n# allocations: %u\n", syscalls, allocations);
	result(3, !syscalls, "no system call on the data path");
	result(4, !allocations, "no allocation on the data path");
	return rc || syscalls || allocations;
}
