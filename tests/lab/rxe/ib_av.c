// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Address vectors with a LID, and with a GRH only where the program gave one. */
#include <linux/module.h>

#include "rxe.h"
#include "rxe_loc.h"

static bool check_slid = true;
module_param(check_slid, bool, 0644);
MODULE_PARM_DESC(check_slid, "drop packets of a connection whose SLID is not its path's (IBA "
			     "9.6.1.5); some HCAs do not");

void rxe_init_av(struct rdma_ah_attr *attr, struct rxe_av *av)
{
	rxe_av_from_attr(rdma_ah_get_port_num(attr), av, attr);
}

static int check_attr(struct rdma_ah_attr *attr)
{
	if (attr->type != RDMA_AH_ATTR_TYPE_IB)
		return -EINVAL;
	if (!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH))
		return 0;
	return rdma_ah_read_grh(attr)->sgid_index < IBX_GUIDS ? 0 : -EINVAL;
}

#if IBX_NEW_RXE
int rxe_av_chk_attr(struct rxe_qp *qp, struct rdma_ah_attr *attr)
{
	return check_attr(attr);
}

int rxe_ah_chk_attr(struct rxe_ah *ah, struct rdma_ah_attr *attr)
{
	return check_attr(attr);
}
#else
int rxe_av_chk_attr(struct rxe_dev *rxe, struct rdma_ah_attr *attr)
{
	return check_attr(attr);
}
#endif

void rxe_av_from_attr(u8 port_num, struct rxe_av *av, struct rdma_ah_attr *attr)
{
	struct ibx_path *path = ibx_path(av);

	memset(av, 0, sizeof(*av));
	av->port_num = port_num;
	path->sl = rdma_ah_get_sl(attr);
	path->path_bits = rdma_ah_get_path_bits(attr);
	path->rate = rdma_ah_get_static_rate(attr);
	path->dlid_be = cpu_to_be16(rdma_ah_get_dlid(attr));
	path->has_grh = !!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH);
	if (path->has_grh) {
		const struct ib_global_route *grh = rdma_ah_read_grh(attr);

		memcpy(av->grh.dgid.raw, grh->dgid.raw, sizeof(av->grh.dgid.raw));
		av->grh.flow_label = grh->flow_label;
		av->grh.sgid_index = grh->sgid_index;
		av->grh.hop_limit = grh->hop_limit;
		av->grh.traffic_class = grh->traffic_class;
	}
}

void rxe_av_to_attr(struct rxe_av *av, struct rdma_ah_attr *attr)
{
	const struct ibx_path *path = ibx_path(av);

	attr->type = RDMA_AH_ATTR_TYPE_IB;
	rdma_ah_set_port_num(attr, av->port_num);
	rdma_ah_set_sl(attr, path->sl);
	rdma_ah_set_path_bits(attr, path->path_bits);
	rdma_ah_set_static_rate(attr, path->rate);
	rdma_ah_set_dlid(attr, be16_to_cpu(path->dlid_be));
	rdma_ah_set_ah_flags(attr, path->has_grh ? IB_AH_GRH : 0);
	if (path->has_grh)
		rdma_ah_set_grh(attr, (union ib_gid *)av->grh.dgid.raw, av->grh.flow_label,
				av->grh.sgid_index, av->grh.hop_limit, av->grh.traffic_class);
}

/* A connection takes packets only from where it sends to. */
bool ibx_came_by(struct rxe_av *av, struct sk_buff *skb, struct rxe_pkt_info *pkt)
{
	const struct ibx_path *path = ibx_path(av);

	if (READ_ONCE(check_slid) && ibx_lrh(skb)->slid_be != path->dlid_be)
		return false;
	if (!path->has_grh != !(pkt->mask & RXE_GRH_MASK))
		return false;
	return !path->has_grh ||
	       !memcmp(ibx_grh(skb)->sgid.raw, av->grh.dgid.raw, sizeof(av->grh.dgid.raw));
}
