/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-sm.conf: its table, what is printed from it, and what an operator reads of a wrong value.
 */
#include "tests/unit/settings_files.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sm-helper/moves/ops.h"
#include "sm-helper/settings.h"

static int load(const char *text, struct sm_settings *ret, char **ret_error)
{
	char path[] = "/tmp/test-settings.XXXXXX";
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	rc = sm_settings_load(path, ret, ret_error);
	if (!rc && (rc = sm_settings_check(ret, ret_error)))
		sm_settings_clear(ret);
	unlink(path);
	return rc;
}

static void test_defaults(void **state)
{
	char *error AUTO_FREE = NULL;
	struct sm_settings s;

	(void)state;
	assert_int_equal(load("", &s, &error), 0);
	assert_string_equal(s.kind->name, "opensm-plugin");
	assert_string_equal(s.backend.plugin_socket, "/run/ibvmig/sm-plugin.sock");
	assert_false(s.backend.umad_writes);
	assert_int_equal(s.backend.ufm.timeout_ms, 5000);
	assert_int_equal(s.addresses, ADDRESS_PREPOPULATED);
	assert_true(conf_flag(s.conf, "caching"));
	assert_int_equal(conf_number(s.conf, "verify-sources"), OPS_VERIFY_DEFAULT);
	assert_int_equal(conf_number(s.conf, "requests-per-s"), 20000);
	assert_int_equal(conf_number(s.conf, "umad-port"), 0);
	assert_string_equal(conf_get(s.conf, "state-dir"), "/var/lib/ibvmig");
	sm_settings_clear(&s);
}

/* A word of the table that backend.c does not know would be no backend at all. */
static void test_backends(void **state)
{
	const struct setting *row = setting_find(ibvmig_sm_settings, "backend");
	char names[128], *known;

	(void)state;
	backend_names(names, sizeof names);
	for (char *rest = strdupa(names); (known = strsep(&rest, ","));)
		assert_null(setting_refuse(row, known + strspn(known, " ")));
	for (char *rest = strdupa(row->form); (known = strsep(&rest, "|"));)
		assert_non_null(backend_find(known));
}

static const struct {
	const char *text, *says;
} wrong[] = {
	{"backend = opensm", ":1: backend = opensm: must be opensm-plugin, umad, ufm or none"},
	{"\numad-port = 255",
	 ":2: umad-port = 255: must be a number from 0 to 254: 0 is the first"},
	{"addresses = static", "must be prepopulated, dynamic or shared-port"},
	{"lid-range = 5 - 9", ":1: lid-range = 5 - 9: of no use without addresses = dynamic"},
	{"addresses = dynamic\nlid-range = 9 - 5", ":2: lid-range = 9 - 5: LIDs of ports are"},
	{"addresses = dynamic\nbackend = none",
	 ":1: addresses = dynamic: not possible with backend "
	 "none"},
	{"vguid-range = 7", ":1: vguid-range = 7: "},
	{"listen = 192.0.2.1:7612", ":1: listen = 192.0.2.1:7612: others than this machine"},
	{"paths-listen = 192.0.2.1:7613", ":1: paths-listen = 192.0.2.1:7613: others than this"},
	{"peer = 192.0.2.1", ":1: peer = 192.0.2.1: must be https://HOST:PORT or unix:PATH"},
	{"backend = ufm", "ufm-url is \"\"; it must be https://"},
	{"backend = ufm\nufm-url = https://x", "give either ufm-token-file, or ufm-user"},
	{"ufm-timeout-ms = 0", "must be a number of milliseconds from 1 to 60000"},
	{"tls-cert = /a", "tls-cert, tls-key and tls-ca go together: 2 of them"},
};

static void test_wrong(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char *error AUTO_FREE = NULL;
		struct sm_settings s;

		assert_int_equal(load(wrong[i].text, &s, &error), -EINVAL);
		if (!error || !strstr(error, wrong[i].says))
			fail_msg("%s: %s", wrong[i].text, error ? error : "no message");
	}
}

static void test_files_are_what_the_table_prints(void **state)
{
	(void)state;
	assert_settings_files(ibvmig_sm_settings, "ibvmig-sm");
}

int main(void)
{
	const struct CMUnitTest sm_settings[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_backends),
		cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_files_are_what_the_table_prints),
	};

	return RUN_TESTS(sm_settings);
}
