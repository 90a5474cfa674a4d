/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A stand-in for the kernel's rtnetlink over an mlx5 PF: on NETLINK_USERSOCK, for RTM_GETLINK and
 * RTM_SETLINK with IFLA_VFINFO_LIST. */
#include "common/util.h"
#include "tests/fake/host/hca.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

struct fake_netlink_thread {
	struct nl_sock *sock;
	pthread_t thread;
	int stop[2];
};

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "the played netlink: %s\n", what);
		abort();
	}
}

static void put(struct nl_msg *m, int type, const void *data, size_t n)
{
	must(!nla_put(m, type, (int)n, data), "no room");
}

/* In the order of rtnl_fill_vfinfo(). As recorded (docs/hosts.md): a VF has the link address of its
 * PF, or zeros before Linux 5.3, which has no broadcast address either. */
static void put_vf(struct nl_msg *m, const struct fake_netlink *f, uint32_t vf)
{
	static const uint8_t broadcast[20] = {0,    0xff, 0xff, 0xff, 0xff, 0x12, 0x40,
					      0x1b, 0xff, 0xff, 0,    0,    0,    0,
					      0,    0,    0xff, 0xff, 0xff, 0xff};
	static const uint8_t address[20] = {0, 0, 0x0a, 0x2d, 0xfe, 0x80, 0, 0,    0,    0,
					    0, 0, 0x24, 0x8a, 0x07, 0x03, 0, 0x4b, 0xf0, 0xa8};
	struct nlattr *info = nla_nest_start(m, IFLA_VF_INFO);
	struct ifla_vf_mac mac = {.vf = vf};
	struct ifla_vf_vlan vlan = {.vf = vf};
	struct ifla_vf_spoofchk spoofchk = {.vf = vf};
	struct ifla_vf_rss_query_en rss = {.vf = vf};
	struct ifla_vf_link_state state = {.vf = vf, .link_state = f->policy[vf]};
	struct ifla_vf_trust trust = {.vf = vf};
	struct ifla_vf_guid node = {.vf = vf, .guid = f->node_guid[vf]};
	struct ifla_vf_guid port = {.vf = vf, .guid = f->port_guid[vf]};

	if (!f->no_guids)
		memcpy(mac.mac, address, sizeof address);
	put(m, IFLA_VF_MAC, &mac, sizeof mac);
	if (!f->no_guids)
		put(m, IFLA_VF_BROADCAST, broadcast, sizeof broadcast);
	put(m, IFLA_VF_VLAN, &vlan, sizeof vlan);
	put(m, IFLA_VF_SPOOFCHK, &spoofchk, sizeof spoofchk);
	put(m, IFLA_VF_LINK_STATE, &state, sizeof state);
	put(m, IFLA_VF_RSS_QUERY_EN, &rss, sizeof rss);
	put(m, IFLA_VF_TRUST, &trust, sizeof trust);
	if (!f->no_guids) {
		put(m, IFLA_VF_IB_NODE_GUID, &node, sizeof node);
		put(m, IFLA_VF_IB_PORT_GUID, &port, sizeof port);
	}
	nla_nest_end(m, info);
}

static void reply(struct nl_sock *s, struct nl_msg *m, uint32_t to)
{
	nl_socket_set_peer_port(s, to);
	must(nl_send(s, m) >= 0, "cannot send");
	nlmsg_free(m);
}

static void send_link(struct nl_sock *s, const struct fake_netlink *f, const struct nlmsghdr *q,
		      uint32_t to, bool with_vfs)
{
	struct ifinfomsg head = {.ifi_type = ARPHRD_INFINIBAND, .ifi_index = (int)f->ifindex};
	struct nl_msg *m = nlmsg_alloc_size(65536);
	struct nlattr *list;

	nlmsg_put(m, to, q->nlmsg_seq, RTM_NEWLINK, 0, 0);
	nlmsg_append(m, &head, sizeof head, NLMSG_ALIGNTO);
	nla_put_string(m, IFLA_IFNAME, "ib0");
	nla_put_u32(m, IFLA_NUM_VF, f->vfs);
	if (with_vfs) {
		list = nla_nest_start(m, IFLA_VFINFO_LIST);
		for (uint32_t i = 0; i < f->vfs; i++)
			put_vf(m, f, i);
		nla_nest_end(m, list);
	}
	reply(s, m, to);
}

static void send_ack(struct nl_sock *s, const struct nlmsghdr *q, uint32_t to, int rc)
{
	struct nlmsgerr e = {.error = rc, .msg = *q};
	struct nl_msg *m = nlmsg_alloc();

	nlmsg_put(m, to, q->nlmsg_seq, NLMSG_ERROR, 0, 0);
	nlmsg_append(m, &e, sizeof e, NLMSG_ALIGNTO);
	reply(s, m, to);
}

static int set_vf(struct fake_host *h, struct nlattr *info)
{
	struct fake_netlink *f = &h->netlink;
	struct nlattr *a[IFLA_VF_MAX + 1];
	struct ifla_vf_guid g = {0};
	struct ifla_vf_link_state state = {0};

	if (nla_parse_nested(a, IFLA_VF_MAX, info, NULL))
		return -EINVAL;
	if (f->set_rc)
		return f->set_rc;
	if (a[IFLA_VF_LINK_STATE]) {
		nla_memcpy(&state, a[IFLA_VF_LINK_STATE], sizeof state);
		must(state.vf < f->vfs, "VF out of range: the real driver writes elsewhere");
		if (!f->forgets_policy)
			f->policy[state.vf] = state.link_state;
		fake_show_ofed(h, state.vf);
	}
	for (int type = IFLA_VF_IB_NODE_GUID; type <= IFLA_VF_IB_PORT_GUID; type++) {
		if (!a[type])
			continue;
		must(nla_len(a[type]) == sizeof g, "length of a GUID");
		nla_memcpy(&g, a[type], sizeof g);
		must(g.vf < f->vfs, "VF out of range: the real driver writes elsewhere");
		if (!f->forgets)
			(type == IFLA_VF_IB_NODE_GUID ? f->node_guid : f->port_guid)[g.vf] = g.guid;
		fake_show_ofed(h, g.vf);
	}
	f->sets++;
	return 0;
}

static int serve_set(struct fake_host *h, struct nlmsghdr *q)
{
	struct nlattr *list = nlmsg_find_attr(q, sizeof(struct ifinfomsg), IFLA_VFINFO_LIST), *info;
	int rest, rc = list ? 0 : -EINVAL;

	if (list)
		nla_for_each_nested(info, list, rest) if (!rc)
			rc = nla_type(info) == IFLA_VF_INFO ? set_vf(h, info) : -EINVAL;
	return rc;
}

static void serve(struct fake_host *h, struct nlmsghdr *q, uint32_t to)
{
	struct fake_netlink *f = &h->netlink;
	const struct ifinfomsg *head = nlmsg_data(q);
	struct nlattr *mask = nlmsg_find_attr(q, sizeof *head, IFLA_EXT_MASK);
	int rc = head->ifi_index == (int)f->ifindex ? 0 : -ENODEV;

	if (!rc && q->nlmsg_type == RTM_GETLINK) {
		rc = f->get_rc;
		if (!rc)
			send_link(h->thread->sock, f, q, to,
				  mask && nla_get_u32(mask) & RTEXT_FILTER_VF);
	} else if (!rc) {
		rc = q->nlmsg_type == RTM_SETLINK ? serve_set(h, q) : -EOPNOTSUPP;
	}
	if (rc || q->nlmsg_flags & NLM_F_ACK)
		send_ack(h->thread->sock, q, to, rc);
}

static void *run(void *arg)
{
	struct fake_host *h = arg;
	struct fake_netlink_thread *t = h->thread;
	struct pollfd p[2] = {{.fd = nl_socket_get_fd(t->sock), .events = POLLIN},
			      {.fd = t->stop[0], .events = POLLIN}};

	while (poll(p, 2, -1) >= 0 && !p[1].revents) {
		struct sockaddr_nl from;
		unsigned char *buf = NULL;
		int n = nl_recv(t->sock, &from, &buf, NULL);

		must(n >= (int)(NLMSG_HDRLEN + sizeof(struct ifinfomsg)), "short request");
		serve(h, (struct nlmsghdr *)buf, from.nl_pid);
		free(buf);
	}
	return NULL;
}

void fake_netlink_start(struct fake_host *h)
{
	struct fake_netlink_thread *t = h->thread = calloc(1, sizeof *t);

	(void)!unshare(CLONE_NEWNET); /* nobody else is heard, where it may */
	must(t && (t->sock = nl_socket_alloc()), "no memory");
	must(!nl_connect(t->sock, NETLINK_USERSOCK) && !pipe(t->stop), "no NETLINK_USERSOCK");
	h->host.netlink = (struct vf_netlink){NETLINK_USERSOCK, nl_socket_get_local_port(t->sock)};
	must(!pthread_create(&t->thread, NULL, run, h), "no thread");
}

void fake_netlink_end(struct fake_host *h)
{
	struct fake_netlink_thread *t = h->thread;

	must(write(t->stop[1], "", 1) == 1, "cannot stop");
	pthread_join(t->thread, NULL);
	close(t->stop[1]);
	close(t->stop[0]);
	nl_socket_free(t->sock);
	free(t);
	h->thread = NULL;
}
