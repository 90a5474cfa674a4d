/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An echo over librdmacm that tells of each event. `rdma_cm -p PORT [-b ADDRESS]` serves, one
 * connection after the other, with one protection domain for all. `rdma_cm -p PORT ADDRESS` sends
 * numbered messages until the file of -S exists, then disconnects. -e: with endpoints and
 * synchronous ids. -H FILE: the server answers a request when the file exists; the client connects
 * when it does. -E FILE: before it disconnects, the client puts its QP to ERR and waits for the
 * file. -n N: so many connections. -G: addresses are GIDs (AF_IB), with -P P_KEY in that partition.
 * -o FILE: live status and result, JSON. -w MS: between two messages of the client. It knows
 * nothing of ibvmig. */
#include "tests/guest/rdma_stats.h"

#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE    512
#define RECVS      4
#define EVENT_MS   120000 /* only what is broken takes that long */
#define RESOLVE_MS 20000
#define STEP_MS    2
#define STATUS_US  500000

struct conn {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char in[RECVS][MESSAGE], out[MESSAGE];
	unsigned sent, received;
	bool watched; /* the channel has events for us, not for calls of librdmacm */
	bool over;    /* DISCONNECTED has come */
};

static struct {
	const char *port, *bind, *server, *stop, *hold, *end, *output;
	bool endpoints, gids;
	uint16_t pkey; /* P_Key of addresses that are GIDs; 0: none is named */
	int connections, pause_ms;
	struct rdma_event_channel *channel;
	struct ibv_pd *pd;
} o = {.bind = "::", .connections = 1, .pause_ms = STEP_MS};

static struct stats stats;

static void die(const char *what)
{
	printf("failed: %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool exists(const char *file)
{
	return !file || !access(file, F_OK);
}

static void say(const struct rdma_cm_event *e)
{
	printf("event %s status %d\n", rdma_event_str(e->event) + strlen("RDMA_CM_EVENT_"),
	       e->status);
	fflush(stdout);
}

/* NULL: none within the time. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, int ms)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	if (poll(&p, 1, ms) <= 0)
		return NULL;
	if (rdma_get_cm_event(channel, &e))
		die("rdma_get_cm_event");
	say(e);
	return e;
}

static void expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e = next_event(o.channel, EVENT_MS);

	if (!e || e->event != type || e->status) {
		printf("failed: expected %s\n", rdma_event_str(type));
		exit(1);
	}
	rdma_ack_cm_event(e);
}

static void show(bool ended)
{
	static uint64_t shown_us;
	uint64_t now = stats_now_us();

	if (!ended && now - shown_us < STATUS_US)
		return;
	shown_us = now;
	stats_write(&stats, o.output, ended);
}

static void name_partition(struct sockaddr *a)
{
	if (a && o.pkey)
		((struct sockaddr_ib *)(void *)a)->sib_pkey = htobe16(o.pkey);
}

static struct rdma_addrinfo *lookup(const char *node, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;

	if (o.gids) {
		hints.ai_flags |= RAI_NUMERICHOST | RAI_FAMILY;
		hints.ai_family = AF_IB;
	}
	if (rdma_getaddrinfo(node, o.port, &hints, &res))
		die("rdma_getaddrinfo");
	name_partition(res->ai_src_addr);
	name_partition(res->ai_dst_addr);
	return res;
}

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){.cap = {.max_send_wr = RECVS,
						 .max_recv_wr = RECVS,
						 .max_send_sge = 1,
						 .max_recv_sge = 1},
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1};
}

static void set_up(struct conn *c)
{
	struct ibv_qp_init_attr attr = qp_attr();

	if (!o.pd && !o.endpoints) {
		o.pd = ibv_alloc_pd(c->id->verbs);
		if (!o.pd)
			die("ibv_alloc_pd");
	}
	if (!c->id->qp && rdma_create_qp(c->id, o.pd, &attr))
		die("rdma_create_qp");
	c->mr = ibv_reg_mr(c->id->qp->pd, c, sizeof(*c), IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr)
		die("ibv_reg_mr");
	for (uintptr_t i = 0; i < RECVS; i++)
		if (rdma_post_recv(c->id, (void *)i, c->in[i], MESSAGE, c->mr))
			die("rdma_post_recv");
}

static void look_for_end(struct conn *c, int ms)
{
	struct rdma_cm_event *e = next_event(c->id->channel, ms);

	if (!e)
		return;
	c->over |= e->event == RDMA_CM_EVENT_DISCONNECTED;
	if (e->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		exit(1);
	rdma_ack_cm_event(e);
}

static void send_number(struct conn *c, unsigned number)
{
	struct ibv_wc wc;
	int n;

	memset(c->out, (int)(number & 0xff), MESSAGE);
	memcpy(c->out, &number, sizeof(number));
	if (rdma_post_send(c->id, NULL, c->out, MESSAGE, c->mr, 0))
		die("rdma_post_send");
	/* A retry count of 7 is "for ever" to rxe: a send to an end that has gone stays. */
	while (!(n = ibv_poll_cq(c->id->send_cq, 1, &wc)) && !c->over)
		if (c->watched)
			look_for_end(c, 0);
	if (!n)
		return;
	if (n < 0 || wc.status) {
		printf("failed: send of %u: %s\n", number, ibv_wc_status_str(wc.status));
		exit(1);
	}
	stats.sent = ++c->sent;
	show(false);
}

/* The next message, if it is there. */
static bool receive(struct conn *c)
{
	struct ibv_wc wc;
	unsigned number;
	char *in;

	if (ibv_poll_cq(c->id->recv_cq, 1, &wc) != 1 || wc.status)
		return false;
	in = c->in[wc.wr_id];
	memcpy(&number, in, sizeof(number));
	if (number != c->received || in[MESSAGE - 1] != (char)(number & 0xff)) {
		printf("failed: message %u where %u was due\n", number, c->received);
		exit(1);
	}
	stats_arrival(&stats);
	stats.received = stats.received_least = ++c->received;
	if (rdma_post_recv(c->id, (void *)wc.wr_id, in, MESSAGE, c->mr))
		die("rdma_post_recv");
	return true;
}

static void finish(struct conn *c)
{
	printf("sent %u received %u\n", c->sent, c->received);
	show(true);
	rdma_destroy_qp(c->id);
	ibv_dereg_mr(c->mr);
	if (o.endpoints)
		rdma_destroy_ep(c->id);
	else if (rdma_destroy_id(c->id))
		die("rdma_destroy_id");
	fflush(stdout);
}

static void serve(struct conn *c)
{
	c->watched = true;
	while (!c->over) {
		if (receive(c))
			send_number(c, c->received - 1);
		else
			look_for_end(c, STEP_MS);
	}
	if (rdma_disconnect(c->id))
		die("rdma_disconnect");
	finish(c);
}

/* Does what rdma_disconnect() begins with. */
static void end_qp(struct conn *c)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (ibv_modify_qp(c->id->qp, &attr, IBV_QP_STATE))
		die("ibv_modify_qp");
	printf("in ERR\n");
	fflush(stdout);
	while (!exists(o.end))
		usleep(STEP_MS * 1000);
}

static void ask(struct conn *c)
{
	c->watched = !o.endpoints;
	while (!exists(o.stop) || !c->sent) {
		send_number(c, c->sent);
		while (!c->over && !receive(c))
			if (c->watched)
				look_for_end(c, 0);
		if (c->over)
			break;
		printf("message %u\n", c->sent);
		fflush(stdout);
		usleep((unsigned)o.pause_ms * 1000);
	}
	if (o.end)
		end_qp(c);
	if (rdma_disconnect(c->id))
		die("rdma_disconnect");
	if (!o.endpoints && !c->over)
		expect(RDMA_CM_EVENT_DISCONNECTED);
	finish(c);
}

static void hold(void)
{
	printf("waiting\n");
	fflush(stdout);
	while (!exists(o.hold))
		usleep(STEP_MS * 1000);
}

static void server(void)
{
	struct rdma_addrinfo *res = lookup(o.bind, RAI_PASSIVE);
	struct rdma_cm_id *listener;
	struct rdma_cm_event *e;

	if (rdma_create_id(o.channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, res->ai_src_addr) || rdma_listen(listener, RECVS))
		die("rdma_listen");
	printf("listening\n");
	fflush(stdout);
	for (int i = 0; i < o.connections; i++) {
		static struct conn c;
		struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

		memset(&c, 0, sizeof(c));
		/* The last connection may still have something to say. */
		while ((e = next_event(o.channel, -1))->event != RDMA_CM_EVENT_CONNECT_REQUEST)
			rdma_ack_cm_event(e);
		c.id = e->id;
		rdma_ack_cm_event(e);
		hold();
		set_up(&c);
		if (rdma_accept(c.id, &param))
			die("rdma_accept");
		expect(RDMA_CM_EVENT_ESTABLISHED);
		serve(&c);
	}
	rdma_destroy_id(listener);
	rdma_freeaddrinfo(res);
}

static void client(void)
{
	struct rdma_addrinfo *res = lookup(o.server, 0);
	struct rdma_conn_param param = {.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};
	static struct conn c;

	if (rdma_create_id(o.channel, &c.id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(c.id, NULL, res->ai_dst_addr, RESOLVE_MS))
		die("rdma_resolve_addr");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(c.id, RESOLVE_MS))
		die("rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	hold();
	set_up(&c);
	if (rdma_connect(c.id, &param))
		die("rdma_connect");
	expect(RDMA_CM_EVENT_ESTABLISHED);
	ask(&c);
	rdma_freeaddrinfo(res);
}

static void endpoint_server(void)
{
	struct rdma_addrinfo *res = lookup(o.bind, RAI_PASSIVE);
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *listener;

	if (rdma_create_ep(&listener, res, NULL, &attr) || rdma_listen(listener, 0))
		die("rdma_create_ep");
	printf("listening\n");
	fflush(stdout);
	for (int i = 0; i < o.connections; i++) {
		static struct conn c;

		memset(&c, 0, sizeof(c));
		if (rdma_get_request(listener, &c.id))
			die("rdma_get_request");
		set_up(&c);
		if (rdma_accept(c.id, NULL))
			die("rdma_accept");
		serve(&c);
	}
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(res);
}

static void endpoint_client(void)
{
	struct rdma_addrinfo *res = lookup(o.server, 0);
	struct ibv_qp_init_attr attr = qp_attr();
	static struct conn c;

	if (rdma_create_ep(&c.id, res, NULL, &attr))
		die("rdma_create_ep");
	set_up(&c);
	if (rdma_connect(c.id, NULL))
		die("rdma_connect");
	ask(&c);
	rdma_freeaddrinfo(res);
}

int main(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "p:b:S:H:E:n:eGP:o:w:")) >= 0) {
		switch (opt) {
		case 'p':
			o.port = optarg;
			break;
		case 'b':
			o.bind = optarg;
			break;
		case 'S':
			o.stop = optarg;
			break;
		case 'H':
			o.hold = optarg;
			break;
		case 'E':
			o.end = optarg;
			break;
		case 'n':
			o.connections = atoi(optarg);
			break;
		case 'G':
			o.gids = true;
			break;
		case 'P':
			o.pkey = (uint16_t)strtol(optarg, NULL, 16);
			break;
		case 'w':
			o.pause_ms = atoi(optarg);
			break;
		case 'o':
			o.output = optarg;
			break;
		case 'e':
			o.endpoints = true;
			break;
		default:
			return 2;
		}
	}
	o.server = argv[optind];
	if (!o.port)
		return 2;
	if (!o.endpoints) {
		o.channel = rdma_create_event_channel();
		if (!o.channel)
			die("rdma_create_event_channel");
	}
	if (o.server)
		o.endpoints ? endpoint_client() : client();
	else
		o.endpoints ? endpoint_server() : server();
	if (o.pd && ibv_dealloc_pd(o.pd))
		die("ibv_dealloc_pd");
	if (o.channel)
		rdma_destroy_event_channel(o.channel);
	printf("done\n");
	return 0;
}
