/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* An InfiniBand link under the kernel's rxe: what its files and ours call of each other.
 *
 * The functions that keep an rxe_ name stand in for those that `edit` takes out of the kernel's
 * files. */
#ifndef IB_LINK_H
#define IB_LINK_H

#include <linux/version.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include "ib_wire.h"

/* Debian has two rxe: 6.1 and the one whose work queues and net devices were made anew. */
#define IBX_NEW_RXE (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0))

struct rxe_dev;
struct rxe_pkt_info;
struct rxe_qp;
struct rxe_send_wr;

struct ibx_lrh {
	u8 vl_version;
	u8 sl_lnh;
	__be16 dlid_be;
	__be16 words_be; /* from the LRH to the ICRC */
	__be16 slid_be;
} __packed;

/* A GRH is an IPv6 header with other names. */
struct ibx_grh {
	__be32 version_class_flow_be;
	__be16 bytes_be;
	u8 next;
	u8 hop_limit;
	union ib_gid sgid;
	union ib_gid dgid;
} __packed;

/* The target of an address vector lies in rxe_av.dmac, which has no other use here. */
struct ibx_path {
	u8 has_grh;
	u8 sl;
	u8 path_bits;
	u8 rate;
	__be16 dlid_be;
} __packed;

static_assert(sizeof(struct ibx_path) == sizeof_field(struct rxe_av, dmac));

/* The part of a port that stock rxe does not have. */
struct ibx_port {
	struct net_device *ndev; /* borrowed: the RDMA device goes before it */
	__be64 guid_be[IBX_GUIDS];
	u16 pkey[IBX_PKEYS];
	struct delayed_work ask; /* holds ndev while it is to run */
	bool told;               /* since the link came */
};

static inline struct ibx_path *ibx_path(struct rxe_av *av)
{
	return (struct ibx_path *)av->dmac;
}

static inline struct ibx_lrh *ibx_lrh(struct sk_buff *skb)
{
	return (struct ibx_lrh *)skb_transport_header(skb);
}

static inline struct ibx_grh *ibx_grh(struct sk_buff *skb)
{
	return (struct ibx_grh *)skb_network_header(skb);
}

/* ib_link.c */
#define IBX_ICRC_HEADERS (sizeof(struct ibx_lrh) + sizeof(struct ibx_grh) + 12)
unsigned int ibx_icrc_headers(struct sk_buff *skb, struct rxe_pkt_info *pkt,
			      u8 to[IBX_ICRC_HEADERS]);
int ibx_xmit(struct sk_buff *skb);
int ibx_loopback(struct sk_buff *skb, struct rxe_pkt_info *pkt);

/* ib_port.c */
void ibx_init_port(struct rxe_dev *rxe, struct net_device *ndev);
void ibx_end_port(struct rxe_dev *rxe);
bool ibx_is_mine(struct rxe_dev *rxe, u16 dlid);
void ibx_told(struct rxe_dev *rxe, const struct ibx_control *control, unsigned int bytes);
u16 ibx_pkey(struct rxe_dev *rxe, unsigned int index);
u16 ibx_send_pkey(struct rxe_qp *qp, const struct rxe_send_wr *wr);
unsigned int ibx_pkey_index(struct rxe_qp *qp, u16 pkey);
int ibx_query_gid(struct ib_device *device, u32 port_num, int index, union ib_gid *ret_gid);

/* ib_av.c */
bool ibx_came_by(struct rxe_av *av, struct sk_buff *skb, struct rxe_pkt_info *pkt);

/* ib_apm.c */
int ibx_mig_bit(struct rxe_qp *qp);
bool ibx_apm_switch(struct rxe_qp *qp);
bool ibx_apm_receive(struct rxe_qp *qp, struct sk_buff *skb, struct rxe_pkt_info *pkt);
void ibx_apm_modify(struct rxe_qp *qp, enum ib_mig_state to);

/* rxe_net.c, made visible by `edit` */
void rxe_port_event(struct rxe_dev *rxe, enum ib_event_type event);
extern struct notifier_block rxe_net_notifier;

/* A receive completion, of a user's queue or of the kernel's: both have these fields. */
#define ibx_fill_wc(wc, rxe, pkt)                                                                  \
	do {                                                                                       \
		struct ibx_lrh *lrh = ibx_lrh(PKT_TO_SKB(pkt));                                    \
                                                                                                   \
		(wc)->wc_flags = (pkt)->mask & RXE_GRH_MASK ? IB_WC_GRH : 0;                       \
		(wc)->slid = be16_to_cpu(lrh->slid_be);                                            \
		(wc)->sl = lrh->sl_lnh >> 4;                                                       \
		(wc)->dlid_path_bits = be16_to_cpu(lrh->dlid_be) &                                 \
				       ((1u << (rxe)->port.attr.lmc) - 1);                         \
		(wc)->pkey_index = (pkt)->pkey_index;                                              \
	} while (0)

#endif
