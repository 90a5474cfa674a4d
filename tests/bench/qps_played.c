/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A migration of two processes with many QPs between them, on played hardware (tests/fake), under
 * the shim as it is shipped. This program is the agents and the host of both.
 *
 *   qps_played [-q QPS] [-k REGIONS] [-c CALL-US] [-a AWAY-MS] [-l] [-p | -r]
 *
 * CALL-US is what each call that changes the hardware takes, as for a firmware to answer. The
 * mover's device comes back AWAY-MS after its release; by default when the peer has built all its
 * QPs. -l loses what the peer tells before its resume is ordered. -p: the device is there before
 * its port is ACTIVE, long enough for all that can be done meanwhile; only then it is "back".
 * -r: it is replaced once more in that time. Prints one line of JSON: the
 * times of each phase as the shims report them, what was sent between them, and
 *
 *   packets, bytes          but for what is said again of a QP, as to an end that has not answered
 *                           for a second; how often that was is "repeated"
 *   outside_us, inside_us   how long both ends worked to be connected again, before and after the
 *                           device was back */
#include "common/util.h"
#include "guest-agent/proto/shim.h"
#include "tests/fake/verbs/rig.h"
#include "tests/fake/verbs/verbs.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define QPS_MAX      4096
#define REGION_BYTES 4096
#define DEADLINE_MS  120000
#define PREPARED_MS  20000
#define MIGRATION    0x4711
#define CONTROL_FD   9

enum { MOVER, PEER, ENDS };

static struct {
	unsigned qps, regions, call_us;
	int away_ms; /* -1: until the peer has built all */
	bool lose, port_late, replaced;
} opt = {.qps = 64, .regions = 1, .away_ms = -1};

struct end {
	pid_t pid;
	int control, shim;
	struct shim_report report;
	bool reported;
};

static struct end ends[ENDS];
static uint64_t packets, bytes, repeated, prepared[ENDS], ready;
static uint32_t numbers[ENDS][QPS_MAX]; /* numbers of the QPs, in order */
static uint64_t said[ENDS][QPS_MAX];    /* a bit for a type of packet, of each QP */

static void fail(const char *what)
{
	fprintf(stderr, "qps_played: %s: %s\n", what, strerror(errno));
	for (int i = 0; i < ENDS; i++)
		if (ends[i].pid > 0)
			kill(ends[i].pid, SIGKILL);
	exit(1);
}

static uint64_t guid_of(int i)
{
	return FAKE_GUID + (uint64_t)i;
}

/* A process with QPs. */
static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "qps_played: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void connect_qp(struct ibv_qp *qp, uint32_t dest, int other)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.dest_qp_num = dest,
				.path_mtu = IBV_MTU_4096,
				.ah_attr = {.is_global = 1, .port_num = 1, .dlid = 2}};
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

	a.ah_attr.grh.dgid.global.subnet_prefix = htobe64(0xfe80000000000000ull);
	a.ah_attr.grh.dgid.global.interface_id = htobe64(guid_of(other));
	must(!ibv_modify_qp(qp, &a, rtr), "RTR");
	a.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &a, rts), "RTS");
}

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = list ? ibv_open_device(list[0]) : NULL;

	must(c != NULL, "open_device");
	ibv_free_device_list(list);
	return c;
}

static struct fake_calls played(void)
{
	void *f = dlsym(RTLD_DEFAULT, "fake_calls");
	struct fake_calls (*count)(void);

	must(f != NULL, "the played libibverbs");
	memcpy(&count, &f, sizeof(count));
	return count();
}

static int child(int me)
{
	struct fake_calls before, after, calls;
	static uint32_t mine[QPS_MAX], theirs[QPS_MAX];
	static struct ibv_qp *qps[QPS_MAX];
	struct ibv_context *c = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	ssize_t size = (ssize_t)(opt.qps * sizeof(mine[0]));
	char *memory = malloc((size_t)opt.regions * REGION_BYTES), byte = 0;

	must(pd && cq && memory, "alloc_pd, create_cq");
	for (unsigned i = 0; i < opt.regions; i++)
		must(ibv_reg_mr(pd, memory + (size_t)i * REGION_BYTES, REGION_BYTES,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) != NULL,
		     "reg_mr");
	for (unsigned i = 0; i < opt.qps; i++) {
		qps[i] = ibv_create_qp(pd, &init);
		must(qps[i] && !ibv_modify_qp(qps[i], &a,
					      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						      IBV_QP_ACCESS_FLAGS),
		     "create_qp");
		mine[i] = qps[i]->qp_num;
	}
	must(send(CONTROL_FD, mine, (size_t)size, 0) == size &&
		     recv(CONTROL_FD, theirs, (size_t)size, MSG_WAITALL) == size,
	     "exchange of numbers");
	for (unsigned i = 0; i < opt.qps; i++)
		connect_qp(qps[i], theirs[i], !me);
	must(send(CONTROL_FD, &byte, 1, 0) == 1, "ready");
	before = played();
	must(recv(CONTROL_FD, &byte, 1, 0) == 1, "the end of the migration");
	after = played();
	calls = (struct fake_calls){after.create_qp - before.create_qp,
				    after.modify_qp - before.modify_qp,
				    after.query_gid - before.query_gid};
	return send(CONTROL_FD, &calls, sizeof(calls), 0) == sizeof(calls) ? 0 : 1;
}

/* The agents and the host. */
static void answer(int fd, const void *packet)
{
	const struct shim_head *h = packet;

	if (send(fd, packet, h->bytes, MSG_NOSIGNAL) < 0)
		fail("a process has gone");
}

static void hello(int i, const struct shim_head *h)
{
	struct shim_welcome w = {.head = {sizeof(w), SHIM_HELLO, 0, h->cookie, 0},
				 .slot = (uint16_t)(i + 1),
				 .instance = 0x1000 + (uint64_t)i};

	answer(ends[i].shim, &w);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return x < y ? -1 : x > y;
}

/* How many entries of a packet are not said again. */
static unsigned news(int i, const struct peer_head *h, const unsigned char *entries)
{
	unsigned n = 0;

	if (h->type != PEER_PREPARED && h->type != PEER_CONNECT && h->type != PEER_READY)
		return h->count;
	for (unsigned e = 0; e < h->count; e++) {
		struct peer_qp q;
		const uint32_t *at;
		uint64_t *types;

		memcpy(&q, entries + e * sizeof(q), sizeof(q));
		at = bsearch(&q.src_vqpn, numbers[i], opt.qps, sizeof(*at), by_number);
		if (!at)
			fail("a packet of a QP that is none");
		types = &said[i][at - numbers[i]];
		n += !(*types >> h->type & 1);
		*types |= 1ull << h->type;
	}
	return n;
}

static void relay(int i, struct shim_relay *r)
{
	struct peer_head peer;
	unsigned fresh, again;

	memcpy(&peer, r->body, sizeof(peer));
	fresh = news(i, &peer, r->body + sizeof(peer));
	again = peer.count - fresh;
	repeated += again;
	if (fresh || !again) {
		packets++;
		bytes += r->head.bytes - again * sizeof(struct peer_qp);
	}
	ready += i == PEER && peer.type == PEER_READY ? fresh : 0;
	if (peer.type == PEER_PREPARED) {
		prepared[i] += fresh;
		if (opt.lose)
			return;
	}
	r->head.type = SHIM_DELIVER;
	answer(ends[!i].shim, r);
}

static void take_packet(int i, struct shim_head *h)
{
	switch (h->type) {
	case SHIM_HELLO:
		hello(i, h);
		break;
	case SHIM_SEND:
		relay(i, (struct shim_relay *)h);
		break;
	case SHIM_LOG:
		fprintf(stderr, "# %s: %s\n", i ? "peer" : "mover", ((struct shim_log *)h)->text);
		break;
	case SHIM_QUIET:
	case SHIM_RELEASED:
	case SHIM_RESUMED:
	case SHIM_ABORTED:
		memcpy(&ends[i].report, h, sizeof(ends[i].report));
		ends[i].reported = true;
		break;
	default: /* whatever is asked: yes */
		if (h->cookie)
			answer(ends[i].shim, h);
	}
}

/* Until both have reported, have sent that many bytes of control, or the time is over. */
static void serve(bool (*done)(void), unsigned ms)
{
	static union {
		struct shim_head head;
		char data[SHIM_MSG_MAX];
	} in;
	uint64_t end = now_ms() + ms;

	while (!done() && now_ms() < end) {
		struct pollfd p[ENDS] = {{.fd = ends[0].shim, .events = POLLIN},
					 {.fd = ends[1].shim, .events = POLLIN}};

		if (poll(p, ENDS, 1) < 0)
			fail("poll");
		for (int i = 0; i < ENDS; i++)
			if (p[i].revents && recv(p[i].fd, &in, sizeof(in), 0) > 0)
				take_packet(i, &in.head);
	}
}

static bool never(void)
{
	return false;
}

static bool all_prepared(void)
{
	return prepared[PEER] >= opt.qps;
}

/* Nothing is left that could be done before the port is ACTIVE. */
static bool all_ahead(void)
{
	return prepared[MOVER] >= opt.qps && ready >= opt.qps;
}

static bool both_reported(void)
{
	return ends[MOVER].reported && ends[PEER].reported;
}

static bool control_readable(void)
{
	struct pollfd p[ENDS] = {{.fd = ends[0].control, .events = POLLIN},
				 {.fd = ends[1].control, .events = POLLIN}};

	return poll(p, ENDS, 0) == ENDS;
}

static void order(int i, uint16_t type, const char *device)
{
	struct shim_order o = {.head = {.bytes = sizeof(o), .type = type},
			       .migration = MIGRATION,
			       .deadline_ms = DEADLINE_MS,
			       .role = i == MOVER ? SHIM_ROLE_MOVER : SHIM_ROLE_PEER,
			       .vguid_count = 1,
			       .vguid = {guid_of(MOVER)},
			       .sent_us = now_us()};

	snprintf(o.device[0], sizeof(o.device[0]), "%s", device);
	ends[i].reported = false;
	answer(ends[i].shim, &o);
}

static void end_step(void)
{
	serve(both_reported, DEADLINE_MS);
	for (int i = 0; i < ENDS; i++) {
		if (ends[i].reported && !ends[i].report.head.status)
			continue;
		errno = ends[i].reported ? -ends[i].report.head.status : ETIMEDOUT;
		fail(ends[i].report.why);
	}
}

static void step(uint16_t type)
{
	for (int i = 0; i < ENDS; i++)
		order(i, type, FAKE_DEVICE);
	end_step();
}

/* The peer is ordered at once. */
static void port_comes_late(void)
{
	order(PEER, SHIM_RESUME, "");
	order(MOVER, SHIM_BUILD, FAKE_DEVICE);
	serve(all_ahead, PREPARED_MS);
	if (!opt.replaced)
		return;
	order(MOVER, SHIM_BUILD, "");
	prepared[MOVER] = ready = 0;
	memset(said, 0, sizeof(said));
	order(MOVER, SHIM_BUILD, FAKE_DEVICE);
	serve(all_ahead, PREPARED_MS);
}

static int start_end(int i, const char *self, char **argv)
{
	int pair[2];
	char guid[32];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		fail("socketpair");
	ends[i].control = pair[0];
	ends[i].pid = fork();
	if (ends[i].pid)
		return close(pair[1]);
	snprintf(guid, sizeof(guid), "%llx", (unsigned long long)guid_of(i));
	setenv(FAKE_GUID_ENV, guid, 1);
	setenv("QPS_END", i ? "1" : "0", 1);
	dup2(pair[1], CONTROL_FD);
	execv(self, argv);
	_exit(127);
}

/* Starts one after the other, so that it is known whose connection comes. */
static void start_both(char **argv)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char dir[] = "/tmp/ibvmig-qps-XXXXXX", call[16];
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (!mkdtemp(dir))
		fail("mkdtemp");
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/agent", dir);
	if (bind(listener, (void *)&addr, sizeof(addr)) || listen(listener, ENDS))
		fail("listen");
	snprintf(call, sizeof(call), "%u", opt.call_us);
	setenv(SHIM_SOCKET_ENV, addr.sun_path, 1);
	setenv(FAKE_CALL_ENV, call, 1);
	for (int i = 0; i < ENDS; i++) {
		start_end(i, "/proc/self/exe", argv);
		ends[i].shim = accept(listener, NULL, NULL);
	}
	unlink(addr.sun_path);
	rmdir(dir);
	close(listener);
}

static void swap_numbers(void)
{
	size_t size = opt.qps * sizeof(uint32_t);
	char byte;

	serve(control_readable, DEADLINE_MS);
	for (int i = 0; i < ENDS; i++)
		if (recv(ends[i].control, numbers[i], size, MSG_WAITALL) != (ssize_t)size)
			fail("the numbers of the QPs");
	for (int i = 0; i < ENDS; i++)
		if (send(ends[!i].control, numbers[i], size, MSG_NOSIGNAL) < 0)
			fail("the numbers of the QPs");
	for (int i = 0; i < ENDS; i++)
		qsort(numbers[i], opt.qps, sizeof(numbers[i][0]), by_number);
	serve(control_readable, DEADLINE_MS);
	for (int i = 0; i < ENDS; i++)
		if (recv(ends[i].control, &byte, 1, 0) != 1)
			fail("a process is not ready");
}

/* Returns the calls to the hardware that both have made since they were connected. */
static struct fake_calls end_both(void)
{
	struct fake_calls sum = {0}, each;
	char byte = 0;
	int status;

	for (int i = 0; i < ENDS; i++)
		if (send(ends[i].control, &byte, 1, MSG_NOSIGNAL) != 1)
			fail("a process has gone");
	for (int i = 0; i < ENDS; i++) {
		if (recv(ends[i].control, &each, sizeof(each), MSG_WAITALL) != sizeof(each) ||
		    waitpid(ends[i].pid, &status, 0) < 0 || status)
			fail("a process did not end well");
		sum.create_qp += each.create_qp;
		sum.modify_qp += each.modify_qp;
		sum.query_gid += each.query_gid;
	}
	return sum;
}

static void show(const char *name, uint64_t value)
{
	printf("\"%s\":%llu,", name, (unsigned long long)value);
}

static void run(void)
{
	struct shim_report quiet[ENDS], released[ENDS];
	uint64_t t[6], setup_packets = packets, setup_bytes = bytes, early, ahead = 0;

	t[0] = now_us();
	step(SHIM_SUSPEND);
	t[1] = now_us();
	for (int i = 0; i < ENDS; i++)
		quiet[i] = ends[i].report;
	packets = bytes = 0;
	step(SHIM_RELEASE);
	t[2] = now_us();
	for (int i = 0; i < ENDS; i++)
		released[i] = ends[i].report;
	serve(opt.away_ms < 0 ? all_prepared : never,
	      opt.away_ms < 0 ? PREPARED_MS : (unsigned)opt.away_ms);
	early = prepared[PEER];
	if (opt.port_late) {
		port_comes_late();
		ahead = ready;
		t[3] = now_us();
		order(MOVER, SHIM_RESUME, FAKE_DEVICE);
		end_step();
	} else {
		t[3] = now_us();
		step(SHIM_RESUME);
	}
	t[4] = now_us();
	const struct shim_report *m = &ends[MOVER].report, *p = &ends[PEER].report;
	struct fake_calls calls = end_both();

	printf("{\"qps\":%u,\"regions\":%u,\"call_us\":%u,", quiet[MOVER].qps, opt.regions,
	       opt.call_us);
	show("drain_us", quiet[MOVER].drain_us);
	show("quiet_us", t[1] - t[0]);
	show("close_us", released[MOVER].close_us);
	show("dirty_us", released[MOVER].dirty_us);
	show("release_us", t[2] - t[1]);
	show("rebuild_us", m->rebuild_us);
	show("connect_us", m->connect_us);
	show("peer_rebuild_us", p->rebuild_us);
	show("peer_connect_us", p->connect_us);
	show("resume_us", t[4] - t[3]);
	show("outside_us", m->before_us + p->before_us);
	show("inside_us", m->work_us + p->work_us);
	show("setup_packets", setup_packets);
	show("setup_bytes", setup_bytes);
	show("moving_us", t[4] - t[0]);
	show("packets", packets);
	show("repeated", repeated);
	show("bytes", bytes);
	show("prepared", early);
	show("ahead", ahead);
	show("create_qp", calls.create_qp);
	show("modify_qp", calls.modify_qp);
	printf("\"query_gid\":%llu}\n", (unsigned long long)calls.query_gid);
}

static unsigned number(const char *text, unsigned min, unsigned max)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (end == text || *end || v < min || v > max) {
		fprintf(stderr, "qps_played: %s: allowed is %u to %u\n", text, min, max);
		exit(2);
	}
	return (unsigned)v;
}

static void parse(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "q:k:c:a:lpr")) >= 0) {
		switch (c) {
		case 'q':
			opt.qps = number(optarg, 1, QPS_MAX);
			break;
		case 'k':
			opt.regions = number(optarg, 1, QPS_MAX);
			break;
		case 'c':
			opt.call_us = number(optarg, 0, 10000);
			break;
		case 'l':
			opt.lose = true;
			break;
		case 'r':
			opt.replaced = true;
			/* fall through */
		case 'p':
			opt.port_late = true;
			break;
		case 'a':
			opt.away_ms = (int)number(optarg, 0, 10000);
			break;
		default:
			fputs("usage: qps_played [-q QPS] [-k REGIONS] [-c CALL-US] [-a AWAY-MS] "
			      "[-l] [-p | -r]\n",
			      stderr);
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	if (getenv("QPS_END")) {
		must(!rig_exec(argv, true), "rig_exec");
		return child(atoi(getenv("QPS_END")));
	}
	signal(SIGPIPE, SIG_IGN);
	start_both(argv);
	swap_numbers();
	run();
	return 0;
}
