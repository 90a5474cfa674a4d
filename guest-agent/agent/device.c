/* SPDX-License-Identifier: GPL-2.0-or-later */
/* RDMA devices of this guest as sysfs shows them, and the events that say when to look again. */
#include "guest-agent/agent/main.h"
#include "common/log.h"
#include "common/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define SYSFS_IB             "/sys/class/infiniband"
#define SYSFS_VERBS          "/sys/class/infiniband_verbs"
#define PCI_RESCAN           "/sys/bus/pci/rescan"
#define GIDS_LOOKED_AT       16 /* a vGUID's GID is among the first; IBA 1.4, 4.1.1: at index 0 */
#define NEIGHBOUR_RETRANS_MS 50
#define DISCARD_PORT         9
/* As in the kernel's net/neighbour.h: the link-layer address is known. */
#define NUD_VALID_STATES                                                                           \
	(NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY)
#define NETDEV_MAX    32
#define UEVENT_GROUP  1
#define IS_OURS_KNOWN 64  /* GUIDs remembered */
#define IS_OURS_MS    100 /* and for how long */

/* A line of sysfs. 0 or -errno. */
static int read_line(char *ret_line, size_t max, const char *device, unsigned port,
		     const char *rest)
{
	char *path AUTO_FREE = strf(SYSFS_IB "/%s/ports/%u/%s", device, port, rest);
	char *text AUTO_FREE = NULL;
	int rc = path ? read_file(path, 4096, &text, NULL) : -ENOMEM;

	if (rc)
		return rc;
	text[strcspn(text, "\n")] = '\0';
	snprintf(ret_line, max, "%s", text);
	return 0;
}

static bool port_has_guid(const char *device, unsigned port, uint64_t guid)
{
	char name[16], line[64];
	struct ib_gid gid;

	for (unsigned i = 0; i < GIDS_LOOKED_AT; i++) {
		snprintf(name, sizeof(name), "gids/%u", i);
		int rc = read_line(line, sizeof(line), device, port, name);
		if (rc == -ENOENT)
			return false;
		if (!rc && !ib_gid_parse(line, &gid) && gid.guid == guid)
			return true;
	}
	return false;
}

/* Programs can open it: its uverbs device comes a moment after the port. */
static bool can_be_opened(const char *device)
{
	DIR *dir = opendir(SYSFS_VERBS);
	struct dirent *d;
	bool found = false;

	while (dir && !found && (d = readdir(dir))) {
		char *path AUTO_FREE = strf(SYSFS_VERBS "/%s/ibdev", d->d_name);
		char *node AUTO_FREE = strf("/dev/infiniband/%s", d->d_name);
		char *text AUTO_FREE = NULL;

		if (d->d_name[0] == '.' || !path || !node || read_file(path, 4096, &text, NULL))
			continue;
		text[strcspn(text, "\n")] = '\0';
		found = !strcmp(text, device) && !access(node, R_OK | W_OK);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* As agent_device_find(), of one device. */
static int device_state(const char *device, uint64_t vguid)
{
	char state[32] = "";

	if (strlen(device) >= SHIM_DEVICE_MAX || !port_has_guid(device, 1, vguid))
		return -ENODEV;
	if (!can_be_opened(device))
		return -EAGAIN;
	return read_line(state, sizeof(state), device, 1, "state") || !strstr(state, "ACTIVE")
		       ? -ENETDOWN
		       : 0;
}

int agent_device_find(uint64_t vguid, char ret_name[static SHIM_DEVICE_MAX])
{
	DIR *dir = opendir(SYSFS_IB);
	struct dirent *d;
	int rc = -ENODEV, each;

	if (!dir)
		return -ENODEV;
	while (rc && (d = readdir(dir))) {
		each = *d->d_name == '.' ? -ENODEV : device_state(d->d_name, vguid);
		if (!each || each == -ENETDOWN)
			snprintf(ret_name, SHIM_DEVICE_MAX, "%s", d->d_name);
		if (!each || rc == -ENODEV || each == -ENETDOWN)
			rc = each;
	}
	closedir(dir);
	return rc;
}

/* The network device below an RDMA device; "" on InfiniBand. */
static void netdev_of(const char *device, char ret_name[static NETDEV_MAX])
{
	*ret_name = '\0';
	if (read_line(ret_name, NETDEV_MAX, device, 1, "gid_attrs/ndevs/0"))
		*ret_name = '\0';
}

static void *rescan(void *arg)
{
	int fd AUTO_CLOSE = open(PCI_RESCAN, O_WRONLY | O_CLOEXEC);

	(void)arg;
	if (fd < 0 || write(fd, "1", 1) != 1)
		log_warn("%s: %s: the new VF is not found", PCI_RESCAN, strerror(errno));
	return NULL;
}

/* The write returns when drivers have found their devices: a second and more. */
void agent_device_rescan(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, rescan, NULL))
		pthread_detach(thread);
}

/* RoCE resolves addresses when a QP connects, so inside the outage, and one lost solicitation costs
 * a second (RFC 4861: RETRANS_TIMER). On a network as near as that of an HCA less will do. */
void agent_device_hurry(const char *device)
{
	char netdev[NETDEV_MAX];

	netdev_of(device, netdev);
	if (!*netdev)
		return;
	char *path AUTO_FREE = strf("/proc/sys/net/ipv6/neigh/%s/retrans_time_ms", netdev);
	FILE *f AUTO_FILE = path ? fopen(path, "we") : NULL;
	if (f)
		fprintf(f, "%d\n", NEIGHBOUR_RETRANS_MS);
}

/* The network device of the RoCE port that shows sgid, if dgid is link-local on it; 0: none. */
static unsigned ifindex_of(const uint8_t sgid[16], const uint8_t dgid[16])
{
	char device[SHIM_DEVICE_MAX], netdev[NETDEV_MAX];
	struct ib_gid gid;

	ib_gid_from_bytes(sgid, &gid);
	if (dgid[0] != 0xfe || !memcmp(sgid, dgid, 16) || agent_device_find(gid.guid, device))
		return 0;
	netdev_of(device, netdev);
	return *netdev ? if_nametoindex(netdev) : 0;
}

/* The state (NUD_*) of a neighbour, 0 where there is none. */
static unsigned neighbour_state(unsigned ifindex, const uint8_t ip[16])
{
	struct {
		struct nlmsghdr head;
		struct ndmsg nd;
		struct rtattr attr;
		uint8_t ip[16];
	} ask = {.head = {.nlmsg_len = sizeof(ask),
			  .nlmsg_type = RTM_GETNEIGH,
			  .nlmsg_flags = NLM_F_REQUEST},
		 .nd = {.ndm_family = AF_INET6, .ndm_ifindex = (int)ifindex},
		 .attr = {.rta_len = RTA_LENGTH(16), .rta_type = NDA_DST}};
	struct {
		struct nlmsghdr head;
		struct ndmsg nd;
		char rest[512];
	} answer;
	int fd AUTO_CLOSE = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	memcpy(ask.ip, ip, 16);
	if (fd < 0 || send(fd, &ask, sizeof(ask), 0) < 0 ||
	    recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.head) ||
	    answer.head.nlmsg_type != RTM_NEWNEIGH)
		return 0;
	return answer.nd.ndm_state;
}

static void knock(unsigned ifindex, const uint8_t ip[16])
{
	struct sockaddr_in6 to = {.sin6_family = AF_INET6,
				  .sin6_port = htons(DISCARD_PORT),
				  .sin6_scope_id = ifindex};
	int fd AUTO_CLOSE = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(&to.sin6_addr, ip, 16);
	if (fd < 0 || sendto(fd, "", 0, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		log_debug("no datagram to a peer: %s", strerror(errno));
}

bool agent_device_met(const uint8_t sgid[16], const uint8_t dgid[16])
{
	unsigned ifindex = ifindex_of(sgid, dgid);
	unsigned state = ifindex ? neighbour_state(ifindex, dgid) : NUD_PERMANENT;

	if (state & (NUD_VALID_STATES))
		return true;
	if (!(state & NUD_INCOMPLETE))
		knock(ifindex, dgid);
	return false;
}

/* The answer is believed for a moment. Thousands of packets ask while QPs connect, and each answer
 * takes dozens of reads in sysfs. GIDs come and go without an event that tells when the table is
 * complete. */
static bool guid_is_here(uint64_t guid)
{
	static struct {
		uint64_t guid, until_ms;
		bool here;
	} known[IS_OURS_KNOWN];
	uint64_t now = now_ms();
	unsigned at = (unsigned)((guid * 0x9e3779b97f4a7c15ull) >> 32) % IS_OURS_KNOWN;
	char name[SHIM_DEVICE_MAX];

	if (known[at].guid != guid || now >= known[at].until_ms) {
		known[at].guid = guid;
		known[at].here = agent_device_find(guid, name) != -ENODEV;
		known[at].until_ms = now + IS_OURS_MS;
	}
	return known[at].here;
}

bool agent_device_is_ours(struct agent *a, const uint8_t gid[16])
{
	struct ib_gid g;

	ib_gid_from_bytes(gid, &g);
	for (unsigned i = 0; i < a->vf_count; i++)
		if (a->vf[i] == g.guid)
			return true;
	return guid_is_here(g.guid);
}

static struct {
	struct agent *agent;
	void (*changed)(struct agent *a);
} watch;

static int netlink_ready(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	char data[8192];

	(void)source;
	(void)events;
	(void)arg;
	while (recv(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	watch.changed(watch.agent);
	return 0;
}

static int netlink_watch(struct agent *a, int protocol, unsigned groups)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = groups};
	int fd AUTO_CLOSE = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
	sd_event_source *source;
	int rc;

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return -errno;
	rc = sd_event_add_io(a->loop, &source, fd, EPOLLIN, netlink_ready, NULL);
	if (rc < 0)
		return rc;
	sd_event_source_set_io_fd_own(source, 1);
	sd_event_source_set_floating(source, 1);
	sd_event_source_unref(source);
	(void)TAKE_FD(fd);
	return 0;
}

int agent_device_watch(struct agent *a, void (*changed)(struct agent *a))
{
	int rc;

	if (watch.changed)
		return 0;
	watch.agent = a;
	watch.changed = changed;
	rc = netlink_watch(a, NETLINK_KOBJECT_UEVENT, UEVENT_GROUP);
	return rc ? rc
		  : netlink_watch(a, NETLINK_ROUTE,
				  RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR);
}
