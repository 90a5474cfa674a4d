/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's partition file is read and written beside its lock, and its own port stays a full member
 * of the default partition. */
#include "tests/unit/sm-helper/played_plugin.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sm-helper/plugin/alias.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/partitions/partitions.h"

#include <opensm/osm_db.h>
#include <opensm/osm_log.h>
#include <opensm/osm_partition.h>

#define OWN_GUID 0x10
#define GUID     0x1234

static char conf[64], cache[64];
static osm_opensm_t osm;
static struct plugin plugin = {.osm = &osm};
static unsigned opened, locked; /* files; of them under OpenSM's lock */
static const char *member;      /* the list's only line, of 0x7fff and OpenSM's port; NULL: empty */
static char *line;

static void count_file(void)
{
	opened++;
	if (pthread_rwlock_trywrlock(&osm.lock.lock)) {
		locked++;
		return;
	}
	pthread_rwlock_unlock(&osm.lock.lock);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

int __wrap_open(const char *path, int flags, ...)
{
	count_file();
	return __real_open(path, flags);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	count_file();
	return __real_fopen(path, mode);
}

bool alias_is_known(const osm_port_t *port)
{
	(void)port;
	return true;
}

unsigned alias_blocks(const osm_port_t *port)
{
	(void)port;
	return 0;
}

ib_net64_t alias_entry(const osm_port_t *port, uint8_t index)
{
	(void)port;
	(void)index;
	return 0;
}

char *master_cache_path(const char *name)
{
	(void)name;
	return strdup(cache);
}

osm_db_domain_t *osm_db_domain_init(osm_db_t *db, const char *name)
{
	(void)db;
	return (osm_db_domain_t *)(uintptr_t)(strstr(name, "members") ? 1 : 0);
}

int osm_db_restore(osm_db_domain_t *d)
{
	(void)d;
	return 0;
}

int osm_db_keys(osm_db_domain_t *d, cl_list_t *keys)
{
	(void)d;
	if (member)
		cl_list_insert_tail(keys, line);
	return 0;
}

char *osm_db_lookup(osm_db_domain_t *d, char *key)
{
	(void)d;
	(void)key;
	return (char *)(uintptr_t)member;
}

int osm_db_update(osm_db_domain_t *d, char *key, char *value)
{
	(void)d;
	(void)key;
	(void)value;
	return 0;
}

int osm_db_delete(osm_db_domain_t *d, char *key)
{
	(void)d;
	(void)key;
	return 0;
}

int osm_db_store(osm_db_domain_t *d, boolean_t sync)
{
	(void)d;
	(void)sync;
	return 0;
}

void osm_log(osm_log_t *log, osm_log_level_t level, const char *fmt, ...)
{
	(void)log;
	(void)level;
	(void)fmt;
}

osm_port_t *osm_get_port_by_guid(const osm_subn_t *subn, ib_net64_t guid)
{
	(void)subn;
	(void)guid;
	return NULL;
}

osm_port_t *osm_get_port_by_alias_guid(const osm_subn_t *subn, ib_net64_t guid)
{
	return osm_get_port_by_guid(subn, guid);
}

osm_prtn_t *osm_prtn_find_by_name(osm_subn_t *subn, const char *name)
{
	(void)subn;
	(void)name;
	return NULL;
}

osm_prtn_t *osm_prtn_make_new(osm_log_t *log, osm_subn_t *subn, const char *name, uint16_t pkey);

osm_prtn_t *osm_prtn_make_new(osm_log_t *log, osm_subn_t *subn, const char *name, uint16_t pkey)
{
	(void)log;
	(void)subn;
	(void)name;
	(void)pkey;
	return NULL;
}

static int start(void **state)
{
	static const char text[] = "Default=0x7fff : ALL=limited, SELF=full;\nt1=1 : 0x1=full;\n";
	int fd;

	(void)state;
	strcpy(conf, "/tmp/test_sm_partitions.XXXXXX");
	fd = mkstemp(conf);
	assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
	close(fd);
	snprintf(cache, sizeof cache, "%s.merged", conf);
	line = strdup("0x7fff:0x0000000000000010");
	member = NULL;
	osm = (osm_opensm_t){.subn = {.sm_port_guid = cl_hton64(OWN_GUID)}};
	osm.subn.opt.partition_config_file = conf;
	cl_plock_init(&osm.lock);
	cl_qmap_init(&osm.subn.prtn_pkey_tbl);
	assert_int_equal(partitions_open(&plugin), 0);
	opened = locked = 0;
	return 0;
}

static int stop(void **state)
{
	(void)state;
	unlink(conf);
	unlink(cache);
	free(line);
	return 0;
}

static struct policy_pkeys own_pkeys(void)
{
	struct policy_pkeys keys;

	partitions_pkeys(&plugin, cl_hton64(OWN_GUID), NULL, &keys);
	return keys;
}

/* A large file holds OpenSM up only as long as OpenSM reads it itself. */
static void test_files(void **state)
{
	(void)state;
	member = "full"; /* so that there is a file of ours */
	partitions_swept(&plugin);
	assert_int_equal(opened, 2);
	assert_int_equal(locked, 0);
	assert_string_equal(osm.subn.opt.partition_config_file, cache);
	partitions_up(&plugin);
	assert_int_equal(own_pkeys().pkey[0], 0xffff);
}

/* As a limited member OpenSM could not answer those that are limited, too. */
static void test_own_port(void **state)
{
	const struct sm_member limited = {.guid = OWN_GUID, .as = SM_MEMBER_LIMITED},
			       full = {.guid = OWN_GUID, .as = SM_MEMBER_FULL},
			       other = {.guid = GUID, .as = SM_MEMBER_LIMITED};
	struct sm_reply_head h = {0};

	(void)state;
	assert_int_equal(partitions_check(&plugin, 0xffff, &limited, &h), -EACCES);
	assert_int_equal(partitions_check(&plugin, 0x7fff, &limited, &h), -EACCES);
	assert_int_equal(partitions_check(&plugin, 0x7fff, &full, &h), 0);
	assert_int_equal(partitions_check(&plugin, 0x7fff, &other, &h), 0);
	assert_int_equal(partitions_check(&plugin, 1, &limited, &h), 0);
}

/* Nor is a list believed that was written while another OpenSM was master. */
static void test_own_port_listed(void **state)
{
	(void)state;
	member = "limited";
	partitions_swept(&plugin);
	assert_int_equal(own_pkeys().count, 1);
	assert_int_equal(own_pkeys().pkey[0], 0xffff);
}

int main(void)
{
	const struct CMUnitTest sm_partitions[] = {
		cmocka_unit_test_setup_teardown(test_files, start, stop),
		cmocka_unit_test_setup_teardown(test_own_port, start, stop),
		cmocka_unit_test_setup_teardown(test_own_port_listed, start, stop),
	};

	return RUN_TESTS(sm_partitions);
}
