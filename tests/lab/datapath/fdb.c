/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/datapath/fdb.h"
#include "common/ib.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/lab/netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <sched.h>
#include <string.h>

static int open_in(const char *host, int *ret_events, int *ret_calls)
{
	char *path AUTO_FREE = strf("/run/netns/%s", host);
	int own AUTO_CLOSE = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int ns AUTO_CLOSE = open(path, O_RDONLY | O_CLOEXEC);

	if (own < 0 || ns < 0 || setns(ns, CLONE_NEWNET))
		return -errno;
	*ret_events = nl_open(NETLINK_ROUTE, RTMGRP_LINK);
	*ret_calls = nl_open(NETLINK_ROUTE, 0);
	if (setns(own, CLONE_NEWNET))
		return -errno;
	return *ret_events < 0 || *ret_calls < 0 ? -EMFILE : 0;
}

static struct fdb_port *find_port(struct fdb *b, const char *name)
{
	for (int i = 0; name && i < b->port_count; i++)
		if (str_eq(b->ports[i].name, name))
			return &b->ports[i];
	return NULL;
}

/* The kernel drops a port's entries with the port, so those are forgotten here as well. */
static void forget_port(struct fdb *b, int ifindex)
{
	for (int i = 0; i < b->port_count; i++)
		if (b->ports[i].ifindex == ifindex)
			b->ports[i--] = b->ports[--b->port_count];
	for (int i = 0; i < b->count; i++)
		if (b->entries[i].ifindex == ifindex)
			b->entries[i].ifindex = 0;
}

struct link_event {
	struct fdb *fdb;
	bool changed;
};

static void on_link(void *arg, const struct nlmsghdr *h)
{
	struct link_event *e = arg;
	const struct ifinfomsg *info = NLMSG_DATA(h);
	const struct rtattr *name = nl_attr(h, sizeof(*info), IFLA_IFNAME);
	bool member = nl_attr(h, sizeof(*info), IFLA_MASTER);
	struct fdb_port *p;

	/* AF_BRIDGE messages repeat what the others say */
	if ((h->nlmsg_type != RTM_NEWLINK && h->nlmsg_type != RTM_DELLINK) || !name ||
	    info->ifi_family != AF_UNSPEC)
		return;
	p = find_port(e->fdb, RTA_DATA(name));
	if (h->nlmsg_type == RTM_DELLINK || !member) {
		e->changed |= p && p->ifindex == info->ifi_index;
		forget_port(e->fdb, info->ifi_index);
		return;
	}
	if (p && p->ifindex == info->ifi_index)
		return;
	if (!p && e->fdb->port_count < FDB_PORTS)
		p = &e->fdb->ports[e->fdb->port_count++];
	if (!p)
		return;
	snprintf(p->name, sizeof(p->name), "%s", (const char *)RTA_DATA(name));
	p->ifindex = info->ifi_index;
	e->changed = true;
}

static int ask_links(struct fdb *b)
{
	struct ifinfomsg any = {.ifi_family = AF_UNSPEC};
	struct nl_msg m;

	nl_msg_init(&m, RTM_GETLINK, NLM_F_DUMP, &any, sizeof(any));
	return nl_send(b->events, &m);
}

int fdb_open(struct fdb *b, const char *host)
{
	int r = open_in(host, &b->events, &b->calls);

	b->host = host;
	if (r)
		return r;
	if (fcntl(b->events, F_SETFL, O_NONBLOCK))
		return -errno;
	return ask_links(b);
}

bool fdb_links_changed(struct fdb *b)
{
	struct link_event e = {b, false};
	int r;

	while (!(r = nl_recv(b->events, on_link, &e)) || r == -ENOBUFS)
		if (r == -ENOBUFS)
			ask_links(b);
	return e.changed;
}

static int change(struct fdb *b, struct fdb_entry *e, int ifindex)
{
	struct ndmsg nd = {.ndm_family = AF_BRIDGE,
			   .ndm_ifindex = ifindex ? ifindex : e->ifindex,
			   .ndm_state = NUD_NOARP, /* static: neither aged nor learnt anew */
			   .ndm_flags = NTF_MASTER};
	struct nl_msg m;

	nl_msg_init(&m, ifindex ? RTM_NEWNEIGH : RTM_DELNEIGH,
		    ifindex ? NLM_F_CREATE | NLM_F_REPLACE : 0, &nd, sizeof(nd));
	nl_msg_put(&m, NDA_LLADDR, e->mac, sizeof(e->mac));
	return nl_call(b->calls, &m);
}

static struct fdb_entry *find_entry(struct fdb *b, uint64_t vguid)
{
	struct fdb_entry *e;

	for (int i = 0; i < b->count; i++)
		if (b->entries[i].vguid == vguid)
			return &b->entries[i];
	if (b->count == FDB_MAX)
		return NULL;
	e = &b->entries[b->count++];
	*e = (struct fdb_entry){.vguid = vguid};
	for (int i = 0; i < 3; i++) {
		e->mac[i] = (uint8_t)(vguid >> (56 - 8 * i));
		e->mac[3 + i] = (uint8_t)(vguid >> (16 - 8 * i));
	}
	e->mac[0] ^= 2;
	return e;
}

static bool entry_set(struct fdb *b, struct fdb_entry *e, const struct fdb_port *to)
{
	char guid[IB_GUID_TEXT];
	int r;

	if (e->ifindex == (to ? to->ifindex : 0))
		return false;
	r = change(b, e, to ? to->ifindex : 0);
	if (r == -ENOENT && !to)
		r = 0;
	ib_guid_format(e->vguid, guid);
	if (r) {
		log_debug("%s: %s to %s: %s", b->host, guid, to ? to->name : "none", strerror(-r));
		return false; /* a port that comes or goes; the next round tries again */
	}
	e->ifindex = to ? to->ifindex : 0;
	log_info("%s: %s goes to %s", b->host, guid, to ? to->name : "nowhere");
	return true;
}

void fdb_begin(struct fdb *b)
{
	for (int i = 0; i < b->count; i++)
		b->entries[i].seen = false;
}

bool fdb_set(struct fdb *b, uint64_t vguid, const char *port)
{
	struct fdb_entry *e = find_entry(b, vguid);

	if (!e)
		return false;
	e->seen = true;
	return entry_set(b, e, find_port(b, port));
}

void fdb_end(struct fdb *b)
{
	for (int i = 0; i < b->count; i++) {
		if (b->entries[i].seen)
			continue;
		entry_set(b, &b->entries[i], NULL);
		if (!b->entries[i].ifindex)
			b->entries[i--] = b->entries[--b->count];
	}
}
