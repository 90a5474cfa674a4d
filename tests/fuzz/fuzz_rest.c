/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests of operators, Nova, libvirt's hook and other hosts' daemons to ibvmigd, with any fields.
 * They reach each route of its table, above simulated hosts (tests/sim/world.h) with a VM on host a
 * and its peer on c. Each request has one answer, which docs/openapi.json knows (tests/sim/net.c
 * looks), and the daemons live.
 *
 * An input is requests with a line "%" between them. A request is a line "HOST MS METHOD PATH" and
 * its body. HOST is one of a, b and c, MS the ms of the simulated clock before it is sent. "$ID" is
 * the migration that began last, if there is one. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "daemon/start.h"
#include "tests/sim/right.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REQUESTS_MAX 8
#define BEFORE_MAX   60000
#define ANSWER_S     1000 /* a save, its undo and all their tries take less */
#define AFTER_S      10
#define BAD_VALUES   10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The simulated hosts forget what was on its way to a daemon that ends. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static struct sim_guest guests[2]; /* as they begin */
static char dir[] = "/tmp/ibvmig-fuzz-XXXXXX";

/* ---- the world ---- */

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void clean_up(void)
{
	nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void begin(void)
{
	mkdir(dir, 0700);
	memcpy(sim_guests, guests, sizeof guests);
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		abort();
}

static void begin_first(void)
{
	log_set_level((enum log_level)0);
	if (!mkdtemp(dir))
		abort();
	atexit(clean_up);
	memcpy(guests, sim_guests, sizeof guests);
	begin();
}

/* As daemon/main.c does when the loop has ended. */
static void stop_daemon(struct sim_host *h)
{
	sim_self = &h->proc;
	daemon_stop(&h->d);
	sim_self = NULL;
	sim_proc_die(&h->proc);
	h->d = (struct daemon){0};
}

static void end(void)
{
	for (unsigned h = 0; h < sim_size.hosts; h++) {
		stop_daemon(&sim_hosts[h]);
		for (unsigned i = 0; i < sim_size.guests; i++)
			sim_qemu_kill(&sim_guests[i], (int)h);
		memset(sim_hosts[h].vfs, 0, sizeof sim_hosts[h].vfs);
	}
	memset(sim_fabric.bindings, 0, sizeof sim_fabric.bindings);
	sim_image = (struct sim_image){0};
	clean_up();
}

/* ---- requests ---- */

static unsigned answers;
static bool changed; /* a request that may change something was accepted */

static void heard(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)answer;
	(void)error;
	answers++;
	changed |= !rc && str_eq(arg, "POST");
}

static bool has_answered(void *arg)
{
	(void)arg;
	return answers;
}

/* On either host; NULL: none. */
static const char *newest_id(void)
{
	for (int h = HOST_A; h <= HOST_B; h++)
		if (sim_hosts[h].d.migrations)
			return sim_hosts[h].d.migrations->rec.id;
	return NULL;
}

/* Owned by the caller. */
static char *with_id(const char *text)
{
	const char *at = strstr(text, "$ID"), *id = newest_id();

	return at && id ? strf("%.*s%s%s", (int)(at - text), text, id, at + 3) : strdup(text);
}

struct request {
	int host;
	char method[8], path[256];
	struct json_object *body; /* owned, or NULL */
};

static void ask(const struct request *r)
{
	answers = 0;
	sim_http(r->host, sim_hosts[r->host].url, r->method, r->path, r->body, 2 * ANSWER_S * 1000,
		 heard, (void *)(uintptr_t)r->method);
	if (sim_run(has_answered, NULL, sim_us() + ANSWER_S * SIM_S, NULL) && answers == 1)
		return;
	fprintf(stderr, "%u answers to %s %s %s\n", answers, r->method, r->path,
		json_text(r->body));
	abort();
}

/* Owned by the caller. */
static struct json_object *bad_value(unsigned i)
{
	static const char *const text[BAD_VALUES] = {
		"null", "true", "-1",   "9223372036854775808", "1e99",
		"[[]]", "{}",   "\"\"", "\"hostb\"",           "\"x\\n%s/../\""};

	return json_tokener_parse(text[i]);
}

/* Gives every field of the body below at, one after the other, each of the bad values. */
static void ask_garbled(const struct request *r, struct json_object *at)
{
	bool is_list = json_object_is_type(at, json_type_array);
	size_t n = is_list ? json_object_array_length(at) : 0;

	for (size_t k = 0; k < n; k++) {
		struct json_object *was = json_object_get(json_object_array_get_idx(at, k));

		for (unsigned i = 0; i < BAD_VALUES; i++) {
			json_object_array_put_idx(at, k, bad_value(i));
			ask(r);
		}
		json_object_array_put_idx(at, k, was);
		ask_garbled(r, was);
	}
	if (!json_object_is_type(at, json_type_object))
		return;
	json_object_object_foreach(at, key, value)
	{
		struct json_object *was = json_object_get(value);

		for (unsigned i = 0; i < BAD_VALUES; i++) {
			json_object_object_add(at, key, bad_value(i));
			ask(r);
		}
		json_object_object_add(at, key, was);
		ask_garbled(r, was);
	}
}

/* text: of one request; nothing is sent of what is none. */
static void play(const char *text)
{
	char *own AUTO_FREE = with_id(text), *body = strchr(own, '\n');
	struct request r = {0};
	unsigned ms;
	char host;

	if (body)
		*body++ = '\0';
	if (sscanf(own, "%c %u %7s %255s", &host, &ms, r.method, r.path) != 4 || host < 'a' ||
	    host > 'c' || *r.path != '/')
		return;
	/* A body that is no JSON object does not get as far (fuzz_http.c). */
	if (body && *body && json_parse(body, strlen(body), &r.body))
		return;
	r.host = host - 'a';
	sim_run(NULL, NULL, sim_us() + (ms % BEFORE_MAX) * SIM_MS, NULL);
	if (*r.method == '!') {
		memmove(r.method, r.method + 1, strlen(r.method));
		ask_garbled(&r, r.body);
	} else {
		ask(&r);
	}
	json_object_put(r.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text AUTO_FREE = strf("%.*s", (int)size, (const char *)data);
	char *next = text, *one;

	if (!guests[0].uuid)
		begin_first();
	changed = false;
	for (unsigned n = 0; n < REQUESTS_MAX && (one = next); n++) {
		next = strstr(one, "\n%\n");
		if (next) {
			*next = '\0';
			next += 3;
		}
		play(one);
	}
	sim_run(NULL, NULL, sim_us() + AFTER_S * SIM_S, NULL);
	if (changed || !sim_all_right(NULL)) {
		end();
		begin();
	}
	return 0;
}
