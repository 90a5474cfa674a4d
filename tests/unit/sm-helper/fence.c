/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The registry that may change the subnet, as the plugin keeps it. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/master/owner.h"

#include <opensm/osm_log.h>

static char dir[] = "/tmp/ibvmig-fence-XXXXXX";
static unsigned file_syncs, dir_syncs;

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	*(S_ISDIR(st.st_mode) ? &dir_syncs : &file_syncs) += 1;
	return 0;
}

char *master_cache_path(const char *name)
{
	return strf("%s/%s", dir, name);
}

int plugin_refuse(struct sm_reply_head *h, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->reason, sizeof h->reason, fmt, ap);
	va_end(ap);
	return rc;
}

void osm_log(osm_log_t *log, osm_log_level_t level, const char *fmt, ...)
{
	(void)log;
	(void)level;
	(void)fmt;
}

static struct plugin *plugin_new(void)
{
	struct plugin *p = calloc(1, sizeof *p);

	assert_non_null(p);
	p->osm = calloc(1, sizeof *p->osm);
	assert_non_null(p->osm);
	assert_int_equal(owner_open(p), 0);
	return p;
}

static void plugin_free(struct plugin *p)
{
	free(p->osm);
	free(p);
}

static int claim(struct plugin *p, int client, uint64_t registry, uint64_t was, uint64_t grant,
		 uint32_t flags)
{
	struct sm_owner_request req = {.was = was, .flags = flags};
	struct sm_owner_reply r;

	req.owner.registry = registry;
	req.owner.grant = grant;
	strcpy(req.owner.name, "node:/registry.db");
	return plugin_owner(p, client, &req, &r);
}

static bool may(struct plugin *p, int client)
{
	struct sm_reply_head h;

	return !owner_check(p, client, &h);
}

static void test_grants(void **state)
{
	struct plugin *p = plugin_new();

	(void)state;
	assert_false(may(p, 0));
	assert_int_equal(claim(p, 0, 7, 0, 100, 0), sizeof(struct sm_owner_reply));
	assert_true(may(p, 0));
	assert_int_equal(claim(p, 1, 8, 0, 200, 0), -EKEYREJECTED);
	assert_int_equal(claim(p, 1, 7, 99, 101, 0), -EKEYREJECTED); /* a copy of long ago */
	assert_false(may(p, 1));
	assert_int_equal(claim(p, 1, 8, 0, 200, SM_OWNER_TAKE), sizeof(struct sm_owner_reply));
	assert_true(may(p, 1));
	assert_false(may(p, 0));
	plugin_free(p);
}

/* The last grant counts after a restart, and after a power failure. */
static void test_lasts(void **state)
{
	struct plugin *p = plugin_new();

	(void)state;
	assert_int_equal(p->owner.grant, 200);
	file_syncs = dir_syncs = 0;
	assert_int_equal(claim(p, 0, 8, 200, 201, 0), sizeof(struct sm_owner_reply));
	assert_int_equal(file_syncs, 1);
	assert_int_equal(dir_syncs, 1);
	plugin_free(p);
	p = plugin_new();
	assert_int_equal(p->owner.grant, 201);
	assert_false(may(p, 0));
	plugin_free(p);
}

static void test_damaged(void **state)
{
	char *path AUTO_FREE = master_cache_path("ibvmig-owner");
	struct plugin *p;

	(void)state;
	assert_int_equal(truncate(path, 20), 0);
	p = plugin_new();
	assert_int_equal(p->owner.registry, 0);
	plugin_free(p);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest sm_fence[] = {
		cmocka_unit_test(test_grants),
		cmocka_unit_test(test_lasts),
		cmocka_unit_test(test_damaged),
	};

	return mkdtemp(dir) ? RUN_TESTS(sm_fence) : 1;
}
