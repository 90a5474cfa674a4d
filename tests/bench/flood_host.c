/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A guest floods its channel beside the migrations of another VM on the same host. The code of
 * ibvmigd's end is real (channel, relay, HTTP client and server, workers), the guests, ibvmig-sm
 * and the other host are processes of this program. A migration here is what a host says for one: a
 * query, a suspend, packets of the guest to its peer on the other host, and a resume.
 *
 *     flood_host none|same|host|guids|slow BYTES SECONDS      one line of JSON */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/frame.h"
#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/channel.h"
#include "daemon/vm/relay.h"
#include "daemon/vm/repath.h"
#include "daemon/vm/rights.h"
#include "daemon/vm/vm.h"

#define RUDE      0x00a1b2fffe000101ull
#define VICTIM    0x00a1b2fffe000102ull
#define FAR       0x00a1b2fffe0001f0ull
#define FAR_URL   "http://127.0.0.1:9772"
#define PACKETS   32 /* packets of the victim in one migration */
#define PAUSE_MS  20
#define REQUEST_S 30
#define RUNS_MAX  100000
#define SM_SLOW_S 5

static struct settings settings = {.host_name = (char *)"hosta",
				   .url = (char *)"http://127.0.0.1:9771"};
static struct daemon d = {.settings = &settings};
static struct vm rude = {.d = &d, .name = (char *)"rude", .uuid = "u1", .vf_count = 1};
static struct vm victim = {.d = &d, .name = (char *)"victim", .uuid = "u2", .vf_count = 1};

static struct {
	const char *kind;
	size_t bytes;
	unsigned seconds;
	char dir[32];
	int arrived[2]; /* the other host writes a byte there for each packet of the victim */
} conf;

/* ---- what of ibvmigd is played ---- */

static void run_job(void *arg)
{
	struct job *j = arg;

	j->run(j);
}

static void job_ended(void *arg)
{
	struct job *j = arg;

	j->done(j);
	json_object_put(j->in);
	json_object_put(j->out);
	free(j);
}

int job_order(struct daemon *daemon, const struct job_order *o)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j)
		return -ENOMEM;
	*j = (struct job){.d = daemon,
			  .in = o->in ? o->in : json_object_new_object(),
			  .out = json_object_new_object(),
			  .run = o->run,
			  .done = o->done,
			  .owner = o->owner,
			  .serial = o->serial};
	return work_submit(o->pool ? o->pool : daemon->pool, run_job, job_ended, j);
}

int job_fail(struct job *j, int rc, const char *fmt, ...)
{
	snprintf(j->error, sizeof j->error, "%s", fmt);
	return j->rc = rc;
}

int sm_call(const struct settings *s, const char *method, const char *path,
	    struct json_object *body, struct json_object **ret_answer, char *error)
{
	(void)s;
	(void)method;
	(void)path;
	(void)ret_answer;
	json_object_put(body);
	snprintf(error, HTTP_ERROR_MAX, "nobody answers");
	return -ECONNREFUSED;
}

int sm_ask(const struct settings *s, const char *path, struct json_object *body, unsigned ms,
	   struct json_object **ret_answer, char *error)
{
	(void)ms;
	return sm_call(s, "POST", path, body, ret_answer, error);
}

/* No VM here has a P_Key, so no packet is refused for its partition. */
void vm_rights_refresh(struct daemon *daemon)
{
	(void)daemon;
}

int locate_guid(const struct settings *s, uint64_t guid, struct location *ret, char *error)
{
	(void)s;
	(void)error;
	if (guid != FAR)
		sleep(SM_SLOW_S);
	*ret = (struct location){.host = "hostb"};
	snprintf(ret->url, sizeof ret->url, FAR_URL);
	return 0;
}

struct vm *vm_by_guid(struct daemon *daemon, uint64_t guid)
{
	(void)daemon;
	return guid == RUDE ? &rude : guid == VICTIM ? &victim : NULL;
}

void sm_refresh(struct daemon *daemon, void (*done)(void *arg), void *arg)
{
	(void)daemon;
	(void)done;
	(void)arg;
}

void repath_agent_up(struct vm *vm)
{
	(void)vm;
}

static void agent_changed(struct vm *vm)
{
	(void)vm;
}

static const struct vm_watcher watcher = {.agent_changed = agent_changed};

/* ---- guests ---- */

static int listen_at(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", conf.dir, name);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4))
		abort();
	return fd;
}

static void write_all(int fd, const char *at, size_t bytes)
{
	while (bytes) {
		ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

		if (n <= 0)
			_exit(0);
		at += n;
		bytes -= (size_t)n;
	}
}

static void say(int fd, const char *text)
{
	char *frame AUTO_FREE = strf("%08zx\n%s", strlen(text), text);

	write_all(fd, frame, strlen(frame));
}

static void *read_for_ever(void *arg)
{
	static char data[65536];

	while (recv(*(int *)arg, data, sizeof data, 0) > 0)
		;
	return NULL;
}

/* Messages to the victim, to a VM of the other host, or to GUIDs that nobody has. */
static void play_rude(int listener)
{
	int fd = accept(listener, NULL, NULL);
	bool many = !strcmp(conf.kind, "guids");
	char hello[4096], *text = malloc(conf.bytes + 400), *at = text;
	pthread_t reader;

	if (recv(fd, hello, sizeof hello, 0) < 0 || !text)
		abort();
	say(fd, "{\"id\":1,\"ok\":true,\"version\":1,\"agent\":\"rude\"}");
	pthread_create(&reader, NULL, read_for_ever, &fd);
	at += sprintf(at,
		      "{\"op\":\"relay\",\"from\":\"fe80:0000:0000:0000:00a1:b2ff:fe00:0101\","
		      "\"to\":\"fe80:0000:0000:0000:00a1:b2ff:fe%s\",\"body\":\"",
		      strcmp(conf.kind, "host") ? "00:0102" : "00:01f0");
	memset(at, 'A', conf.bytes);
	strcpy(at + conf.bytes, "\"}");
	for (unsigned i = 0; strcmp(conf.kind, "none"); i++) {
		if (many)
			memcpy(strstr(text, "\",\"body") - 7,
			       (char[8]){'0', '1', ':', "0123456789"[i / 1000 % 10],
					 "0123456789"[i / 100 % 10], "0123456789"[i / 10 % 10],
					 "0123456789"[i % 10]},
			       7);
		say(fd, text);
	}
	pause();
}

static void answer_at_once(void *arg, struct json_object *msg)
{
	char text[128];

	if (!json_opt(msg, "id"))
		return;
	snprintf(text, sizeof text, "{\"id\":%llu,\"ok\":true,\"version\":1,\"agent\":\"good\"}",
		 (unsigned long long)json_opt_u64(msg, "id", 0));
	say(*(int *)arg, text);
}

/* slow: it reads 20 MB/s, as a busy guest does. */
static void play_victim(int listener)
{
	static char data[65536];
	int fd = accept(listener, NULL, NULL);
	bool slow = !strcmp(conf.kind, "slow");
	struct frame_parser p = {0};
	ssize_t n;

	while ((n = recv(fd, data, sizeof data, 0)) > 0) {
		frame_feed(&p, data, (size_t)n, answer_at_once, &fd);
		if (slow)
			usleep((unsigned)n / 20);
	}
	_exit(0);
}

/* ---- the other host ---- */

static void on_relay(struct http_request *req)
{
	struct json_object *list = json_opt(req->body, "messages"), *o = json_object_new_object();

	for (size_t i = 0; i < json_count(list); i++) {
		const char *from = json_opt_str(json_object_array_get_idx(list, i), "from", "");

		if (strlen(from) > 4 && !strcmp(from + strlen(from) - 4, "0102") &&
		    write(conf.arrived[1], "", 1) != 1)
			abort();
	}
	json_set(o, "refused", json_object_new_array());
	http_reply(req->exchange, 200, o);
}

static void play_host(void)
{
	static const struct http_route routes[] = {{"POST", "/v1/peer/relay", on_relay, REST_PEER},
						   {0}};
	struct http_server *server;
	sd_event *loop;
	int fd;

	if (loop_new(&loop) || (fd = http_listen_tcp(FAR_URL + 7)) < 0 ||
	    http_server_new(loop, fd, NULL, routes, NULL, &server))
		abort();
	sd_event_loop(loop);
}

/* ---- the victim's migrations ---- */

static struct {
	uint64_t began_us, ends_us, late_us, tick_us;
	uint32_t took_us[RUNS_MAX];
	unsigned runs, failed, refused, arrived, step;
	long rss_mib;
	struct loop_timer *next, *tick;
} m;

static void step(void *arg);

static void answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	(void)error;
	m.failed += rc != 0;
	step(NULL);
}

static void ask(const char *op)
{
	struct json_object *msg = json_object_new_object();

	json_set_str(msg, "op", op);
	agent_request(victim.agent, msg, REQUEST_S * 1000, answered, NULL);
}

static void send_packets(void)
{
	struct json_object *msg AUTO_JSON = json_object_new_object();

	json_set_str(msg, "from", "fe80:0000:0000:0000:00a1:b2ff:fe00:0102");
	json_set_str(msg, "to", "fe80:0000:0000:0000:00a1:b2ff:fe00:01f0");
	json_set_str(msg, "body", "AAAA");
	m.arrived = 0;
	for (unsigned i = 0; i < PACKETS; i++)
		relay_from_guest(d.relay, &victim, msg);
}

void __real_vm_channel_relay_failed(struct vm *vm, const char *to, const char *error);
void __wrap_vm_channel_relay_failed(struct vm *vm, const char *to, const char *error);

/* A packet that is refused is sent again by the shim, after a while. */
void __wrap_vm_channel_relay_failed(struct vm *vm, const char *to, const char *error)
{
	if (vm == &victim) {
		m.refused++;
		if (++m.arrived == PACKETS)
			loop_timer_arm(m.next, 0);
	}
	__real_vm_channel_relay_failed(vm, to, error);
}

static void step(void *arg)
{
	(void)arg;
	switch (m.step++) {
	case 0:
		m.began_us = now_us();
		ask("query");
		break;
	case 1:
		ask("suspend");
		break;
	case 2:
		send_packets();
		break;
	case 3:
		ask("resume");
		break;
	default:
		if (m.runs < RUNS_MAX)
			m.took_us[m.runs++] = (uint32_t)(now_us() - m.began_us);
		m.step = 0;
		loop_timer_arm(m.next, PAUSE_MS);
	}
}

static int packets_arrived(sd_event_source *s, int fd, uint32_t events, void *arg)
{
	char bytes[PACKETS];
	ssize_t n = read(fd, bytes, sizeof bytes);

	(void)s;
	(void)events;
	(void)arg;
	m.arrived += n > 0 ? (unsigned)n : 0;
	if (m.step == 3 && m.arrived == PACKETS)
		step(NULL);
	return 0;
}

static long rss_mib(void)
{
	FILE *f AUTO_FILE = fopen("/proc/self/statm", "r");
	long all = 0, here = 0;

	return f && fscanf(f, "%ld %ld", &all, &here) == 2 ? here * sysconf(_SC_PAGESIZE) >> 20 : 0;
}

#define TICK_MS 10

static void tick(void *arg)
{
	uint64_t now = now_us(), late = m.tick_us ? now - m.tick_us - TICK_MS * 1000 : 0;

	(void)arg;
	m.tick_us = now;
	m.late_us = late < INT64_MAX && late > m.late_us ? late : m.late_us;
	if (rss_mib() > m.rss_mib)
		m.rss_mib = rss_mib();
	if (now > m.ends_us)
		sd_event_exit(d.loop, 0);
	loop_timer_arm(m.tick, TICK_MS);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void report(void)
{
	uint32_t none = 0, *at = m.runs ? m.took_us : &none;
	unsigned last = m.runs ? m.runs - 1 : 0;

	qsort(at, m.runs, sizeof *at, by_size);
	/* A migration that has not come to its end has taken at least this long. */
	printf("{\"flood\": \"%s\", \"body_bytes\": %zu, \"migrations\": %u, \"failed\": %u, "
	       "\"packets_refused\": %u, \"median_ms\": %.2f, \"p99_ms\": %.2f, \"longest_ms\": "
	       "%.2f, \"unfinished_ms\": %.0f, \"loop_late_ms\": %.1f, \"rss_mib\": %ld}\n",
	       conf.kind, conf.bytes, m.runs, m.failed, m.refused,
	       at[m.runs / 2] / 1000.0 * !!m.runs, at[last * 99 / 100] / 1000.0, at[last] / 1000.0,
	       m.step ? (double)(now_us() - m.began_us) / 1000 : 0.0, (double)m.late_us / 1000,
	       m.rss_mib);
}

static pid_t start(void (*play)(int fd), int fd)
{
	pid_t pid = fork();

	if (!pid) {
		play(fd);
		_exit(0);
	}
	return pid;
}

static void play_host_of(int fd)
{
	(void)fd;
	play_host();
}

static void begin(const char *rude_path, const char *victim_path)
{
	rude.vfs[0].want = (struct vf_want){.vguid = RUDE, .pkey = 0x8001};
	victim.vfs[0].want = (struct vf_want){.vguid = VICTIM, .pkey = 0x8001};
	d.watcher = &watcher;
	if (loop_new(&d.loop) || work_pool_new(d.loop, 32, &d.pool) ||
	    work_pool_new(d.loop, 64, &d.guests) || relay_new(&d, &d.relay) ||
	    sd_event_add_io(d.loop, NULL, conf.arrived[0], EPOLLIN, packets_arrived, NULL) < 0 ||
	    vm_channel_open(&rude, rude_path, false) ||
	    vm_channel_open(&victim, victim_path, false) ||
	    loop_timer_new(d.loop, step, NULL, &m.next) ||
	    loop_timer_new(d.loop, tick, NULL, &m.tick))
		abort();
	m.ends_us = now_us() + conf.seconds * 1000000ull;
	loop_timer_arm(m.next, 500); /* the flood is there */
	loop_timer_arm(m.tick, TICK_MS);
}

int main(int argc, char **argv)
{
	char rude_path[64], victim_path[64];
	pid_t pids[3];

	if (argc != 4) {
		fprintf(stderr, "usage: flood_host none|same|host|guids|slow BYTES SECONDS\n");
		return 2;
	}
	conf.kind = argv[1];
	conf.bytes = (size_t)atol(argv[2]);
	conf.seconds = (unsigned)atoi(argv[3]);
	strcpy(conf.dir, "/tmp/ibvmig-flood-XXXXXX");
	if (!mkdtemp(conf.dir) || pipe(conf.arrived))
		return 1;
	snprintf(rude_path, sizeof rude_path, "%s/rude", conf.dir);
	snprintf(victim_path, sizeof victim_path, "%s/victim", conf.dir);
	log_set_level(LOG_ERROR);
	pids[0] = start(play_rude, listen_at("rude"));
	pids[1] = start(play_victim, listen_at("victim"));
	pids[2] = start(play_host_of, -1);
	http_client_init();
	begin(rude_path, victim_path);
	sd_event_loop(d.loop);
	report();
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		kill(pids[i], SIGKILL);
	unlink(rude_path);
	unlink(victim_path);
	rmdir(conf.dir);
	fflush(stdout);
	_exit(0); /* workers may wait for ibvmig-sm */
}
