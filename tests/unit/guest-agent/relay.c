/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Routing between processes and hosts, and packets that are not what they should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "guest-agent/agent/main.h"

static const uint8_t ours[16] = {0xfe, 0x80, [15] = 1};
static const uint8_t theirs[16] = {0xfe, 0x80, [15] = 2};

static struct agent_user user;
static struct agent_shim shims[3] = {{.user = &user}, {.user = &user}, {.user = &user}};
static struct agent a;
static bool connected, unsettled;

/* Counts of packets by where they went. */
static unsigned to_host, to_shim[3], unreachable;
static struct peer_head last;

bool agent_host_connected(const struct agent *agent)
{
	(void)agent;
	return connected;
}
void agent_host_send_of(struct agent *agent, uid_t uid, struct json_object *msg)
{
	char body[512];
	size_t n;

	(void)agent;
	(void)uid;
	to_host++;
	assert_int_equal(base64_decode(json_opt_str(msg, "body", ""), body, sizeof(body), &n), 0);
	memcpy(&last, body, sizeof(last));
	json_object_put(msg);
}
bool agent_device_is_ours(struct agent *agent, const uint8_t gid[16])
{
	(void)agent;
	return !memcmp(gid, ours, 16);
}
void agent_shim_send(struct agent_shim *s, const void *packet)
{
	const struct shim_relay *r = packet;

	if (r->head.type == SHIM_UNREACHABLE) {
		unreachable++;
		return;
	}
	to_shim[s - shims]++;
	memcpy(&last, r->body, sizeof(last));
}
bool agent_unsettled(struct agent *agent)
{
	(void)agent;
	return unsettled;
}
struct agent_shim *agent_shim_by_slot(struct agent *agent, unsigned slot, uint64_t instance)
{
	struct agent_shim *s = slot <= SHIM_SLOT_MAX ? agent->slots[slot] : NULL;

	return s && (!instance || s->instance == instance) ? s : NULL;
}
struct agent_shim *agent_shim_by_qpn(struct agent *agent, uint32_t vqpn)
{
	return vqpn == 0x11 ? agent->slots[1] : vqpn == 0x22 ? agent->slots[2] : NULL;
}

static int setup(void **state)
{
	(void)state;
	memset(&a, 0, sizeof(a));
	memset(to_shim, 0, sizeof(to_shim));
	memset(&last, 0, sizeof(last));
	to_host = unreachable = 0;
	connected = true;
	unsettled = false;
	for (unsigned i = 1; i <= 2; i++) {
		a.slots[i] = &shims[i];
		shims[i].slot = (uint16_t)i;
		shims[i].instance = 100 + i;
	}
	return 0;
}

struct body {
	struct peer_head head;
	struct peer_qp qp;
};

/* Of the second process. */
static struct body resolve(const uint8_t to[16])
{
	struct body b = {.head = {.version = PEER_PROTO_VERSION,
				  .type = PEER_RESOLVE,
				  .count = 1,
				  .src_slot = 2,
				  .src_instance = 102,
				  .dst_vqpn = 0x11,
				  .src_vqpn = 0x22},
			 .qp = {.dst_vqpn = 0x11, .src_vqpn = 0x22}};

	memcpy(b.head.sgid, ours, 16);
	memcpy(b.head.dgid, to, 16);
	return b;
}

/* To us, of a process of another VM. */
static struct body resolve_from_afar(void)
{
	struct body b = resolve(ours);

	memcpy(b.head.sgid, theirs, 16);
	return b;
}

static void from_shim(const void *body, size_t bytes)
{
	char packet[512] = "";
	struct shim_relay *r = (void *)packet;

	r->head.bytes = (uint32_t)(sizeof(*r) + bytes);
	memcpy(packet + sizeof(*r), body, bytes);
	agent_relay_from_shim(&a, &shims[2], r);
}

static void set_gid(struct json_object *msg, const char *key, const uint8_t bytes[16])
{
	char text[IB_GID_TEXT];
	struct ib_gid gid;

	ib_gid_from_bytes(bytes, &gid);
	ib_gid_format(&gid, text);
	json_set_str(msg, key, text);
}

static void from_host_as(const void *body, size_t bytes, const uint8_t from[16],
			 const uint8_t to[16])
{
	struct json_object *msg AUTO_JSON = json_object_new_object();
	char *text AUTO_FREE = base64_encode(body, bytes);

	set_gid(msg, "from", from);
	set_gid(msg, "to", to);
	json_set_str(msg, "body", text);
	agent_relay_from_host(&a, msg);
}

static void from_host(const void *body, size_t bytes)
{
	const struct peer_head *h = body;

	if (bytes < sizeof(*h))
		from_host_as(body, bytes, theirs, ours);
	else
		from_host_as(body, bytes, h->sgid, h->dgid);
}

static void by_gid(void **state)
{
	struct body b = resolve(theirs);

	(void)state;
	from_shim(&b, sizeof(b));
	assert_int_equal(to_host, 1);
	b = resolve(ours);
	from_shim(&b, sizeof(b));
	assert_int_equal(to_host, 1);
	assert_int_equal(to_shim[1], 1);
	b = resolve_from_afar();
	from_host(&b, sizeof(b));
	assert_int_equal(to_shim[1], 2);
}

static void by_slot_and_instance(void **state)
{
	struct body b = resolve_from_afar();

	(void)state;
	b.head.dst_slot = 2;
	b.head.dst_instance = 102;
	b.head.dst_vqpn = b.qp.dst_vqpn = 0x22;
	from_host(&b, sizeof(b));
	assert_int_equal(to_shim[2], 1);
}

/* The process of that number has died and another one has its slot: nobody gets it, and the sender
 * hears so. */
static void a_reused_slot_is_another_process(void **state)
{
	struct body b = resolve_from_afar();

	(void)state;
	b.head.dst_slot = 2;
	b.head.dst_instance = 101;
	from_host(&b, sizeof(b));
	assert_int_equal(to_shim[2], 0);
	assert_int_equal(to_host, 1);
	assert_int_equal(last.type, PEER_GONE);
	assert_int_equal(last.about, PEER_RESOLVE);
	assert_memory_equal(last.dgid, theirs, 16);
	assert_int_equal(last.src_vqpn, 0x22);
}

static void gone_is_not_answered(void **state)
{
	struct body b = resolve_from_afar();

	(void)state;
	b.head.type = PEER_GONE;
	b.head.count = 0;
	b.head.dst_vqpn = 0x99;
	from_host(&b, sizeof(b.head));
	assert_int_equal(to_host, 0);
}

static void without_a_host_nobody_waits(void **state)
{
	struct body b = resolve(theirs);

	(void)state;
	connected = false;
	from_shim(&b, sizeof(b));
	assert_int_equal(to_host, 0);
	assert_int_equal(unreachable, 2);
}

static void nobody_speaks_for_others(void **state)
{
	struct body b = resolve(ours);

	(void)state;
	memcpy(b.head.sgid, theirs, 16);
	from_host_as(&b, sizeof(b), ours, ours);
	from_host_as(&b, sizeof(b), theirs, theirs);
	b.head.src_slot = 1; /* another process of this guest */
	from_shim(&b, sizeof(b));
	b.head.src_slot = 2;
	b.head.src_instance = 101; /* the one before it */
	from_shim(&b, sizeof(b));
	assert_int_equal(to_shim[1] + to_shim[2] + to_host, 0);
}

static unsigned delivered(void)
{
	return to_shim[1] + to_shim[2] + to_host;
}

static void whom_it_is_for_must_be_said(void **state)
{
	struct body b = resolve(ours);

	(void)state;
	b.head.type = PEER_DRAINED; /* of who has the QP, only a question may be asked */
	from_shim(&b, sizeof(b));
	b.head.dst_slot = 1; /* whoever has the slot by now */
	from_shim(&b, sizeof(b));
	memcpy(b.head.sgid, theirs, 16);
	from_host(&b, sizeof(b));
	b.head.dst_slot = 0;
	from_host(&b, sizeof(b));
	assert_int_equal(delivered(), 0);
	b.head.dst_slot = 1;
	b.head.dst_instance = 101;
	from_host(&b, sizeof(b));
	assert_int_equal(to_shim[1], 1);
}

static void who_says_it_must_be_said(void **state)
{
	struct body b = resolve(ours);

	(void)state;
	from_host(&b, sizeof(b)); /* in our own name */
	b = resolve_from_afar();
	b.head.src_slot = 0;
	from_host(&b, sizeof(b));
	b = resolve_from_afar();
	b.head.src_instance = 0;
	from_host(&b, sizeof(b));
	assert_int_equal(delivered(), 0);
}

/* The packet names one process, and a QP of another one. */
static void nobody_hears_of_qps_of_others(void **state)
{
	struct body b = resolve_from_afar();

	(void)state;
	b.head.type = PEER_DRAINED;
	b.head.dst_slot = 2;
	b.head.dst_instance = 102;
	b.head.dst_vqpn = 0; /* as of several */
	from_host(&b, sizeof(b));
	b.head.dst_vqpn = 0x11;
	b.qp.dst_vqpn = 0x22;
	from_host(&b, sizeof(b));
	b.head.type = PEER_GONE; /* the numbers are those of what it answers */
	b.head.count = 0;
	b.head.src_vqpn = 0x11;
	b.head.dst_vqpn = 0x33;
	from_host(&b, sizeof(b.head));
	assert_int_equal(delivered(), 0);
	b.head.src_vqpn = 0x22;
	from_host(&b, sizeof(b.head));
	assert_int_equal(to_shim[2], 1);
}

static void a_will_ends_a_connection_and_no_more(void **state)
{
	struct body b = resolve(theirs);

	(void)state;
	assert_non_null(agent_will_refused(&a, &shims[2], &b.head));
	b.head.type = PEER_CM_DISCONNECT;
	assert_null(agent_will_refused(&a, &shims[2], &b.head));
	b.head.src_vqpn = b.qp.src_vqpn = 0x99; /* its QP is gone */
	assert_null(agent_will_refused(&a, &shims[2], &b.head));
	b.head.src_vqpn = b.qp.src_vqpn = 0x11;
	assert_non_null(agent_will_refused(&a, &shims[2], &b.head));
}

static void what_is_no_packet_is_dropped(void **state)
{
	struct body b = resolve(ours);
	struct json_object *msg AUTO_JSON = json_object_new_object();

	(void)state;
	for (size_t n = 0; n < sizeof(b); n++)
		from_host(&b, n);
	b.head.count = 2; /* more entries than bytes */
	from_host(&b, sizeof(b));
	b.head.count = UINT16_MAX;
	from_host(&b, sizeof(b));
	b = resolve(ours);
	b.head.version = PEER_PROTO_VERSION + 1;
	from_host(&b, sizeof(b));
	json_set_str(msg, "body", "not base 64!");
	agent_relay_from_host(&a, msg);
	json_set_u64(msg, "body", 7);
	agent_relay_from_host(&a, msg);
	b = resolve(ours);
	b.head.dst_slot = UINT16_MAX; /* beyond the table */
	b.head.dst_instance = 1;
	from_shim(&b, sizeof(b));
	assert_int_equal(to_shim[1], 0);
	assert_int_equal(to_shim[2] + to_host, 1); /* only "gone" to the last sender */
	assert_int_equal(last.type, PEER_GONE);
}

/* Processes elsewhere that exchanged datagrams with this one cannot see that it has died: all of
 * them hear. */
static void the_end_of_a_process_is_told(void **state)
{
	struct body b = resolve(theirs);

	(void)state;
	b.head.type = PEER_UD_RESOLVE;
	shims[2].agent = &a;
	from_shim(&b, sizeof(b));
	from_shim(&b, sizeof(b));
	assert_int_equal(to_host, 2);
	agent_relay_ended(&shims[2]);
	assert_int_equal(to_host, 3);
	assert_int_equal(last.type, PEER_GONE);
	assert_int_equal(last.about, PEER_UD_ENDED);
	assert_int_equal(last.src_instance, 102);
	assert_memory_equal(last.dgid, theirs, 16);
	/* And what comes of it at the other end. */
	memcpy(last.sgid, theirs, 16);
	memcpy(last.dgid, ours, 16);
	from_host(&last, sizeof(last));
	assert_int_equal(to_shim[1] + to_shim[2], 2);
	agent_relay_ended(&shims[2]);
	assert_int_equal(to_host, 3);
}

/* A word for several QPs waits to be sent, and the program destroys one of them. The other ends
 * hear it all the same, but in the name of another process's QP it is none. */
static void a_word_for_many_outlives_one(void **state)
{
	struct {
		struct peer_head head;
		struct peer_qp qp[2];
	} b = {.head = resolve(theirs).head, .qp = {{.src_vqpn = 0x22}, {.src_vqpn = 0x33}}};

	(void)state;
	b.head.count = 2;
	b.head.dst_slot = 7;
	b.head.dst_instance = 107;
	b.head.src_vqpn = b.head.dst_vqpn = 0;
	for (uint16_t type = PEER_PATH_HOLD; type <= PEER_PATH_ABORT; type++) {
		b.head.type = type;
		from_shim(&b, sizeof(b));
	}
	b.head.type = PEER_ABORT;
	from_shim(&b, sizeof(b));
	assert_int_equal(to_host, 5);
	b.qp[1].src_vqpn = 0x11;
	from_shim(&b, sizeof(b));
	assert_int_equal(to_host, 5);
}

/* A process with the slot and instance of one elsewhere, which it may claim in its hello, has said
 * nothing in that one's name. So nobody hears from its end that the other one has ended. */
static void the_end_of_another_vms_process_is_not_told(void **state)
{
	struct body b = resolve(ours);

	(void)state;
	b.head.type = PEER_UD_RESOLVE;
	memcpy(b.head.sgid, theirs, 16);
	shims[2].agent = &a;
	from_shim(&b, sizeof(b));
	agent_relay_ended(&shims[2]);
	assert_int_equal(to_shim[1] + to_shim[2] + to_host, 0);
}

/* The agent has been started again: a process that is not there may only be slow. */
static void who_may_still_come_is_not_called_gone(void **state)
{
	struct body b = resolve_from_afar();

	(void)state;
	unsettled = true;
	a.slots[1] = NULL;
	for (uint32_t i = 0; i < 3; i++) {
		b.head.dst_slot = 1;
		b.head.dst_instance = 101;
		b.head.src_vqpn = i;
		from_host(&b, sizeof(b));
	}
	assert_int_equal(to_host, 0);
	agent_relay_again(&a, 0); /* another process has come */
	assert_int_equal(to_shim[1], 0);
	a.slots[1] = &shims[1];
	agent_relay_again(&a, 0);
	assert_int_equal(to_shim[1], 3);
	assert_int_equal(last.src_vqpn, 2); /* in their order */
	agent_relay_again(&a, 0);
	assert_int_equal(to_shim[1], 3);
	assert_int_equal(to_host + to_shim[2], 0);
}

/* The process does not come: all askers hear of it. */
static void who_has_not_come_is_gone(void **state)
{
	struct body b = resolve(ours);

	(void)state;
	unsettled = true;
	a.slots[1] = NULL;
	from_shim(&b, sizeof(b));
	from_shim(&b, sizeof(b));
	assert_int_equal(to_shim[2], 0);
	unsettled = false;
	from_shim(&b, sizeof(b));
	assert_int_equal(to_shim[2], 3);
	assert_int_equal(last.type, PEER_GONE);
}

/* The process has said hello, then which QPs it has. */
static void who_asks_for_a_qp_waits_until_it_is_named(void **state)
{
	struct body b = resolve(ours);

	(void)state;
	unsettled = true;
	b.head.dst_vqpn = 0x12; /* nobody's so far */
	from_shim(&b, sizeof(b));
	a.slots[1] = NULL;
	b.head.dst_vqpn = 0x11;
	from_shim(&b, sizeof(b));
	a.slots[1] = &shims[1];
	agent_relay_again(&a, 0x10);
	assert_int_equal(to_shim[1], 0);
	agent_relay_again(&a, 0x11);
	assert_int_equal(to_shim[1], 1);
	assert_int_equal(last.dst_vqpn, 0x11);
	unsettled = false;
	agent_relay_again(&a, 0);
	assert_int_equal(to_shim[1], 1);
	assert_int_equal(to_shim[2], 1);
	assert_int_equal(last.type, PEER_GONE);
}

static void what_is_held_has_a_bound(void **state)
{
	struct body b = resolve(ours);
	unsigned n = (1u << 20) / sizeof(b);

	(void)state;
	unsettled = true;
	a.slots[1] = NULL;
	for (unsigned i = 0; i < n + 10; i++)
		from_shim(&b, sizeof(b));
	unsettled = false;
	agent_relay_again(&a, 0);
	assert_int_equal(to_shim[2], n);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		T(by_gid),
		T(the_end_of_a_process_is_told),
		T(the_end_of_another_vms_process_is_not_told),
		T(a_word_for_many_outlives_one),
		T(by_slot_and_instance),
		T(a_reused_slot_is_another_process),
		T(gone_is_not_answered),
		T(without_a_host_nobody_waits),
		T(nobody_speaks_for_others),
		T(whom_it_is_for_must_be_said),
		T(who_says_it_must_be_said),
		T(nobody_hears_of_qps_of_others),
		T(a_will_ends_a_connection_and_no_more),
		T(what_is_no_packet_is_dropped),
		T(who_may_still_come_is_not_called_gone),
		T(who_has_not_come_is_gone),
		T(who_asks_for_a_qp_waits_until_it_is_named),
		T(what_is_held_has_a_bound),
	};

	log_set_level(LOG_ERROR);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
