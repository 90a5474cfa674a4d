/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/port/nic.h"
#include "common/util.h"
#include "tests/lab/netlink.h"
#include "tests/lab/rxe/ib_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/socket.h>

#define ANY_BYTES 0x40000

/* Takes control frames and packets whose BTH says QP1; the data of the guest stays in the kernel.
 */
static struct sock_filter for_agent[] = {
	BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12), /* EtherType */
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IBX_ETH_CONTROL, 9, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IBX_ETH_PACKET, 0, 9),
	BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 15), /* LRH: link next header */
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 3),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 3, 2, 0),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 26), /* BTH: destination QP */
	BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 66), /* the same behind a GRH */
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, ANY_BYTES),
	BPF_STMT(BPF_RET | BPF_K, 0),
};

int nic_open(struct nic *nic, const char *name)
{
	*nic = (struct nic){.packets = -1};
	snprintf(nic->name, sizeof(nic->name), "%s", name);
	nic->events = nl_open(NETLINK_ROUTE, RTMGRP_LINK);
	if (nic->events < 0 || fcntl(nic->events, F_SETFL, O_NONBLOCK))
		return -errno;
	return 0;
}

/* ETH_P_ALL, because a bridge takes frames of a single type before such a socket sees them. */
static int open_packets(int ifindex)
{
	const struct sock_fprog filter = {ARRAY_SIZE(for_agent), for_agent};
	const struct sockaddr_ll at = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = ifindex};
	int fd AUTO_CLOSE = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) ||
	    bind(fd, (const struct sockaddr *)&at, sizeof(at)))
		return -errno;
	return TAKE_FD(fd);
}

static void ignore_event(void *arg, const struct nlmsghdr *h)
{
	(void)arg;
	(void)h;
}

bool nic_changed(struct nic *nic)
{
	int r, ifindex;

	/* Events only say when to look: a name tells more than a message that may have been lost.
	 */
	do
		r = nl_recv(nic->events, ignore_event, NULL);
	while (!r || r == -ENOBUFS);
	ifindex = (int)if_nametoindex(nic->name);
	if (ifindex == nic->ifindex)
		return false;
	cleanup_close(&nic->packets);
	nic->packets = ifindex ? open_packets(ifindex) : -1;
	nic->ifindex = nic->packets < 0 ? 0 : ifindex;
	return true;
}

int nic_receive(struct nic *nic, uint8_t *frame, size_t size)
{
	ssize_t n = recv(nic->packets, frame, size, 0);

	if (n >= 0)
		return (int)n;
	/* ENETDOWN: the link was taken down; its socket goes on when it is up. */
	return errno == EAGAIN || errno == EINTR || errno == ENETDOWN ? 0 : -errno;
}

int nic_send(struct nic *nic, const uint8_t *frame, size_t bytes)
{
	return send(nic->packets, frame, bytes, 0) < 0 ? -errno : 0;
}
