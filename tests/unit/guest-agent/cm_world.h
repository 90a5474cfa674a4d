/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A process with a QP on a librdmacm that is played: what test_guest_cm and test_guest_cm_ids stand
 * on. To be included once in a program, after cmocka.h; the files of shim/cm/ are the real ones. */
#ifndef IBVMIG_TESTS_CM_WORLD_H
#define IBVMIG_TESTS_CM_WORLD_H

#include <endian.h>
#include <errno.h>
#include <infiniband/sa.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/refuse.h"

#define VQPN       0x11
#define DVQPN      0x22
#define SLOT       3
#define INSTANCE   77
#define PORT       4711
#define WAIT_MS    20000
#define PLAYED_MAX 64
/* The index of a P_Key and of a GID: the device's, and the program's. */
#define DEVICE_PKEY  2
#define PROGRAM_PKEY 1
#define DEVICE_GID   4
#define PROGRAM_GID  3

struct shim shim;
struct shim_job job;

/* librdmacm. An event is there when the channel's descriptor can be read. */
static struct {
	pthread_mutex_t lock;
	struct rdma_cm_event event[PLAYED_MAX];
	unsigned head, tail, acked;
	struct rdma_event_channel channel; /* the first; what is said comes from it */
	unsigned created, destroyed, binds, listens, resolves;
	atomic_uint disconnects;
	int backlog, bind_error;
	const struct rdma_cm_id *connected;
	const struct rdma_cm_id *resolved; /* the last one, */
	bool resolved_bound;               /* and whether it had its address */
	atomic_uint route_queries;         /* queries of the SA */
	struct ibv_path_data path;
	struct sockaddr_in bound;
	bool dead;
	int paths;                   /* the number of a resolved route's paths */
	int route_error, join_error; /* errors of the next one */
	unsigned joins;
	struct ibv_sa_path_rec path_rec[2];
	void (*in_option)(void); /* while an option is set */
	void (*in_enter)(void);  /* once, while the program waits to be let into a control verb, */
	void (*in_exit)(void);   /* and when it leaves one */
} played = {.lock = PTHREAD_MUTEX_INITIALIZER, .channel.fd = -1};

static struct shim_context ctx;
static struct shim_qp qp;
static struct shim_peer peer = {.slot = SLOT, .instance = INSTANCE};
static struct rdma_event_channel *channel;
static struct cm_ends said;
static unsigned said_count, modified;
static struct shim_path record;
static int link_layer;
static int wills; /* number of wills that the agent holds */
static pthread_t program;

static struct rdma_event_channel *p_create_event_channel(void)
{
	struct rdma_event_channel *ch = played.channel.fd < 0 ? &played.channel
							      : calloc(1, sizeof(*ch));

	ch->fd = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
	return ch;
}

static void p_destroy_event_channel(struct rdma_event_channel *ch)
{
	close(ch->fd);
	ch->fd = -1;
	if (ch != &played.channel)
		free(ch);
}

static int p_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *ch)
{
	id->channel = ch;
	return 0;
}

static int p_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context,
		       enum rdma_port_space ps)
{
	*id = calloc(1, sizeof(**id));
	(*id)->channel = ch;
	(*id)->context = context;
	(*id)->ps = ps;
	(*id)->qp_type = IBV_QPT_RC;
	played.created++;
	return 0;
}

static int p_destroy_id(struct rdma_cm_id *id)
{
	free(id);
	played.destroyed++;
	return 0;
}

static int p_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	played.binds++;
	memcpy(&played.bound, addr, sizeof(played.bound));
	if (played.bind_error) {
		errno = played.bind_error;
		return -1;
	}
	id->verbs = &ctx.verbs.context;
	id->route.addr.src_sin = played.bound;
	return 0;
}

static int p_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id;
	played.listens++;
	played.backlog = backlog;
	return 0;
}

static int p_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms)
{
	(void)src;
	(void)dst;
	(void)ms;
	played.resolved = id;
	played.resolved_bound = id->verbs != NULL;
	id->verbs = &ctx.verbs.context;
	id->route.addr.src_sin.sin_family = AF_INET;
	played.resolves++;
	return 0;
}

static int p_resolve_route(struct rdma_cm_id *id, int ms)
{
	(void)ms;
	if (played.route_error) {
		errno = played.route_error;
		played.route_error = 0;
		return -1;
	}
	id->route.path_rec = played.path_rec;
	id->route.num_paths = played.paths;
	played.route_queries++;
	return 0;
}

static int p_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	const struct cm_id *shadow = id->context;

	(void)param;
	if (shadow->redo || shim.no_connects) { /* an address or a route is missing; too late */
		errno = EINVAL;
		return -1;
	}
	played.connected = id;
	return 0;
}

static int p_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	(void)id;
	(void)addr;
	(void)context;
	played.joins++;
	if (!played.join_error)
		return 0;
	errno = played.join_error;
	played.join_error = 0;
	return -1;
}

static int p_disconnect(struct rdma_cm_id *id)
{
	assert_null(id->qp); /* librdmacm would put it to ERR */
	atomic_fetch_add(&played.disconnects, 1);
	return 0;
}

static int p_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes)
{
	(void)id;
	if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) {
		assert_int_equal(bytes, sizeof(played.path));
		memcpy(&played.path, value, bytes);
		return 0;
	}
	if (played.in_option)
		played.in_option();
	errno = played.dead ? EIO : ENOSYS;
	return -1;
}

static int p_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ret)
{
	uint64_t one;

	if (read(ch->fd, &one, sizeof(one)) < 0)
		return -1;
	pthread_mutex_lock(&played.lock);
	*ret = &played.event[played.tail++ % PLAYED_MAX];
	pthread_mutex_unlock(&played.lock);
	return 0;
}

static int p_ack_cm_event(struct rdma_cm_event *e)
{
	memset(e, 0xee, sizeof(*e)); /* the event is gone: a program that has a copy lives */
	pthread_mutex_lock(&played.lock);
	played.acked++;
	pthread_mutex_unlock(&played.lock);
	return 0;
}

static int p_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	*attr = (struct ibv_qp_attr){
		.port_num = 1,
		.pkey_index = DEVICE_PKEY,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.sgid_index = DEVICE_GID}};
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV;
	return 0;
}

const struct cm_real *cm_load(void)
{
	static const struct cm_real real = {.create_event_channel = p_create_event_channel,
					    .destroy_event_channel = p_destroy_event_channel,
					    .create_id = p_create_id,
					    .destroy_id = p_destroy_id,
					    .migrate_id = p_migrate_id,
					    .bind_addr = p_bind_addr,
					    .listen = p_listen,
					    .resolve_addr = p_resolve_addr,
					    .resolve_route = p_resolve_route,
					    .connect = p_connect,
					    .disconnect = p_disconnect,
					    .join_multicast = p_join_multicast,
					    .set_option = p_set_option,
					    .init_qp_attr = p_init_qp_attr,
					    .get_cm_event = p_get_cm_event,
					    .ack_cm_event = p_ack_cm_event};

	return &real;
}

/* Stubs of the other files that the files under test need. */
bool cm_is_caller(const void *return_address)
{
	(void)return_address;
	return false;
}
bool shim_start(void)
{
	return true;
}
bool shim_ours(const struct ibv_context *c)
{
	return c == &ctx.verbs.context;
}
static void once(void (**hook)(void))
{
	void (*f)(void) = *hook;

	if (!f || !pthread_equal(pthread_self(), program))
		return;
	*hook = NULL;
	f();
}
void ctl_enter(void)
{
	once(&played.in_enter);
}
bool ctl_enter_device(void)
{
	return false;
}
void ctl_exit(void)
{
	once(&played.in_exit);
}
int refuse_cm_xrc(const char *verb)
{
	(void)verb;
	return EOPNOTSUPP;
}
unsigned gid_index_of_device(struct shim_context *c, uint8_t port, unsigned index)
{
	return c == &ctx && port == 1 && index == DEVICE_GID ? PROGRAM_GID : 0;
}
int pkey_index_of_device(struct shim_context *c, uint8_t port, int index)
{
	return c == &ctx && port == 1 && index == DEVICE_PKEY ? PROGRAM_PKEY : -1;
}
void shim_log(const char *fmt, ...)
{
	(void)fmt;
}
void shim_set_uncovered(const char *why)
{
	(void)why;
}
void shim_unset_uncovered(void)
{
}
void shim_wake_helper(void)
{
}
void shim_send(const void *packet)
{
	(void)packet;
}
uint32_t shim_cookie(void)
{
	return 1;
}
/* The agent's path record, if it has one. */
int shim_call(void *packet, void *answer, size_t bytes, unsigned timeout_ms)
{
	const struct shim_path *ask = packet;
	struct shim_path p = *ask;

	assert_int_equal(bytes, sizeof(p));
	assert_true(timeout_ms > 0);
	assert_int_equal(ask->head.type, SHIM_PATH);
	assert_int_equal(ask->dgid[15], 9);
	if (!record.dlid)
		return -EHOSTUNREACH;
	p.dlid = record.dlid;
	p.slid = record.slid;
	p.mtu = record.mtu;
	p.rate = record.rate;
	p.sl = record.sl;
	memcpy(answer, &p, sizeof(p));
	return 0;
}
static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t bytes)
{
	(void)c;
	(void)port;
	(void)bytes;
	attr->link_layer = (uint8_t)link_layer;
	return 0;
}
struct shim_qp *qp_by_vqpn(uint32_t vqpn)
{
	return vqpn == VQPN ? &qp : NULL;
}
bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *ret)
{
	(void)o;
	(void)ret;
	return c == &ctx;
}
bool gid_in_order(const uint8_t gid[16], const struct shim_order *o)
{
	(void)o;
	return gid[15] == 9;
}
void peer_send_disconnect(const struct cm_ends *ends, uint16_t how)
{
	said = *ends;
	said_count += how == SHIM_SEND;
	wills += how == SHIM_WILL;
	wills -= how == SHIM_WILL_DROP;
}
#undef ibv_query_port
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)c;
	(void)port;
	(void)attr;
	return EINVAL; /* the one of the extended context is called */
}
int ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask)
{
	assert_ptr_equal(q, &qp.v);
	assert_int_equal(attr->qp_state, IBV_QPS_ERR);
	assert_int_equal(mask, IBV_QP_STATE);
	modified++;
	return 0;
}
int ibv_destroy_qp(struct ibv_qp *q)
{
	(void)q;
	return 0;
}
int ibv_destroy_srq(struct ibv_srq *s)
{
	(void)s;
	return 0;
}
int ibv_destroy_cq(struct ibv_cq *cq)
{
	(void)cq;
	return 0;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	(void)ch;
	return 0;
}

/* The kernel says something about an id, or the listener's new one. */
static void kernel_says(struct rdma_cm_id *id, enum rdma_cm_event_type type,
			const struct rdma_conn_param *param, struct rdma_cm_id *listener)
{
	uint64_t one = 1;

	pthread_mutex_lock(&played.lock);
	struct rdma_cm_event *e = &played.event[played.head++ % PLAYED_MAX];
	*e = (struct rdma_cm_event){.id = id, .event = type, .listen_id = listener};
	if (param)
		e->param.conn = *param;
	pthread_mutex_unlock(&played.lock);
	assert_int_equal(write(played.channel.fd, &one, sizeof(one)), sizeof(one));
}

/* Until the thread has taken all that the kernel said. */
static void heard(void)
{
	for (int i = 0; i < WAIT_MS; i++) {
		pthread_mutex_lock(&played.lock);
		bool all = played.acked == played.head;
		pthread_mutex_unlock(&played.lock);
		cm_lock();
		struct cm_channel *ch = container_of(channel, struct cm_channel, v);
		all &= !ch->busy;
		cm_unlock();
		if (all)
			return;
		poll(NULL, 0, 1);
	}
	fail_msg("the thread does not take the events");
}

static bool silent(void)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

static struct rdma_cm_event *hear(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *e = NULL;

	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &e), 0);
	assert_int_equal(e->event, type);
	if (id)
		assert_ptr_equal(e->id, id);
	return e;
}

static struct rdma_cm_id *new_id(void)
{
	struct rdma_cm_id *id = NULL;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

static inline struct rdma_cm_id *connected(void)
{
	struct rdma_conn_param param = {.qp_num = VQPN}, answer = {.qp_num = DVQPN};
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_cm_id *id = new_id();

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	to_cm_id(id)->real->route.addr.addr.ibaddr.dgid.raw[15] = 9;
	id->qp = &qp.v;
	assert_int_equal(rdma_connect(id, &param), 0);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ESTABLISHED, &answer, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_ESTABLISHED, id));
	return id;
}

static int setup(void **state)
{
	(void)state;
	memset(&job, 0, sizeof(job));
	memset(&qp, 0, sizeof(qp));
	played.head = played.tail = played.acked = 0;
	played.created = played.destroyed = played.binds = played.listens = 0;
	atomic_store(&played.disconnects, 0);
	played.resolves = 0;
	played.bind_error = 0;
	played.dead = false;
	played.route_error = played.join_error = 0;
	played.joins = 0;
	played.paths = 0;
	played.in_option = NULL;
	said_count = modified = 0;
	wills = 0;
	ctx.in_job = true;
	ctx.verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	ctx.verbs.sz = sizeof(ctx.verbs);
	ctx.verbs.query_port = query_port;
	link_layer = IBV_LINK_LAYER_ETHERNET;
	memset(&record, 0, sizeof(record));
	played.route_queries = 0;
	qp.v.qp_num = VQPN;
	qp.dvqpn = DVQPN;
	qp.peer = &peer;
	qp.in_job = qp.paired = qp.connected = true;
	qp.dgid[15] = 9;
	channel = rdma_create_event_channel();
	return channel == NULL;
}

static int teardown(void **state)
{
	(void)state;
	rdma_destroy_event_channel(channel);
	assert_int_equal(played.created, played.destroyed);
	return 0;
}

static void migrate(unsigned role)
{
	job.role = role;
	cm_part.release();
	cm_part.rebuild();
	cm_part.resumed();
}

#endif
