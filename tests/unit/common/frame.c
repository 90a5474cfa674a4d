/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "common/json.h"
#include "common/util.h"

struct seen {
	unsigned count;
	uint64_t last;
};

static void note(void *arg, struct json_object *msg)
{
	struct seen *s = arg;

	s->count++;
	s->last = json_opt_u64(msg, "n", 0);
}

static char *frame_of(uint64_t n, size_t *bytes)
{
	struct json_object *o AUTO_JSON = json_object_new_object();

	json_set_u64(o, "n", n);
	return frame_pack(o, bytes);
}

static void test_bytes_one_by_one(void **state)
{
	struct frame_parser p = {0};
	struct seen s = {0};
	size_t n;
	char *f AUTO_FREE = frame_of(7, &n);

	(void)state;
	for (size_t i = 0; i < n; i++)
		frame_feed(&p, f + i, 1, note, &s);
	assert_int_equal(s.count, 1);
	assert_int_equal(s.last, 7);
	assert_int_equal(p.dropped, 0);
}

static void test_reset_in_the_middle(void **state)
{
	struct frame_parser p = {0};
	struct seen s = {0};
	size_t n;
	char *f AUTO_FREE = frame_of(8, &n);

	(void)state;
	for (size_t cut = 0; cut < n; cut++) {
		frame_feed(&p, f, cut, note, &s);
		frame_feed(&p, "\xff", 1, note, &s);
		frame_feed(&p, f, n, note, &s);
		assert_int_equal(s.count, cut + 1);
	}
}

static void test_garbage_is_dropped_and_counted(void **state)
{
	struct frame_parser p = {0};
	struct seen s = {0};
	size_t n;
	char *f AUTO_FREE = frame_of(9, &n);
	const char junk[] = "\n\nGET / HTTP/1.1\r\n\r\nxyz!";

	(void)state;
	frame_feed(&p, junk, sizeof junk - 1, note, &s);
	frame_feed(&p, f, n, note, &s);
	assert_int_equal(s.count, 1);
	assert_int_equal(p.dropped, sizeof junk - 1);
}

static void test_oversized_frame_is_skipped(void **state)
{
	struct frame_parser p = {0};
	struct seen s = {0};
	char junk[4096];
	size_t n, left = FRAME_TEXT_MAX + 1;
	char *f AUTO_FREE = frame_of(10, &n);
	char head[16];

	(void)state;
	memset(junk, 'a', sizeof junk);
	snprintf(head, sizeof head, "%08zx\n", left);
	frame_feed(&p, head, FRAME_HEAD_BYTES, note, &s);
	for (; left; left -= left < sizeof junk ? left : sizeof junk) {
		frame_feed(&p, junk, left < sizeof junk ? left : sizeof junk, note, &s);
		assert_null(p.text);
	}
	frame_feed(&p, f, n, note, &s);
	assert_int_equal(s.count, 1);
	assert_int_equal(p.dropped, FRAME_HEAD_BYTES + FRAME_TEXT_MAX + 1);
}

static void test_not_an_object(void **state)
{
	struct frame_parser p = {0};
	struct seen s = {0};
	const char bad[] = "00000003\n[1]00000002\n{}";

	(void)state;
	frame_feed(&p, bad, sizeof bad - 1, note, &s);
	assert_int_equal(s.count, 1);
	assert_int_equal(p.dropped, FRAME_HEAD_BYTES + 3);
}

/* The door of ibvmigd and of ibvmig-agent, which hear each other in frames. */
static void test_not_utf8(void **state)
{
	struct frame_parser p = {0};
	struct seen s = {0};
	const char bad[] = "00000009\n{\"a\":\"\xc3\"}00000002\n{}";

	(void)state;
	frame_feed(&p, bad, sizeof bad - 1, note, &s);
	assert_int_equal(s.count, 1);
	assert_int_equal(p.dropped, FRAME_HEAD_BYTES + 9);
}

static void test_base64_round_trip(void **state)
{
	unsigned char data[64], back[64];
	size_t n;

	(void)state;
	for (size_t len = 0; len < sizeof data; len++) {
		for (size_t i = 0; i < len; i++)
			data[i] = (unsigned char)(i * 37 + len);
		char *text AUTO_FREE = base64_encode(data, len);
		assert_int_equal(base64_decode(text, back, sizeof back, &n), 0);
		assert_int_equal(n, len);
		assert_memory_equal(data, back, len);
	}
	assert_int_not_equal(base64_decode("abc", back, sizeof back, &n), 0);
	assert_int_not_equal(base64_decode("ab!=", back, sizeof back, &n), 0);
	assert_int_not_equal(base64_decode("ab==abcd", back, sizeof back, &n), 0);
	assert_int_not_equal(base64_decode("AAAAAAAA", back, 5, &n), 0);
}

int main(void)
{
	const struct CMUnitTest common_frame[] = {
		cmocka_unit_test(test_bytes_one_by_one),
		cmocka_unit_test(test_reset_in_the_middle),
		cmocka_unit_test(test_garbage_is_dropped_and_counted),
		cmocka_unit_test(test_oversized_frame_is_skipped),
		cmocka_unit_test(test_not_an_object),
		cmocka_unit_test(test_not_utf8),
		cmocka_unit_test(test_base64_round_trip),
	};

	return RUN_TESTS(common_frame);
}
