/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/datapath/fdb.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/lab/netlink.h"
#include "tests/lab/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_bridge.h>
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

const struct fdb_port *fdb_port(const struct fdb *b, const char *name)
{
	return find_port((struct fdb *)b, name);
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
	const struct rtattr *master = nl_attr(h, sizeof(*info), IFLA_MASTER);
	/* The data bridge is a port of itself, so that a group may have nobody else. */
	bool is_bridge = name && str_eq(RTA_DATA(name), DATA_BRIDGE);
	struct fdb_port *p;

	/* AF_BRIDGE messages repeat what the others say */
	if ((h->nlmsg_type != RTM_NEWLINK && h->nlmsg_type != RTM_DELLINK) || !name ||
	    info->ifi_family != AF_UNSPEC)
		return;
	p = find_port(e->fdb, RTA_DATA(name));
	if (h->nlmsg_type == RTM_DELLINK || (!master && !is_bridge)) {
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
	p->bridge = info->ifi_index;
	if (!is_bridge)
		memcpy(&p->bridge, RTA_DATA(master), sizeof(p->bridge));
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

static int change_mac(struct fdb *b, const struct fdb_entry *e, int ifindex)
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

/* Entries of groups that are no addresses of IP know a single state: permanent. */
static int change_group(struct fdb *b, const struct fdb_entry *e, int ifindex)
{
	struct br_port_msg port = {.family = AF_BRIDGE, .ifindex = (uint32_t)e->bridge};
	struct br_mdb_entry entry = {.ifindex = (uint32_t)(ifindex ? ifindex : e->ifindex),
				     .state = MDB_PERMANENT};
	struct nl_msg m;
	int r;

	memcpy(entry.addr.u.mac_addr, e->mac, sizeof(e->mac));
	nl_msg_init(&m, ifindex ? RTM_NEWMDB : RTM_DELMDB, ifindex ? NLM_F_CREATE : 0, &port,
		    sizeof(port));
	nl_msg_put(&m, MDBA_SET_ENTRY, &entry, sizeof(entry));
	r = nl_call(b->calls, &m);
	return r == -EEXIST ? 0 : r;
}

static struct fdb_entry *find_entry(struct fdb *b, const uint8_t mac[6], const char *port)
{
	struct fdb_entry *e;

	for (int i = 0; i < b->count; i++)
		if (!memcmp(b->entries[i].mac, mac, 6) && str_eq(b->entries[i].port, port))
			return &b->entries[i];
	if (b->count == FDB_MAX)
		return NULL;
	e = &b->entries[b->count++];
	*e = (struct fdb_entry){0};
	memcpy(e->mac, mac, sizeof(e->mac));
	snprintf(e->port, sizeof(e->port), "%s", port);
	return e;
}

static void entry_set(struct fdb *b, struct fdb_entry *e, const struct fdb_port *to)
{
	const uint8_t *m = e->mac;
	char text[] = "02:00:00:00:00:00";
	int r;

	if (e->ifindex == (to ? to->ifindex : 0))
		return;
	if (to)
		e->bridge = to->bridge;
	r = (*e->port ? change_group : change_mac)(b, e, to ? to->ifindex : 0);
	if (r == -ENOENT && !to)
		r = 0;
	snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4],
		 m[5]);
	if (r) {
		log_debug("%s: %s to %s: %s", b->host, text, to ? to->name : "none", strerror(-r));
		return; /* a port that comes or goes; the next round tries again */
	}
	e->ifindex = to ? to->ifindex : 0;
	if (str_eq(e->port, DATA_BRIDGE))
		return;
	if (*e->port)
		log_info("%s: %s %s %s", b->host, text, to ? "also goes to" : "leaves", e->port);
	else
		log_info("%s: %s goes to %s", b->host, text, to ? to->name : "nowhere");
}

void fdb_begin(struct fdb *b)
{
	for (int i = 0; i < b->count; i++)
		b->entries[i].seen = false;
}

static void put(struct fdb *b, const uint8_t mac[6], const char *key, const char *port)
{
	struct fdb_entry *e = find_entry(b, mac, key);

	if (!e)
		return;
	e->seen = true;
	entry_set(b, e, find_port(b, port));
}

void fdb_set(struct fdb *b, const uint8_t mac[6], const char *port)
{
	put(b, mac, "", port);
}

void fdb_join(struct fdb *b, const uint8_t group[6], const char *port)
{
	put(b, group, port, port);
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
