/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Frames between a guest's port and its agent, and what the agent lets through of them. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "tests/lab/port/bridge.h"

#define LRH       ETH_HLEN
#define BTH       (LRH + WIRE_LRH_BYTES)
#define GET       1
#define REPORT    6
#define ANSWER    0x80
#define GUEST_TID 0xabcd000100000007ull

static const struct port port = {.state = 4,
				 .sm_sl = 2,
				 .lmc = 1,
				 .mtu = 4,
				 .lid = 6,
				 .sm_lid = 1,
				 .prefix = 0xfe80000000000000,
				 .guid = {0x00a1b2fffe000101, 0, 0x11},
				 .pkey = {0x7fff, 0x8001}};

static struct wire_gsi question(uint8_t method)
{
	struct wire_gsi g = {6, 1, 0x7fff, 2, WIRE_QP1, WIRE_QP1, WIRE_QP1_QKEY, {1, 3, 2, method}};

	for (int i = 0; i < 8; i++)
		g.mad[8 + i] = (uint8_t)(GUEST_TID >> (56 - 8 * i));
	return g;
}

static void test_round_trip(void **state)
{
	uint8_t frame[WIRE_GSI_BYTES];
	struct wire_gsi out = question(GET), in;

	(void)state;
	out.mad[255] = 0x5a;
	wire_gsi_write(&out, frame);
	assert_int_equal(wire_gsi_read(frame, sizeof(frame), &in), 0);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_memory_equal(frame, "\x02\x49\x42\x00\x00\x01\x02\x49\x42\x00\x00\x06\x88\xb5", 14);
}

/* The ICRC of a packet that the driver sent, with VL and BECN as a switch may change them. */
static void test_icrc_passes_over_what_switches_change(void **state)
{
	uint8_t frame[WIRE_GSI_BYTES];
	struct wire_gsi out = question(GET), in;

	(void)state;
	wire_gsi_write(&out, frame);
	frame[LRH] |= 0x30;
	frame[BTH + 4] |= 0x40;
	assert_int_equal(wire_gsi_read(frame, sizeof(frame), &in), 0);
	frame[LRH + 1] ^= 0x10; /* the SL: no switch changes that */
	assert_int_equal(wire_gsi_read(frame, sizeof(frame), &in), -EBADMSG);
}

/* The reader sees just so many bytes, on the heap, where a sanitizer watches the end. */
static int read_bytes(const uint8_t *frame, size_t bytes)
{
	uint8_t *copy AUTO_FREE = malloc(bytes ? bytes : 1);
	struct wire_gsi in;
	uint64_t guid;

	memcpy(copy, frame, bytes);
	wire_asks(copy, bytes, &guid);
	return wire_gsi_read(copy, bytes, &in);
}

static void test_short_frames(void **state)
{
	uint8_t frame[WIRE_GSI_BYTES + 20] = {0};
	struct wire_gsi out = question(GET);

	(void)state;
	wire_gsi_write(&out, frame);
	for (size_t n = 0; n < WIRE_GSI_BYTES; n++)
		assert_int_equal(read_bytes(frame, n), -EBADMSG);
	/* Ethernet may pad */
	assert_int_equal(read_bytes(frame, sizeof(frame)), 0);
}

static void test_each_changed_byte(void **state)
{
	uint8_t frame[WIRE_GSI_BYTES];
	struct wire_gsi out = question(GET);

	(void)state;
	wire_gsi_write(&out, frame);
	for (size_t i = LRH; i < sizeof(frame); i++)
		for (int bit = 0; bit < 8; bit++) {
			bool may_change = (i == LRH && bit >= 4) || i == BTH + 4;

			frame[i] ^= (uint8_t)(1 << bit);
			assert_int_equal(read_bytes(frame, sizeof(frame)),
					 may_change ? 0 : -EBADMSG);
			frame[i] ^= (uint8_t)(1 << bit);
		}
}

/* A GRH that the frame has no room for. */
static void test_grh_beyond_the_end(void **state)
{
	uint8_t frame[WIRE_GSI_BYTES];
	struct wire_gsi out = question(GET);

	(void)state;
	wire_gsi_write(&out, frame);
	frame[LRH + 1] |= 3;
	frame[LRH + 5] += WIRE_GRH_BYTES / 4;
	assert_int_equal(read_bytes(frame, sizeof(frame)), -EBADMSG);
}

static void test_control(void **state)
{
	uint8_t frame[WIRE_CONTROL_BYTES];
	struct ibx_control c;
	uint64_t guid = 0;

	(void)state;
	wire_tell(&port, frame);
	memcpy(&c, frame + ETH_HLEN, sizeof(c));
	assert_int_equal(c.op, IBX_TELL);
	assert_memory_equal(&c.lid_be, "\0\6\0\1", 4);
	assert_memory_equal(c.guid_be,
			    "\x00\xa1\xb2\xff\xfe\x00\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x11",
			    24);
	assert_memory_equal(c.pkey_be, "\x7f\xff\x80\x01\0\0", 6);
	assert_false(wire_asks(frame, sizeof(frame), &guid));
	frame[ETH_HLEN + 4] = IBX_ASK;
	assert_true(wire_asks(frame, sizeof(frame), &guid));
	assert_int_equal(guid, port.guid[0]);
	for (size_t n = 0; n < sizeof(frame); n++)
		assert_false(wire_asks(frame, n, &guid));
}

/* A device that has an older frame has not got this one. */
static void test_what_a_device_has(void **state)
{
	uint8_t told[WIRE_CONTROL_BYTES], said[WIRE_CONTROL_BYTES];
	bool same;

	(void)state;
	wire_tell(&port, told);
	memcpy(said, told, sizeof(said));
	assert_false(wire_has(said, sizeof(said), told, &same));
	said[ETH_HLEN + offsetof(struct ibx_control, op)] = IBX_HAS;
	assert_true(wire_has(said, sizeof(said), told, &same));
	assert_true(same);
	for (size_t n = 0; n < sizeof(said); n++)
		assert_false(wire_has(said, n, told, &same));
	for (size_t i = ETH_HLEN + 5; i < sizeof(said); i++) {
		said[i] ^= 1;
		assert_true(wire_has(said, sizeof(said), told, &same));
		assert_false(same);
		said[i] ^= 1;
	}
}

static void test_question_and_answer(void **state)
{
	struct bridge b = {0};
	struct wire_gsi g = question(GET), back;
	struct sa_mad m;

	(void)state;
	g.source_qp = 5;
	assert_int_equal(bridge_up(&b, &port, &g, &m), 0);
	assert_int_equal(m.lid, 1);
	assert_memory_equal(m.mad + 8, "\0\0\0\0\0\0\0\1", 8);
	memcpy(m.mad + 8, "\0\7\0\2", 4); /* umad and ibsim write there */
	m.mad[3] |= ANSWER;
	assert_int_equal(bridge_down(&b, &port, &m, &back), 0);
	assert_memory_equal(back.mad + 8, g.mad + 8, 8);
	assert_int_equal(back.dest_qp, 5);
	assert_int_equal(back.dlid, 6);
	assert_int_equal(back.slid, 1);
	m.status = ETIMEDOUT;
	assert_int_equal(bridge_down(&b, &port, &m, &back), -ENOENT);
}

static void test_answer_of_nobody(void **state)
{
	struct bridge b = {0};
	struct wire_gsi g = question(GET), back;
	struct sa_mad m = {.mad = {1, 3, 2, GET | ANSWER}};

	(void)state;
	assert_int_equal(bridge_down(&b, &port, &m, &back), -ENOENT);
	for (int i = 0; i <= BRIDGE_REQUESTS; i++)
		assert_int_equal(bridge_up(&b, &port, &g, &m), 0);
	m.mad[3] |= ANSWER;
	assert_int_equal(bridge_down(&b, &port, &m, &back), 0);
	memcpy(m.mad + 12, "\0\0\0\1", 4); /* so long ago that its place is taken */
	assert_int_equal(bridge_down(&b, &port, &m, &back), -ENOENT);
}

/* One path record: 64 bytes behind the header of 56. */
static void test_table(void **state)
{
	struct bridge b = {0};
	struct wire_gsi g = question(0x12), back;
	struct sa_mad m;

	(void)state;
	assert_int_equal(bridge_up(&b, &port, &g, &m), 0);
	m.mad[3] |= ANSWER;
	m.bytes = 56 + 64;
	assert_int_equal(bridge_down(&b, &port, &m, &back), 0);
	assert_memory_equal(back.mad + 24, "\x01\x01\xff\x00\0\0\0\x01\0\0\0\x54", 12);
}

static void test_report(void **state)
{
	struct bridge b = {0};
	struct wire_gsi g, answer = question(REPORT | ANSWER);
	struct sa_mad m = {.lid = 1, .mad = {1, 3, 2, REPORT}};

	(void)state;
	memcpy(m.mad + 8, answer.mad + 8, 8);
	assert_int_equal(bridge_down(&b, &port, &m, &g), 0);
	assert_int_equal(g.dest_qp, WIRE_QP1);
	assert_memory_equal(g.mad, m.mad, sizeof(m.mad));
	assert_int_equal(bridge_up(&b, &port, &answer, &m), 0);
	assert_memory_equal(m.mad, answer.mad, sizeof(m.mad));
}

static void test_what_may_not_pass(void **state)
{
	struct wire_gsi good = question(GET), g;
	struct bridge b = {0};
	struct sa_mad m;

	(void)state;
#define REFUSED(field, value, error)                                                               \
	(g = good, g.field = (value), assert_int_equal(bridge_up(&b, &port, &g, &m), error))
	REFUSED(slid, 7, 0); /* LMC 1: 6 and 7 are its own */
	REFUSED(slid, 8, -EPERM);
	REFUSED(slid, 0, -EPERM);
	REFUSED(dlid, 6, -ENOMSG);
	REFUSED(dest_qp, 2, -EPERM);
	REFUSED(qkey, 0x11111111, -EPERM);
	REFUSED(pkey, 0x7fff, 0);
	REFUSED(pkey, 0xffff, -EPERM); /* it is a limited member */
	REFUSED(pkey, 0x8001, 0);
	REFUSED(pkey, 0x0001, 0);
	REFUSED(pkey, 0x8002, -EPERM);
	REFUSED(pkey, 0, -EPERM);
	REFUSED(mad[0], 2, -EPROTONOSUPPORT);
	REFUSED(mad[1], 4, -EPROTONOSUPPORT);
	REFUSED(mad[1], 0x81, -EPROTONOSUPPORT);
	REFUSED(mad[2], 1, -EPROTONOSUPPORT);
	g = good;
	g.mad[25] = 2;
	g.mad[26] = 1;
	assert_int_equal(bridge_up(&b, &port, &g, &m), -EALREADY);
}

/* With shared-port addresses a guest's port has its entry's GUID alone, and is down without one. */
static void test_shared_port(void **state)
{
	struct port shared = port;

	(void)state;
	port_share(&shared, 2);
	assert_int_equal(shared.guid[0], 0x11);
	assert_int_equal(shared.guid[2], 0);
	assert_int_equal(shared.lid, port.lid);
	assert_int_equal(shared.state, port.state);
	assert_int_equal(shared.pkey[1], port.pkey[1]);
	shared = port;
	port_share(&shared, 1);
	assert_int_equal(shared.guid[0], 0);
	assert_int_equal(shared.lid, 0);
	assert_int_equal(shared.state, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_icrc_passes_over_what_switches_change),
		cmocka_unit_test(test_short_frames),
		cmocka_unit_test(test_each_changed_byte),
		cmocka_unit_test(test_grh_beyond_the_end),
		cmocka_unit_test(test_control),
		cmocka_unit_test(test_what_a_device_has),
		cmocka_unit_test(test_question_and_answer),
		cmocka_unit_test(test_answer_of_nobody),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_what_may_not_pass),
		cmocka_unit_test(test_shared_port),
	};

	return RUN_TESTS(tests);
}
