/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/netlink.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <string.h>
#include <sys/socket.h>

/* The kernel has answered when send() returns; this is for a kernel that has not. */
#define ANSWER_TIMEOUT_S 30

struct request {
	struct nl_sock *sock;
	struct nl_msg *msg;
	int error; /* the kernel's own: libnl knows fewer */
	/* RTM_GETLINK: */
	struct vf_link *links;
	size_t n;
};

static int on_error(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg)
{
	struct request *r = arg;

	(void)from;
	r->error = e->error;
	return NL_STOP;
}

static uint64_t guid_of(struct nlattr *a)
{
	struct ifla_vf_guid g;

	nla_memcpy(&g, a, sizeof g);
	return g.guid;
}

static void take_vf(struct request *r, struct nlattr *info)
{
	static const struct nla_policy policy[IFLA_VF_MAX + 1] = {
		[IFLA_VF_MAC] = {.minlen = sizeof(struct ifla_vf_mac)},
		[IFLA_VF_LINK_STATE] = {.minlen = sizeof(struct ifla_vf_link_state)},
		[IFLA_VF_IB_NODE_GUID] = {.minlen = sizeof(struct ifla_vf_guid)},
		[IFLA_VF_IB_PORT_GUID] = {.minlen = sizeof(struct ifla_vf_guid)},
	};
	struct nlattr *a[IFLA_VF_MAX + 1];
	struct ifla_vf_link_state state;
	struct vf_link *l;
	uint32_t vf;

	/* Every attribute begins with the VF's number; the MAC is always there. */
	if (nla_parse_nested(a, IFLA_VF_MAX, info, (struct nla_policy *)policy) || !a[IFLA_VF_MAC])
		return;
	memcpy(&vf, nla_data(a[IFLA_VF_MAC]), sizeof vf);
	if (vf >= r->n)
		return;
	l = &r->links[vf];
	l->present = true;
	if (a[IFLA_VF_LINK_STATE]) {
		nla_memcpy(&state, a[IFLA_VF_LINK_STATE], sizeof state);
		l->policy = state.link_state;
	}
	if (!a[IFLA_VF_IB_NODE_GUID] || !a[IFLA_VF_IB_PORT_GUID])
		return;
	l->guid_known = true;
	l->node_guid = guid_of(a[IFLA_VF_IB_NODE_GUID]);
	l->port_guid = guid_of(a[IFLA_VF_IB_PORT_GUID]);
}

static int on_link(struct nl_msg *msg, void *arg)
{
	struct request *r = arg;
	struct nlmsghdr *h = nlmsg_hdr(msg);
	struct nlattr *list = nlmsg_find_attr(h, sizeof(struct ifinfomsg), IFLA_VFINFO_LIST), *info;
	int rest;

	if (h->nlmsg_type != RTM_NEWLINK || !r->links)
		return NL_SKIP;
	if (list)
		nla_for_each_nested(info, list, rest) if (nla_type(info) == IFLA_VF_INFO)
			take_vf(r, info);
	return NL_OK;
}

static int request_init(struct request *r, const struct vf_netlink *t, int type, unsigned ifindex)
{
	const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
	struct ifinfomsg head = {.ifi_family = AF_UNSPEC, .ifi_index = (int)ifindex};

	r->sock = nl_socket_alloc();
	/* RTM_GETLINK is answered by the link or by an error: one datagram, as nl_wait_for_ack()
	 * reads */
	r->msg = nlmsg_alloc_simple(type, NLM_F_REQUEST | (type == RTM_SETLINK ? NLM_F_ACK : 0));
	if (!r->sock || !r->msg || nlmsg_append(r->msg, &head, sizeof head, NLMSG_ALIGNTO))
		return -ENOMEM;
	if (nl_connect(r->sock, t->protocol) < 0)
		return errno ? -errno : -EIO;
	nl_socket_set_peer_port(r->sock, t->port);
	nl_socket_disable_auto_ack(r->sock);
	nl_socket_enable_msg_peek(r->sock); /* 127 VFs make an answer of many pages */
	nl_socket_modify_err_cb(r->sock, NL_CB_CUSTOM, on_error, r);
	nl_socket_modify_cb(r->sock, NL_CB_VALID, NL_CB_CUSTOM, on_link, r);
	setsockopt(nl_socket_get_fd(r->sock), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	return 0;
}

static int request_run(struct request *r)
{
	int rc = nl_send_auto(r->sock, r->msg);

	if (rc >= 0)
		rc = nl_wait_for_ack(r->sock);
	if (r->error)
		return r->error;
	if (rc == -NLE_AGAIN)
		return -ETIMEDOUT;
	return rc < 0 ? -EIO : 0;
}

static void request_end(struct request *r)
{
	nlmsg_free(r->msg);
	nl_socket_free(r->sock);
}

int vf_netlink_get(const struct vf_netlink *t, unsigned ifindex, struct vf_link *links, size_t n)
{
	struct request r = {.links = links, .n = n};
	int rc = request_init(&r, t, RTM_GETLINK, ifindex);

	memset(links, 0, n * sizeof *links);
	if (!rc && nla_put_u32(r.msg, IFLA_EXT_MASK, RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS))
		rc = -ENOMEM;
	if (!rc)
		rc = request_run(&r);
	request_end(&r);
	return rc;
}

/* Sets one attribute of one VF: IFLA_VFINFO_LIST { IFLA_VF_INFO { type } }. */
static int set_attr(const struct vf_netlink *t, unsigned ifindex, int type, const void *data,
		    size_t bytes)
{
	struct request r = {0};
	int rc = request_init(&r, t, RTM_SETLINK, ifindex);

	if (!rc) {
		struct nlattr *list = nla_nest_start(r.msg, IFLA_VFINFO_LIST);
		struct nlattr *info = list ? nla_nest_start(r.msg, IFLA_VF_INFO) : NULL;

		if (!info || nla_put(r.msg, type, (int)bytes, data))
			rc = -ENOMEM;
		else
			nla_nest_end(r.msg, info), nla_nest_end(r.msg, list);
	}
	if (!rc)
		rc = request_run(&r);
	request_end(&r);
	return rc;
}

/* The port's last: with it the subnet manager sees another port. */
int vf_netlink_set_guid(const struct vf_netlink *t, unsigned ifindex, unsigned vf, uint64_t guid)
{
	const struct ifla_vf_guid g = {.vf = vf, .guid = guid};
	int rc = set_attr(t, ifindex, IFLA_VF_IB_NODE_GUID, &g, sizeof g);

	return rc ? rc : set_attr(t, ifindex, IFLA_VF_IB_PORT_GUID, &g, sizeof g);
}

int vf_netlink_set_policy(const struct vf_netlink *t, unsigned ifindex, unsigned vf,
			  uint32_t policy)
{
	const struct ifla_vf_link_state s = {.vf = vf, .link_state = policy};

	return set_attr(t, ifindex, IFLA_VF_LINK_STATE, &s, sizeof s);
}
