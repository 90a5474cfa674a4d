/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From what ibvmig-sm says of a move to what each VM's agent hears of it. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/ib.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/vm/repath.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/vm.h"

#define MOVED 0x00a1b2fffe000001ull
#define PEER  0x00a1b2fffe000002ull
#define FAR   0x00a1b2fffe000003ull

/* The vGUIDs of who has one VF. */
static struct json_object *only(uint64_t guid)
{
	struct json_object *list = json_object_new_array();
	char text[IB_GUID_TEXT];

	ib_guid_format(guid, text);
	json_object_array_add(list, json_object_new_string(text));
	return list;
}

static struct json_object *of_mover(struct json_object *answer)
{
	struct json_object *mover AUTO_JSON = only(MOVED);

	return repath_of_mover(answer, mover);
}

static struct json_object *of_peer(struct json_object *answer, uint64_t peer)
{
	struct json_object *mover AUTO_JSON = only(MOVED), *list AUTO_JSON = only(peer);

	return repath_of_peer(answer, mover, list);
}

static struct daemon d;
static struct vm vms[3]; /* the mover, a peer, one whose path has not changed */
static enum agent_state states[3];
static struct json_object *heard[3]; /* owned: the last message */
static unsigned messages[3];

static size_t index_of(const struct agent_line *a)
{
	return (size_t)((const char *)a - (const char *)1);
}

enum agent_state agent_state(const struct agent_line *a)
{
	return a ? states[index_of(a)] : AGENT_DOWN;
}
int agent_send(struct agent_line *a, struct json_object *msg)
{
	size_t i = index_of(a);

	json_object_put(heard[i]);
	heard[i] = msg;
	messages[i]++;
	return 0;
}
int job_start(struct daemon *daemon, struct json_object *in, void (*run)(struct job *j),
	      void (*done)(struct job *j), void *owner, uint64_t serial)
{
	(void)daemon;
	(void)in;
	(void)run;
	(void)done;
	(void)owner;
	(void)serial;
	return -ENOMEM;
}
int sm_call(const struct settings *s, const char *method, const char *path,
	    struct json_object *body, struct json_object **ret_answer, char *error)
{
	(void)s;
	(void)method;
	(void)path;
	(void)body;
	(void)ret_answer;
	(void)error;
	return -ENOTCONN;
}
void sm_on_caching(struct daemon *daemon, void (*changed)(struct daemon *d))
{
	(void)daemon;
	(void)changed;
}

void sm_set_caching(struct daemon *daemon, bool caching)
{
	daemon->sm.caching = caching;
}

static int setup(void **state)
{
	static const uint64_t guid[3] = {MOVED, PEER, FAR};
	static struct settings none;

	(void)state;
	memset(&vms, 0, sizeof vms);
	d.settings = &none;
	d.vms = vms;
	for (size_t i = 0; i < 3; i++) {
		vms[i].d = &d;
		vms[i].next = i < 2 ? &vms[i + 1] : NULL;
		vms[i].vfs[0].want.vguid = guid[i];
		vms[i].vf_count = 1;
		vms[i].agent = (struct agent_line *)((char *)1 + i);
		states[i] = AGENT_UP;
		messages[i] = 0;
		json_object_put(TAKE(heard[i]));
	}
	if (sd_event_new(&d.loop) < 0)
		return -1;
	return repath_new(&d, &d.repath);
}

static int teardown(void **state)
{
	(void)state;
	repath_free(TAKE(d.repath));
	d.loop = sd_event_unref(d.loop);
	for (size_t i = 0; i < 3; i++)
		json_object_put(TAKE(heard[i]));
	return 0;
}

static int notice(const char *text)
{
	char *list AUTO_FREE = strf("{\"notices\":[%s]}", text);
	struct json_object *body AUTO_JSON = NULL;
	char error[HTTP_ERROR_MAX];

	assert_int_equal(json_parse(list, strlen(list), &body), 0);
	return repath_notice(&d, body, error);
}

#define CHANGED                                                                                    \
	"\"paths\":[{\"peer\":\"0x00a1b2fffe000002\",\"sl_to\":3,\"sl_from\":4,\"mtu\":2048,"      \
	"\"rate\":6}]"
#define NOTICE "{\"vguid\":\"0x00a1b2fffe000001\",\"lid\":17," CHANGED "}"

static struct json_object *first_path(struct json_object *msg)
{
	struct json_object *list = json_opt(msg, "paths");

	assert_true(json_object_is_type(list, json_type_array));
	return json_object_array_get_idx(list, 0);
}

static void a_move(void **state)
{
	struct json_object *p;

	(void)state;
	assert_int_equal(notice(NOTICE), 0);
	assert_int_equal(messages[0], 0); /* the mover's own resume brings the path */
	assert_string_equal(json_opt_str(heard[1], "op", ""), "repath");
	p = first_path(heard[1]);
	assert_string_equal(json_opt_str(p, "dguid", ""), "0x00a1b2fffe000001");
	assert_string_equal(json_opt_str(p, "sguid", ""), "0x00a1b2fffe000002");
	assert_int_equal(json_opt_u64(p, "sl", 99), 3);
	assert_int_equal(json_opt_u64(p, "mtu", 0), 2048);
	assert_int_equal(json_opt_u64(p, "rate", 0), 6);
	assert_int_equal(json_opt_u64(p, "dlid", 0), 17);
	assert_null(json_opt(first_path(heard[2]), "sl")); /* only the LID is said */
	assert_int_equal(json_opt_u64(first_path(heard[2]), "dlid", 0), 17);
}

/* The second says what the first has said. */
static void told_twice(void **state)
{
	struct json_object *first AUTO_JSON = NULL;

	(void)state;
	assert_int_equal(notice(NOTICE), 0);
	first = json_object_get(heard[1]);
	assert_int_equal(notice(NOTICE), 0);
	assert_int_equal(messages[1], 2);
	assert_true(json_object_equal(first, heard[1]));
}

static void not_all_known(void **state)
{
	(void)state;
	assert_int_equal(notice("{\"vguid\":\"0x00a1b2fffe000001\",\"lid\":17}"), 0);
	assert_string_equal(json_opt_str(heard[1], "op", ""), "unpath");
	assert_int_equal(notice("{\"vguid\":\"0x00a1b2fffe000001\",\"gone\":true}"), 0);
	assert_string_equal(json_opt_str(heard[2], "op", ""), "unpath");
	assert_int_equal(messages[1], 2);
	assert_int_equal(messages[0], 0);
}

static void bad_notices(void **state)
{
	(void)state;
	assert_int_equal(notice("{}"), -EINVAL);
	assert_int_equal(notice("{\"vguid\":\"x\",\"lid\":1}"), -EINVAL);
	assert_int_equal(notice("{\"vguid\":\"0x00a1b2fffe000001\"}"), -EINVAL);
	assert_int_equal(notice("{\"vguid\":\"0x00a1b2fffe000001\",\"lid\":49152}"), -EINVAL);
	assert_int_equal(notice("{\"vguid\":\"0x00a1b2fffe000001\",\"lid\":1,\"paths\":[7,{}]}"),
			 0);
	assert_int_equal(messages[1], 1);
	assert_int_equal(notice(""), -EINVAL);
	assert_int_equal(notice(NOTICE ",{}"), -EINVAL); /* none of them is told */
	assert_int_equal(messages[1], 1);
}

/* A batch's changes come in one message. */
static void a_batch(void **state)
{
	(void)state;
	assert_int_equal(
		notice(NOTICE ",{\"vguid\":\"0x00a1b2fffe000007\",\"lid\":18," CHANGED "}"), 0);
	assert_int_equal(messages[0], 1); /* tells of the other VM's move */
	assert_int_equal(messages[1], 2);
	assert_string_equal(json_opt_str(first_path(heard[1]), "dguid", ""), "0x00a1b2fffe000007");
}

/* A VM that is between two hosts when the notice comes hears of it when it has arrived. */
static void arrival(void **state)
{
	(void)state;
	states[1] = AGENT_WAITING;
	assert_int_equal(notice(NOTICE), 0);
	assert_int_equal(notice("{\"vguid\":\"0x00a1b2fffe000003\",\"gone\":true}"), 0);
	assert_int_equal(messages[1], 0);
	states[1] = AGENT_UP;
	repath_agent_up(&vms[1]);
	assert_int_equal(messages[1], 1);
	assert_int_equal(json_opt_u64(first_path(heard[1]), "sl", 99), 3);
	for (int i = 0; i < 100; i++) /* more than are kept */
		assert_int_equal(notice(NOTICE "," NOTICE), 0);
	messages[1] = 0;
	repath_agent_up(&vms[1]);
	assert_int_equal(messages[1], 128);
}

static int told(const char *text)
{
	struct json_object *body AUTO_JSON = NULL;
	char error[HTTP_ERROR_MAX];

	assert_int_equal(json_parse(text, strlen(text), &body), 0);
	return repath_notice(&d, body, error);
}

#define RECORD(from, to, rest) "{\"sguid\":\"" from "\",\"dguid\":\"" to "\"," rest "}"
#define NOW                    "\"pkey\":\"0x0000\",\"dlid\":9,\"slid\":8,\"sl\":2,\"mtu\":4096,\"rate\":16"

/* After a fault each guest hears of its own records; one without a path comes without values. */
static void a_fault(void **state)
{
	struct json_object *p;

	(void)state;
	assert_int_equal(told("{\"records\":[" RECORD("0x00a1b2fffe000002", "0x00a1b2fffe000001",
						      NOW) "," RECORD("0x00a1b2fffe000003",
								      "0x00a1b2fffe000001",
								      "\"gone\":true") "]}"),
			 0);
	assert_int_equal(messages[0], 0);
	assert_int_equal(messages[1], 1);
	p = first_path(heard[1]);
	assert_int_equal(json_opt_u64(p, "sl", 99), 2);
	assert_int_equal(json_opt_u64(p, "dlid", 0), 9);
	assert_string_equal(json_opt_str(p, "pkey", ""), "0x0000");
	p = first_path(heard[2]);
	assert_string_equal(json_opt_str(p, "dguid", ""), "0x00a1b2fffe000001");
	assert_null(json_opt(p, "dlid"));
	assert_null(json_opt(p, "sl"));
}

/* What cannot be asked is forgotten; so it is where ibvmig-sm says so. */
static void all_of_them(void **state)
{
	(void)state;
	assert_int_equal(told("{\"all\":true,\"forget\":true}"), 0);
	assert_string_equal(json_opt_str(heard[0], "op", ""), "unpath");
	assert_null(json_opt(heard[0], "guids"));
	assert_int_equal(told("{\"all\":true}"), 0); /* no job can be started here */
	assert_int_equal(messages[2], 2);
	assert_int_equal(told("{\"records\":[]}"), -EINVAL);
	assert_int_equal(told("{\"records\":[{\"sguid\":\"x\"}]}"), -EINVAL);
	assert_int_equal(messages[2], 2);
}

static void resume(void **state)
{
	const char *text = "{\"lid_after\":17,\"paths_changed\":1," CHANGED "}";
	struct json_object *move AUTO_JSON = NULL, *same AUTO_JSON = NULL, *many AUTO_JSON = NULL;

	(void)state;
	assert_int_equal(json_parse(text, strlen(text), &move), 0);
	struct json_object *mine AUTO_JSON = of_mover(move);
	struct json_object *theirs AUTO_JSON = of_peer(move, PEER);
	struct json_object *others AUTO_JSON = of_peer(move, FAR);
	assert_int_equal(json_object_array_length(mine), 1);
	assert_int_equal(json_opt_u64(json_object_array_get_idx(mine, 0), "sl", 99), 4);
	assert_int_equal(json_opt_u64(json_object_array_get_idx(theirs, 0), "sl", 99), 3);
	assert_int_equal(json_object_array_length(others), 0);
	/* without a change of the LID, none is told */
	assert_null(json_opt(json_object_array_get_idx(mine, 0), "slid"));
	assert_null(json_opt(json_object_array_get_idx(theirs, 0), "dlid"));
	json_set_u64(move, "lid_before", 7);
	json_set_u64(move, "lid_after", 10);
	struct json_object *mine10 AUTO_JSON = of_mover(move);
	struct json_object *theirs10 AUTO_JSON = of_peer(move, PEER);
	assert_int_equal(json_opt_u64(json_object_array_get_idx(mine10, 0), "slid", 0), 10);
	assert_null(json_opt(json_object_array_get_idx(mine10, 0), "dlid"));
	assert_int_equal(json_opt_u64(json_object_array_get_idx(theirs10, 0), "dlid", 0), 10);
	assert_null(json_opt(json_object_array_get_idx(theirs10, 0), "slid"));
	text = "{\"paths_changed\":0}";
	assert_int_equal(json_parse(text, strlen(text), &same), 0);
	assert_null(of_mover(same));
	assert_null(of_peer(NULL, PEER));
	text = "{\"paths_changed\":1000}";
	assert_int_equal(json_parse(text, strlen(text), &many), 0);
	struct json_object *all AUTO_JSON = of_mover(many);
	struct json_object *one AUTO_JSON = of_peer(many, PEER);
	assert_false(json_object_is_type(all, json_type_array));
	assert_null(json_opt(json_object_array_get_idx(one, 0), "sl"));
}

/* Two VFs, of which one has another path to one of the peer's two. */
static void several_vfs(void **state)
{
	const char *text = "{\"moves\":[{\"vguid\":\"0x00a1b2fffe000001\",\"paths_changed\":0},"
			   "{\"vguid\":\"0x00a1b2fffe000009\",\"lid_after\":5,"
			   "\"paths_changed\":1,\"paths\":[{\"peer\":\"0x00a1b2fffe000002\","
			   "\"sl_to\":3,\"sl_from\":4}]}]}";
	struct json_object *answer AUTO_JSON = NULL;
	struct json_object *mover AUTO_JSON = only(MOVED), *peer AUTO_JSON = only(FAR);

	(void)state;
	json_object_array_add(mover, json_object_new_string("0x00a1b2fffe000009"));
	json_object_array_add(peer, json_object_new_string("0x00a1b2fffe000002"));
	assert_int_equal(json_parse(text, strlen(text), &answer), 0);
	assert_true(repath_changed(answer));
	assert_int_equal(json_opt_u64(repath_move_of(answer, 0x00a1b2fffe000009), "lid_after", 0),
			 5);
	assert_null(repath_move_of(answer, PEER));
	struct json_object *mine AUTO_JSON = repath_of_mover(answer, mover);
	struct json_object *theirs AUTO_JSON = repath_of_peer(answer, mover, peer);
	assert_int_equal(json_count(mine), 1);
	assert_string_equal(json_opt_str(json_object_array_get_idx(mine, 0), "sguid", ""),
			    "0x00a1b2fffe000009");
	assert_int_equal(json_count(theirs), 1);
	assert_string_equal(json_opt_str(json_object_array_get_idx(theirs, 0), "sguid", ""),
			    "0x00a1b2fffe000002");
}

static void caching(void **state)
{
	(void)state;
	states[2] = AGENT_DOWN;
	d.sm.caching = true;
	repath_tell_caching(&d);
	assert_string_equal(json_opt_str(heard[0], "op", ""), "path-cache");
	assert_true(json_opt_bool(heard[1], "on", false));
	assert_int_equal(messages[2], 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_move),  T(told_twice), T(not_all_known), T(bad_notices),
		T(a_batch), T(arrival),    T(resume),        T(several_vfs),
		T(caching), T(a_fault),    T(all_of_them),
	};

	log_set_level(LOG_ERROR);
	return RUN_TESTS(tests);
}
