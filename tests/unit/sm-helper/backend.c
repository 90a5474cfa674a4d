/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sm-helper/backend/backend.h"

static struct backend *open_backend(const char *name, const struct backend_conf *conf)
{
	struct backend *c = NULL;

	assert_non_null(backend_find(name));
	assert_int_equal(backend_new(backend_find(name), conf, &c), 0);
	assert_string_equal(backend_kind(c)->name, name);
	return c;
}

static void test_names(void **state)
{
	char names[128], few[8];

	(void)state;
	backend_names(names, sizeof names);
	assert_non_null(strstr(names, "opensm-plugin, "));
	assert_non_null(strstr(names, "none"));
	assert_null(backend_find("opensm"));
	assert_null(backend_find(""));
	assert_non_null(backend_find(BACKEND_DEFAULT));
	backend_names(few, sizeof few);
	assert_int_equal(strlen(few), sizeof few - 1);
}

/* Every call is refused with a line that names the backend; a status says what to do. */
static void test_none(void **state)
{
	const struct backend_conf conf = {0};
	struct backend *c = open_backend("none", &conf);
	struct sm_target t = {.port_guid = 1, .switch_guid = 2, .switch_port = 3};
	struct sm_status_reply status = {.switches = 7};
	struct sm_assign_reply assigned;
	struct sm_records_reply records;
	struct sm_record_key key = {1, 2, 0, {0}};
	struct backend_epoch epoch = {0};
	char error[BACKEND_ERROR_MAX];
	struct fabric f = {0};

	(void)state;
	assert_int_equal(backend_status(c, &status, error), -ECONNREFUSED);
	assert_non_null(strstr(error, "\"backend\""));
	assert_int_equal(status.switches, 0);
	assert_int_equal(backend_assign(c, &t, 1, 0, 1, &assigned, error), -ECONNREFUSED);
	assert_string_equal(error, "backend none cannot change addresses");
	assert_int_equal(backend_sweep(c, error), -ECONNREFUSED);
	assert_int_equal(backend_fabric(c, &f, &epoch, error), -ECONNREFUSED);
	assert_int_equal(backend_records(c, &key, 1, &records, error), -ECONNREFUSED);
	assert_int_equal(backend_watch(c, &epoch, -1, error), -ECONNREFUSED);
	backend_free(c);
}

/* The plugin's backend says which socket nobody answers at. */
static void test_plugin_absent(void **state)
{
	const struct backend_conf conf = {.plugin_socket = "/nonexistent/plugin.sock"};
	struct backend *c = open_backend("opensm-plugin", &conf);
	struct sm_status_reply status;
	char error[BACKEND_ERROR_MAX];

	(void)state;
	assert_int_equal(backend_status(c, &status, error), -ECONNREFUSED);
	assert_non_null(strstr(error, conf.plugin_socket));
	backend_free(c);
}

/* ---- a plugin that is played, and may be silent ---- */

struct played {
	int listens, fd;
	char path[64];
	pthread_t thread;
	unsigned answers;
	uint64_t generation; /* generation of the last answer */
};

static void *answer(void *arg)
{
	struct played *p = arg;

	if (p->fd < 0)
		p->fd = accept(p->listens, NULL, NULL);
	for (unsigned i = 0; i < p->answers; i++) {
		struct sm_status_request req;
		struct sm_status_reply r = {.instance = 5, .generation = ++p->generation};

		if (recv(p->fd, &req, sizeof req, 0) != sizeof req)
			return NULL;
		r.h.head = req.head;
		r.h.head.bytes = sizeof r;
		send(p->fd, &r, sizeof r, MSG_NOSIGNAL);
	}
	return p;
}

static void begin_answers(struct played *p, unsigned count)
{
	p->answers = count;
	assert_int_equal(pthread_create(&p->thread, NULL, answer, p), 0);
}

static void end_answers(struct played *p)
{
	void *done;

	assert_int_equal(pthread_join(p->thread, &done), 0);
	assert_non_null(done);
}

static void play(struct played *p)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	*p = (struct played){.fd = -1};
	snprintf(p->path, sizeof p->path, "/tmp/test_sm_backend.%d", getpid());
	strcpy(a.sun_path, p->path);
	unlink(p->path);
	p->listens = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(p->listens, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(p->listens, 4), 0);
}

/* A plugin that waits for a sweep answers nobody. Meanwhile a look tells what was so before, and
 * how long ago. The plugin's late answer is not taken for that to a later question; when it has
 * ended, it says nothing more. */
static void test_look(void **state)
{
	struct played p;
	struct sm_status_reply s;
	char error[BACKEND_ERROR_MAX];
	uint64_t age;

	(void)state;
	play(&p);
	const struct backend_conf conf = {.plugin_socket = p.path};
	struct backend *c = open_backend("opensm-plugin", &conf);

	begin_answers(&p, 1);
	while (backend_look(c, &s, &age, error) == -ETIMEDOUT)
		; /* on a machine that stands still */
	end_answers(&p);
	assert_int_equal(s.generation, 1);
	for (unsigned i = 0; i < 2; i++) { /* silence */
		assert_int_equal(backend_look(c, &s, &age, error), 0);
		assert_int_equal(s.generation, 1);
		assert_true(age > 0);
	}
	begin_answers(&p, 2);
	do {
		assert_int_equal(backend_look(c, &s, &age, error), 0);
		assert_true(s.generation == 3 || age > 0);
	} while (s.generation != 3);
	end_answers(&p);
	close(p.fd);
	close(p.listens);
	unlink(p.path);
	assert_int_equal(backend_look(c, &s, &age, error), -ECONNREFUSED);
	assert_int_equal(s.generation, 0);
	assert_non_null(strstr(error, p.path));
	backend_free(c);
}

/* A question for more of a list, on the connection that moves take, does not wait without end. */
static void test_silent(void **state)
{
	const struct sm_reroute_request more = {.instance = 1, .after = 1, .first = 1};
	struct sm_reroute_reply r;
	char error[BACKEND_ERROR_MAX];
	struct played p;

	(void)state;
	play(&p);
	const struct backend_conf conf = {.plugin_socket = p.path};
	struct backend *c = open_backend("opensm-plugin", &conf);

	assert_int_equal(backend_reroute(c, &more, -1, &r, error), -ECONNRESET);
	backend_free(c);
	close(p.listens);
	unlink(p.path);
}

/* Takes the first request of the next connection, and answers if it is the claim. */
static uint16_t first_op(struct played *p)
{
	struct sm_owner_request req = {0};
	struct sm_owner_reply r = {0};

	p->fd = accept(p->listens, NULL, NULL);
	if (recv(p->fd, &req, sizeof req, 0) < (ssize_t)sizeof req.head)
		return 0;
	r.owner = req.owner;
	r.h.head = req.head;
	r.h.head.bytes = sizeof r;
	if (req.head.op == SM_OP_OWNER)
		send(p->fd, &r, sizeof r, MSG_NOSIGNAL);
	return req.head.op;
}

static void *take_twice(void *arg)
{
	struct played *p = arg;

	p->answers = first_op(p) == SM_OP_OWNER;
	close(p->fd);
	p->answers += first_op(p) == SM_OP_OWNER;
	close(p->fd);
	return NULL;
}

/* A connection that is made again, if only to look, shows the claim: moves take it then. */
static void test_claim_again(void **state)
{
	const struct sm_owner_request want = {.owner = {.registry = 1, .grant = 2}};
	const struct sm_reroute_request more = {.instance = 1, .after = 1, .first = 1};
	struct sm_reroute_reply r;
	struct sm_owner got;
	char error[BACKEND_ERROR_MAX];
	struct played p;

	(void)state;
	play(&p);
	const struct backend_conf conf = {.plugin_socket = p.path};
	struct backend *c = open_backend("opensm-plugin", &conf);

	assert_int_equal(pthread_create(&p.thread, NULL, take_twice, &p), 0);
	assert_int_equal(backend_claim(c, &want, &got, error), 0);
	assert_int_equal(backend_reroute(c, &more, -1, &r, error), -ECONNRESET); /* it is dead */
	assert_int_not_equal(backend_reroute(c, &more, -1, &r, error), 0);
	pthread_join(p.thread, NULL);
	assert_int_equal(p.answers, 2);
	backend_free(c);
	close(p.listens);
	unlink(p.path);
}

int main(void)
{
	const struct CMUnitTest sm_backend[] = {
		cmocka_unit_test(test_names),         cmocka_unit_test(test_none),
		cmocka_unit_test(test_plugin_absent), cmocka_unit_test(test_look),
		cmocka_unit_test(test_silent),        cmocka_unit_test(test_claim_again),
	};

	return RUN_TESTS(sm_backend);
}
