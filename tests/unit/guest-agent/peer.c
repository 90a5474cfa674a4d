/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packets of peers that lie: numbers out of range, counts that do not fit, other people's QPs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "guest-agent/shim/verbs/keys.h"
#include "tests/unit/guest-agent/peer_world.h"

#define CHUNK_KEYS (TABLE_CHUNK << 8) /* key numbers in one chunk of a table */

static int setup(void **state)
{
	(void)state;
	world_begin();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	world_end();
	return 0;
}

static struct peer_head head(uint16_t type, uint16_t count, const uint8_t from[16], uint16_t slot,
			     uint64_t instance)
{
	struct peer_head h = {.version = PEER_PROTO_VERSION,
			      .type = type,
			      .count = count,
			      .dst_slot = 1,
			      .dst_instance = 101,
			      .src_slot = slot,
			      .src_instance = instance,
			      .dst_vqpn = VQPN_A,
			      .src_vqpn = THEIRS};

	memcpy(h.sgid, from, 16);
	memcpy(h.dgid, our_gid, 16);
	return h;
}

static void say_qp(uint16_t type, const uint8_t from[16], uint64_t instance, struct peer_qp e)
{
	struct peer_head h = head(type, 1, from, 7, instance);

	world_deliver(&h, &e, sizeof(e));
}

static void say_keys(const uint8_t from[16], uint64_t instance, const struct peer_key *keys,
		     uint16_t n)
{
	struct peer_head h = head(PEER_KEYS, n, from, 7, instance);

	world_deliver(&h, keys, n * sizeof(*keys));
}

static void say_srqn(const uint8_t from[16], uint32_t srqn, uint32_t real)
{
	struct peer_head h = head(PEER_SRQS, 1, from, 7, 107);
	const struct peer_key n = {srqn, real};

	world_deliver(&h, &n, sizeof(n));
}

static void say_gone(const uint8_t from[16], uint16_t about, uint32_t src_vqpn, uint32_t dst_vqpn)
{
	struct peer_head h = head(PEER_GONE, 0, from, 7, 107);

	h.about = about;
	h.src_vqpn = src_vqpn;
	h.dst_vqpn = dst_vqpn;
	world_deliver(&h, NULL, 0);
}

/* A is connected to THEIRS of instance 107. */
static struct shim_qp *connected(void)
{
	struct shim_qp *q = &world_qp[0];

	world_asks(q);
	say_qp(PEER_RESOLVED, their_gid, 107,
	       (struct peer_qp){.dst_vqpn = VQPN_A, .src_vqpn = THEIRS, .qpn = 0x55});
	assert_int_equal(q->resolve, RESOLVE_DONE);
	assert_non_null(q->peer);
	world_connected(q);
	return q;
}

static void an_answer_connects(void **state)
{
	const struct peer_key key = {0x5600, 0x4400};
	struct shim_qp *q = &world_qp[0];
	uint32_t hw = 0;

	(void)state;
	world_asks(q);
	say_keys(their_gid, 107, &key, 1); /* of whichever process there */
	assert_int_equal(world_peers(), 0);
	connected();
	assert_int_equal(q->dqpn, 0x55);
	say_keys(their_gid, 107, &key, 1);
	assert_true(key_get(&q->peer->keys, 0x5600, &hw));
	assert_int_equal(hw, 0x4400);
	assert_int_equal(world_peers(), 1);
}

static void say_from_lid(uint16_t type, uint16_t known)
{
	const struct peer_qp e = {.dst_vqpn = VQPN_A, .src_vqpn = THEIRS, .qpn = 0x55};
	struct peer_head h = head(type, 1, their_gid, 7, 107);

	h.src_vlid = known;
	world_deliver(&h, &e, sizeof(e));
}

/* The number is that of a QP there whose program has told another LID: another port is meant. */
static void a_qp_of_another_lid_is_not_the_one(void **state)
{
	static const struct {
		uint16_t asked, known;
		bool found;
	} cases[] = {{20, 20, true}, {20, 21, false}, {20, 0, true}, {0, 21, true}};
	struct shim_qp *q = &world_qp[0];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (uint16_t type = PEER_RESOLVE; type <= PEER_RESOLVED; type++) {
			world_asks(q);
			q->asked_lid = cases[i].asked;
			say_from_lid(type, cases[i].known);
			assert_int_equal(q->resolve == RESOLVE_DONE, cases[i].found);
		}
		assert_int_equal(q->resolve == RESOLVE_GONE, !cases[i].found);
	}
	world_ctx.lids[0].seen = 33;
	q->attr.port_num = 1;
	peer_send_qp(q, PEER_RESOLVE, 0);
	assert_int_equal(world.last.src_vlid, 33);
	say_from_lid(PEER_RESOLVE, 0);
	assert_int_equal(world.last.type, PEER_RESOLVED);
	assert_int_equal(world.last.src_vlid, 33);
	world_ctx.lids[0].seen = 0;
}

static void numbers_beyond_24_bits_are_no_qps(void **state)
{
	struct shim_qp *q = &world_qp[0];
	const uint32_t wrong[] = {SHIM_QPN_MAX + 1, UINT32_MAX, 0x80000011};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		for (uint16_t type = 0; type < 48; type++)
			say_qp(type, their_gid, 107,
			       (struct peer_qp){.dst_vqpn = wrong[i], .src_vqpn = wrong[i]});
		say_gone(their_gid, PEER_DRAINED, wrong[i], wrong[i]);
	}
	assert_int_equal(world.events, 0);
	world_asks(q);
	say_qp(PEER_RESOLVED, their_gid, 107,
	       (struct peer_qp){.dst_vqpn = VQPN_A, .src_vqpn = THEIRS, .qpn = SHIM_QPN_MAX + 1});
	assert_int_equal(q->resolve, RESOLVE_GONE);
	/* only 24 bits of such a number from an asker are believed */
	say_qp(PEER_RESOLVE, their_gid, 107,
	       (struct peer_qp){.dst_vqpn = VQPN_B, .src_vqpn = 1, .qpn = UINT32_MAX});
	assert_true(world_qp[1].dqpn <= SHIM_QPN_MAX);
}

/* Returns whether PEER_FROZEN tells the number of messages that have come. */
static bool says_counted(struct shim_qp *q)
{
	peer_send_qp(q, PEER_FROZEN, 1);
	assert_int_equal(world.last.type, PEER_FROZEN);
	assert_int_equal(world.last_qp.received, atomic_load(&q->recv.tail));
	return world.last_qp.flags & PEER_COUNTED;
}

/* Several ports at a LID are asked for a number, and others may ask for anything. */
static void a_stranger_that_asks_does_not_end_the_count(void **state)
{
	const struct peer_qp e = {.dst_vqpn = VQPN_A, .src_vqpn = THEIRS, .qpn = 0x55};
	struct shim_qp *q = connected();

	(void)state;
	atomic_store(&q->recv.tail, 3);
	say_qp(PEER_RESOLVE, stranger_gid, 108, e);
	assert_true(says_counted(q));
}

/* An end that connects once more begins to count, and ours has counted before. */
static void a_count_that_goes_on_is_not_told(void **state)
{
	const struct peer_qp again = {.dst_vqpn = VQPN_A, .src_vqpn = THEIRS, .qpn = 0x55};
	struct shim_qp *q = connected();

	(void)state;
	say_qp(PEER_RESOLVE, their_gid, 107, again); /* nothing has come so far */
	assert_true(says_counted(q));
	assert_true(world.last_qp.recv_posted == UINT64_MAX);
	atomic_store(&q->recv.tail, 3);
	assert_true(says_counted(q));
	say_qp(PEER_RESOLVE, their_gid, 107, again);
	assert_false(says_counted(q));
	/* The receives that the hardware has got are a limit only when no more come. */
	q->recv.posted = 8;
	q->told_frozen = true;
	says_counted(q);
	assert_int_equal(world.last_qp.recv_posted, 8);
}

static void counts_must_fit_the_bytes(void **state)
{
	struct peer_qp e[2] = {{.dst_vqpn = VQPN_A, .src_vqpn = THEIRS}};
	struct peer_head h;

	(void)state;
	connected();
	for (uint16_t type = 0; type < 40; type++) {
		for (unsigned count = 0; count < 5; count++) {
			h = head(type, (uint16_t)(count < 4 ? count : UINT16_MAX), their_gid, 7,
				 107);
			for (size_t bytes = 0; bytes < sizeof(e); bytes++)
				if (bytes != count * sizeof(e[0]))
					world_deliver(&h, e, bytes);
		}
	}
	assert_int_equal(world.events, 0);
}

static void types_of_other_builds_are_ignored(void **state)
{
	(void)state;
	connected();
	for (unsigned type = PEER_PREPARED + 1; type < 70; type++)
		say_qp((uint16_t)type, their_gid, 107,
		       (struct peer_qp){.dst_vqpn = VQPN_A, .src_vqpn = THEIRS});
	say_qp(0, their_gid, 107, (struct peer_qp){.dst_vqpn = VQPN_A, .src_vqpn = THEIRS});
	assert_int_equal(world.events, 0);
	assert_int_equal(world.changes, PEER_PATH_ABORT - PEER_PATH_HOLD + 1);
	say_qp(PEER_FREEZE, their_gid, 107,
	       (struct peer_qp){.dst_vqpn = VQPN_A, .src_vqpn = THEIRS});
	assert_int_equal(world.events, 1);
}

static void strangers_say_nothing_of_our_qps(void **state)
{
	const struct peer_qp e = {.dst_vqpn = VQPN_A, .src_vqpn = THEIRS, .qpn = 0x66};
	struct shim_qp *q = connected();
	struct shim_peer *peer = q->peer;

	(void)state;
	for (uint16_t type = PEER_RESOLVED; type <= PEER_BUSY; type++) {
		if (type == PEER_GONE || type == PEER_KEYS || type == PEER_KEY_GET)
			continue;
		say_qp(type, stranger_gid, 107, e); /* slot and instance are easily known */
		say_qp(type, their_gid, 108, e);    /* another process there */
	}
	say_gone(stranger_gid, PEER_DRAINED, VQPN_A, THEIRS);
	say_gone(stranger_gid, PEER_DRAINED, 0, 0);
	assert_int_equal(world.events, 0);
	assert_ptr_equal(q->peer, peer);
	assert_int_equal(q->dqpn, 0x55);
	say_gone(their_gid, PEER_DRAINED, VQPN_A, THEIRS);
	say_gone(their_gid, PEER_DRAINED, 0, 0);
	assert_int_equal(world.events, 2);
}

/* The agent has found us by our slot, which another process had before. */
static void what_is_for_others_is_not_taken(void **state)
{
	const struct peer_qp e = {.dst_vqpn = VQPN_A, .src_vqpn = THEIRS};
	struct peer_head h = head(PEER_DRAINED, 1, their_gid, 7, 107);

	(void)state;
	connected();
	h.dst_instance--;
	world_deliver(&h, &e, sizeof(e));
	h.dst_slot = 0;
	world_deliver(&h, &e, sizeof(e));
	assert_int_equal(world.events, 0);
	h = head(PEER_DRAINED, 1, their_gid, 7, 107);
	world_deliver(&h, &e, sizeof(e));
	assert_int_equal(world.events, 1);
}

static void keys_of_strangers_are_not_kept(void **state)
{
	const struct peer_key key = {RKEY, 0x4400};

	(void)state;
	say_keys(stranger_gid, 107, &key, 1);
	assert_int_equal(world_peers(), 0);
	say_qp(PEER_RESOLVE, stranger_gid, 107,
	       (struct peer_qp){.dst_vqpn = VQPN_B, .src_vqpn = 1, .qpn = 2});
	assert_int_equal(world_peers(), 1); /* by a QP that our program has not connected */
	say_keys(stranger_gid, 107, &key, 1);
	connected();
	say_keys(stranger_gid, 107, &key, 1);
	assert_int_equal(world_peers(), 2);
	assert_int_equal(shim.peer_chunks, 0);
}

/* A peer, and all together, may only fill so much memory. */
static void keys_have_bounds(void **state)
{
	struct shim_qp *q = connected();
	struct peer_key key = {0};

	(void)state;
	for (uint64_t k = 0; k <= UINT32_MAX; k += CHUNK_KEYS) {
		key.vkey = (uint32_t)k;
		say_keys(their_gid, 107, &key, 1);
	}
	assert_int_equal(q->peer->keys.chunks, 256);
	assert_int_equal(shim.peer_chunks, 256);
}

/* A process that starts again and again has one place, not one for each life. */
static void who_has_gone_makes_room(void **state)
{
	struct peer_qp e = {.dst_vqpn = VQPN_B, .src_vqpn = 1, .qpn = 2};
	struct shim_peer *a = connected()->peer;
	struct peer_head h;

	(void)state;
	for (uint64_t instance = 200; instance < 300; instance++)
		say_qp(PEER_RESOLVE, their_gid, instance, e);
	assert_int_equal(world_peers(), 3); /* A's, B's, and the one that B had before */
	assert_ptr_equal(world_qp[0].peer, a);
	for (unsigned slot = 8; slot < 5000; slot++) {
		h = head(PEER_RESOLVE, 1, their_gid, (uint16_t)slot, slot);
		world_deliver(&h, &e, sizeof(e)); /* each has the same number */
	}
	assert_int_equal(world_peers(), 4096);
	assert_ptr_equal(world_qp[0].peer, a);
	assert_int_equal(world_qp[1].peer->slot, 4999);
}

/* Before our program connects, whoever asks is answered, but neither replaces the first asker nor
 * leaves anything here. */
static void later_askers_leave_no_trace(void **state)
{
	struct peer_qp e = {.dst_vqpn = VQPN_B, .src_vqpn = 1, .qpn = 2};
	struct shim_qp *b = &world_qp[1];
	struct shim_peer *first;

	(void)state;
	say_qp(PEER_RESOLVE, their_gid, 200, e);
	first = b->peer;
	assert_int_equal(first->instance, 200);
	e.src_vqpn = 3;
	for (uint64_t instance = 300; instance < 400; instance++) {
		world.sent = 0;
		say_qp(PEER_RESOLVE, stranger_gid, instance, e);
		say_qp(PEER_RESOLVE, their_gid, instance, e);
		assert_int_equal(world.sent, 2);
		assert_int_equal(world.last.type, PEER_RESOLVED);
		assert_int_equal(world.last.dst_instance, instance);
	}
	assert_ptr_equal(b->peer, first);
	assert_int_equal(b->dvqpn, 1);
	assert_int_equal(world_peers(), 1);
}

static void only_who_is_connected_gets_a_key(void **state)
{
	const struct peer_key key = {RKEY, 0};
	struct peer_head h = head(PEER_KEY_GET, 1, their_gid, 7, 107);

	(void)state;
	connected();
	world.sent = 0;
	world_deliver(&h, &key, sizeof(key));
	assert_int_equal(world.sent, 1);
	assert_int_equal(world.last.type, PEER_KEYS);
	h.dst_vqpn = VQPN_B; /* is connected to nobody */
	world_deliver(&h, &key, sizeof(key));
	world_qp[1].peer = world_qp[0].peer; /* who has asked for it */
	world_qp[1].dvqpn = THEIRS;
	world_qp[1].resolved = true;
	world_deliver(&h, &key, sizeof(key));
	h = head(PEER_KEY_GET, 1, stranger_gid, 7, 107);
	world_deliver(&h, &key, sizeof(key));
	assert_int_equal(world.sent, 1);
}

static unsigned keys_told(void)
{
	unsigned before = world.keys;

	say_qp(PEER_RESOLVE, their_gid, 107,
	       (struct peer_qp){.dst_vqpn = VQPN_A, .src_vqpn = THEIRS, .qpn = 0x56});
	return world.keys - before;
}

/* Another QP of ours in that PD, to the same process. */
static struct shim_qp *second(struct shim_qp *a, struct shim_pd *domain)
{
	struct shim_qp *b = &world_qp[1];

	world_asks(b);
	b->peer = a->peer;
	b->dvqpn = THEIRS + 1;
	b->v.pd = &domain->v;
	b->resolve = RESOLVE_DONE;
	world_connected(b);
	return b;
}

/* Neither a stranger, nor who asks for a QP that our program has not connected, nor who is not
 * connected any more is told a key. */
static void only_ends_are_told_keys(void **state)
{
	struct peer_qp e = {.dst_vqpn = VQPN_B, .src_vqpn = THEIRS, .qpn = 0x55};
	struct shim_qp *q;

	(void)state;
	world.windows = 1;
	shim.mr_count = 1;
	say_qp(PEER_RESOLVE, their_gid, 107, e);
	say_qp(PEER_RESOLVE, stranger_gid, 107, e);
	assert_int_equal(world.keys, 0);
	q = connected();
	assert_int_equal(world.keys, 2);
	e.dst_vqpn = VQPN_A;
	peer_begin_keys(); /* whoever may be told, will be */
	say_qp(PEER_RESOLVE, stranger_gid, 107, e);
	say_qp(PEER_RESOLVE, their_gid, 108, e);
	e.src_vqpn++;
	say_qp(PEER_RESOLVE, their_gid, 107, e);
	assert_int_equal(world.keys, 2);
	q->resolved = false; /* goes without cover */
	assert_int_equal(keys_told(), 0);
	q->resolved = true;
	assert_int_equal(keys_told(), 2);
}

static void keys_are_told_in_their_pd(void **state)
{
	const struct peer_key key = {RKEY, 0};
	struct peer_head h = head(PEER_KEY_GET, 1, their_gid, 7, 107);
	struct shim_pd other = {.ctx = &world_ctx};
	struct shim_qp *a = connected();

	(void)state;
	assert_int_equal(world.keys, 1);
	second(a, &other);
	assert_int_equal(world.keys, 1);
	h.dst_vqpn = VQPN_B;
	h.src_vqpn = THEIRS + 1;
	world_deliver(&h, &key, sizeof(key));
	assert_int_equal(world.last_key.key, KEY_NONE);
	h.dst_vqpn = VQPN_A;
	h.src_vqpn = THEIRS;
	world_deliver(&h, &key, sizeof(key));
	assert_int_equal(world.last_key.key, HW_RKEY);
}

static void keys_are_told_again_in_a_resume(void **state)
{
	struct shim_qp *q = connected();

	(void)state;
	world.windows = 1;
	shim.mr_count = 1;
	peer_begin_keys();
	assert_int_equal(keys_told(), 2); /* the region and the window */
	assert_int_equal(keys_told(), 0);
	peer_begin_keys();
	world.keys = 0;
	peer_tell_keys(q);
	peer_tell_keys(second(q, &world_pd));
	assert_int_equal(world.drops, 1);
	assert_int_equal(world.keys, 2);
	assert_int_equal(keys_told(), 0); /* only new keys are told */
	shim.mr_count = 2;
	world_mr.number = 1;
	assert_int_equal(keys_told(), 1);
}

/* The other end keeps our keys by the GID that we speak from: each GID's are dropped, and told. */
static void both_moved_devices_are_told(void **state)
{
	static const uint8_t second_gid[16] = {0xfe, 0x80, [15] = 4};
	struct shim_context second = {0};
	struct shim_pd pd = {.ctx = &second};
	struct ibv_mr real = {.rkey = HW_RKEY + 0x100};
	struct shim_mr mr = {.pd = &pd, .real = &real, .v = {.rkey = RKEY + 0x100}};
	struct shim_qp *a = connected(), *b = &world_qp[1], same = *a;

	(void)state;
	world.keys = 0;
	peer_begin_keys();
	list_add(&shim.mrs, &mr.link);
	*b = (struct shim_qp){.link = b->link, .ctx = &second, .peer = a->peer, .v = b->v};
	b->v.pd = same.v.pd = &pd.v;
	memcpy(b->sgid, second_gid, 16);
	memcpy(b->dgid, their_gid, 16);
	same.ctx = &second; /* the second one by the first one's GID */
	for (unsigned i = 0; i < 3; i++) {
		peer_tell_keys(a);
		peer_tell_keys(b);
	}
	assert_int_equal(world.drops, 2);
	assert_int_equal(world.keys, 2);
	assert_memory_equal(world.last.sgid, second_gid, 16);
	peer_tell_keys(&same);
	assert_int_equal(world.drops, 2); /* a drop would forget the other context's keys */
	assert_int_equal(world.keys, 3);
	list_del(&mr.link);
}

/* Whatever the number of their QPs. */
static void windows_are_told_to_each_process_once(void **state)
{
	struct shim_qp *a = connected(), *b = &world_qp[1];
	unsigned sent;

	(void)state;
	b->peer = a->peer;
	memcpy(b->sgid, a->sgid, 16);
	memcpy(b->dgid, a->dgid, 16);
	a->in_job = a->paired = b->in_job = b->paired = true;
	world.windows_again = 3;
	peer_begin_keys();
	sent = world.sent;
	peer_tell_windows(); /* windows are told when the regions are */
	assert_int_equal(world.sent, sent);
	peer_begin_keys();
	peer_tell_keys(a);
	world.keys = 0;
	world.windows_again = 3;
	peer_tell_windows();
	assert_int_equal(world.keys, 3);
	peer_tell_windows();
	assert_int_equal(world.keys, 3);
	world.windows_again = 1; /* the next part */
	peer_tell_windows();
	assert_int_equal(world.keys, 4);
	a->paired = false;
	b->said.gone = true;
	world.windows_again = 1;
	peer_tell_windows();
	assert_int_equal(world.keys, 4);
	a->in_job = false; /* takes no part, but may use one of type 1 */
	world.windows_again = 1;
	peer_tell_windows();
	assert_int_equal(world.keys, 5);
}

/* More GIDs than are remembered: more is told, nothing is lost. */
static void what_is_remembered_has_a_bound(void **state)
{
	struct shim_qp *q = connected();

	(void)state;
	peer_begin_keys();
	world.keys = 0;
	for (unsigned i = 0; i < 3 * SHIM_TOLD_MAX; i++) {
		q->sgid[13] = (uint8_t)(i >> 8);
		q->sgid[14] = (uint8_t)i;
		peer_tell_keys(q);
	}
	assert_int_equal(world.drops, 3 * SHIM_TOLD_MAX);
	assert_int_equal(q->peer->told_count, SHIM_TOLD_MAX);
	peer_tell_keys(q);
	assert_int_equal(world.drops, 3 * SHIM_TOLD_MAX);
	q->sgid[13] = q->sgid[14] = 0;
	peer_tell_keys(q);
	assert_int_equal(world.keys, 3 * SHIM_TOLD_MAX + 1);
}

static void dropped_keys_are_forgotten(void **state)
{
	const struct peer_key key = {0x5600, 0x4400};
	struct peer_head drop = head(PEER_KEYS_DROP, 0, stranger_gid, 7, 107);
	struct shim_qp *q = connected();
	uint32_t hw;

	(void)state;
	say_keys(their_gid, 107, &key, 1);
	world_deliver(&drop, NULL, 0);
	assert_true(key_get(&q->peer->keys, 0x5600, &hw));
	drop = head(PEER_KEYS_DROP, 0, their_gid, 7, 107);
	world_deliver(&drop, NULL, 0);
	assert_false(key_get(&q->peer->keys, 0x5600, &hw));
}

/* Returns the target of a request to that number of q's peer; 0: the request waits for an
 * answer. */
static uint64_t known_srqn(const struct shim_qp *q, uint32_t srqn)
{
	struct shim_table *t = atomic_load(&q->peer->srqns);

	return t ? table_get(t, srqn) : 0;
}

static void srq_numbers_have_bounds(void **state)
{
	struct shim_qp *q;

	(void)state;
	say_srqn(stranger_gid, 5, 6);
	q = connected();
	say_srqn(stranger_gid, 5, 6);
	assert_int_equal(world_peers(), 1);
	assert_int_equal(known_srqn(q, 5), 0);
	say_srqn(their_gid, 5, 6);
	assert_int_equal((uint32_t)known_srqn(q, 5), 6);
	/* no numbers, or of no queue: which is told, not kept */
	say_srqn(their_gid, SHIM_QPN_MAX + 1, 6);
	say_srqn(their_gid, UINT32_MAX, UINT32_MAX);
	assert_int_equal(known_srqn(q, 6), 0);
	say_srqn(their_gid, 5, SHIM_QPN_MAX + 7);
	assert_int_equal(known_srqn(q, 5), 0);
	for (uint32_t n = 0; n <= SHIM_QPN_MAX; n += TABLE_CHUNK)
		say_srqn(their_gid, n, 1);
	assert_int_equal(atomic_load(&q->peer->srqns)->chunks, 256);
	assert_int_equal(shim.peer_chunks, 256);
}

static void dropped_srq_numbers_are_forgotten(void **state)
{
	struct peer_head drop = head(PEER_KEYS_DROP, 0, their_gid, 7, 107);
	struct shim_qp *q = connected();

	(void)state;
	say_srqn(their_gid, 5, 6);
	world_deliver(&drop, NULL, 0);
	assert_int_equal(known_srqn(q, 5), 0);
	say_srqn(their_gid, 5, 7);
	assert_int_equal((uint32_t)known_srqn(q, 5), 7);
}

/* The answer to a question about it; UINT32_MAX: none. */
static uint32_t srqn_told(uint32_t srqn)
{
	struct peer_head h = head(PEER_SRQ_GET, 1, their_gid, 7, 107);
	const struct peer_key n = {srqn, 0};
	unsigned before = world.sent;

	world_deliver(&h, &n, sizeof(n));
	if (world.sent == before)
		return UINT32_MAX;
	assert_int_equal(world.last.type, PEER_SRQS);
	assert_int_equal(world.last_key.vkey, srqn);
	return world.last_key.key;
}

static void only_targets_of_its_domain_tell_of_a_queue(void **state)
{
	struct shim_xrcd ours = {.fd = -1}, other = {.fd = -1};
	struct ibv_srq real = {0};
	struct shim_srq s = {.pd = &world_pd, .xrcd = &ours, .real = &real, .real_srqn = 0x77};

	(void)state;
	table_set(&shim.srqns, 9, (uintptr_t)&s, TABLE_MAX / TABLE_CHUNK);
	table_set(&shim.srqns, 10, 0x55 << 1 | SRQN_GONE, TABLE_MAX / TABLE_CHUNK);
	assert_int_equal(srqn_told(9), UINT32_MAX); /* to a stranger */
	connected()->xrcd = &ours;
	assert_int_equal(srqn_told(9), 0x77);
	assert_int_equal(srqn_told(10), SRQN_NONE);
	assert_int_equal(srqn_told(11), SRQN_NONE);
	assert_int_equal(srqn_told(UINT32_MAX), SRQN_NONE);
	world_qp[0].xrcd = &other;
	assert_int_equal(srqn_told(9), SRQN_NONE);
	world_qp[0].xrcd = &ours;
	s.real = NULL; /* the number is told in the resume */
	assert_int_equal(srqn_told(9), UINT32_MAX);
}

/* The QP's program has disconnected: a peer that waits for it in a suspend hears so, before ours
 * and in it. */
static void a_qp_in_err_is_not_waited_for(void **state)
{
	const struct peer_qp e = {.dst_vqpn = VQPN_A, .src_vqpn = THEIRS};
	const uint16_t types[] = {PEER_DRAINED, PEER_FREEZE};
	struct shim_qp *q = connected();

	(void)state;
	q->v.state = IBV_QPS_ERR;
	for (unsigned i = 0; i < 4; i++) {
		q->in_job = i & 1;
		world.sent = 0;
		say_qp(types[i / 2], their_gid, 107, e);
		assert_int_equal(world.sent, 1);
		assert_int_equal(world.last.type, PEER_GONE);
		assert_int_equal(world.last.dst_vqpn, VQPN_A);
		assert_int_equal(world.last.src_vqpn, THEIRS);
	}
	assert_int_equal(world.events, 0);
	say_qp(PEER_ABORT, their_gid, 107, e); /* the peer asks whether ours is as it was */
	assert_int_equal(world.events, 1);
	peer_send_gone(q, 5); /* the same, unasked */
	assert_int_equal(world.last.type, PEER_GONE);
	assert_int_equal(world.last.migration, 5);
	assert_int_equal(world.last.dst_slot, 7);
	assert_int_equal(world.last.dst_vqpn, VQPN_A);
	assert_int_equal(world.last.src_vqpn, THEIRS);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(an_answer_connects),
		T(a_qp_of_another_lid_is_not_the_one),
		T(a_stranger_that_asks_does_not_end_the_count),
		T(numbers_beyond_24_bits_are_no_qps),
		T(a_count_that_goes_on_is_not_told),
		T(counts_must_fit_the_bytes),
		T(types_of_other_builds_are_ignored),
		T(strangers_say_nothing_of_our_qps),
		T(what_is_for_others_is_not_taken),
		T(keys_of_strangers_are_not_kept),
		T(keys_have_bounds),
		T(who_has_gone_makes_room),
		T(later_askers_leave_no_trace),
		T(only_who_is_connected_gets_a_key),
		T(only_ends_are_told_keys),
		T(keys_are_told_in_their_pd),
		T(keys_are_told_again_in_a_resume),
		T(both_moved_devices_are_told),
		T(windows_are_told_to_each_process_once),
		T(what_is_remembered_has_a_bound),
		T(dropped_keys_are_forgotten),
		T(srq_numbers_have_bounds),
		T(dropped_srq_numbers_are_forgotten),
		T(only_targets_of_its_domain_tell_of_a_queue),
		T(a_qp_in_err_is_not_waited_for),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
