/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "sm-helper/registry/claim.h"
#include "sm-helper/registry/registry_int.h"

static char dir[64], path[96];

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test_sm_registry.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/r.db", dir);
	return 0;
}

static int teardown(void **state)
{
	static const char *const suffix[] = {"", "-wal", "-shm"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
		char *f AUTO_FREE = strf("%s%s", path, suffix[i]);

		unlink(f);
	}
	return rmdir(dir);
}

static struct registry *open_registry(void)
{
	struct registry *r = NULL;
	char *error = NULL;

	assert_int_equal(registry_open(path, &r, &error), 0);
	return r;
}

static struct reg_entry entry(uint64_t vguid, uint64_t parked)
{
	struct reg_entry e = {.vguid = vguid,
			      .vm = "vm-1",
			      .name = "web",
			      .pkey = 0xffff,
			      .lid = 49151,
			      .since_ms = 1234567890123,
			      .at = {.host = "a",
				     .url = "http://a",
				     .vf = "vf0",
				     .parked_guid = parked,
				     .parked_node = parked - 1,
				     .switch_guid = 0xfedcba9876543210,
				     .switch_port = 254}};

	return e;
}

/* Field by field: what lies between them may differ. */
static void assert_same_vf(const struct reg_vf *a, const struct reg_vf *b)
{
	assert_string_equal(a->host, b->host);
	assert_string_equal(a->url, b->url);
	assert_string_equal(a->vf, b->vf);
	assert_int_equal(a->parked_guid, b->parked_guid);
	assert_int_equal(a->parked_node, b->parked_node);
	assert_int_equal(a->switch_guid, b->switch_guid);
	assert_int_equal(a->switch_port, b->switch_port);
	assert_int_equal(a->lid, b->lid);
}

static void assert_same_entry(const struct reg_entry *a, const struct reg_entry *b)
{
	assert_int_equal(a->vguid, b->vguid);
	assert_string_equal(a->vm, b->vm);
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->pkey, b->pkey);
	assert_int_equal(a->lid, b->lid);
	assert_int_equal(a->mode, b->mode);
	assert_int_equal(a->since_ms, b->since_ms);
	assert_int_equal(a->intent, b->intent);
	assert_same_vf(&a->at, &b->at);
	assert_same_vf(&a->to, &b->to);
}

static void assert_same_move(const struct move_request *a, const struct move_request *b)
{
	assert_int_equal(a->vguid, b->vguid);
	assert_string_equal(a->vm, b->vm);
	assert_int_equal(a->pkey, b->pkey);
	assert_same_vf(&a->from, &b->from);
	assert_same_vf(&a->to, &b->to);
}

/* Every field, GUIDs with the top bit too, comes back from a new process's view of the file. */
static void test_round_trip(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry e = entry(0xf000000000000001, 0x8000000000000011), got;

	(void)state;
	e.intent = REG_MOVE;
	e.mode = ADDRESS_DYNAMIC;
	e.to = e.at;
	e.to.parked_guid = 0x12;
	e.at.lid = 0xbfff;
	e.to.lid = 53;
	strcpy(e.to.host, "b'; DROP TABLE vguid; --");
	assert_int_equal(registry_put(r, &e), 0);
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_find(r, e.vguid, &got), 0);
	assert_same_entry(&got, &e);
	assert_int_equal(registry_find_vf(r, 0x8000000000000011, &got), 0);
	assert_int_equal(registry_find_vf(r, 0x12, &got), 0); /* on the way there */
	e.intent = REG_NONE;
	assert_int_equal(registry_put(r, &e), 0);
	assert_int_equal(registry_find_vf(r, 0x12, &got), -ENOENT);
	assert_int_equal(registry_delete(r, e.vguid), 0);
	assert_int_equal(registry_find(r, e.vguid, &got), -ENOENT);
	registry_close(r);
}

static void take_move(void *arg, const struct move_request *m)
{
	struct move_request **at = arg;

	*(*at)++ = *m;
}

/* Moves that were parked: one a vGUID, the last; all fields come back. */
static void test_moves(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry e = entry(0xf000000000000001, 0x8000000000000011);
	struct move_request a = {.vguid = e.vguid, .pkey = 0xffff, .from = e.at, .to = e.at}, b = a;
	struct move_request got[3] = {0}, *end = got;

	(void)state;
	strcpy(a.vm, "vm");
	a.to.parked_guid = 0x12;
	a.to.switch_port = 1;
	b.vguid = 5;
	assert_int_equal(registry_put_move(r, &b), 0);
	assert_int_equal(registry_put_move(r, &b), 0);
	assert_int_equal(registry_put_move(r, &a), 0);
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_each_move(r, take_move, &end), 0);
	assert_int_equal(end - got, 2);
	assert_same_move(&got[0], &a);
	assert_same_move(&got[1], &b);
	assert_int_equal(registry_delete_move(r, a.vguid), 0);
	end = got;
	assert_int_equal(registry_each_move(r, take_move, &end), 0);
	assert_int_equal(end - got, 1);
	registry_close(r);
}

/* A file of a release that knew no dynamic LIDs. */
static void test_old_file(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry e = entry(1, 100), got;
	sqlite3 *db;

	(void)state;
	assert_int_equal(registry_put(r, &e), 0);
	registry_close(r);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
				      "ALTER TABLE vguid DROP COLUMN dynamic;"
				      "ALTER TABLE vguid DROP COLUMN own_lid;"
				      "ALTER TABLE vguid DROP COLUMN to_own_lid;"
				      "ALTER TABLE vguid DROP COLUMN had_lids",
				      0, 0, 0),
			 SQLITE_OK);
	sqlite3_close(db);
	r = open_registry();
	assert_int_equal(registry_find(r, 1, &got), 0);
	assert_same_entry(&got, &e);
	registry_close(r);
}

/* A VM that shares its host's LID is known by its last five. */
static void test_lids_it_had(void **state)
{
	static const uint16_t way[] = {7, 10, 7, 11, 10, 12, 13};
	struct registry *r = open_registry();
	struct reg_entry e = entry(1, 100), got;

	(void)state;
	e.lid = 0;
	reg_set_lid(&e, 5); /* a LID of its own, and nothing is left of those before */
	reg_set_lid(&e, 6);
	assert_false(reg_has_lid(&e, 5));
	e.mode = ADDRESS_SHARED_PORT;
	e.lid = 0;
	for (size_t i = 0; i < ARRAY_SIZE(way); i++)
		reg_set_lid(&e, way[i]);
	assert_int_equal(registry_put(r, &e), 0);
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_find(r, 1, &got), 0);
	assert_int_equal(got.lid, 13);
	assert_int_equal(got.had_lids, 12 | 10ull << 16 | 11ull << 32 | 7ull << 48);
	assert_true(reg_has_lid(&got, 13) && reg_has_lid(&got, 7));
	assert_false(reg_has_lid(&got, 5) || reg_has_lid(&got, 0));
	reg_set_lid(&got, 13);
	reg_set_lid(&got, 14);
	assert_true(reg_has_lid(&got, 13) && reg_has_lid(&got, 10));
	assert_false(reg_has_lid(&got, 7)); /* the oldest gives way */
	registry_close(r);
}

/* Two VMs on one VF: the second is refused and the first is still there. */
static void test_one_vm_per_vf(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry a = entry(1, 100), b = entry(2, 100), got;

	(void)state;
	assert_int_equal(registry_put(r, &a), 0);
	assert_int_equal(registry_put(r, &b), -EIO);
	assert_int_equal(registry_find(r, 1, &got), 0);
	assert_int_equal(registry_find(r, 2, &got), -ENOENT);
	registry_close(r);
}

/* A batch is written whole or not at all. A write of another thread meanwhile is neither held back
 * for ever nor lost. */
static void test_batch(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry e[3] = {entry(1, 11), entry(2, 12), entry(3, 13)}, got;

	(void)state;
	assert_int_equal(registry_put_all(r, e, 3), 0);
	for (unsigned i = 0; i < 3; i++) {
		strcpy(e[i].at.host, "b");
		e[i].at.parked_guid += 10;
	}
	e[2].at.parked_guid = 21; /* the first one's GUID: refused */
	assert_int_equal(registry_put_all(r, e, 3), -EIO);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(registry_find(r, i + 1, &got), 0);
		assert_string_equal(got.at.host, "a");
	}
	assert_int_equal(registry_subscribe(r, "a", "http://new"), 0); /* nothing is left open */
	e[2].at.parked_guid = 23;
	assert_int_equal(registry_put_all(r, e, 3), 0);
	e[0].at.parked_guid = 22; /* two exchange their VFs, and back */
	e[1].at.parked_guid = 21;
	assert_int_equal(registry_put_all(r, e, 3), 0);
	assert_int_equal(registry_find_vf(r, 22, &got), 0);
	assert_int_equal(got.vguid, 1);
	e[0].at.parked_guid = 21;
	e[1].at.parked_guid = 22;
	assert_int_equal(registry_put_all(r, e, 3), 0);
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_find_vf(r, 23, &got), 0);
	assert_int_equal(got.vguid, 3);
	assert_int_equal(registry_find_vf(r, 13, &got), -ENOENT);
	assert_int_equal(registry_put_all(r, e, 1), 0);
	registry_close(r);
}

static void count(void *arg, const struct reg_subscription *s)
{
	assert_string_equal(s->url, "http://new");
	++*(int *)arg;
}

static void test_subscriptions(void **state)
{
	struct registry *r = open_registry();
	int n = 0;

	(void)state;
	assert_int_equal(registry_subscribe(r, "a", "http://old"), 0);
	assert_int_equal(registry_subscribe(r, "a", "http://new"), 0);
	assert_int_equal(registry_each_subscription(r, count, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(registry_unsubscribe(r, "b"), 0);
	assert_int_equal(registry_unsubscribe(r, "a"), 0);
	assert_int_equal(registry_each_subscription(r, count, &n), 0);
	assert_int_equal(n, 1);
	registry_close(r);
}

/* A process that is killed right after put() returned has lost nothing. */
static void test_killed(void **state)
{
	struct reg_entry e = entry(77, 78), got;
	struct registry *r;
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid) {
		char *error = NULL;

		if (registry_open(path, &r, &error) || registry_put(r, &e))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	r = open_registry();
	assert_int_equal(registry_find(r, 77, &got), 0);
	registry_close(r);
}

static void test_bad_file(void **state)
{
	struct registry *r = NULL;
	char *error AUTO_FREE = NULL;
	FILE *f = fopen(path, "w");

	(void)state;
	for (int i = 0; i < 1000; i++)
		fputs("this is not a database ", f);
	fclose(f);
	assert_int_equal(registry_open(path, &r, &error), -EBADMSG);
	assert_null(r);
	assert_non_null(strstr(error, path));
}

static bool never(void *arg, uint64_t guid)
{
	(void)arg;
	(void)guid;
	return false;
}

static bool is_it(void *arg, uint64_t guid)
{
	return guid == *(uint64_t *)arg;
}

static struct reg_claim claim_of(const char *vm, unsigned slot, uint64_t vguid)
{
	struct reg_claim c = {.vguid = vguid, .slot = slot};

	snprintf(c.vm, sizeof c.vm, "%s", vm);
	snprintf(c.name, sizeof c.name, "name-of-%s", vm);
	return c;
}

/* A vGUID has one holder, known by name and since when, also to a new process. */
static void test_claims(void **state)
{
	struct reg_claim a = claim_of("vm-a", 0, 0x8000000000000100),
			 b = claim_of("vm-b", 0, a.vguid);
	struct reg_claim holder, c = claim_of("vm-a", 0, 7);
	struct registry *r = open_registry();

	(void)state;
	assert_int_equal(registry_claim(r, &a, &holder), 0);
	assert_true(holder.since_ms > 0);
	uint64_t since = holder.since_ms;
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_claim(r, &a, &holder), 0); /* again */
	assert_int_equal(holder.since_ms, since);
	assert_int_equal(registry_claim(r, &b, &holder), -EEXIST);
	assert_string_equal(holder.vm, "vm-a");
	assert_string_equal(holder.name, "name-of-vm-a");
	assert_int_equal(registry_claim(r, &c, &holder), -EBUSY); /* the port of c has a claim */
	assert_int_equal(holder.vguid, a.vguid);
	a.slot = 1;
	assert_int_equal(registry_claim(r, &a, &holder), -EBUSY); /* the slot is that of port 0 */
	assert_int_equal(registry_release(r, a.vguid, "vm-b", &holder), -EPERM);
	assert_string_equal(holder.vm, "vm-a");
	assert_int_equal(registry_release(r, a.vguid, "vm-a", &holder), 0);
	assert_int_equal(registry_release(r, a.vguid, "vm-a", &holder), -ENOENT);
	assert_int_equal(registry_claim(r, &b, &holder), 0);
	registry_close(r);
}

/* Bound and claimed exclude each other, for other VMs; a claim outlives its bindings. */
static void test_claim_and_bind(void **state)
{
	struct reg_claim mine = claim_of("vm-1", 0, 50), other = claim_of("vm-2", 0, 50), holder;
	struct reg_entry e = entry(50, 100), got;
	struct registry *r = open_registry();

	(void)state;
	assert_int_equal(registry_put(r, &e), 0); /* by vm-1 */
	assert_int_equal(registry_claim(r, &other, &holder), -EEXIST);
	assert_string_equal(holder.vm, "vm-1");
	assert_int_equal(registry_claim(r, &mine, &holder), 0);
	assert_int_equal(registry_release(r, 50, "vm-1", &holder), -EBUSY);
	assert_int_equal(registry_delete(r, 50), 0);
	strcpy(e.vm, "vm-2");
	assert_int_equal(registry_put(r, &e), -EIO);
	assert_int_equal(registry_find(r, 50, &got), -ENOENT);
	assert_int_equal(registry_release(r, 50, "vm-1", &holder), 0);
	assert_int_equal(registry_put(r, &e), 0);
	registry_close(r);
}

/* Every vGUID of a range is given, each once; a released one comes last; then the range is full. */
static void test_allocate(void **state)
{
	const struct claim_range range = {0x100, 0x107};
	struct reg_claim holder, want = claim_of("vm", 0, 0), taken = claim_of("x", 0, 0x101);
	struct reg_entry e = entry(0x103, 0x104); /* bound, and a parked GUID of the range */
	struct registry *r = open_registry();
	uint64_t in_fabric = 0x105;
	static const uint64_t expect[] = {0x100, 0x102, 0x106, 0x107};

	(void)state;
	assert_int_equal(registry_claim(r, &taken, &holder), 0);
	assert_int_equal(registry_put(r, &e), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(expect); i++) {
		want.slot = i;
		assert_int_equal(registry_allocate(r, &want, &range, is_it, &in_fabric, &holder),
				 0);
		assert_int_equal(holder.vguid, expect[i]);
	}
	assert_int_equal(registry_allocate(r, &want, &range, is_it, &in_fabric, &holder), 0);
	assert_int_equal(holder.vguid, 0x107); /* again */
	want.slot = 9;
	assert_int_equal(registry_allocate(r, &want, &range, is_it, &in_fabric, &holder), -ENOSPC);
	assert_int_equal(registry_release(r, 0x106, "vm", &holder), 0);
	assert_int_equal(registry_release(r, 0x100, "vm", &holder), 0);
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_allocate(r, &want, &range, is_it, &in_fabric, &holder), 0);
	assert_int_equal(holder.vguid, 0x100);
	want.slot = 10;
	assert_int_equal(registry_allocate(r, &want, &range, never, NULL, &holder), 0);
	assert_int_equal(holder.vguid, 0x105);
	registry_close(r);
}

static void test_range(void **state)
{
	struct claim_range r;
	const char *why;

	(void)state;
	assert_int_equal(claim_range_parse("0x0002c90300000100 - 0x0002c903000001ff", &r, &why), 0);
	assert_true(r.first == 0x0002c90300000100 && r.last == 0x0002c903000001ff);
	assert_int_equal(claim_range_parse("0x0002c90300000100-0x0002c90300000100", &r, &why), 0);
	assert_int_equal(claim_range_parse("0x0002c90300000100", &r, &why), -EINVAL);
	assert_int_equal(claim_range_parse("-", &r, &why), -EINVAL);
	assert_int_equal(claim_range_parse("0x0002c90300000200-0x0002c90300000100", &r, &why),
			 -EINVAL);
	assert_non_null(strstr(why, "below"));
	assert_int_equal(claim_range_parse("0x0002c90300000000-0x0002c90300100000", &r, &why),
			 -EINVAL);
	assert_non_null(strstr(why, "1048576"));
	assert_int_equal(claim_range_parse("0x7fffffffffffffff-0x8000000000000001", &r, &why),
			 -EINVAL);
}

/* A grant that was asked for is known again after a kill, whether it was given or not. */
static void test_owner(void **state)
{
	struct registry *r = open_registry();
	struct reg_owner first, again;

	(void)state;
	assert_int_equal(registry_want_grant(r), 0);
	first = registry_owner(r);
	assert_true(first.registry && first.wanted && !first.granted && !first.epoch);
	registry_close(r);
	r = open_registry(); /* killed before the answer */
	assert_int_equal(registry_want_grant(r), 0);
	again = registry_owner(r);
	assert_true(again.registry == first.registry && again.wanted == first.wanted);
	assert_int_equal(registry_granted(r, 5), 0);
	assert_int_equal(registry_want_grant(r), 0);
	again = registry_owner(r);
	assert_true(again.granted == first.wanted && again.epoch == 5);
	assert_true(again.wanted == again.granted);
	registry_close(r);
	r = open_registry(); /* the next process asks for another one */
	assert_int_equal(registry_want_grant(r), 0);
	again = registry_owner(r);
	assert_true(again.granted == first.wanted && again.wanted != first.wanted);
	registry_close(r);
}

/* Full and read-only pass, and are told meanwhile. */
static void test_judged(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry e = entry(1, 2);
	struct registry_health h;

	(void)state;
	assert_int_equal(registry_judge(r, 0).state, REGISTRY_GOOD);
	sqlite3_exec(r->db, "PRAGMA query_only = 1", NULL, NULL, NULL);
	assert_int_equal(registry_judge(r, UINT32_MAX).state, REGISTRY_GOOD); /* not asked anew */
	h = registry_judge(r, 0);
	assert_int_equal(h.state, REGISTRY_READ_ONLY);
	assert_non_null(strstr(h.why, path));
	sqlite3_exec(r->db, "PRAGMA query_only = 0", NULL, NULL, NULL);
	assert_int_equal(registry_judge(r, 0).state, REGISTRY_GOOD);
	assert_string_equal(registry_judge(r, 0).why, "");
	sqlite3_exec(r->db, "PRAGMA max_page_count = 1", NULL, NULL, NULL);
	for (unsigned i = 0; i < 1000 && !registry_put(r, &e); i++)
		e = entry(i + 10, 5000 + i);
	assert_int_equal(registry_judge(r, UINT32_MAX).state, REGISTRY_FULL);
	registry_close(r);
}

/* Damage is found at the start; the file is kept, and a new one takes its place. */
static void test_corrupt(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry e = entry(1, 2);
	char *error = NULL, *aside = NULL;
	uint64_t before = registry_owner(r).registry;
	struct stat a, b;
	int fd;

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		e = entry(i + 10, 5000 + i);
		assert_int_equal(registry_put(r, &e), 0);
	}
	registry_close(r);
	fd = open(path, O_WRONLY);
	for (unsigned page = 1; page < 40; page++)
		assert_int_equal(pwrite(fd, "no page at all", 14, page * 4096), 14);
	close(fd);
	assert_int_equal(stat(path, &a), 0);
	assert_int_equal(registry_open(path, &r, &error), -EBADMSG);
	assert_non_null(strstr(error, path));
	assert_int_equal(registry_stand_in(path, -EBADMSG, error, &r), 0);
	assert_int_equal(registry_judge(r, 0).state, REGISTRY_CORRUPT);
	free(error);
	assert_int_equal(registry_renew(r, &aside, &error), 0);
	assert_int_equal(stat(aside, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(registry_judge(r, 0).state, REGISTRY_GOOD);
	assert_int_equal(registry_count(r), 0);
	assert_int_equal(registry_put(r, &e), 0);
	assert_int_equal(registry_want_grant(r), 0);
	assert_true(registry_owner(r).registry != before);
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_count(r), 1);
	registry_close(r);
	unlink(aside);
	free(aside);
}

static uint64_t played_ms; /* the wall clock; 0: the real one */

static bool failing; /* databases are opened in vain, and leave a file */

int __real_sqlite3_open_v2(const char *file, sqlite3 **db, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *file, sqlite3 **db, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *file, sqlite3 **db, int flags, const char *vfs)
{
	int rc = __real_sqlite3_open_v2(file, db, flags, vfs);

	if (!failing)
		return rc;
	sqlite3_exec(*db, "CREATE TABLE t (c)", NULL, NULL, NULL);
	return SQLITE_FULL;
}

uint64_t __real_wall_ms(void);
uint64_t __wrap_wall_ms(void);
uint64_t __wrap_wall_ms(void)
{
	return played_ms ? played_ms : __real_wall_ms();
}

static void damage(void)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	for (unsigned i = 0; i < 4096; i++)
		fputc('x', f);
	fclose(f);
}

static struct registry *stand_in(void)
{
	char *error = NULL;
	struct registry *r;

	assert_int_equal(registry_open(path, &r, &error), -EBADMSG);
	assert_int_equal(registry_stand_in(path, -EBADMSG, error, &r), 0);
	free(error);
	return r;
}

static unsigned count_aside(bool remove)
{
	unsigned n = 0;

	for (uint64_t ms = 1000; ms < 1010; ms++) {
		char *aside AUTO_FREE = strf("%s.corrupt-%u", path, (unsigned)ms);
		char *wal AUTO_FREE = strf("%s-wal", aside), *shm AUTO_FREE = strf("%s-shm", aside);

		n += !access(aside, F_OK);
		if (!remove)
			continue;
		unlink(aside);
		unlink(wal);
		unlink(shm);
	}
	return n;
}

/* The clock says the same again, also in one process: no file that was laid aside is lost. */
static void test_aside_twice(void **state)
{
	struct reg_entry e = entry(1, 2);
	char *aside = NULL, *error = NULL;
	struct registry *r;

	(void)state;
	played_ms = 1000;
	for (unsigned i = 1; i <= 3; i++) {
		damage();
		r = stand_in();
		assert_int_equal(registry_renew(r, &aside, &error), 0);
		free(aside);
		assert_int_equal(registry_put(r, &e), 0);
		if (i == 3) { /* and again */
			damage();
			assert_int_equal(registry_renew(r, &aside, &error), 0);
			free(aside);
			assert_int_equal(registry_put(r, &e), 0);
		}
		registry_close(r);
	}
	assert_int_equal(count_aside(true), 4);
	r = open_registry();
	assert_int_equal(registry_count(r), 1);
	registry_close(r);
	played_ms = 0;
}

/* Two processes have one directory: the second does not lay aside what the first has begun. */
static void test_renewed_by_another(void **state)
{
	struct reg_entry e = entry(1, 2);
	char *aside = NULL, *error = NULL;
	struct registry *first, *second;

	(void)state;
	played_ms = 1000;
	damage();
	first = stand_in();
	second = stand_in();
	assert_int_equal(registry_renew(first, &aside, &error), 0);
	free(aside);
	assert_int_equal(registry_put(first, &e), 0);
	assert_int_equal(registry_renew(second, &aside, &error), -ESTALE);
	assert_non_null(strstr(error, "another file stands there"));
	free(error);
	assert_int_equal(registry_judge(second, 0).state, REGISTRY_CORRUPT);
	registry_close(second);
	registry_close(first);
	assert_int_equal(count_aside(true), 1);
	first = open_registry();
	assert_int_equal(registry_count(first), 1);
	registry_close(first);
	played_ms = 0;
}

/* The new file cannot be made: the one that was there is there again, with its log. */
static void test_renew_fails(void **state)
{
	char *wal AUTO_FREE = strf("%s-wal", path), *error = NULL, *aside = NULL;
	struct registry *r;
	struct stat before, after;

	(void)state;
	played_ms = 1000;
	damage();
	r = stand_in();
	fclose(fopen(wal, "we"));
	assert_int_equal(stat(path, &before), 0);
	failing = true;
	assert_true(registry_renew(r, &aside, &error) < 0);
	failing = false;
	assert_null(aside);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(access(wal, F_OK), 0);
	assert_int_equal(count_aside(true), 0);
	assert_int_equal(registry_judge(r, 0).state, REGISTRY_CORRUPT);
	free(error);
	registry_close(r);
	unlink(wal);
	played_ms = 0;
}

int main(void)
{
	const struct CMUnitTest sm_registry[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_vm_per_vf, setup, teardown),
		cmocka_unit_test_setup_teardown(test_old_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lids_it_had, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moves, setup, teardown),
		cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_subscriptions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_claims, setup, teardown),
		cmocka_unit_test_setup_teardown(test_claim_and_bind, setup, teardown),
		cmocka_unit_test_setup_teardown(test_allocate, setup, teardown),
		cmocka_unit_test(test_range),
		cmocka_unit_test_setup_teardown(test_owner, setup, teardown),
		cmocka_unit_test_setup_teardown(test_judged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_corrupt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_aside_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_renewed_by_another, setup, teardown),
		cmocka_unit_test_setup_teardown(test_renew_fails, setup, teardown),
	};

	return RUN_TESTS(sm_registry);
}
