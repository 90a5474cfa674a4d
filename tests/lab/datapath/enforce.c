/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/datapath/enforce.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/lab/netlink.h"
#include "tests/lab/rxe/ib_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <string.h>

#define FULL_MEMBER 0x8000
#define PRIORITY    1
#define HANDLE      1

/* Offsets in a frame: Ethernet, LRH (8 bytes), GRH (40 bytes) where the LRH says so, BTH. */
#define AT_TYPE     12
#define AT_LNH      (ETH_HLEN + 1)
#define AT_PKEY     (ETH_HLEN + 8 + 2)
#define AT_PKEY_GRH (AT_PKEY + 40)
#define LNH_MASK    3
#define LNH_GRH     3

#define HEAD_OPS 9 /* before the P_Keys */
#define OPS_MAX  (HEAD_OPS + 2 * FABRIC_PKEYS_MAX + 2)

/* The values that a packet may have for an entry of the table. */
static unsigned allowed(uint16_t pkey, uint16_t ret_values[2])
{
	ret_values[0] = pkey;
	ret_values[1] = pkey & (uint16_t)~FULL_MEMBER;
	return !pkey ? 0 : pkey & FULL_MEMBER ? 2 : 1;
}

static unsigned make_filter(const uint16_t pkeys[FABRIC_PKEYS_MAX], struct sock_filter ops[OPS_MAX])
{
	uint16_t values[2 * FABRIC_PKEYS_MAX];
	unsigned n = 0, drop, pass;

	for (unsigned i = 0; i < FABRIC_PKEYS_MAX; i++)
		n += allowed(pkeys[i], values + n);
	drop = HEAD_OPS + n;
	pass = drop + 1;
	const struct sock_filter head[HEAD_OPS] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, AT_TYPE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IBX_ETH_CONTROL, (uint8_t)(drop - 2), 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IBX_ETH_PACKET, 0, (uint8_t)(pass - 3)),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, AT_LNH),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, LNH_MASK),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LNH_GRH, 2, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, AT_PKEY),
		BPF_STMT(BPF_JMP | BPF_JA, 1),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, AT_PKEY_GRH),
	};
	memcpy(ops, head, sizeof(head));
	for (unsigned i = 0; i < n; i++)
		ops[HEAD_OPS + i] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(pass - (HEAD_OPS + i) - 1),
			0);
	ops[drop] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, TC_ACT_SHOT);
	ops[pass] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, TC_ACT_OK);
	return pass + 1;
}

static int add_qdisc(const struct fdb *b, int ifindex)
{
	struct tcmsg tc = {.tcm_ifindex = ifindex,
			   .tcm_handle = TC_H_MAKE(TC_H_CLSACT, 0),
			   .tcm_parent = TC_H_CLSACT};
	struct nl_msg m;
	int r;

	nl_msg_init(&m, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &tc, sizeof(tc));
	nl_msg_put_str(&m, TCA_KIND, "clsact");
	r = nl_call(b->calls, &m);
	return r == -EEXIST ? 0 : r;
}

static int set_filter(const struct fdb *b, int ifindex, const uint16_t pkeys[FABRIC_PKEYS_MAX])
{
	struct tcmsg tc = {.tcm_ifindex = ifindex,
			   .tcm_handle = HANDLE,
			   .tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS),
			   .tcm_info = TC_H_MAKE(PRIORITY << 16, htons(ETH_P_ALL))};
	struct sock_filter ops[OPS_MAX];
	uint16_t count = (uint16_t)make_filter(pkeys, ops);
	struct rtattr *options;
	struct nl_msg m;

	nl_msg_init(&m, RTM_NEWTFILTER, NLM_F_CREATE, &tc, sizeof(tc));
	nl_msg_put_str(&m, TCA_KIND, "bpf");
	options = nl_nest(&m, TCA_OPTIONS);
	nl_msg_put(&m, TCA_BPF_OPS_LEN, &count, sizeof(count));
	nl_msg_put(&m, TCA_BPF_OPS, ops, count * sizeof(ops[0]));
	nl_msg_put_u32(&m, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
	nl_nest_end(&m, options);
	return nl_call(b->calls, &m);
}

/* The tap's place, also of one that has just come, without P_Keys; NULL: there is no room. A place
 * whose tap has gone is taken again, since the kernel counts interfaces up. */
static struct enforce_tap *place(struct enforce *e, int ifindex)
{
	for (int i = 0; i < e->count; i++)
		if (e->taps[i].ifindex == ifindex)
			return &e->taps[i];
	if (e->count == ENFORCE_TAPS) {
		memmove(e->taps, e->taps + 1, sizeof(e->taps) - sizeof(e->taps[0]));
		e->count--;
	}
	e->taps[e->count] = (struct enforce_tap){.pkeys = {0}};
	return &e->taps[e->count++];
}

void enforce_set(struct enforce *e, const struct fdb *b, const struct fdb_port *tap,
		 const uint16_t pkeys[FABRIC_PKEYS_MAX])
{
	struct enforce_tap *t = place(e, tap->ifindex);
	char text[6 * FABRIC_PKEYS_MAX + FABRIC_PKEYS_MAX + 1] = "";
	size_t n = 0;
	int r;

	if (t->ifindex && !memcmp(t->pkeys, pkeys, sizeof(t->pkeys)))
		return;
	r = add_qdisc(b, tap->ifindex);
	if (!r)
		r = set_filter(b, tap->ifindex, pkeys);
	for (unsigned i = 0; i < FABRIC_PKEYS_MAX; i++)
		if (pkeys[i])
			n += (size_t)snprintf(text + n, sizeof(text) - n, " 0x%04x", pkeys[i]);
	if (r) {
		log_warn("%s: P_Keys of %s cannot be enforced: %s", b->host, tap->name,
			 strerror(-r));
		e->count -= !t->ifindex;
		return;
	}
	log_info("%s: %s may send with%s", b->host, tap->name, n ? text : " no P_Key");
	t->ifindex = tap->ifindex;
	memcpy(t->pkeys, pkeys, sizeof(t->pkeys));
}
