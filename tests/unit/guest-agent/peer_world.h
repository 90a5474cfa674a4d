/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A process with two QPs and a region: what test_guest_peer and fuzz_peer stand on. To be included
 * once in a program; shim/deliver.c, shim/peer/peer.c and shim/core/table.c are the real ones. */
#ifndef IBVMIG_TESTS_PEER_WORLD_H
#define IBVMIG_TESTS_PEER_WORLD_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/deliver.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/lid.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/repath/repath.h"
#include "guest-agent/shim/ud/ud.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/post.h"

#define VQPN_A  0x11
#define VQPN_B  0x12
#define THEIRS  0x22 /* the virtual QPN of the other end */
#define RKEY    0x3400
#define HW_RKEY 0x7700

static const uint8_t our_gid[16] = {0xfe, 0x80, [15] = 1};
static const uint8_t their_gid[16] = {0xfe, 0x80, [15] = 2};
static const uint8_t stranger_gid[16] = {0xfe, 0x80, [15] = 3};

struct shim shim;
const struct shim_part *const shim_parts[] = {&deliver_part, NULL};
static struct shim_qp world_qp[2];
static struct shim_mr world_mr;
static struct shim_pd world_pd;
static struct shim_context world_ctx;
static struct ibv_qp world_real_qp;
static struct ibv_mr world_real_mr;

/* Records of what was told, and to whom. */
static struct {
	unsigned sent, events, keys;
	unsigned changes; /* words about paths */
	unsigned windows; /* windows with keys to tell */
	unsigned windows_again;
	unsigned drops;
	size_t bytes; /* size of all that was sent */
	unsigned last_event;
	struct peer_head last;
	struct peer_qp last_qp; /* the first of the last packet about QPs */
	struct peer_key last_key;
} world;

const struct shim_real *shim_real(void)
{
	static const struct shim_real none;

	return &none;
}
void ctl_enter(void)
{
}
void ctl_exit(void)
{
}
void shim_log(const char *fmt, ...)
{
	(void)fmt;
}
bool shim_await_agent(unsigned ms)
{
	(void)ms;
	return false;
}

void shim_send(const void *packet)
{
	const struct shim_relay *r = packet;

	if (r->head.bytes > SHIM_MSG_MAX || r->head.bytes < sizeof(*r) + sizeof(struct peer_head))
		abort();
	world.sent++;
	world.bytes += r->head.bytes;
	memcpy(&world.last, r->body, sizeof(world.last));
	if (world.last.count && r->head.bytes == sizeof(*r) + sizeof(world.last) +
							 world.last.count * sizeof(world.last_qp))
		memcpy(&world.last_qp, r->body + sizeof(world.last), sizeof(world.last_qp));
	if (world.last.count && peer_entry_bytes(world.last.type) == sizeof(world.last_key))
		memcpy(&world.last_key, r->body + sizeof(world.last), sizeof(world.last_key));
	if (world.last.type == PEER_KEYS)
		world.keys += world.last.count;
	if (world.last.type == PEER_KEYS_DROP)
		world.drops++;
}
bool job_concerns(const struct shim_qp *q, const uint8_t dgid[16])
{
	(void)q;
	(void)dgid;
	return false;
}
void job_qp_event(struct shim_qp *q, unsigned type, uint64_t migration, const struct peer_qp *e)
{
	(void)q;
	(void)migration;
	(void)e;
	world.events++;
	world.last_event = type;
}
void change_heard(struct shim_qp *q, unsigned type, uint64_t round, const struct peer_qp *e)
{
	(void)q;
	(void)type;
	(void)round;
	(void)e;
	world.changes++;
}
void shim_wake_helper(void)
{
}
void send_flush(struct shim_qp *q)
{
	(void)q;
}
struct shim_qp *qp_by_vqpn(uint32_t vqpn)
{
	return (struct shim_qp *)(uintptr_t)table_get(&shim.qp_by_vqpn, vqpn);
}
struct shim_route *route_get(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey)
{
	(void)sgid;
	(void)dgid;
	(void)pkey;
	return NULL;
}
void cm_peer_disconnected(const struct peer_head *h, const struct peer_qp *e)
{
	(void)h;
	(void)e;
}
#ifndef PEER_WORLD_UD /* or the real ones */
void ud_delivered(const struct peer_head *h, const struct peer_qp *entries)
{
	(void)h;
	(void)entries;
}
void ud_gone(const struct peer_head *h)
{
	(void)h;
}
void ud_unreachable(const uint8_t gid[16])
{
	(void)gid;
}
#endif
unsigned mw_keys(const struct shim_qp *q, bool again, struct peer_key *keys, unsigned room,
		 unsigned *skip)
{
	unsigned n = 0, of = again ? world.windows_again : world.windows;

	(void)q;
	for (; *skip < of && n < room; n++)
		keys[n] = (struct peer_key){0x100 + (*skip)++, 0x200};
	return n;
}
bool mw_bound_again(void)
{
	return world.windows_again != 0;
}
void mw_told(void)
{
	world.windows_again = 0;
}
bool mw_key(const struct shim_qp *q, uint32_t rkey, uint32_t *ret_key)
{
	(void)q;
	(void)rkey;
	(void)ret_key;
	return true;
}
void route_renew(struct shim_route *r)
{
	(void)r;
}
int lid_find_ends(const struct shim_context *c, uint8_t port, uint16_t lid, uint16_t pkey,
		  bool anew, struct lid_ends *ret_ends)
{
	(void)c;
	(void)port;
	(void)lid;
	(void)pkey;
	(void)anew;
	(void)ret_ends;
	return -EHOSTUNREACH;
}
void route_ask(struct shim_route *r, bool reconnect)
{
	(void)r;
	(void)reconnect;
}

static void world_begin(void)
{
	memset(&world, 0, sizeof(world));
	memset(world_qp, 0, sizeof(world_qp));
	memset(&world_mr, 0, sizeof(world_mr));
	shim = (struct shim){.agent = -1,
			     .slot = 1,
			     .instance = 101,
			     .ctl = PTHREAD_MUTEX_INITIALIZER,
			     .ctl_changed = PTHREAD_COND_INITIALIZER,
			     .call = PTHREAD_MUTEX_INITIALIZER,
			     .call_done = PTHREAD_COND_INITIALIZER};
	list_init(&shim.qps);
	list_init(&shim.mrs);
	list_init(&shim.srqs);
	list_init(&shim.peers);
	list_init(&shim.untold);
	world_real_qp.qp_num = 0x91;
	world_real_mr.rkey = HW_RKEY;
	world_pd.ctx = &world_ctx;
	for (unsigned i = 0; i < 2; i++) {
		struct shim_qp *q = &world_qp[i];

		q->ctx = &world_ctx;
		q->real = &world_real_qp;
		q->v.qp_num = VQPN_A + i;
		q->v.state = IBV_QPS_INIT;
		q->v.pd = &world_pd.v;
		list_init(&q->untold);
		list_add(&shim.qps, &q->link);
		table_set(&shim.qp_by_vqpn, q->v.qp_num, (uintptr_t)q, TABLE_MAX / TABLE_CHUNK);
	}
	world_mr.pd = &world_pd;
	world_mr.real = &world_real_mr;
	world_mr.v.rkey = world_mr.v.lkey = RKEY;
	list_add(&shim.mrs, &world_mr.link);
}

/* A QP that has asked for its other end, which is at their_gid. */
static inline void world_asks(struct shim_qp *q)
{
	memcpy(q->sgid, our_gid, 16);
	memcpy(q->dgid, their_gid, 16);
	q->dvqpn = q->dqpn = THEIRS;
	q->connected = true;
	q->resolve = RESOLVE_WAITS;
}

static inline unsigned world_peers(void)
{
	struct shim_peer *p;
	unsigned n = 0;

	list_for_each (p, &shim.peers, link)
		n++;
	return n;
}

static void world_end(void)
{
	for (unsigned i = 0; i < 2; i++)
		world_qp[i].phase = QP_LIVE;
	parts_answer();
	while (shim.peers.next != &shim.peers) {
		struct shim_peer *p = list_entry(shim.peers.next, struct shim_peer, link);
		struct shim_table *srqns = atomic_load(&p->srqns);

		list_del(&p->link);
		table_free(&p->keys);
		if (srqns)
			table_free(srqns);
		free(srqns);
		free(p->told);
		free(p);
	}
	table_free(&shim.qp_by_vqpn);
	table_free(&shim.srqns);
}

/* As peer_connect() leaves a QP that has had its answer. */
static inline void world_connected(struct shim_qp *q)
{
	q->resolved = true;
	list_del(&q->untold);
	list_add(&shim.untold, &q->untold);
	parts_step();
}

/* As the agent hands it over. entries: of bytes in all. */
static void world_deliver(const struct peer_head *h, const void *entries, size_t bytes)
{
	static union {
		struct shim_relay relay;
		char data[SHIM_MSG_MAX];
	} in;

	in.relay.head = (struct shim_head){
		.bytes = (uint32_t)(sizeof(in.relay) + sizeof(*h) + bytes), .type = SHIM_DELIVER};
	memcpy(in.relay.body, h, sizeof(*h));
	if (bytes)
		memcpy(in.relay.body + sizeof(*h), entries, bytes);
	peer_delivered(&in.relay);
}

#endif
