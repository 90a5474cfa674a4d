/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/port/sa.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/mad.h>
#include <infiniband/umad.h>
#include <string.h>
#include <sys/socket.h>

#define SA_CLASS_VERSION 2
#define QP1_QKEY         0x80010000u
#define BUFFER_BYTES     (sizeof(struct ib_user_mad) + SA_MAD_BYTES)

static void pass_on(struct sa *sa, void *umad, uint32_t bytes)
{
	const ib_mad_addr_t *from = umad_get_mad_addr(umad);
	struct sa_mad m = {.status = (uint32_t)umad_status(umad),
			   .lid = be16toh(from->lid),
			   .qp = be32toh(from->qpn),
			   .bytes = bytes};

	memcpy(m.mad, umad_get_mad(umad), SA_MAD_BYTES);
	if (send(sa->into, &m, sizeof(m), 0) < 0)
		log_warn("a MAD is lost on its way through the agent: %s", strerror(errno));
}

/* The stand-in for umad can be waited for by one thread, and with nothing else beside it. */
static void *receive(void *arg)
{
	struct sa *sa = arg;
	_Alignas(struct ib_user_mad) uint8_t umad[BUFFER_BYTES];

	for (;;) {
		int length = SA_MAD_BYTES;

		memset(umad, 0, sizeof(umad));
		if (umad_recv(sa->umad, umad, &length, -1) >= 0)
			pass_on(sa, umad, (uint32_t)length);
	}
	return NULL;
}

static int start(struct sa *sa)
{
	pthread_t thread;
	int pair[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	sa->received = pair[0];
	sa->into = pair[1];
	r = pthread_create(&thread, NULL, receive, sa);
	return r ? -r : pthread_detach(thread);
}

int sa_open(struct sa *sa)
{
	long reports[16 / sizeof(long)] = {1 << IB_MAD_METHOD_REPORT};

	if (umad_init())
		return -EIO;
	sa->umad = umad_open_port(NULL, 0);
	if (sa->umad < 0)
		return sa->umad;
	/* Without RMPP version: the guest's kernel puts segments together itself. */
	sa->agent = umad_register(sa->umad, IB_SA_CLASS, SA_CLASS_VERSION, 0, reports);
	if (sa->agent < 0)
		return sa->agent;
	return start(sa);
}

int sa_send(struct sa *sa, const struct sa_mad *mad)
{
	_Alignas(struct ib_user_mad) uint8_t umad[BUFFER_BYTES] = {0};

	memcpy(umad_get_mad(umad), mad->mad, SA_MAD_BYTES);
	umad_set_addr(umad, mad->lid, (int)mad->qp, 0, (int)QP1_QKEY);
	/* Without a time-out: the guest has its own, and asks again. */
	return umad_send(sa->umad, sa->agent, umad, SA_MAD_BYTES, 0, 0);
}

int sa_receive(struct sa *sa, struct sa_mad *ret_mad)
{
	return recv(sa->received, ret_mad, sizeof(*ret_mad), MSG_DONTWAIT) == sizeof(*ret_mad)
		       ? 0
		       : -EAGAIN;
}
