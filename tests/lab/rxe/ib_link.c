// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* InfiniBand packets in Ethernet frames, to and from the NIC that an rxe device was made on. */
#include <linux/etherdevice.h>
#include <linux/if_ether.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_net.h"

/* Link next header of an LRH (IBA 7.7.5). */
#define LNH_MASK 3
#define LNH_BTH  2
#define LNH_GRH  3

#define GRH_VERSION  6
#define GRH_NEXT_BTH 0x1b

static void lid_to_mac(u16 lid, u8 mac[ETH_ALEN])
{
	const u8 bytes[ETH_ALEN] = {lid >= be16_to_cpu(IB_MULTICAST_LID_BASE) ? IBX_MAC_MULTICAST
									      : IBX_MAC_UNICAST,
				    IBX_MAC_1,
				    IBX_MAC_2,
				    0,
				    lid >> 8,
				    lid & 0xff};

	memcpy(mac, bytes, ETH_ALEN);
}

struct sk_buff *rxe_init_packet(struct rxe_dev *rxe, struct rxe_av *av, int paylen,
				struct rxe_pkt_info *pkt)
{
	struct net_device *ndev = rxe->port.ib.ndev;
	unsigned int room = LL_RESERVED_SPACE(ndev) + sizeof(struct ibx_lrh) +
			    sizeof(struct ibx_grh);
	struct sk_buff *skb = alloc_skb(room + paylen, GFP_ATOMIC);

	if (!skb)
		return NULL;
	skb_reserve(skb, room);
	skb->dev = ndev;
	pkt->rxe = rxe;
	pkt->port_num = 1;
	pkt->hdr = skb_put(skb, paylen);
	return skb;
}

static void push_grh(struct rxe_av *av, struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	struct rxe_port *port = &pkt->rxe->port;
	struct ibx_grh *grh = skb_push(skb, sizeof(*grh));

	grh->version_class_flow_be = cpu_to_be32(GRH_VERSION << 28 | av->grh.traffic_class << 20 |
						 (av->grh.flow_label & 0xfffff));
	grh->bytes_be = cpu_to_be16(pkt->paylen);
	grh->next = GRH_NEXT_BTH;
	grh->hop_limit = av->grh.hop_limit;
	grh->sgid.global.subnet_prefix = port->subnet_prefix;
	grh->sgid.global.interface_id = port->ib.guid_be[av->grh.sgid_index % IBX_GUIDS];
	memcpy(grh->dgid.raw, av->grh.dgid.raw, sizeof(grh->dgid.raw));
}

int rxe_prepare(struct rxe_av *av, struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	const struct ibx_path *path = ibx_path(av);
	struct ib_port_attr *attr = &pkt->rxe->port.attr;
	struct ibx_lrh *lrh;

	if (path->has_grh) {
		push_grh(av, pkt, skb);
		pkt->mask |= RXE_GRH_MASK;
	}
	skb_reset_network_header(skb);
	lrh = skb_push(skb, sizeof(*lrh));
	skb_reset_transport_header(skb);
	lrh->vl_version = 0;
	lrh->sl_lnh = path->sl << 4 | (path->has_grh ? LNH_GRH : LNH_BTH);
	lrh->dlid_be = path->dlid_be;
	lrh->words_be = cpu_to_be16(skb->len / 4);
	lrh->slid_be = cpu_to_be16(attr->lid | path->path_bits);
	skb->priority = path->sl;
	if (attr->lid && ibx_is_mine(pkt->rxe, be16_to_cpu(path->dlid_be)))
		pkt->mask |= RXE_LOOPBACK_MASK;
	return 0;
}

static bool is_active(struct rxe_dev *rxe)
{
	return READ_ONCE(rxe->port.attr.state) == IB_PORT_ACTIVE;
}

/* A port that the SM has not activated loses what it is given, as a HCA's does (IBA 7.2.7). */
int ibx_xmit(struct sk_buff *skb)
{
	struct rxe_qp *qp = skb->sk->sk_user_data;
	u8 from[ETH_ALEN], to[ETH_ALEN];

	lid_to_mac(be16_to_cpu(ibx_lrh(skb)->slid_be), from);
	lid_to_mac(be16_to_cpu(ibx_lrh(skb)->dlid_be), to);
	skb_reset_network_header(skb);
	skb->protocol = htons(IBX_ETH_PACKET);
	if (!is_active(to_rdev(qp->ibqp.device)) ||
	    dev_hard_header(skb, skb->dev, IBX_ETH_PACKET, to, from, skb->len) < 0) {
		kfree_skb(skb);
		return 0;
	}
	return dev_queue_xmit(skb);
}

/* The packet begins with its LRH. Afterwards it begins with its BTH, and pkt says what it had. */
static bool pull_headers(struct sk_buff *skb, struct rxe_pkt_info *pkt)
{
	const struct ibx_lrh *lrh = (const void *)skb->data;
	unsigned int bytes, least = sizeof(*lrh) + RXE_BTH_BYTES + RXE_ICRC_SIZE;

	if (skb->len < least)
		return false;
	if ((lrh->sl_lnh & LNH_MASK) == LNH_GRH)
		least += sizeof(struct ibx_grh);
	else if ((lrh->sl_lnh & LNH_MASK) != LNH_BTH)
		return false;
	bytes = 4 * be16_to_cpu(lrh->words_be);
	/* behind the packet is what Ethernet pads */
	if (bytes < least || bytes > skb->len || pskb_trim(skb, bytes))
		return false;
	skb_reset_transport_header(skb);
	skb_pull(skb, sizeof(*lrh));
	skb_reset_network_header(skb);
	skb->protocol = htons(IBX_ETH_PACKET);
	pkt->mask = 0;
	if ((ibx_lrh(skb)->sl_lnh & LNH_MASK) == LNH_GRH) {
		skb_pull(skb, sizeof(struct ibx_grh));
		skb->protocol = htons(ETH_P_IPV6); /* the kernel's rxe looks for its GIDs there */
		pkt->mask = RXE_GRH_MASK;
	}
	pkt->port_num = 1;
	pkt->hdr = skb->data;
	pkt->paylen = skb->len;
	return true;
}

int ibx_loopback(struct sk_buff *skb, struct rxe_pkt_info *pkt)
{
	struct rxe_pkt_info *received = SKB_TO_PKT(skb);
	struct rxe_dev *rxe = pkt->rxe;

	if (!is_active(rxe)) {
		kfree_skb(skb);
		return 0;
	}
	if (!pull_headers(skb, received) || !ib_device_try_get(&rxe->ib_dev)) {
		kfree_skb(skb);
		return -EIO;
	}
	received->rxe = rxe;
	received->mask |= RXE_LOOPBACK_MASK;
	rxe_rcv(skb);
	return 0;
}

/* The ICRC covers LRH, GRH and BTH with ones where a switch or router may write (IBA 7.8.1). */
unsigned int ibx_icrc_headers(struct sk_buff *skb, struct rxe_pkt_info *pkt,
			      u8 to[IBX_ICRC_HEADERS])
{
	struct ibx_lrh *lrh = (void *)to;
	struct rxe_bth *bth;
	unsigned int at = sizeof(*lrh);

	*lrh = *ibx_lrh(skb);
	lrh->vl_version |= 0xf0;
	if ((lrh->sl_lnh & LNH_MASK) == LNH_GRH) {
		struct ibx_grh *grh = (void *)(to + at);

		*grh = *ibx_grh(skb);
		grh->version_class_flow_be |= cpu_to_be32(0x0fffffff);
		grh->hop_limit = 0xff;
		at += sizeof(*grh);
	}
	bth = (void *)(to + at);
	memcpy(bth, pkt->hdr, RXE_BTH_BYTES);
	bth->qpn |= cpu_to_be32(~BTH_QPN_MASK);
	return at + RXE_BTH_BYTES;
}

/* Takes the frame and the reference on the device, as rxe_rcv() does. */
static void receive(struct rxe_dev *rxe, struct sk_buff *skb)
{
	struct rxe_pkt_info *pkt = SKB_TO_PKT(skb);
	u16 dlid;

	skb_orphan(skb);
	if (is_active(rxe) && pull_headers(skb, pkt)) {
		dlid = be16_to_cpu(ibx_lrh(skb)->dlid_be);
		if (dlid >= be16_to_cpu(IB_MULTICAST_LID_BASE) || ibx_is_mine(rxe, dlid)) {
			pkt->rxe = rxe;
			rxe_rcv(skb);
			return;
		}
	}
	kfree_skb(skb);
	ib_device_put(&rxe->ib_dev);
}

static int on_frame(struct sk_buff *skb, struct net_device *ndev, struct packet_type *type,
		    struct net_device *orig)
{
	struct rxe_dev *rxe;

	if (skb->pkt_type == PACKET_OUTGOING || skb->pkt_type == PACKET_LOOPBACK)
		goto drop;
	skb = skb_share_check(skb, GFP_ATOMIC);
	if (!skb)
		return 0;
	rxe = rxe_get_dev_from_net(ndev);
	if (!rxe)
		goto drop;
	if (!skb_linearize(skb)) {
		if (type->type == htons(IBX_ETH_PACKET)) {
			receive(rxe, skb);
			return 0;
		}
		ibx_told(rxe, (const void *)skb->data, skb->len);
	}
	ib_device_put(&rxe->ib_dev);
drop:
	kfree_skb(skb);
	return 0;
}

static struct packet_type packets = {.type = cpu_to_be16(IBX_ETH_PACKET), .func = on_frame};
static struct packet_type controls = {.type = cpu_to_be16(IBX_ETH_CONTROL), .func = on_frame};

void rxe_net_exit(void)
{
	dev_remove_pack(&controls);
	dev_remove_pack(&packets);
	unregister_netdevice_notifier(&rxe_net_notifier);
}

int rxe_net_init(void)
{
	int err = register_netdevice_notifier(&rxe_net_notifier);

	if (err)
		return err;
	dev_add_pack(&packets);
	dev_add_pack(&controls);
	return 0;
}
