/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The few netlink messages that the lab sends itself, because forking ip(8) or bridge(8) for them
 * takes longer than the lab may add to an outage. */
#ifndef IBVMIG_LAB_NETLINK_H
#define IBVMIG_LAB_NETLINK_H

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdint.h>

#define NL_MSG_MAX 1024

struct nl_msg {
	union {
		struct nlmsghdr head;
		uint8_t bytes[NL_MSG_MAX];
	};
};

/* A close-on-exec socket in the caller's network namespace; groups is a bit mask (RTMGRP_*).
 * A descriptor, or -1 with errno. */
int nl_open(int protocol, uint32_t groups);

/* body: the fixed header of this message type, bytes long; NULL and 0 for none. */
void nl_msg_init(struct nl_msg *m, uint16_t type, uint16_t flags, const void *body, size_t bytes);
/* Attributes; the message must have room (NL_MSG_MAX), which is asserted. */
void nl_msg_put(struct nl_msg *m, uint16_t type, const void *data, size_t bytes);
void nl_msg_put_str(struct nl_msg *m, uint16_t type, const char *text);
void nl_msg_put_u32(struct nl_msg *m, uint16_t type, uint32_t value);

/* Attributes put between the two are inside the returned one. */
struct rtattr *nl_nest(struct nl_msg *m, uint16_t type);
void nl_nest_end(struct nl_msg *m, struct rtattr *nest);

/* Sends the message only. 0 or -errno. */
int nl_send(int fd, struct nl_msg *m);
/* Sends it and waits for the kernel's verdict: 0 or the -errno of the request. */
int nl_call(int fd, struct nl_msg *m);

typedef void nl_handler(void *arg, const struct nlmsghdr *h);

/* Waits for one datagram and hands over its messages. 0 or -errno; -ENOBUFS: events were lost. */
int nl_recv(int fd, nl_handler *handler, void *arg);

/* The attribute of this type behind a fixed header of body_bytes, or NULL. Borrowed from h. */
const struct rtattr *nl_attr(const struct nlmsghdr *h, size_t body_bytes, uint16_t type);

#endif
