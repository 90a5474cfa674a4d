/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A standby that asks the ibvmig-sm that leads for the members of partitions. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/watch/members.h"

static struct ops o = {.twin = (struct twin *)1};
static const struct backend_kind kind;
static bool leads;
static unsigned fetched;

static bool is_locked(void)
{
	bool locked = pthread_mutex_trylock(&o.lock);

	if (!locked)
		pthread_mutex_unlock(&o.lock);
	return locked;
}

int twin_fetch(struct twin *p, const char *path, unsigned ms, struct json_object **ret_answer,
	       char error[static BACKEND_ERROR_MAX])
{
	bool peer = !strcmp(path, "/v1/peer");
	const char *text = peer ? "{\"sm\":{\"state\":3}}" : "{\"partitions\":[]}";

	(void)p;
	(void)ms;
	fetched++;
	assert_int_equal(is_locked(), !peer);
	strcpy(error, "timeout");
	return leads ? json_parse(text, strlen(text), ret_answer) : -ETIMEDOUT;
}

int backend_look(struct backend *b, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		 char error[static BACKEND_ERROR_MAX])
{
	(void)b;
	(void)error;
	*ret_age_ms = 0;
	ret_status->sm_state = SM_STATE_STANDBY;
	return 0;
}

const struct backend_kind *backend_kind(const struct backend *b)
{
	(void)b;
	return &kind;
}

int backend_partitions(struct backend *b, uint32_t first, struct sm_partitions_reply *ret_reply,
		       char error[static BACKEND_ERROR_MAX])
{
	(void)b;
	(void)first;
	(void)error;
	*ret_reply = (struct sm_partitions_reply){0};
	return 0;
}

static int no_members(void *self, uint16_t pkey, const struct sm_member *members, unsigned count,
		      unsigned flags, unsigned deadline_ms, struct sm_members_reply *ret_reply,
		      char *error)
{
	(void)self;
	(void)pkey;
	(void)members;
	(void)count;
	(void)flags;
	(void)deadline_ms;
	(void)ret_reply;
	(void)error;
	return -EIO;
}

static const struct backend_kind kind = {.members = no_members};

int backend_members(struct backend *b, uint16_t pkey, const struct sm_member *members,
		    unsigned count, unsigned flags, unsigned deadline_ms,
		    struct sm_members_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	(void)b;
	return no_members(NULL, pkey, members, count, flags, deadline_ms, ret_reply, error);
}

/* The host of the leader has died: our OpenSM will lead soon, and no bind or move may wait. */
static void test_leader_is_away(void **state)
{
	struct members m = {0};

	(void)state;
	pthread_mutex_init(&o.lock, NULL);
	members_follow(&m, &o);
	assert_int_equal(fetched, 1);
	assert_true(m.told);
	assert_false(is_locked());
	leads = true;
	m.due_ms = 0;
	members_follow(&m, &o);
	assert_int_equal(fetched, 3);
	assert_false(m.told);
	assert_false(is_locked());
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_leader_is_away)};

	return RUN_TESTS(tests);
}
