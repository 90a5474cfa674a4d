// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A port whose LID, P_Keys, GUIDs and state come from the subnet manager, by control frames. */
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_net.h"

#define LMC_MOST 7
#define SL_MOST  15
#define ASK_MS   500

static void ask(struct work_struct *work);

/* Frames carry the MAC of a LID, so the NIC takes all; it stays so until it goes. */
void ibx_init_port(struct rxe_dev *rxe, struct net_device *ndev)
{
	struct ibx_port *ib = &rxe->port.ib;

	ib->ndev = ndev;
	ib->guid_be[0] = rxe->port.port_guid;
	ib->pkey[0] = IB_DEFAULT_PKEY_FULL; /* the SM itself is asked with this one */
	spin_lock_init(&rxe->port.port_lock);
	INIT_DELAYED_WORK(&ib->ask, ask);
	rtnl_lock();
	dev_set_promiscuity(ndev, 1);
	rtnl_unlock();
}

void ibx_end_port(struct rxe_dev *rxe)
{
	if (cancel_delayed_work_sync(&rxe->port.ib.ask))
		dev_put(rxe->port.ib.ndev);
}

bool ibx_is_mine(struct rxe_dev *rxe, u16 dlid)
{
	const struct ib_port_attr *attr = &rxe->port.attr;

	return (dlid & ~((1u << attr->lmc) - 1)) == attr->lid;
}

u16 ibx_pkey(struct rxe_dev *rxe, unsigned int index)
{
	return index < IBX_PKEYS ? READ_ONCE(rxe->port.ib.pkey[index]) : 0;
}

/* QP1 sends with the P_Key of each request, all others with their own. */
u16 ibx_send_pkey(struct rxe_qp *qp, const struct rxe_send_wr *wr)
{
	return ibx_pkey(to_rdev(qp->ibqp.device),
			qp_type(qp) == IB_QPT_GSI ? wr->wr.ud.pkey_index : qp->attr.pkey_index);
}

/* The index that a packet with this P_Key came by. QP1 takes each of the port's; where none fits,
 * the caller's own check of the returned one fails. */
unsigned int ibx_pkey_index(struct rxe_qp *qp, u16 pkey)
{
	if (qp_type(qp) == IB_QPT_GSI)
		for (unsigned int i = 0; i < IBX_PKEYS; i++)
			if (pkey_match(pkey, ibx_pkey(to_rdev(qp->ibqp.device), i)))
				return i;
	return qp->attr.pkey_index;
}

int ibx_query_gid(struct ib_device *device, u32 port_num, int index, union ib_gid *ret_gid)
{
	struct rxe_port *port = &to_rdev(device)->port;

	if (index < 0 || index >= IBX_GUIDS)
		return -EINVAL;
	memset(ret_gid, 0, sizeof(*ret_gid));
	if (index && !port->ib.guid_be[index])
		return 0;
	ret_gid->global.subnet_prefix = port->subnet_prefix;
	ret_gid->global.interface_id = port->ib.guid_be[index];
	return 0;
}

static void send(struct net_device *ndev, const struct ibx_control *control)
{
	static const u8 to[ETH_ALEN] = {IBX_MAC_MULTICAST, IBX_MAC_1, IBX_MAC_2, 0xff, 0xff, 0xff};
	struct sk_buff *skb = alloc_skb(LL_RESERVED_SPACE(ndev) + sizeof(*control), GFP_ATOMIC);

	if (!skb)
		return;
	skb_reserve(skb, LL_RESERVED_SPACE(ndev));
	skb_put_data(skb, control, sizeof(*control));
	skb->dev = ndev;
	skb->protocol = htons(IBX_ETH_CONTROL);
	skb_reset_network_header(skb);
	if (dev_hard_header(skb, ndev, IBX_ETH_CONTROL, to, NULL, skb->len) < 0)
		kfree_skb(skb);
	else
		dev_queue_xmit(skb);
}

static void ask_in(struct ibx_port *ib, unsigned int ms)
{
	dev_hold(ib->ndev);
	if (!schedule_delayed_work(&ib->ask, msecs_to_jiffies(ms)))
		dev_put(ib->ndev); /* it is to run already */
}

/* Nobody may be there yet, and a frame may be lost: the port asks until it is told. */
static void ask(struct work_struct *work)
{
	struct ibx_port *ib = container_of(to_delayed_work(work), struct ibx_port, ask);
	struct rxe_dev *rxe = container_of(ib, struct rxe_dev, port.ib);
	struct ibx_control control = {.magic_be = cpu_to_be32(IBX_MAGIC),
				      .op = IBX_ASK,
				      .guids = 1,
				      .guid_be = {rxe->port.port_guid}};

	if (!READ_ONCE(ib->told) && netif_running(ib->ndev)) {
		send(ib->ndev, &control);
		ask_in(ib, ASK_MS);
	}
	dev_put(ib->ndev);
}

/* The link is there; ACTIVE it becomes by the SM. */
void rxe_port_up(struct rxe_dev *rxe)
{
	if (rxe->port.attr.state == IB_PORT_DOWN)
		rxe->port.attr.state = IB_PORT_INIT;
	WRITE_ONCE(rxe->port.ib.told, false);
	ask_in(&rxe->port.ib, 0);
}

static bool is_valid(const struct ibx_control *c)
{
	return c->state >= IB_PORT_DOWN && c->state <= IB_PORT_ACTIVE && c->lmc <= LMC_MOST &&
	       c->sm_sl <= SL_MOST && c->pkeys <= IBX_PKEYS && c->guids <= IBX_GUIDS &&
	       c->mtu <= IB_MTU_4096 && be16_to_cpu(c->lid_be) < be16_to_cpu(IB_MULTICAST_LID_BASE);
}

/* Changes of a port after it was told something; each has an event of its own. */
struct changes {
	bool state, lid, sm, pkeys, gids;
};

static void set_mtu(struct rxe_dev *rxe, enum ib_mtu mtu)
{
	struct rxe_port *port = &rxe->port;

	rxe_set_mtu(rxe, port->ib.ndev->mtu);
	if (mtu && mtu < port->attr.active_mtu) {
		port->attr.active_mtu = mtu;
		port->mtu_cap = ib_mtu_enum_to_int(mtu);
	}
}

static void set_tables(struct rxe_port *port, const struct ibx_control *c, struct changes *changes)
{
	struct ibx_port *ib = &port->ib;
	__be64 guid_be[IBX_GUIDS] = {};
	u16 pkey[IBX_PKEYS] = {};

	for (unsigned int i = 0; i < c->pkeys; i++)
		pkey[i] = be16_to_cpu(c->pkey_be[i]);
	if (c->guids)
		memcpy(guid_be, c->guid_be, c->guids * sizeof(guid_be[0]));
	else
		memcpy(guid_be, ib->guid_be, sizeof(guid_be));
	changes->pkeys = memcmp(pkey, ib->pkey, sizeof(pkey));
	changes->gids = port->subnet_prefix != c->prefix_be ||
			memcmp(guid_be, ib->guid_be, sizeof(guid_be));
	memcpy(ib->pkey, pkey, sizeof(pkey));
	memcpy(ib->guid_be, guid_be, sizeof(guid_be));
	port->subnet_prefix = c->prefix_be;
	port->port_guid = guid_be[0];
}

static void set_port(struct rxe_dev *rxe, const struct ibx_control *c, struct changes *changes)
{
	struct rxe_port *port = &rxe->port;
	struct ib_port_attr *attr = &port->attr;

	spin_lock_bh(&port->port_lock);
	changes->state = attr->state != c->state;
	changes->lid = attr->lid != be16_to_cpu(c->lid_be) || attr->lmc != c->lmc;
	changes->sm = attr->sm_lid != be16_to_cpu(c->sm_lid_be) || attr->sm_sl != c->sm_sl;
	attr->lid = be16_to_cpu(c->lid_be);
	attr->lmc = c->lmc;
	attr->sm_lid = be16_to_cpu(c->sm_lid_be);
	attr->sm_sl = c->sm_sl;
	set_tables(port, c, changes);
	set_mtu(rxe, c->mtu);
	attr->state = c->state;
	spin_unlock_bh(&port->port_lock);
}

void ibx_told(struct rxe_dev *rxe, const struct ibx_control *c, unsigned int bytes)
{
	struct device *dev = &rxe->ib_dev.dev;
	struct changes changes;
	enum ib_port_state before = rxe->port.attr.state;
	struct ibx_control has;

	if (bytes < sizeof(*c) || c->magic_be != cpu_to_be32(IBX_MAGIC) || c->op != IBX_TELL)
		return;
	if (!is_valid(c)) {
		dev_warn_ratelimited(dev,
				     "control frame refused: state %u (1-4), LID %u, LMC %u (0-7), "
				     "%u P_Keys (0-%u), %u GUIDs (0-%u), MTU %u (0-5)\n",
				     c->state, be16_to_cpu(c->lid_be), c->lmc, c->pkeys, IBX_PKEYS,
				     c->guids, IBX_GUIDS, c->mtu);
		return;
	}
	set_port(rxe, c, &changes);
	WRITE_ONCE(rxe->port.ib.told, true);
	has = *c;
	has.op = IBX_HAS;
	send(rxe->port.ib.ndev, &has);
	if (changes.state || changes.lid || changes.sm || changes.pkeys || changes.gids)
		dev_info(dev, "state %u, LID %u, SM LID %u, P_Key %#x\n", c->state,
			 be16_to_cpu(c->lid_be), be16_to_cpu(c->sm_lid_be), ibx_pkey(rxe, 0));
	if (changes.gids)
		rxe_port_event(rxe, IB_EVENT_GID_CHANGE);
	if (changes.pkeys)
		rxe_port_event(rxe, IB_EVENT_PKEY_CHANGE);
	if (changes.state && c->state == IB_PORT_ACTIVE)
		rxe_port_event(rxe, IB_EVENT_PORT_ACTIVE);
	if (changes.state && before == IB_PORT_ACTIVE)
		rxe_port_event(rxe, IB_EVENT_PORT_ERR);
	if (changes.lid)
		rxe_port_event(rxe, IB_EVENT_LID_CHANGE);
	if (changes.sm)
		rxe_port_event(rxe, IB_EVENT_SM_CHANGE);
	if (c->reregister)
		rxe_port_event(rxe, IB_EVENT_CLIENT_REREGISTER);
}
