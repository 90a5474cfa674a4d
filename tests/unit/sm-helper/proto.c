/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The plugin's check of requests: version, length and numbers of each. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/proto/check.h"

static char reason[SM_REASON_MAX];

static int check(void *packet, size_t bytes)
{
	/* In memory of exactly this size, so that ASan sees a read beyond the packet. */
	void *exact = malloc(bytes ? bytes : 1);
	int rc;

	memcpy(exact, packet, bytes);
	*reason = '\0';
	rc = proto_check_request(exact, bytes, reason);
	free(exact);
	assert_int_equal(rc == 0, *reason == '\0');
	return rc;
}

static struct sm_assign_request *batch(unsigned count, size_t *ret_bytes)
{
	static struct sm_assign_request r;

	memset(&r, 0, sizeof r);
	*ret_bytes = offsetof(struct sm_assign_request, target) + count * sizeof r.target[0];
	r.head = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_ASSIGN, 1,
				  (uint32_t)*ret_bytes};
	r.deadline_ms = 1000;
	r.count = count;
	for (unsigned i = 0; i < count; i++)
		r.target[i] = (struct sm_target){.switch_guid = 0x10,
						 .switch_port = (uint8_t)(i + 1),
						 .node_guid = 0x1000 + 2 * i,
						 .port_guid = 0x1001 + 2 * i,
						 .lid = (uint16_t)(i + 1)};
	return &r;
}

static void test_heads(void **state)
{
	struct sm_status_request s;
	const struct sm_head good = {SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_STATUS, 1, sizeof s};
	struct sm_page_request page = {.head = good};

	(void)state;
	s.head = good;
	assert_int_equal(check(&s, sizeof s), 0);
	for (size_t n = 0; n < sizeof s; n++)
		assert_int_equal(check(&s, n), -EPROTO);
	s.head.magic++;
	assert_int_equal(check(&s, sizeof s), -EPROTO);
	s.head = good;
	s.head.version = SM_PROTO_VERSION + 1;
	assert_int_equal(check(&s, sizeof s), -EPROTO);
	assert_non_null(strstr(reason, "; this plugin speaks "));
	s.head = good;
	s.head.bytes++;
	assert_int_equal(check(&s, sizeof s), -EPROTO);
	s.head = good;
	s.head.op = SM_OP_COUNT;
	assert_int_equal(check(&s, sizeof s), -EPROTO);
	s.head.op = 0;
	assert_int_equal(check(&s, sizeof s), -EPROTO);
	page.head.bytes = sizeof page;
	assert_int_equal(check(&page, sizeof page), -EPROTO); /* a status of another length */
	page.head.op = SM_OP_LINKS;
	assert_int_equal(check(&page, sizeof page), 0);
}

static void test_batch_length(void **state)
{
	size_t bytes;
	struct sm_assign_request *r = batch(2, &bytes);

	(void)state;
	assert_int_equal(check(r, bytes), 0);
	for (size_t n = sizeof r->head; n < bytes; n++) {
		r->head.bytes = (uint32_t)n;
		assert_int_equal(check(r, n), -EPROTO);
	}
	r = batch(SM_ASSIGN_MAX, &bytes);
	assert_int_equal(check(r, bytes), 0);
	r->count = SM_ASSIGN_MAX + 1;
	assert_int_equal(check(r, bytes), -EINVAL);
	r->count = UINT32_MAX;
	assert_int_equal(check(r, bytes), -EINVAL);
	r = batch(0, &bytes);
	assert_int_equal(check(r, bytes), -EINVAL);
}

static void test_batch_numbers(void **state)
{
	size_t bytes;
	struct sm_assign_request *r;

	(void)state;
#define REFUSED(field, value)                                                                      \
	do {                                                                                       \
		r = batch(2, &bytes);                                                              \
		r->field = value;                                                                  \
		assert_int_equal(check(r, bytes), -EINVAL);                                        \
	} while (0)
	REFUSED(flags, 0x80);
	REFUSED(deadline_ms, 0);
	REFUSED(deadline_ms, SM_DEADLINE_MAX_MS + 1);
	REFUSED(target[1].like_guid, r->target[1].port_guid);
	r = batch(2, &bytes);
	r->target[1].like_guid = 0x77;
	assert_int_equal(check(r, bytes), 0);
	r->target[1].lid = 0; /* a copy of what is asked of OpenSM by number */
	assert_int_equal(check(r, bytes), -EINVAL);
	REFUSED(target[1].switch_guid, 0);
	REFUSED(target[1].node_guid, 0);
	REFUSED(target[1].port_guid, 0);
	REFUSED(target[1].port_guid, UINT64_MAX);
	REFUSED(target[1].switch_port, 0);
	REFUSED(target[1].switch_port, 255);
	REFUSED(target[1].lid, 0xc000);
	REFUSED(target[1].lid, r->target[0].lid);
	REFUSED(target[1].switch_port, r->target[0].switch_port);
	REFUSED(target[1].port_guid, r->target[0].port_guid);
	REFUSED(target[1].node_guid, r->target[0].node_guid);
	r = batch(2, &bytes);
	r->target[0].lid = r->target[1].lid = 0; /* two that keep theirs */
	assert_int_equal(check(r, bytes), 0);
}

static void test_noise(void **state)
{
	uint8_t packet[512];

	(void)state;
	srand(3);
	for (unsigned i = 0; i < 20000; i++) {
		struct sm_head *h = (void *)packet;
		size_t bytes = (size_t)rand() % sizeof packet;

		for (size_t k = 0; k < sizeof packet; k++)
			packet[k] = (uint8_t)rand();
		h->magic = SM_PROTO_MAGIC;
		h->version = SM_PROTO_VERSION;
		h->op = SM_OP_ASSIGN;
		h->bytes = (uint32_t)bytes;
		assert_int_not_equal(check(packet, bytes), 0);
	}
}

/* As a batch; of no places too. */
static void test_intent(void **state)
{
	struct sm_assign_request *b;
	struct sm_intent_request r = {0};
	size_t bytes, fixed = offsetof(struct sm_intent_request, target);

	(void)state;
	b = batch(2, &bytes);
	r.count = 2;
	memcpy(r.target, b->target, 2 * sizeof r.target[0]);
	bytes = fixed + 2 * sizeof r.target[0];
	r.head = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_INTENT, 1,
				  (uint32_t)bytes};
	assert_int_equal(check(&r, bytes), 0);
	r.target[1].lid = r.target[0].lid = 7;
	assert_int_equal(check(&r, bytes), -EINVAL);
	r.target[1].lid = 0xc000;
	assert_int_equal(check(&r, bytes), -EINVAL);
	r.count = SM_ASSIGN_MAX + 1;
	assert_int_equal(check(&r, bytes), -EINVAL);
	r.count = 1;
	assert_int_equal(check(&r, bytes), -EPROTO);
	r.count = 0;
	r.head.bytes = (uint32_t)fixed;
	assert_int_equal(check(&r, fixed), 0);
	r.head.bytes = (uint32_t)fixed - 4;
	assert_int_equal(check(&r, fixed - 4), -EPROTO);
}

static void test_records(void **state)
{
	static struct sm_records_request r;
	const size_t fixed = offsetof(struct sm_records_request, key), one = sizeof r.key[0];
	const unsigned counts[] = {0, 1, SM_RECORDS_MAX, SM_RECORDS_MAX + 1};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		bool good = counts[i] >= 1 && counts[i] <= SM_RECORDS_MAX;
		size_t bytes = fixed + (good ? counts[i] : 1) * one;

		r.count = counts[i];
		r.head = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_RECORDS, 1,
					  (uint32_t)bytes};
		assert_int_equal(check(&r, bytes), good ? 0 : -EINVAL);
		r.head.bytes--;
		assert_int_equal(check(&r, bytes - 1), good ? -EPROTO : -EINVAL);
	}
	r.head.bytes = sizeof r.head;
	assert_int_equal(check(&r, sizeof r.head), -EPROTO);
}

static struct sm_guids_request *entries(unsigned count, size_t *ret_bytes)
{
	static struct sm_guids_request r;

	memset(&r, 0, sizeof r);
	*ret_bytes = offsetof(struct sm_guids_request, slot) + count * sizeof r.slot[0];
	r.head = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_GUIDS, 1,
				  (uint32_t)*ret_bytes};
	r.deadline_ms = 1000;
	r.count = count;
	for (unsigned i = 0; i < count && i < SM_ASSIGN_MAX; i++)
		r.slot[i] = (struct sm_slot){.port_guid = 0x10, .index = (uint8_t)(i + 1)};
	return &r;
}

static void test_guids(void **state)
{
	struct sm_guids_request *r;
	size_t bytes;

	(void)state;
	r = entries(SM_ASSIGN_MAX, &bytes); /* entries that all show nothing name no GUID twice */
	assert_int_equal(check(r, bytes), 0);
	for (size_t n = 0; n < bytes; n += n < 64 ? 1 : 97)
		assert_int_equal(check(r, n), -EPROTO);
	r->count--;
	assert_int_equal(check(r, bytes), -EPROTO);
	r = entries(0, &bytes);
	assert_int_equal(check(r, bytes), -EINVAL);
	r = entries(2, &bytes);
	r->deadline_ms = SM_DEADLINE_MAX_MS + 1;
	assert_int_equal(check(r, bytes), -EINVAL);
	r = entries(2, &bytes);
	r->slot[1].index = r->slot[0].index;
	assert_int_equal(check(r, bytes), -EINVAL);
	r->slot[1].port_guid++;
	assert_int_equal(check(r, bytes), 0);
	r->slot[0].guid = r->slot[1].guid = 0x77;
	assert_int_equal(check(r, bytes), -EINVAL);
	r = entries(2, &bytes);
	r->slot[1].index = 0;
	assert_int_equal(check(r, bytes), -EINVAL);
	r = entries(2, &bytes);
	r->slot[1].guid = r->slot[1].port_guid;
	assert_int_equal(check(r, bytes), -EINVAL);
	r->slot[1].guid = UINT64_MAX;
	assert_int_equal(check(r, bytes), -EINVAL);
	r->slot[1].guid = 0;
	r->slot[1].port_guid = 0;
	assert_int_equal(check(r, bytes), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest sm_proto[] = {
		cmocka_unit_test(test_heads),         cmocka_unit_test(test_batch_length),
		cmocka_unit_test(test_batch_numbers), cmocka_unit_test(test_noise),
		cmocka_unit_test(test_intent),        cmocka_unit_test(test_records),
		cmocka_unit_test(test_guids),
	};

	return RUN_TESTS(sm_proto);
}
