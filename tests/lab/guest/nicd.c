/* SPDX-License-Identifier: GPL-2.0-or-later */
/* In the lab's guests: turns each hot-plugged NIC that stands for a VF into an RDMA device. With
 * the argument "ib" the kernel has the driver with an InfiniBand link, which wants no address. With
 * "ipv4" a device of RoCE also gets an address 10.78.N.N, of the last bytes of its MAC.
 *
 * This lies inside the outage of a migration, so nothing is forked and nothing polled. A netlink
 * event brings the link up, its link-local address without duplicate detection, and the rxe device,
 * in three messages. A VF is known by the MAC: the modified EUI-64 of a lab vGUID. The device takes
 * its GUID from there, so GID 0 is right from the start. */
#include "common/ib.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/lab/netlink.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <string.h>

/* The lab's vGUIDs are 0x00a1b2fffe00NNNN, so the MACs of its VFs begin with: */
static const uint8_t vf_mac[] = {0x02, 0xa1, 0xb2};

/* rxe takes the largest IB MTU that fits with its headers, on either link: 4096 needs 4200. */
#define VF_MTU 4200
/* Packets that wait for the NIC: rxe holds back requests (64 a QP), but not what answers a READ. */
#define VF_QUEUE 16384
#define RXE_MAX  16 /* rxe0 to rxe15: a name stays taken until its last user is gone */
#define NICS_MAX 32

struct nicd {
	bool infiniband;
	bool ipv4;
	int events; /* RTNLGRP_LINK */
	int route;  /* requests */
	int rdma;
	int done[NICS_MAX]; /* ifindexes that were set up; the oldest is overwritten */
	unsigned done_count;
};

static int link_up(struct nicd *d, int ifindex)
{
	struct nl_msg m;
	struct ifinfomsg info = {.ifi_index = ifindex, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};

	nl_msg_init(&m, RTM_NEWLINK, 0, &info, sizeof(info));
	nl_msg_put_u32(&m, IFLA_MTU, VF_MTU);
	nl_msg_put_u32(&m, IFLA_TXQLEN, VF_QUEUE);
	return nl_call(d->route, &m);
}

/* fe80:: and the modified EUI-64 of the MAC: the GID that the port shows, usable at once. */
static int add_address(struct nicd *d, int ifindex, const uint8_t mac[6])
{
	const struct ib_gid gid = {IB_GID_PREFIX_LL,
				   (uint64_t)(mac[0] ^ 2) << 56 | (uint64_t)mac[1] << 48 |
					   (uint64_t)mac[2] << 40 | 0xfffe000000ull |
					   (uint64_t)mac[3] << 16 | (uint64_t)mac[4] << 8 | mac[5]};
	struct ifaddrmsg addr = {.ifa_family = AF_INET6,
				 .ifa_prefixlen = 64,
				 .ifa_flags = IFA_F_NODAD,
				 .ifa_scope = RT_SCOPE_LINK,
				 .ifa_index = (unsigned)ifindex};
	struct nl_msg m;
	uint8_t bytes[16];
	int r;

	ib_gid_to_bytes(&gid, bytes);
	nl_msg_init(&m, RTM_NEWADDR, NLM_F_CREATE, &addr, sizeof(addr));
	nl_msg_put(&m, IFA_ADDRESS, bytes, sizeof(bytes));
	r = nl_call(d->route, &m);
	return r == -EEXIST ? 0 : r;
}

/* For programs that know no IPv6: as IPoIB would give it. On RoCE it makes one more GID. */
static int add_ipv4(struct nicd *d, int ifindex, const uint8_t mac[6])
{
	const uint8_t bytes[4] = {10, 78, mac[4], mac[5]};
	struct ifaddrmsg addr = {
		.ifa_family = AF_INET, .ifa_prefixlen = 16, .ifa_index = (unsigned)ifindex};
	struct nl_msg m;
	int r;

	nl_msg_init(&m, RTM_NEWADDR, NLM_F_CREATE, &addr, sizeof(addr));
	nl_msg_put(&m, IFA_LOCAL, bytes, sizeof(bytes));
	nl_msg_put(&m, IFA_ADDRESS, bytes, sizeof(bytes));
	r = nl_call(d->route, &m);
	return r == -EEXIST ? 0 : r;
}

static int add_rxe(struct nicd *d, const char *nic, char name[static IF_NAMESIZE])
{
	int r = -EEXIST;

	for (unsigned i = 0; i < RXE_MAX && (r == -EEXIST || r == -ENFILE); i++) {
		struct nl_msg m;

		snprintf(name, IF_NAMESIZE, "rxe%u", i);
		nl_msg_init(&m, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK), 0, NULL,
			    0);
		nl_msg_put_str(&m, RDMA_NLDEV_ATTR_DEV_NAME, name);
		nl_msg_put_str(&m, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
		nl_msg_put_str(&m, RDMA_NLDEV_ATTR_NDEV_NAME, nic);
		r = nl_call(d->rdma, &m);
	}
	return r;
}

static void set_up(struct nicd *d, int ifindex, const char *nic, const uint8_t mac[6])
{
	uint64_t start = now_us(), at[3] = {0};
	char rxe[IF_NAMESIZE] = "";
	const char *step = "link up";
	int r = link_up(d, ifindex);

	at[0] = now_us();
	at[1] = at[0];
	if (!r && !d->infiniband) {
		step = "address";
		r = add_address(d, ifindex, mac);
		if (!r && d->ipv4)
			r = add_ipv4(d, ifindex, mac);
		at[1] = now_us();
	}
	if (!r) {
		/* last: an RDMA device that is there follows each change of its link */
		step = "rdma link add";
		r = add_rxe(d, nic, rxe);
		at[2] = now_us();
	}
	if (r)
		log_error("%s: %s failed: %s", nic, step, strerror(-r));
	else
		log_info(
			"%s: %s is ready after %u us (link %u, address %u, rxe %u), uptime %llu ms",
			nic, rxe, (unsigned)(at[2] - start), (unsigned)(at[0] - start),
			(unsigned)(at[1] - at[0]), (unsigned)(at[2] - at[1]),
			(unsigned long long)now_ms());
}

static bool is_new(struct nicd *d, int ifindex)
{
	for (unsigned i = 0; i < NICS_MAX && i < d->done_count; i++)
		if (d->done[i] == ifindex)
			return false;
	d->done[d->done_count++ % NICS_MAX] = ifindex;
	return true;
}

static void on_link(void *arg, const struct nlmsghdr *h)
{
	struct nicd *d = arg;
	const struct ifinfomsg *info = NLMSG_DATA(h);
	const struct rtattr *mac, *name;

	if (h->nlmsg_type != RTM_NEWLINK || info->ifi_family != AF_UNSPEC)
		return;
	mac = nl_attr(h, sizeof(*info), IFLA_ADDRESS);
	name = nl_attr(h, sizeof(*info), IFLA_IFNAME);
	if (!mac || !name || RTA_PAYLOAD(mac) != 6)
		return;
	if (memcmp(RTA_DATA(mac), vf_mac, sizeof(vf_mac)) || !is_new(d, info->ifi_index))
		return;
	set_up(d, info->ifi_index, RTA_DATA(name), RTA_DATA(mac));
}

int main(int argc, char **argv)
{
	struct nicd d = {0};
	struct nl_msg m;
	struct ifinfomsg any = {.ifi_family = AF_UNSPEC};
	int r;

	log_init("nicd");
	for (int i = 1; i < argc; i++) {
		d.infiniband |= str_eq(argv[i], "ib");
		d.ipv4 |= str_eq(argv[i], "ipv4");
	}
	d.events = nl_open(NETLINK_ROUTE, RTMGRP_LINK);
	d.route = nl_open(NETLINK_ROUTE, 0);
	d.rdma = nl_open(NETLINK_RDMA, 0);
	if (d.events < 0 || d.route < 0 || d.rdma < 0) {
		log_error("no netlink: %s", strerror(errno));
		return 1;
	}
	/* the NICs that are there already come as answers on the same socket */
	nl_msg_init(&m, RTM_GETLINK, NLM_F_DUMP, &any, sizeof(any));
	r = nl_send(d.events, &m);
	while (!r || r == -ENOBUFS)
		r = nl_recv(d.events, on_link, &d);
	log_error("netlink: %s", strerror(-r));
	return 1;
}
