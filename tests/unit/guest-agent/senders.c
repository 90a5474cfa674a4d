/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Each type of packet from each kind of stranger, through the agents of both VMs and the shim of
 * the process that it is for. Nothing changes of what that process has with its true peer. With the
 * name of a file the table of who was refused where is written there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define PEER_WORLD_UD
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "guest-agent/agent/main.h"
#include "guest-agent/proto/senders.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/qp.h"
#include "tests/unit/guest-agent/peer_world.h"

#define UD_VQPN  0x13
#define UD_THEIR 0x24 /* the peer's QP for datagrams */
#define ASKED    0x23 /* the peer's QP that B has asked for */
#define FREE     0x25 /* a QP of the peer's process that is connected to nobody */
#define FORGED   0x666
#define SLOTS    10

enum { VICTIM, PEER, OTHER, VMS };
enum { AT_SENDER, AT_HOST, AT_RECEIVER, AT_SHIM, PLACES };

static const char *const places[] = {"the sender's agent", "the host", "the receiver's agent",
				     "the receiver's shim"};

struct vm {
	const uint8_t *gid;
	struct agent agent;
	struct agent_shim shims[SLOTS];
};

static struct vm vms[VMS] = {{.gid = our_gid}, {.gid = their_gid}, {.gid = stranger_gid}};
static const struct {
	uint32_t vqpn;
	int vm, slot;
} holders[] = {{VQPN_A, VICTIM, 1}, {VQPN_B, VICTIM, 1}, {UD_VQPN, VICTIM, 1}, {THEIRS, PEER, 7},
	       {ASKED, PEER, 7},    {UD_THEIR, PEER, 7}, {FREE, PEER, 7}};

static struct shim_qp ud_qp;
static struct shim_ud ud_part_of;
static int reached; /* the furthest place that the packet has come to */
static FILE *table;

/* ---- what the agents stand on ---- */

static struct vm *vm_of(const struct agent *a)
{
	for (int i = 0; i < VMS; i++)
		if (a == &vms[i].agent)
			return &vms[i];
	abort();
}

bool agent_host_connected(const struct agent *a)
{
	(void)a;
	return true;
}
bool agent_device_is_ours(struct agent *a, const uint8_t gid[16])
{
	return !memcmp(vm_of(a)->gid, gid, 16);
}
bool agent_unsettled(struct agent *a)
{
	(void)a;
	return false;
}
static struct agent_user user;

struct agent_shim *agent_shim_by_slot(struct agent *a, unsigned slot, uint64_t instance)
{
	struct agent_shim *s = slot <= SHIM_SLOT_MAX ? a->slots[slot] : NULL;

	return s && (!instance || s->instance == instance) ? s : NULL;
}
struct agent_shim *agent_shim_by_qpn(struct agent *a, uint32_t vqpn)
{
	for (size_t i = 0; i < ARRAY_SIZE(holders); i++)
		if (holders[i].vqpn == vqpn && &vms[holders[i].vm].agent == a)
			return a->slots[holders[i].slot];
	return NULL;
}
void agent_shim_send(struct agent_shim *s, const void *packet)
{
	const struct shim_relay *r = packet;

	if (s != &vms[VICTIM].shims[1] || r->head.type != SHIM_DELIVER)
		return;
	reached = AT_SHIM;
	peer_delivered(packet);
}

/* The host lets a VM speak from its own GIDs only, and hands on to the VM that has the other. */
void agent_host_send_of(struct agent *a, uid_t uid, struct json_object *msg)
{
	struct json_object *owned AUTO_JSON = msg;
	char own[IB_GID_TEXT], victim[IB_GID_TEXT];
	struct ib_gid gid;

	(void)uid;
	ib_gid_from_bytes(vm_of(a)->gid, &gid);
	ib_gid_format(&gid, own);
	ib_gid_from_bytes(our_gid, &gid);
	ib_gid_format(&gid, victim);
	if (a == &vms[VICTIM].agent || strcmp(json_opt_str(owned, "to", ""), victim))
		return;
	reached = AT_HOST;
	if (strcmp(json_opt_str(owned, "from", ""), own))
		return;
	reached = AT_RECEIVER;
	agent_relay_from_host(&vms[VICTIM].agent, owned);
}

/* ---- what datagrams stand on ---- */

struct shim_job job;

void cq_harvest(struct shim_cq *cq)
{
	(void)cq;
}
const char *qp_type_uncovered(const struct ibv_qp_init_attr *init)
{
	(void)init;
	return NULL;
}
bool gid_in_order(const uint8_t gid[16], const struct shim_order *o)
{
	(void)gid;
	(void)o;
	return false;
}
bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *ret)
{
	(void)c;
	(void)o;
	(void)ret;
	return false;
}

/* ---- the world: a victim with a connection, a question and a partner for datagrams ---- */

static void make_vms(void)
{
	for (int i = 0; i < VMS; i++) {
		memset(&vms[i].agent, 0, sizeof(vms[i].agent));
		for (uint16_t slot = 1; slot < SLOTS; slot++) {
			vms[i].shims[slot] = (struct agent_shim){.user = &user,
								 .agent = &vms[i].agent,
								 .slot = slot,
								 .instance = 100 + slot};
			vms[i].agent.slots[slot] = &vms[i].shims[slot];
		}
	}
}

static struct peer_head from_peer(uint16_t type, uint32_t dst_vqpn, uint32_t src_vqpn)
{
	struct peer_head h = {.version = PEER_PROTO_VERSION,
			      .type = type,
			      .count = peer_rule_of(type)->entries != PEER_NO_ENTRY,
			      .dst_slot = 1,
			      .dst_instance = 101,
			      .src_slot = 7,
			      .src_instance = 107,
			      .dst_vqpn = dst_vqpn,
			      .src_vqpn = src_vqpn};

	memcpy(h.sgid, their_gid, 16);
	memcpy(h.dgid, our_gid, 16);
	return h;
}

static void hear(uint16_t type, uint32_t dst_vqpn, uint32_t src_vqpn, uint32_t qpn)
{
	struct peer_head h = from_peer(type, dst_vqpn, src_vqpn);
	struct peer_qp e = {.dst_vqpn = dst_vqpn, .src_vqpn = src_vqpn, .qpn = qpn};

	world_deliver(&h, &e, h.count * sizeof(e));
}

static void make_datagrams(void)
{
	ud_qp = (struct shim_qp){.ctx = &world_ctx,
				 .real = &world_real_qp,
				 .ud = &ud_part_of,
				 .v = {.qp_num = UD_VQPN, .pd = &world_pd.v}};
	memset(&ud_part_of, 0, sizeof(ud_part_of));
	list_init(&ud_qp.untold);
	list_add(&shim.qps, &ud_qp.link);
	table_set(&shim.qp_by_vqpn, UD_VQPN, (uintptr_t)&ud_qp, TABLE_MAX / TABLE_CHUNK);
	hear(PEER_UD_RESOLVE, UD_VQPN, UD_THEIR, 0x54);
	node_get(their_gid)->ahs = 1;
	ud_ask(&ud_qp, node_get(their_gid), our_gid, UD_THEIR);
}

static void make_world(void)
{
	const struct peer_key key = {0x5600, 0x4400};
	struct peer_head h;

	make_vms();
	world_begin();
	list_init(&shim.partners);
	list_init(&shim.contexts);
	list_init(&shim.cqs);
	world_asks(&world_qp[0]);
	hear(PEER_RESOLVED, VQPN_A, THEIRS, 0x55);
	world_connected(&world_qp[0]);
	h = from_peer(PEER_KEYS, 0, 0);
	world_deliver(&h, &key, sizeof(key));
	world_qp[0].wanted.type = PEER_KEY_GET;
	world_qp[0].wanted.number = 0x5700;
	atomic_store(&world_qp[0].recv.tail, 3);
	world_asks(&world_qp[1]);
	world_qp[1].dvqpn = ASKED;
	make_datagrams();
	peer_begin_keys(); /* whoever may be told keys will be */
	world.keys = world.events = 0;
}

static void end_world(void)
{
	struct shim_partner *p;

	list_for_each (p, &shim.partners, link)
		p->gone = true;
	partners_reap();
	ud_forget_all();
	free(TAKE(ud_part_of.told));
	world_end();
}

/* All that the victim has with its peer. Padding is zero. */
struct state {
	struct qp_state {
		const struct shim_peer *peer;
		uint64_t flags;
		uint32_t dvqpn, dqpn, wanted, resolve;
	} qp[2];
	uint64_t node, said[3];
	uint32_t events, keys_told, key, real, asks, changes;
};

static void look(struct state *s)
{
	struct shim_node *n = node_get(their_gid);
	struct shim_partner *p;
	uint32_t key = 0;

	memset(s, 0, sizeof(*s));
	for (int i = 0; i < 2; i++) {
		struct shim_qp *q = &world_qp[i];

		s->qp[i] = (struct qp_state){.peer = q->peer,
					     .flags = q->connected | q->resolved << 1 |
						      q->resolve_busy << 2 |
						      (uint64_t)atomic_load(&q->uncounted) << 3,
					     .dvqpn = q->dvqpn,
					     .dqpn = q->dqpn,
					     .wanted = q->wanted.type,
					     .resolve = q->resolve};
	}
	if (world_qp[0].peer && key_get(&world_qp[0].peer->keys, 0x5600, &key))
		s->key = key;
	s->node = table_get(&n->real, UD_THEIR);
	s->real = (uint32_t)table_get(&n->virtual, 0x54);
	s->asks = ud_part_of.ask_node != NULL;
	s->events = world.events;
	s->changes = world.changes;
	s->keys_told = world.keys;
	list_for_each (p, &shim.partners, link)
		if (p->slot == 7 && p->instance == 107 && p->node == n && !p->gone)
			memcpy(s->said, &p->said, sizeof(s->said));
}

/* ---- packets and strangers ---- */

struct stranger {
	const char *name;
	int vm, slot; /* whose socket it is written to; slot 0: the VM's own agent lies */
	int from;     /* the VM whose GID its host is told */
	int says_gid; /* the VM in whose name it speaks */
	uint16_t says_slot;
	uint64_t says_instance;
	bool own_qp; /* the peer, for a QP of its own that is connected to nobody */
};

static const struct stranger strangers[] = {
	{"another process of the peer's user", PEER, 8, PEER, PEER, 8, 108, false},
	{"a process of another user", PEER, 9, PEER, PEER, 9, 109, false},
	{"a process that says the peer's slot", PEER, 9, PEER, PEER, 7, 107, false},
	{"the peer by a QP that is not connected", PEER, 7, PEER, PEER, 7, 107, true},
	{"an older instance of the peer", PEER, 7, PEER, PEER, 7, 106, false},
	{"an older instance, long under way", PEER, 0, PEER, PEER, 7, 106, false},
	{"another process of the same VM", VICTIM, 2, VICTIM, VICTIM, 2, 102, false},
	{"one that says the peer's GID", VICTIM, 2, VICTIM, PEER, 2, 102, false},
	{"one that says all of the peer's", VICTIM, 2, VICTIM, PEER, 7, 107, false},
	{"another VM", OTHER, 0, OTHER, OTHER, 7, 107, false},
	{"a process of another VM that says the peer's vGUID", OTHER, 7, OTHER, PEER, 7, 107,
	 false},
	{"another VM that says the peer's vGUID", OTHER, 0, OTHER, PEER, 7, 107, false},
	{"another VM that says the victim's vGUID", OTHER, 0, VICTIM, VICTIM, 1, 101, false},
};

struct forged {
	struct peer_head head;
	struct {
		union {
			struct peer_qp qp;
			struct peer_key key;
		};
	} entry;
};

/* The numbers of both QPs that a packet of that type is about. */
static void numbers_of(uint16_t type, uint32_t *ret_dst, uint32_t *ret_src)
{
	const struct peer_rule *r = peer_rule_of(type);
	const bool asked = type == PEER_RESOLVE || r->bond == PEER_BOND_ASKED;

	*ret_dst = type >= PEER_UD_RESOLVE         ? UD_VQPN
		   : asked && type != PEER_RESOLVE ? VQPN_B
						   : VQPN_A;
	*ret_src = type >= PEER_UD_RESOLVE ? UD_THEIR : *ret_dst == VQPN_B ? ASKED : THEIRS;
}

/* What the true peer would say, with numbers that would do harm. about: of a PEER_GONE. */
static struct forged forge(const struct peer_rule *r, const struct peer_rule *about)
{
	struct forged f = {.head = from_peer(r->type, 0, 0)};
	uint32_t dst, src;

	if (about && about->type == PEER_RESOLVE) { /* of which B waits for the answer */
		dst = VQPN_B;
		src = ASKED;
	} else {
		numbers_of(about ? about->type : r->type, &dst, &src);
	}
	f.head.about = about ? about->type : 0;
	f.head.dst_vqpn = about ? src : dst;
	f.head.src_vqpn = about ? dst : src;
	f.head.migration = 5;
	if (peer_entry_bytes(r->type) == sizeof(struct peer_qp))
		f.entry.qp = (struct peer_qp){.dst_vqpn = dst, .src_vqpn = src, .qpn = FORGED};
	else
		f.entry.key = (struct peer_key){.vkey = 0x5600, .key = FORGED};
	return f;
}

static void disguise(struct forged *f, const struct stranger *s)
{
	uint32_t *own = f->head.type == PEER_GONE ? &f->head.dst_vqpn : &f->head.src_vqpn;

	f->head.src_slot = s->says_slot;
	f->head.src_instance = s->says_instance;
	memcpy(f->head.sgid, vms[s->says_gid].gid, 16);
	if (!s->own_qp)
		return;
	*own = FREE;
	if (peer_entry_bytes(f->head.type) == sizeof(struct peer_qp))
		f->entry.qp.src_vqpn = FREE;
}

static void set_gid(struct json_object *msg, const char *key, const uint8_t bytes[16])
{
	char text[IB_GID_TEXT];
	struct ib_gid gid;

	ib_gid_from_bytes(bytes, &gid);
	ib_gid_format(&gid, text);
	json_set_str(msg, key, text);
}

static void send_by_shim(int vm, int slot, const struct forged *f, size_t bytes)
{
	_Alignas(8) char packet[512] = "";
	struct shim_relay *r = (void *)packet;

	r->head = (struct shim_head){.bytes = (uint32_t)(sizeof(*r) + bytes), .type = SHIM_SEND};
	memcpy(packet + sizeof(*r), f, bytes);
	reached = AT_SENDER;
	agent_relay_from_shim(&vms[vm].agent, &vms[vm].shims[slot], r);
}

static void send_by_host(const uint8_t from[16], const struct forged *f, size_t bytes)
{
	struct json_object *msg AUTO_JSON = json_object_new_object();
	char *text AUTO_FREE = base64_encode(f, bytes);

	set_gid(msg, "from", from);
	set_gid(msg, "to", our_gid);
	json_set_str(msg, "body", text);
	reached = AT_RECEIVER;
	agent_relay_from_host(&vms[VICTIM].agent, msg);
}

/* The place that it came to. */
static int send_as(const struct stranger *s, const struct forged *f)
{
	size_t bytes = sizeof(f->head) + f->head.count * peer_entry_bytes(f->head.type);

	if (s->slot)
		send_by_shim(s->vm, s->slot, f, bytes);
	else
		send_by_host(vms[s->from].gid, f, bytes);
	return reached;
}

/* ---- the walk ---- */

static void note(const char *name, const char *about, const struct stranger *s, int at)
{
	static bool any;

	if (table)
		fprintf(table,
			"%s\n  {\"type\": \"%s%s%s\", \"sender\": \"%s\", \"harm\": false, "
			"\"came_to\": \"%s\"}",
			any ? "," : "[", name, about ? " about " : "", about ? about : "", s->name,
			places[at]);
	any = true;
}

static int refuse(const struct peer_rule *r, const struct peer_rule *about,
		  const struct stranger *s)
{
	struct state before, after;
	struct forged f = forge(r, about);
	int at;

	make_world();
	look(&before);
	disguise(&f, s);
	at = send_as(s, &f);
	look(&after);
	if (memcmp(&before, &after, sizeof(before)))
		print_error("%s%s%s by %s changes something\n", r->name, about ? " about " : "",
			    about ? about->name : "", s->name);
	assert_memory_equal(&before, &after, sizeof(before));
	end_world();
	note(r->name, about ? about->name : NULL, s, at);
	return at;
}

/* False for what is no stranger's word. As a process the peer may say it, whichever QPs it names;
 * of a PEER_GONE about datagrams no QP is meant, but its sender. Who has a QP is told by the first
 * answer, and its VM's agent has seen to it that this comes from its holder. */
static bool is_strange(const struct stranger *s, const struct peer_rule *r,
		       const struct peer_rule *about)
{
	if (s->own_qp)
		return about ? about->type <= PEER_UD_RESOLVE
			     : r->from != PEER_FROM_PROCESS && r->bond != PEER_BOND_PARTNER;
	if (!s->slot && s->says_gid == PEER && s->from == PEER)
		return about ? about->type != PEER_RESOLVE && about->type != PEER_UD_RESOLVE
			     : r->bond != PEER_BOND_ASKED && r->type != PEER_UD_RESOLVE;
	return true;
}

static void each_stranger_with_each_type(void **state)
{
	unsigned count[PLACES] = {0};

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(strangers); s++) {
		for (size_t i = 0; i < 2 * PEER_RULES; i++) {
			const struct peer_rule *each = &peer_rules[i % PEER_RULES],
					       *r = i < PEER_RULES ? each : peer_rule_of(PEER_GONE),
					       *about = r == each ? NULL : each;

			if (is_strange(&strangers[s], r, about))
				count[refuse(r, about, &strangers[s])]++;
		}
	}
	for (int i = 0; i < PLACES; i++)
		print_message("# %u came to %s and no further\n", count[i], places[i]);
}

/* The true peer by the same ways: else the walk would prove nothing. */
static void the_peer_itself_is_heard(void **state)
{
	static const struct stranger itself = {"the peer", PEER, 7, PEER, PEER, 7, 107, false};
	struct state before, after;
	unsigned changes = 0;

	(void)state;
	for (size_t i = 0; i < PEER_RULES; i++) {
		const struct peer_rule *r = &peer_rules[i];
		struct forged f = forge(r, NULL);
		const bool mute = r->from == PEER_FROM_AGENT;

		make_world();
		look(&before);
		assert_int_equal(send_as(&itself, &f), mute ? AT_SENDER : AT_SHIM);
		look(&after);
		changes += !!memcmp(&before, &after, sizeof(before));
		end_world();
	}
	assert_true(changes > PEER_RULES / 2);
}

/* A row for each type, and no type without a row. */
static void the_table_is_whole(void **state)
{
	(void)state;
	for (unsigned type = 0; type <= UINT16_MAX; type++) {
		const bool known = (type >= PEER_RESOLVE && type <= PEER_SRQS) ||
				   type == PEER_CM_DISCONNECT ||
				   (type >= PEER_PATH_HOLD && type <= PEER_PATH_ABORT) ||
				   (type >= PEER_UD_RESOLVE && type <= PEER_UD_ENDED);

		assert_int_equal(peer_rule_of((uint16_t)type) != NULL, known);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_is_whole),
		cmocka_unit_test(the_peer_itself_is_heard),
		cmocka_unit_test(each_stranger_with_each_type),
	};
	int failed;

	table = argc > 1 ? fopen(argv[1], "w") : NULL;
	log_set_level(LOG_ERROR);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (table)
		fprintf(table, "\n]\n");
	return failed || (table && fclose(table));
}
