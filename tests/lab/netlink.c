/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/netlink.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NL_RECV_MAX   (32u << 10) /* the kernel's largest dump datagram */
#define NL_EVENTS_BUF (1 << 20)

int nl_open(int protocol, uint32_t groups)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = groups};
	int size = NL_EVENTS_BUF;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		close(fd);
		return -1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	return fd;
}

void nl_msg_init(struct nl_msg *m, uint16_t type, uint16_t flags, const void *body, size_t bytes)
{
	memset(m, 0, sizeof(*m));
	m->head.nlmsg_type = type;
	m->head.nlmsg_flags = NLM_F_REQUEST | flags;
	m->head.nlmsg_len = (uint32_t)NLMSG_LENGTH(bytes);
	if (bytes)
		memcpy(NLMSG_DATA(&m->head), body, bytes);
}

void nl_msg_put(struct nl_msg *m, uint16_t type, const void *data, size_t bytes)
{
	size_t at = NLMSG_ALIGN(m->head.nlmsg_len);
	struct rtattr *a = (struct rtattr *)(void *)(m->bytes + at);

	assert(at + RTA_SPACE(bytes) <= sizeof(m->bytes));
	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(bytes);
	memcpy(RTA_DATA(a), data, bytes);
	m->head.nlmsg_len = (uint32_t)(at + a->rta_len);
}

void nl_msg_put_str(struct nl_msg *m, uint16_t type, const char *text)
{
	nl_msg_put(m, type, text, strlen(text) + 1);
}

void nl_msg_put_u32(struct nl_msg *m, uint16_t type, uint32_t value)
{
	nl_msg_put(m, type, &value, sizeof(value));
}

struct rtattr *nl_nest(struct nl_msg *m, uint16_t type)
{
	size_t at = NLMSG_ALIGN(m->head.nlmsg_len);

	nl_msg_put(m, type | NLA_F_NESTED, "", 0);
	return (struct rtattr *)(void *)(m->bytes + at);
}

void nl_nest_end(struct nl_msg *m, struct rtattr *nest)
{
	/* without the padding behind the last one, which is not sent: the kernel drops what is
	 * longer */
	nest->rta_len = (unsigned short)(m->bytes + m->head.nlmsg_len - (uint8_t *)nest);
}

int nl_send(int fd, struct nl_msg *m)
{
	static uint32_t seq;

	m->head.nlmsg_seq = ++seq;
	return send(fd, m->bytes, m->head.nlmsg_len, 0) < 0 ? -errno : 0;
}

struct verdict {
	uint32_t seq;
	int error; /* 1 until it came */
};

static void on_verdict(void *arg, const struct nlmsghdr *h)
{
	struct verdict *v = arg;
	const struct nlmsgerr *e = NLMSG_DATA(h);

	if (h->nlmsg_type == NLMSG_ERROR && h->nlmsg_seq == v->seq)
		v->error = e->error;
}

int nl_call(int fd, struct nl_msg *m)
{
	struct verdict v = {.error = 1};
	int r;

	m->head.nlmsg_flags |= NLM_F_ACK;
	r = nl_send(fd, m);
	v.seq = m->head.nlmsg_seq;
	while (!r && v.error > 0)
		r = nl_recv(fd, on_verdict, &v);
	return r ? r : v.error;
}

int nl_recv(int fd, nl_handler *handler, void *arg)
{
	_Alignas(struct nlmsghdr) uint8_t buf[NL_RECV_MAX];
	ssize_t n;
	unsigned left;

	do
		n = recv(fd, buf, sizeof(buf), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	left = (unsigned)n;
	for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
		handler(arg, h);
	return 0;
}

const struct rtattr *nl_attr(const struct nlmsghdr *h, size_t body_bytes, uint16_t type)
{
	size_t head = NLMSG_SPACE(body_bytes);
	const struct rtattr *a = (const void *)((const uint8_t *)h + head);
	size_t left = h->nlmsg_len > head ? h->nlmsg_len - head : 0;

	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if ((a->rta_type & NLA_TYPE_MASK) == type)
			return a;
	return NULL;
}
