/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/tap.h"
#include "common/util.h"
#include "tests/lab/netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_bridge.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <string.h>
#include <sys/ioctl.h>

void tap_name(const char *vf, char name[static IF_NAMESIZE])
{
	snprintf(name, IF_NAMESIZE, "tap-%s", vf);
}

static int make_persistent(const char *name)
{
	int fd AUTO_CLOSE = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	struct ifreq req = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};

	if (fd < 0)
		return -errno;
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &req)) /* EBUSY: a QEMU has it already */
		return errno == EBUSY ? 0 : -errno;
	return ioctl(fd, TUNSETPERSIST, 1) ? -errno : 0;
}

static int link_call(const char *name, uint16_t type, void (*fill)(struct nl_msg *m))
{
	struct ifinfomsg info = {.ifi_index = (int)if_nametoindex(name)};
	int fd AUTO_CLOSE = nl_open(NETLINK_ROUTE, 0);
	struct nl_msg m;

	if (!info.ifi_index)
		return -ENODEV;
	if (fd < 0)
		return -errno;
	if (fill)
		info.ifi_flags = info.ifi_change = IFF_UP;
	nl_msg_init(&m, type, 0, &info, sizeof(info));
	if (fill)
		fill(&m);
	return nl_call(fd, &m);
}

/* A member of the bridge first: a port's own settings are refused before that. */
static void fill_member(struct nl_msg *m)
{
	nl_msg_put_u32(m, IFLA_MTU, DATA_MTU);
	nl_msg_put_u32(m, IFLA_MASTER, if_nametoindex(DATA_BRIDGE));
}

static void fill_port(struct nl_msg *m)
{
	const uint8_t off = 0;
	struct rtattr *info = nl_nest(m, IFLA_LINKINFO);
	struct rtattr *port;

	nl_msg_put_str(m, IFLA_INFO_SLAVE_KIND, "bridge");
	port = nl_nest(m, IFLA_INFO_SLAVE_DATA);
	nl_msg_put(m, IFLA_BRPORT_LEARNING, &off, sizeof(off));
	nl_msg_put(m, IFLA_BRPORT_UNICAST_FLOOD, &off, sizeof(off));
	nl_nest_end(m, port);
	nl_nest_end(m, info);
}

int tap_create(const char *name)
{
	int r;

	if (!if_nametoindex(DATA_BRIDGE))
		return -ENODEV;
	r = make_persistent(name);
	if (!r)
		r = link_call(name, RTM_NEWLINK, fill_member);
	if (!r)
		r = link_call(name, RTM_NEWLINK, fill_port);
	return r;
}

int tap_delete(const char *name)
{
	int r = link_call(name, RTM_DELLINK, NULL);

	return r == -ENODEV ? 0 : r;
}
