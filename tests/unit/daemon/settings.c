/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmigd.conf: its table, what is printed from it, and what an operator reads of a value that is
 * wrong. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/util.h"
#include "daemon/base/settings.h"
#include "tests/unit/settings_files.h"

#define PROVIDER "provider-exec = /bin/true\n"

static int load(const char *text, struct settings **ret, char **ret_error)
{
	char path[] = "/tmp/test-settings.XXXXXX";
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	rc = settings_load(path, ret, ret_error);
	unlink(path);
	return rc;
}

/* A line for each setting that has a fallback, with that value. */
static char *all_fallbacks(void)
{
	char *text = calloc(1, CONF_FILE_MAX);
	size_t used = 0;

	for (const struct setting *s = ibvmigd_settings; s->key || s->section; s++)
		if (s->key && s->fallback)
			used += (size_t)sprintf(text + used, "%s = %s\n", s->key, s->fallback);
	return text;
}

static void test_only_utf8(void **state)
{
	struct settings *s = NULL;
	char *error AUTO_FREE = NULL;

	(void)state;
	assert_int_equal(load(PROVIDER "host-name = host\xe9\n", &s, &error), -EINVAL);
	assert_non_null(strstr(error, ":2: the line is not UTF-8"));
	/* A comment goes nowhere. */
	assert_int_equal(load("# Stra\xdf"
			      "e\n" PROVIDER "host-name = host\n",
			      &s, &error),
			 0);
	settings_free(s);
}

static void test_defaults_may_be_written(void **state)
{
	char *text AUTO_FREE = all_fallbacks(), *all AUTO_FREE;
	struct settings *said = NULL, *unsaid = NULL;
	char *error = NULL;

	(void)state;
	all = strf("%s%s", PROVIDER, text);
	if (load(all, &said, &error))
		fail_msg("%s", error);
	assert_int_equal(load(PROVIDER, &unsaid, &error), 0);
	assert_string_equal(said->socket, unsaid->socket);
	assert_string_equal(said->state_dir, unsaid->state_dir);
	assert_string_equal(said->lease_dir, unsaid->lease_dir);
	assert_string_equal(said->libvirt_uri, unsaid->libvirt_uri);
	assert_string_equal(said->migrate_uri, unsaid->migrate_uri);
	assert_int_equal(said->require_agent, unsaid->require_agent);
	assert_true(said->require_agent);
	assert_true(said->hold_bytes == unsaid->hold_bytes && said->hold_bytes == 8 << 20);
	assert_true(said->ballast_bytes == unsaid->ballast_bytes);
	assert_int_equal(said->ballast_bytes, 8 << 20);
	assert_null(said->pre_attach);
	assert_null(unsaid->pre_attach);
	assert_int_equal(said->saved_peers_s, unsaid->saved_peers_s);
	assert_int_equal(said->saved_peers_s, 60);
	assert_int_equal(said->requests_per_s, unsaid->requests_per_s);
	assert_int_equal(said->requests_per_s, 5000);
	assert_int_equal(said->keep_migrations, unsaid->keep_migrations);
	assert_int_equal(said->keep_migrations, 1000);
	settings_free(said);
	settings_free(unsaid);
}

static void test_files_are_what_the_table_prints(void **state)
{
	(void)state;
	assert_settings_files(ibvmigd_settings, "ibvmigd");
}

/* line: wrong; says: what the message must have beside the line itself, namely the way out. */
static const struct {
	const char *line, *says;
} wrong[] = {
	{"insecure = maybe", "must be yes or no"},
	{"require-agent = ture", "must be yes or no"},
	{"hold-bytes = 24M", "from 4194304 to"},
	{"pre-attach = yes", "failover_pair_id or x-late-detach"},
	{"saved-peers-s = forever", "of seconds from 0 to 86400"},
	{"requests-per-s = -1", "from 0 to 1000000: 0 is no limit"},
	{"keep-migrations = 99", "of records from 100 to 100000"},
	{"provider = mlx4", "must be mlx5 or exec"},
	{"vfio-backend = none", "must be auto, iommufd or group"},
	{"migrate-uri = qemu+tls://hostb/system", "must hold %s"},
	{"listen = 192.0.2.1:7611", "ibvmig-certs"},
	{"sm-url = 192.0.2.9", "must be https://HOST:PORT"},
	{"peer = node2", "must be NAME https://HOST:PORT"},
	{"role = boss node1", "ROLE is read-only, nova, peer"},
	{"admin-group = ibvmig-no-such", "no such group"},
};

static void test_messages_name_value_and_way_out(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char *text AUTO_FREE = strf("%s%s\n", PROVIDER, wrong[i].line);
		char *error AUTO_FREE = NULL;
		struct settings *s = NULL;

		assert_int_equal(load(text, &s, &error), -EINVAL);
		if (!error || !strstr(error, wrong[i].line) || !strstr(error, wrong[i].says) ||
		    !strstr(error, ":2: "))
			fail_msg("%s: %s", wrong[i].line, error ? error : "no message");
	}
}

/* Loads it; what stderr got meanwhile, owned by the caller. */
static char *said_of(const char *text, int expected)
{
	char *error AUTO_FREE = NULL, *said = calloc(1, 4096);
	struct settings *s = NULL;
	int fds[2], own = dup(STDERR_FILENO), rc;

	assert_true(said && own >= 0 && !pipe2(fds, O_NONBLOCK | O_CLOEXEC));
	dup2(fds[1], STDERR_FILENO);
	rc = load(text, &s, &error);
	dup2(own, STDERR_FILENO);
	assert_int_equal(rc, expected);
	if (read(fds[0], said, 4095) < 0)
		assert_int_equal(errno, EAGAIN);
	close(own);
	close(fds[0]);
	close(fds[1]);
	settings_free(s);
	return said;
}

/* Whoever has a shell there is as good as another host: the start says so. */
static void test_listens_to_every_user(void **state)
{
	char *said AUTO_FREE = said_of(PROVIDER "listen = 127.0.0.9:7611\n", 0);
	char *quiet AUTO_FREE = said_of(PROVIDER "tls-cert = /a\ntls-key = /b\ntls-ca = /c\n"
						 "listen = 127.0.0.9:7611\n",
					0);
	char *unsaid AUTO_FREE = said_of(PROVIDER, 0);

	(void)state;
	assert_non_null(strstr(said, "listen = 127.0.0.9:7611"));
	assert_non_null(strstr(said, "every user of this machine"));
	assert_non_null(strstr(said, "tls-cert"));
	assert_string_equal(quiet, "");
	assert_string_equal(unsaid, "");
}

static void test_words_for_yes_and_no(void **state)
{
	static const char *const words[][2] = {
		{"yes", "no"}, {"true", "false"}, {"on", "off"}, {"1", "0"}};

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(words); i++) {
		char *text AUTO_FREE = strf("%srequire-agent = %s\n", PROVIDER,
					    words[i / 2][i % 2]);
		char *error AUTO_FREE = NULL;
		struct settings *s = NULL;

		assert_int_equal(load(text, &s, &error), 0);
		assert_int_equal(s->require_agent, i % 2 == 0);
		settings_free(s);
	}
}

static void test_no_file(void **state)
{
	char *error AUTO_FREE = NULL;
	struct settings *s = NULL;

	(void)state;
	assert_int_equal(settings_load("/no/such.conf", &s, &error), -ENOENT);
	assert_string_equal(error, "/no/such.conf: No such file or directory; -c FILE names "
				   "another one");
}

int main(void)
{
	const struct CMUnitTest daemon_settings[] = {
		cmocka_unit_test(test_defaults_may_be_written),
		cmocka_unit_test(test_only_utf8),
		cmocka_unit_test(test_files_are_what_the_table_prints),
		cmocka_unit_test(test_messages_name_value_and_way_out),
		cmocka_unit_test(test_listens_to_every_user),
		cmocka_unit_test(test_words_for_yes_and_no),
		cmocka_unit_test(test_no_file),
	};

	return RUN_TESTS(daemon_settings);
}
