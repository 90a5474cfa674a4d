/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mark of a saved VM in its image's metadata. */
#include "tests/unit/tap.h"

#include <string.h>

#include "common/util.h"
#include "daemon/libvirt/domain.h"
#include "daemon/libvirt/domain_saved.h"

#define VF                                                                                         \
	"<ibvmig:vf xmlns:ibvmig='urn:ibvmig:1' pf='pf0' vguid='0x00a1b2fffe000101' "              \
	"pkey='0x8001'/>"
#define DOMAIN(metadata)                                                                           \
	"<domain "                                                                                 \
	"type='kvm'><name>g1</name><uuid>11111111-2222-3333-4444-555555555501</uuid>" metadata     \
	"</domain>"

static const struct domain_saved one = {"id-1", "hosta", "https://hosta:7611"};
static const struct domain_saved two = {"id-2", "hostb", "https://[fd00::1]:7611/?a=1&b=\"2\""};

static void test_marked(void **state)
{
	char *xml AUTO_FREE = domain_saved_mark(DOMAIN("<metadata>" VF "</metadata>"), &one);
	struct domain_saved s;
	struct domain_info *info;

	(void)state;
	assert_non_null(xml);
	assert_true(domain_saved_parse(xml, &s));
	assert_string_equal(s.id, one.id);
	assert_string_equal(s.host, one.host);
	assert_string_equal(s.url, one.url);
	assert_int_equal(domain_parse(xml, strlen(xml), &info), 0);
	assert_true(info->wants_vf && !info->problem);
	domain_free(info);
}

static void test_marked_again(void **state)
{
	char *first AUTO_FREE = domain_saved_mark(DOMAIN("<metadata>" VF "</metadata>"), &one);
	char *xml AUTO_FREE = domain_saved_mark(first, &two);
	struct domain_saved s;

	(void)state;
	assert_true(domain_saved_parse(xml, &s));
	assert_string_equal(s.id, two.id);
	assert_string_equal(s.url, two.url);
	assert_null(strstr(xml, one.id));
}

static void test_no_metadata(void **state)
{
	char *xml AUTO_FREE = domain_saved_mark(DOMAIN(""), &one);
	struct domain_saved s;

	(void)state;
	assert_non_null(xml);
	assert_true(domain_saved_parse(xml, &s));
}

static void test_no_mark(void **state)
{
	struct domain_saved s = {.id = "untouched"};

	(void)state;
	assert_false(domain_saved_parse(DOMAIN("<metadata>" VF "</metadata>"), &s));
	assert_false(domain_saved_parse(
		DOMAIN("<metadata><saved id='i' host='h' url='u'/></metadata>"), &s));
	assert_false(domain_saved_parse(
		DOMAIN("<metadata><s:saved xmlns:s='urn:ibvmig:saved:1' id='i'/></metadata>"), &s));
	assert_false(domain_saved_parse("<domain", &s));
	assert_null(domain_saved_mark("<pool/>", &one));
	assert_string_equal(s.id, "untouched");
}

/* Longer than any that we write: it is not cut off and believed. */
static void test_too_long(void **state)
{
	char id[80];
	struct domain_saved s;
	char *xml AUTO_FREE = NULL;

	(void)state;
	memset(id, 'x', sizeof id);
	id[sizeof id - 1] = '\0';
	xml = strf(DOMAIN("<metadata><s:saved xmlns:s='urn:ibvmig:saved:1' id='%s' host='h' "
			  "url='u'/></metadata>"),
		   id);
	assert_false(domain_saved_parse(xml, &s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_marked),      cmocka_unit_test(test_marked_again),
		cmocka_unit_test(test_no_metadata), cmocka_unit_test(test_no_mark),
		cmocka_unit_test(test_too_long),
	};

	return RUN_TESTS(tests);
}
