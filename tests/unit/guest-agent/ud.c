/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Datagrams on a QP whose hardware and whose other ends are played here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/ud/ud.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/ud.h"
#include "tests/unit/guest-agent/channel_stub.h"
#include "tests/unit/guest-agent/shim_stub.h"
#include "tests/unit/guest-agent/srq_stub.h"

#define CAP      8
#define QPN      0x31 /* the hardware's */
#define VQPN     0x11
#define FAR_VQPN 0x22 /* as programs know the other end */
#define FAR_QPN  0x52 /* the hardware's there */
#define SLOT     7
#define INSTANCE 99
#define SENT_MAX 32

static const uint8_t ours[16] = {0xfe, 0x80, [15] = 1};
static const uint8_t theirs[16] = {0xfe, 0x80, [15] = 2};

struct shim_job job;
struct shim shim = {
	.slot = 3,
	.instance = 33,
	.contexts = LIST_INIT(shim.contexts),
	.cqs = LIST_INIT(shim.cqs),
	.qps = LIST_INIT(shim.qps),
	.ahs = LIST_INIT(shim.ahs),
	.partners = LIST_INIT(shim.partners),
	.ctl = PTHREAD_MUTEX_INITIALIZER,
	.call = PTHREAD_MUTEX_INITIALIZER,
};

static struct shim_qp *q;
static struct shim_cq cq;
static struct shim_context *ctx;
static struct shim_ah *ah;
static struct ibv_context real_ctx;
static struct ibv_qp real_qp;
static struct ibv_cq real_cq;
static struct ibv_ah real_ah;

/* Records of what the hardware was given and what was told to others. */
static struct ibv_send_wr hw[SENT_MAX];
static unsigned hw_sends;
static struct peer_head told[SENT_MAX];
static struct peer_qp told_qp[SENT_MAX];
static unsigned told_count;
static unsigned peers_listed;
static struct ibv_wc hw_wc;
static bool hw_has_wc;

void shim_send(const void *packet)
{
	const struct shim_relay *r = packet;

	peers_listed += r->head.type == SHIM_PEER_INFO;
	if (r->head.type != SHIM_SEND)
		return;
	memcpy(&told[told_count], r->body, sizeof(*told));
	if (told[told_count].count)
		memcpy(&told_qp[told_count], r->body + sizeof(*told), sizeof(*told_qp));
	told_count++;
}
void shim_wake_helper(void)
{
}
const struct shim_real *shim_real(void)
{
	static const struct shim_real none;

	return &none;
}
void channel_push(struct shim_channel *ch, struct shim_cq *c, enum cq_due due)
{
	(void)ch;
	(void)c;
	(void)due;
}
void peer_want(struct shim_qp *qp)
{
	(void)qp;
}
struct shim_qp *qp_by_vqpn(uint32_t vqpn)
{
	return vqpn == VQPN ? q : NULL;
}
const char *qp_type_uncovered(const struct ibv_qp_init_attr *init)
{
	(void)init;
	return NULL;
}
bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *ret)
{
	(void)ret;
	return c->guid[0] == o->vguid[0];
}
bool gid_in_order(const uint8_t gid[16], const struct shim_order *o)
{
	return gid[15] == o->vguid[0];
}

static int hw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	hw[hw_sends++] = *wr;
	return 0;
}
static int hw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	(void)wr;
	(void)bad;
	return 0;
}
static int hw_poll(struct ibv_cq *c, int n, struct ibv_wc *wc)
{
	(void)c;
	if (!n || !hw_has_wc)
		return 0;
	*wc = hw_wc;
	hw_has_wc = false;
	return 1;
}

static int setup(void **state)
{
	(void)state;
	hw_sends = told_count = 0;
	hw_has_wc = false;
	memset(&job, 0, sizeof(job));
	shim.ud_moved = shim.odd_iova = false;
	memset(&cq, 0, sizeof(cq));
	q = calloc(1, sizeof(*q));
	ah = calloc(1, sizeof(*ah));
	ctx = calloc(1, sizeof(*ctx));
	real_ctx.ops.post_send = hw_post_send;
	real_ctx.ops.post_recv = hw_post_recv;
	real_ctx.ops.poll_cq = hw_poll;
	real_qp.context = real_cq.context = &real_ctx;
	real_qp.qp_num = QPN;
	ctx->guid[0] = ours[15];
	ctx->guid_count = 1;
	list_add(&shim.contexts, &ctx->link);
	cq.ctx = q->ctx = ctx;
	cq.real = &real_cq;
	cq.last_qpn = UINT32_MAX;
	list_add(&shim.cqs, &cq.link);
	q->real = &real_qp;
	q->send_cq = q->recv_cq = &cq;
	q->v.qp_num = VQPN;
	q->v.state = IBV_QPS_RTS;
	q->v.qp_type = q->init.qp_type = IBV_QPT_UD;
	list_add(&shim.qps, &q->link);
	table_set(&ctx->qp_by_qpn, QPN, (uintptr_t)q, TABLE_MAX / TABLE_CHUNK);
	ah->real = &real_ah;
	ah->node = node_get(theirs);
	ah->node->ahs = 1;
	ah->node->alone = false;
	table_clear(&ah->node->real);
	table_clear(&ah->node->virtual);
	memcpy(ah->sgid, ours, 16);
	return ud_init(q) || queue_init(&q->send, CAP, 1, 0, true) ||
	       queue_init(&q->recv, CAP, 2, 0, false);
}

static int teardown(void **state)
{
	struct shim_partner *p;

	(void)state;
	list_for_each (p, &shim.partners, link)
		p->gone = true;
	partners_reap();
	list_del(&ctx->link);
	list_del(&cq.link);
	list_del(&q->link);
	queue_free(&q->send);
	queue_free(&q->recv);
	ud_free(q);
	table_free(&ctx->qp_by_qpn);
	free(cq.soft);
	free(ctx);
	free(ah);
	free(q);
	shim.ud_asks = 0;
	return 0;
}

static int send_to(uint32_t vqpn)
{
	struct ibv_send_wr *bad, wr = {.wr_id = vqpn, .opcode = IBV_WR_SEND};

	wr.wr.ud.ah = &ah->v;
	wr.wr.ud.remote_qpn = vqpn;
	return shim_post_send(&q->v, &wr, &bad);
}

static struct peer_head from_far(uint16_t type, uint16_t count)
{
	struct peer_head h = {.type = type,
			      .count = count,
			      .src_slot = SLOT,
			      .src_instance = INSTANCE,
			      .dst_vqpn = VQPN,
			      .src_vqpn = FAR_VQPN};

	memcpy(h.sgid, theirs, 16);
	memcpy(h.dgid, ours, 16);
	return h;
}

static void hear(uint16_t type, uint32_t dst_vqpn, uint32_t vqpn, uint32_t qpn)
{
	struct peer_head h = from_far(type, 1);
	struct peer_qp e = {.dst_vqpn = dst_vqpn, .src_vqpn = vqpn, .qpn = qpn};

	ud_delivered(&h, &e);
}

static void hear_nobody(uint32_t vqpn)
{
	struct peer_head h = from_far(PEER_GONE, 0);

	h.about = PEER_UD_RESOLVE;
	h.src_vqpn = VQPN;
	h.dst_vqpn = vqpn;
	ud_gone(&h);
}

static void the_first_datagram_asks(void **state)
{
	(void)state;
	assert_int_equal(send_to(FAR_VQPN), 0);
	assert_int_equal(send_to(FAR_VQPN), 0);
	assert_int_equal(hw_sends, 0);
	assert_int_equal(told_count, 1);
	assert_int_equal(told[0].type, PEER_UD_RESOLVE);
	assert_int_equal(told_qp[0].qpn, QPN);
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN);
	assert_int_equal(hw_sends, 2);
	assert_int_equal(hw[0].wr.ud.remote_qpn, FAR_QPN);
	assert_ptr_equal(hw[0].wr.ud.ah, &real_ah);
	assert_int_equal(send_to(FAR_VQPN), 0);
	assert_int_equal(hw_sends, 3);
	assert_int_equal(told_count, 1);
	assert_null(q->uncovered);
}

static void who_knows_us_is_told_all_the_same(void **state)
{
	(void)state;
	/* Another QP of that process was first: its number is known, but ours is not there. */
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, FAR_QPN);
	assert_int_equal(told[0].type, PEER_UD_RESOLVED);
	assert_int_equal(told_qp[0].qpn, QPN);
	assert_int_equal(send_to(FAR_VQPN), 0);
	assert_int_equal(told[1].type, PEER_UD_RESOLVE);
	assert_int_equal(hw_sends, 0);
}

static void an_answer_to_an_old_number_is_not_enough(void **state)
{
	(void)state;
	send_to(FAR_VQPN);
	real_qp.qp_num = QPN + 1; /* we have moved since */
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN);
	assert_int_equal(hw_sends, 0);
	assert_int_equal(told_count, 2);
	assert_int_equal(told_qp[1].qpn, QPN + 1);
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN);
	assert_int_equal(hw_sends, 1);
}

static void multicast_and_well_known_numbers_stay(void **state)
{
	(void)state;
	send_to(1);
	send_to(0xffffff);
	assert_int_equal(hw_sends, 2);
	assert_int_equal(hw[1].wr.ud.remote_qpn, 0xffffff);
	assert_int_equal(told_count, 0);
	ah->node = NULL;
	ah->multicast = true;
	send_to(0x500);
	ud_check_covered(q);
	assert_null(q->uncovered);
	ah->multicast = false; /* by a LID of which no GID is known */
	send_to(0x500);
	ud_check_covered(q);
	assert_non_null(q->uncovered);
}

static void a_number_of_nobody_is_named(void **state)
{
	(void)state;
	send_to(FAR_VQPN);
	hear_nobody(FAR_VQPN);
	assert_int_equal(hw_sends, 1);
	assert_int_equal(hw[0].wr.ud.remote_qpn, FAR_VQPN);
	assert_non_null(q->uncovered);
	/* The sender goes on at once, and asks again only after a while. */
	send_to(FAR_VQPN);
	assert_int_equal(hw_sends, 2);
	assert_int_equal(told_count, 1);
	atomic_store(&ah->node->asked_us, 0);
	send_to(FAR_VQPN);
	assert_int_equal(hw_sends, 3);
	assert_int_equal(told_count, 2);
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN);
	send_to(FAR_VQPN);
	assert_int_equal(hw[3].wr.ud.remote_qpn, FAR_QPN);
	assert_null(q->uncovered);
}

static void silence_is_named(void **state)
{
	(void)state;
	send_to(FAR_VQPN);
	assert_int_not_equal(ud_timeout(), -1);
	ud_step();
	assert_int_equal(hw_sends, 0);
	q->ud->ask_until_us = 1;
	ud_step();
	assert_int_equal(hw_sends, 1);
	assert_int_equal(ud_timeout(), -1);
	assert_non_null(q->uncovered);
	/* An address handle that is no more leads nowhere. */
	ah->node->ahs = 0;
	ud_check_covered(q);
	assert_null(q->uncovered);
	ah->node->ahs = 1;
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, FAR_QPN);
	ud_check_covered(q);
	assert_null(q->uncovered);
}

static void what_has_ended_is_no_reason(void **state)
{
	struct peer_head h = from_far(PEER_GONE, 0);

	(void)state;
	send_to(FAR_VQPN);
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN);
	h.about = PEER_UD_ENDED;
	h.src_vqpn = h.dst_vqpn = 0;
	h.src_instance++;
	ud_gone(&h); /* another process that had the slot */
	h.src_instance--;
	ud_gone(&h);
	send_to(FAR_VQPN);
	assert_int_equal(hw[1].wr.ud.remote_qpn, FAR_VQPN);
	assert_null(q->uncovered);
	assert_int_equal(table_get(&ah->node->virtual, FAR_QPN), 0);
}

static void hear_from_slot(uint16_t slot, uint16_t type, uint32_t vqpn, uint32_t qpn)
{
	struct peer_head h = from_far(type, 1);
	struct peer_qp e = {.dst_vqpn = VQPN, .src_vqpn = vqpn, .qpn = qpn};

	h.src_slot = slot;
	h.src_instance = INSTANCE + slot;
	ud_delivered(&h, &e);
}

/* Another process of that guest, which is a partner of ours by a number of its own. */
static void a_number_is_its_holders(void **state)
{
	const uint16_t types[] = {PEER_UD_RESOLVE, PEER_UD_RESOLVED, PEER_UD_NUMBERS, PEER_UD_BYE};

	(void)state;
	send_to(FAR_VQPN);
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN);
	hear_from_slot(SLOT + 1, PEER_UD_RESOLVE, FAR_VQPN + 1, FAR_QPN + 1);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		hear_from_slot(SLOT + 1, types[i], FAR_VQPN, 0x666);
	send_to(FAR_VQPN);
	assert_int_equal(hw[hw_sends - 1].wr.ud.remote_qpn, FAR_QPN);
	/* The asker is told that it is nobody here, and its holder is asked whether it is there. */
	told_count = 0;
	hear_from_slot(SLOT + 2, PEER_UD_RESOLVE, FAR_VQPN, 0x666);
	assert_int_equal(told_count, 1);
	assert_int_equal(told[0].type, PEER_GONE);
	assert_int_equal(told[0].dst_slot, SLOT + 2);
	struct peer_head h = from_far(PEER_GONE, 0);
	h.about = PEER_UD_ASK;
	ud_gone(&h); /* it is not: the number is free */
	hear_from_slot(SLOT + 2, PEER_UD_RESOLVE, FAR_VQPN, 0x77);
	send_to(FAR_VQPN);
	assert_int_equal(hw[hw_sends - 1].wr.ud.remote_qpn, 0x77);
}

static void numbers_may_change_places(void **state)
{
	struct peer_head h = from_far(PEER_UD_NUMBERS, 2);
	struct peer_qp e[2] = {{.src_vqpn = FAR_VQPN, .qpn = FAR_VQPN + 1},
			       {.src_vqpn = FAR_VQPN + 1, .qpn = FAR_VQPN}};

	(void)state;
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, FAR_VQPN);
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN + 1, FAR_VQPN + 1);
	assert_false(shim.ud_moved);
	told_count = 0;
	h.migration = 5;
	ud_delivered(&h, e);
	assert_true(shim.ud_moved);
	assert_int_equal(told_count, 1);
	assert_int_equal(told[0].type, PEER_UD_HAVE);
	assert_int_equal(told[0].migration, 5);
	assert_int_equal((uint32_t)table_get(&ah->node->real, FAR_VQPN), FAR_VQPN + 1);
	assert_int_equal((uint32_t)table_get(&ah->node->real, FAR_VQPN + 1), FAR_VQPN);
	assert_int_equal((uint32_t)table_get(&ah->node->virtual, FAR_VQPN), FAR_VQPN + 1);
	assert_int_equal((uint32_t)table_get(&ah->node->virtual, FAR_VQPN + 1), FAR_VQPN);
}

static uint32_t receive(const uint8_t grh[40])
{
	static uint8_t buffer[64];
	/* The GRH may lie across entries. */
	struct ibv_sge sge[2] = {{.addr = (uintptr_t)buffer, .length = 30},
				 {.addr = (uintptr_t)buffer + 30, .length = 30}};
	struct ibv_recv_wr *bad, wr = {.sg_list = sge, .num_sge = 2};
	struct ibv_wc wc;

	memcpy(buffer, grh, 40);
	assert_int_equal(shim_post_recv(&q->v, &wr, &bad), 0);
	hw_wc = (struct ibv_wc){.wr_id = TAG_RECV | (q->recv.head - 1),
				.qp_num = QPN,
				.src_qp = FAR_QPN,
				.wc_flags = IBV_WC_GRH};
	hw_has_wc = true;
	assert_int_equal(shim_poll_cq(&cq.v, 1, &wc), 1);
	return wc.src_qp;
}

static void the_sender_is_known_by_its_gid(void **state)
{
	static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 2};
	uint8_t six[40] = {0x60}, four[40] = {[20] = 0x45, [32] = 10, 0, 0, 2}, none[40] = {0};
	struct peer_head h = from_far(PEER_UD_RESOLVE, 1);
	struct peer_qp e = {.dst_vqpn = VQPN, .src_vqpn = 0x77, .qpn = FAR_QPN};

	(void)state;
	memcpy(six + 8, theirs, 16);
	assert_int_equal(receive(six), FAR_QPN);
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, FAR_QPN);
	assert_int_equal(receive(six), FAR_VQPN);
	assert_int_equal(receive(four), FAR_QPN);
	memcpy(h.sgid, mapped, 16);
	ud_delivered(&h, &e);
	assert_int_equal(receive(four), 0x77);
	assert_int_equal(receive(none), FAR_QPN);
	assert_int_equal(receive(six), FAR_VQPN);
}

static uint32_t receive_from_lid(uint16_t lid, uint16_t *ret_lid)
{
	static uint8_t buffer[64];
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = sizeof(buffer)};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_wc wc;

	assert_int_equal(shim_post_recv(&q->v, &wr, &bad), 0);
	hw_wc = (struct ibv_wc){.wr_id = TAG_RECV | (q->recv.head - 1),
				.qp_num = QPN,
				.src_qp = FAR_QPN,
				.slid = lid};
	hw_has_wc = true;
	assert_int_equal(shim_poll_cq(&cq.v, 1, &wc), 1);
	*ret_lid = wc.slid;
	return wc.src_qp;
}

static void hear_from_lid(uint16_t type, uint16_t lid, uint16_t shown)
{
	struct peer_head h = from_far(type, 1);
	struct peer_qp e = {.dst_vqpn = VQPN, .src_vqpn = FAR_VQPN, .qpn = FAR_QPN};

	h.src_lid = lid;
	h.src_vlid = shown;
	ud_delivered(&h, &e);
}

/* The program knows LID 7; by now the port has 20, then 21, which only its own word tells. */
static void the_sender_is_known_by_its_lid(void **state)
{
	uint16_t lid;

	(void)state;
	ah->node->lid = ah->node->vlid = 0;
	ah->node->lid_told = false;
	hear_from_lid(PEER_UD_RESOLVE, 20, 7);
	assert_int_equal(receive_from_lid(20, &lid), FAR_VQPN);
	assert_int_equal(lid, 7);
	assert_int_equal(receive_from_lid(8, &lid), FAR_QPN); /* somebody else's */
	assert_int_equal(lid, 8);
	node_at_lid(ah->node, 21, 7,
		    false); /* by an address handle: what came before would be lost */
	assert_int_equal(receive_from_lid(20, &lid), FAR_VQPN);
	hear_from_lid(PEER_UD_NUMBERS, 21, 7);
	assert_int_equal(receive_from_lid(21, &lid), FAR_VQPN);
	assert_int_equal(lid, 7);
	hear_from_lid(PEER_UD_NUMBERS, 0, 0); /* of a build that tells none */
	assert_int_equal(receive_from_lid(21, &lid), FAR_VQPN);
}

/* Others are known, and have had many LIDs: far more than the table of LIDs has room for. */
static void a_sender_is_found_among_many(void **state)
{
	enum { OTHERS = 600, MOVES = 20 };
	uint8_t gid[16] = {0xfe, 0x80, [13] = 1};
	uint16_t lid, at = 0;
	uint64_t start;

	(void)state;
	ah->node->lid = ah->node->vlid = 0;
	hear_from_lid(PEER_UD_RESOLVE, 20, 7);
	for (unsigned m = 0; m < MOVES; m++) {
		assert_int_equal(receive_from_lid(20 + at, &lid), FAR_VQPN);
		start = now_us();
		for (unsigned i = 0; i < 100; i++)
			assert_int_equal(receive_from_lid(9, &lid), FAR_QPN); /* of none of them */
		if (m == 0 || m == 1 || m == MOVES - 1)
			printf("# %d others, %u moves: %.2f us a datagram\n", m ? OTHERS : 0, m,
			       (double)(now_us() - start) / 100);
		for (unsigned i = 0; i < OTHERS; i++) {
			gid[14] = (uint8_t)(i >> 8);
			gid[15] = (uint8_t)i;
			node_at_lid(node_get(gid), (uint16_t)(100 + m * OTHERS + i), 1, true);
		}
		hear_from_lid(PEER_UD_NUMBERS, 20 + ++at, 7);
		assert_int_equal(receive_from_lid(20, &lid), FAR_QPN);
	}
	assert_int_equal(lid, 20);
}

static const uint8_t third[16] = {0xfe, 0x80, [15] = 3};

/* A LID stands for two ports: ah, and this one behind it. */
static struct shim_ah *second_port(struct ibv_ah *real)
{
	struct shim_ah *alt = calloc(1, sizeof(*alt));

	alt->real = real;
	alt->node = node_get(third);
	table_clear(&alt->node->real);
	memcpy(alt->sgid, ours, 16);
	ah->alt = alt;
	ah->node->ahs = 0; /* as ibv_create_ah() does: it may not be the one that is meant */
	return alt;
}

static void hear_from_third(uint16_t type, bool nobody)
{
	struct peer_head h = from_far(nobody ? PEER_GONE : type, !nobody);
	struct peer_qp e = {.dst_vqpn = VQPN, .src_vqpn = FAR_VQPN, .qpn = FAR_QPN};

	memcpy(h.sgid, third, 16);
	h.src_slot++;
	if (!nobody) {
		ud_delivered(&h, &e);
		return;
	}
	h.about = type;
	h.src_vqpn = VQPN;
	h.dst_vqpn = FAR_VQPN;
	ud_gone(&h);
}

/* Another port at the same LID was known first: numbers tell which one has sent. */
static void senders_at_one_lid_are_told_apart(void **state)
{
	struct shim_node *n = node_get(third);
	uint16_t lid;

	(void)state;
	ah->node->lid = ah->node->vlid = n->lid = n->vlid = 0;
	ah->node->lid_told = n->lid_told = false;
	node_at_lid(ah->node, 20, 9, true);
	node_at_lid(n, 20, 7, true);
	hear_from_third(PEER_UD_RESOLVE, false);
	assert_int_equal(receive_from_lid(20, &lid), FAR_VQPN);
	assert_int_equal(lid, 7);
}

static void all_ports_of_a_lid_are_asked(void **state)
{
	struct ibv_ah other_ah;
	struct shim_ah *alt = second_port(&other_ah);

	(void)state;
	send_to(FAR_VQPN);
	hear_nobody(FAR_VQPN);
	assert_int_equal(hw_sends, 0);
	assert_int_equal(told_count, 2);
	assert_memory_equal(told[1].dgid, third, 16);
	hear_from_third(PEER_UD_RESOLVED, false);
	assert_int_equal(hw_sends, 1);
	assert_ptr_equal(hw[0].wr.ud.ah, &other_ah);
	assert_int_equal(hw[0].wr.ud.remote_qpn, FAR_QPN);
	ud_check_covered(q);
	assert_null(q->uncovered);
	free(alt);
}

static void a_number_that_two_ports_have_is_named(void **state)
{
	struct ibv_ah other_ah;
	struct shim_ah *alt = second_port(&other_ah);

	(void)state;
	send_to(FAR_VQPN);
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN);
	hear_from_third(PEER_UD_RESOLVED, false);
	assert_int_equal(hw_sends, 1);
	ud_check_covered(q);
	assert_non_null(strstr(q->uncovered, "two VMs"));
	free(alt);
}

static void a_number_that_no_port_has_is_named(void **state)
{
	struct ibv_ah other_ah;
	struct shim_ah *alt = second_port(&other_ah);

	(void)state;
	send_to(FAR_VQPN);
	hear_nobody(FAR_VQPN);
	hear_from_third(PEER_UD_RESOLVE, true);
	assert_int_equal(hw_sends, 1);
	ud_check_covered(q);
	assert_non_null(strstr(q->uncovered, "by LID alone"));
	free(alt);
}

/* A port without a vGUID may have the LID, too: a datagram must not go to where a VM is by now that
 * once had it. */
static void a_number_that_no_port_has_goes_to_the_lid(void **state)
{
	struct ibv_ah other_ah, plain_ah;
	struct shim_ah *alt = second_port(&other_ah), plain = {.real = &plain_ah};

	(void)state;
	alt->alt = &plain;
	send_to(FAR_VQPN);
	hear_nobody(FAR_VQPN);
	hear_from_third(PEER_UD_RESOLVE, true);
	assert_int_equal(hw_sends, 1);
	assert_ptr_equal(hw[0].wr.ud.ah, &plain_ah);
	assert_int_equal(hw[0].wr.ud.remote_qpn, FAR_VQPN);
	atomic_store(&alt->node->asked_us, 0); /* its ports are asked all the same */
	send_to(FAR_VQPN);
	hear_from_third(PEER_UD_RESOLVED, false);
	send_to(FAR_VQPN);
	assert_ptr_equal(hw[hw_sends - 1].wr.ud.ah, &other_ah);
	free(alt);
}

/* A QP there was known, and is no more: its sender is no less covered. */
static void what_has_ended_at_a_shared_lid_is_no_reason(void **state)
{
	struct ibv_ah other_ah;
	struct shim_ah *alt = second_port(&other_ah);

	(void)state;
	send_to(FAR_VQPN);
	hear_nobody(FAR_VQPN);
	hear_from_third(PEER_UD_RESOLVED, false);
	node_forget(alt->node, FAR_VQPN, NODE_ENDED);
	send_to(FAR_VQPN);
	assert_int_equal(hw_sends, 2);
	assert_ptr_equal(hw[1].wr.ud.ah, &other_ah);
	ud_check_covered(q);
	assert_null(q->uncovered);
	free(alt);
}

/* A program may open a device twice, as two libraries in one process do. */
static void numbers_of_each_context_are_told(void **state)
{
	struct shim_context *first = calloc(1, sizeof(*first));

	(void)state;
	*first = (struct shim_context){.guid = {ours[15]}, .guid_count = 1};
	list_del(&ctx->link);
	list_add(&shim.contexts, &first->link);
	list_add(&shim.contexts, &ctx->link);
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, FAR_QPN);
	peers_listed = told_count = 0;
	hear(PEER_UD_ASK, 0, 0, 0);
	assert_int_equal(told[0].type, PEER_UD_NUMBERS);
	assert_int_equal(told[0].count, 1);
	assert_int_equal(told_qp[0].qpn, QPN);
	ud_describe(1);
	assert_int_equal(peers_listed, 1);
	told_count = 0;
	ud_bye(q);
	assert_int_equal(told_count, 1);
	assert_int_equal(told[0].type, PEER_UD_BYE);
	list_del(&first->link);
	free(first);
}

static void a_mover_answers_later(void **state)
{
	(void)state;
	job.state = JOB_DRAIN;
	job.role = SHIM_ROLE_MOVER;
	job.order.vguid[0] = ours[15];
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, FAR_QPN);
	assert_int_equal(told[0].type, PEER_UD_BUSY);
	job.state = JOB_IDLE;
	real_qp.qp_num = QPN + 5;
	ud_answer_deferred();
	assert_int_equal(told[1].type, PEER_UD_RESOLVED);
	assert_int_equal(told_qp[1].qpn, QPN + 5);
}

static void strange_packets_change_nothing(void **state)
{
	(void)state;
	hear(PEER_UD_RESOLVED, VQPN, FAR_VQPN, FAR_QPN); /* not asked */
	hear(PEER_UD_NUMBERS, 0, FAR_VQPN, FAR_QPN);     /* from a stranger */
	assert_int_equal(table_get(&ah->node->real, FAR_VQPN), 0);
	assert_int_equal(told[0].type, PEER_GONE);
	hear(PEER_UD_RESOLVE, VQPN + 1, FAR_VQPN, FAR_QPN); /* for nobody */
	assert_int_equal(told[1].type, PEER_GONE);
	assert_int_equal(told[1].src_vqpn, FAR_VQPN);
	hear(PEER_UD_RESOLVE, VQPN, 0x1000000, FAR_QPN);
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, 0xff000000);
	assert_int_equal(table_get(&ah->node->real, FAR_VQPN), 0);
	hear(PEER_UD_BYE, 0, 0xffffffff, 0);
	hear(PEER_UD_NUMBERS, 0, 0xffffffff, 1);
	hear(PEER_UD_DRAINED, 0, 0, 0);
	hear(200, 0, 0, 0);
	assert_int_equal(hw_sends, 0);
}

/* A VM that is destroyed says nothing; its GID must not be asked for a suspend for ever. */
static void a_guest_that_is_gone_is_no_peer(void **state)
{
	(void)state;
	hear(PEER_UD_RESOLVE, VQPN, FAR_VQPN, FAR_QPN);
	peers_listed = told_count = 0;
	ud_describe(1);
	ud_describe(1);
	assert_int_equal(peers_listed, 2);
	assert_int_equal(told_count, 1);
	assert_int_equal(told[0].type, PEER_UD_ASK);
	ud_unreachable(theirs);
	ud_describe(1);
	assert_int_equal(peers_listed, 2);
	assert_int_equal((uint32_t)table_get(&ah->node->real, FAR_VQPN), FAR_QPN);
	hear(PEER_UD_NUMBERS, 0, FAR_VQPN, FAR_QPN); /* the number was only the way there */
	ud_describe(1);
	assert_int_equal(peers_listed, 3);
	hear(PEER_UD_BYE, 0, FAR_VQPN, 0);
	ud_describe(1);
	assert_int_equal(peers_listed, 3);
}

static void many_numbers_are_remembered(void **state)
{
	(void)state;
	for (uint32_t i = 2; i < 1000; i++)
		assert_int_equal(ud_tell(q->ud, ud_key(ah->node, i)), 0);
	for (uint32_t i = 2; i < 2000; i++)
		assert_int_equal(ud_told(q->ud, ud_key(ah->node, i)), i < 1000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_first_datagram_asks),
		T(who_knows_us_is_told_all_the_same),
		T(an_answer_to_an_old_number_is_not_enough),
		T(multicast_and_well_known_numbers_stay),
		T(a_number_of_nobody_is_named),
		T(silence_is_named),
		T(what_has_ended_is_no_reason),
		T(a_number_is_its_holders),
		T(numbers_may_change_places),
		T(the_sender_is_known_by_its_gid),
		T(the_sender_is_known_by_its_lid),
		T(a_sender_is_found_among_many),
		T(senders_at_one_lid_are_told_apart),
		T(all_ports_of_a_lid_are_asked),
		T(a_number_that_two_ports_have_is_named),
		T(a_number_that_no_port_has_is_named),
		T(a_number_that_no_port_has_goes_to_the_lid),
		T(what_has_ended_at_a_shared_lid_is_no_reason),
		T(numbers_of_each_context_are_told),
		T(a_mover_answers_later),
		T(strange_packets_change_nothing),
		T(a_guest_that_is_gone_is_no_peer),
		T(many_numbers_are_remembered),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
