/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/fake/verbs/agent.h"

#include <errno.h>
#include <libgen.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest-agent/proto/peer.h"
#include "tests/fake/verbs/verbs.h"

#define DEADLINE_MS 60000
#define PEER_TYPES  64
#define GUIDS_MAX   16
#define RECORDS_MAX 4
#define PREFIX      0xfe80000000000000ull

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct sockaddr_un addr;
	pthread_t thread;
	int listener, shim;
	bool welcomed;
	uint64_t reports; /* since the start */
	struct shim_report last;
	char heard[4096]; /* lines, since the last order */
	atomic_bool ways_lost, anew, paths_kept, questions_kept;
	atomic_uint lost;        /* the type of packets that do not arrive */
	atomic_uint dlid, asked; /* path records' DLID, and how many were asked for */
	unsigned lid, lid_guids; /* under .lock, as the next ones */
	unsigned lid_asked;
	struct shim_path record[RECORDS_MAX]; /* given by fake_agent_repath() */
	unsigned records;
	uint64_t lid_guid[GUIDS_MAX], lid_stale, stranger;
	atomic_bool grh_required, numbers_taken;
	uint32_t numbers_given;          /* by the agent's thread */
	atomic_uint brought[PEER_TYPES]; /* packets, by their type */
} agent = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .shim = -1};

static void answer(const void *packet)
{
	const struct shim_head *h = packet;

	if (send(agent.shim, packet, h->bytes, MSG_NOSIGNAL) < 0)
		perror("# fake agent");
}

static void welcome(const struct shim_head *h)
{
	struct shim_welcome w = {.head = {sizeof(w), SHIM_HELLO, 0, h->cookie, 0},
				 .slot = 1,
				 .instance = 0x1234,
				 .grh_required = atomic_load(&agent.grh_required)};

	answer(&w);
	pthread_mutex_lock(&agent.lock);
	agent.welcomed = true;
	pthread_cond_broadcast(&agent.changed);
	pthread_mutex_unlock(&agent.lock);
}

static void take_report(const struct shim_head *h)
{
	pthread_mutex_lock(&agent.lock);
	memcpy(&agent.last, h, sizeof(agent.last));
	agent.reports++;
	pthread_cond_broadcast(&agent.changed);
	pthread_mutex_unlock(&agent.lock);
}

static void take_log(const struct shim_log *l)
{
	size_t n;

	printf("# shim: %s\n", l->text);
	pthread_mutex_lock(&agent.lock);
	n = strlen(agent.heard);
	snprintf(agent.heard + n, sizeof(agent.heard) - n, "%s\n", l->text);
	pthread_mutex_unlock(&agent.lock);
}

bool fake_agent_heard(const char *text)
{
	bool heard;

	pthread_mutex_lock(&agent.lock);
	heard = strstr(agent.heard, text);
	pthread_mutex_unlock(&agent.lock);
	return heard;
}

void fake_agent_forget_log(void)
{
	pthread_mutex_lock(&agent.lock);
	agent.heard[0] = '\0';
	pthread_mutex_unlock(&agent.lock);
}

static uint64_t guid_of(const uint8_t gid[16])
{
	uint64_t guid = 0;

	for (int i = 8; i < 16; i++)
		guid = guid << 8 | gid[i];
	return guid;
}

static void write_gid(uint64_t guid, uint8_t gid[16])
{
	for (int i = 0; i < 8; i++) {
		gid[i] = (uint8_t)(PREFIX >> (56 - 8 * i));
		gid[8 + i] = (uint8_t)(guid >> (56 - 8 * i));
	}
}

/* As the agent of a guest answers that has no such QP. */
static bool is_gone(struct shim_relay *r, const struct peer_head *h)
{
	struct peer_head gone = {.version = h->version,
				 .type = PEER_GONE,
				 .about = h->type,
				 .dst_slot = h->src_slot,
				 .src_slot = h->dst_slot,
				 .dst_vqpn = h->dst_vqpn,
				 .src_vqpn = h->src_vqpn,
				 .dst_instance = h->src_instance,
				 .src_instance = h->dst_instance,
				 .migration = h->migration};
	bool stranger;

	pthread_mutex_lock(&agent.lock);
	stranger = agent.stranger && guid_of(h->dgid) == agent.stranger;
	pthread_mutex_unlock(&agent.lock);
	if (!stranger || h->type == PEER_GONE)
		return stranger;
	memcpy(gone.sgid, h->dgid, 16);
	memcpy(gone.dgid, h->sgid, 16);
	memcpy(r->body, &gone, sizeof(gone));
	r->head.bytes = sizeof(*r) + sizeof(gone);
	answer(r);
	return true;
}

/* Both ends are in this process. */
static void bring_back(struct shim_relay *r)
{
	struct peer_head h;

	r->head.type = SHIM_DELIVER;
	memcpy(&h, r->body, sizeof(h));
	if (is_gone(r, &h))
		return;
	if (atomic_load(&agent.anew) && h.type == PEER_ABORT) {
		h.type = PEER_CONNECT;
		memcpy(r->body, &h, sizeof(h));
	}
	if (atomic_load(&agent.ways_lost)) {
		r->head.type = SHIM_UNREACHABLE;
		r->head.bytes = sizeof(*r);
	}
	if ((h.type != PEER_KEY_GET || !atomic_load(&agent.questions_kept)) &&
	    h.type != atomic_load(&agent.lost))
		answer(r);
	if (h.type >= PEER_TYPES)
		return;
	pthread_mutex_lock(&agent.lock);
	atomic_fetch_add(&agent.brought[h.type], 1);
	pthread_cond_broadcast(&agent.changed);
	pthread_mutex_unlock(&agent.lock);
}

void fake_agent_keep_questions(bool keep)
{
	atomic_store(&agent.questions_kept, keep);
}

unsigned fake_agent_brought(uint16_t type)
{
	return atomic_load(&agent.brought[type]);
}

bool fake_agent_await_more(uint16_t type, unsigned before, unsigned ms)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	pthread_mutex_lock(&agent.lock);
	while (fake_agent_brought(type) <= before && !rc)
		rc = pthread_cond_timedwait(&agent.changed, &agent.lock, &until);
	pthread_mutex_unlock(&agent.lock);
	return !rc;
}

void fake_agent_lose_ways(bool lose)
{
	atomic_store(&agent.ways_lost, lose);
}

void fake_agent_connect_anew(bool anew)
{
	atomic_store(&agent.anew, anew);
}

/* Under the lock: the record of that way, or NULL. */
static struct shim_path *record_of(const struct shim_path *p)
{
	for (unsigned i = 0; i < agent.records; i++)
		if (!memcmp(agent.record[i].sgid, p->sgid, sizeof(p->sgid)) &&
		    !memcmp(agent.record[i].dgid, p->dgid, sizeof(p->dgid)))
			return &agent.record[i];
	return NULL;
}

static void give_path(struct shim_path *p)
{
	const struct shim_path *told;

	atomic_fetch_add(&agent.asked, 1);
	p->dlid = p->slid = (uint16_t)atomic_load(&agent.dlid);
	pthread_mutex_lock(&agent.lock);
	told = record_of(p);
	p->sl = told ? told->sl : 0;
	p->mtu = told ? told->mtu : 0;
	pthread_mutex_unlock(&agent.lock);
	if (!atomic_load(&agent.paths_kept))
		answer(p);
}

static struct shim_path record(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu)
{
	struct shim_path p = {.head = {.bytes = sizeof(p), .type = SHIM_REPATH},
			      .pkey = 0x7fff,
			      .sl = (uint8_t)sl,
			      .mtu = (uint16_t)mtu};

	p.dlid = p.slid = (uint16_t)atomic_load(&agent.dlid);
	write_gid(sguid, p.sgid);
	write_gid(dguid, p.dgid);
	return p;
}

/* Under the lock. */
static void keep_record(const struct shim_path *p)
{
	struct shim_path *known = record_of(p);

	if (!known && agent.records < RECORDS_MAX)
		known = &agent.record[agent.records++];
	if (known)
		*known = *p;
}

static void change_record(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu, bool tell)
{
	struct shim_path stale = {.head = {sizeof(stale), SHIM_REPATH, 0, 0, -ESTALE}};
	const struct shim_path p = record(sguid, dguid, sl, mtu);

	pthread_mutex_lock(&agent.lock);
	keep_record(&p);
	answer(tell ? &p : &stale);
	pthread_mutex_unlock(&agent.lock);
}

void fake_agent_set_path(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu)
{
	const struct shim_path p = record(sguid, dguid, sl, mtu);

	pthread_mutex_lock(&agent.lock);
	keep_record(&p);
	pthread_mutex_unlock(&agent.lock);
}

void fake_agent_repath(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu)
{
	change_record(sguid, dguid, sl, mtu, true);
}

void fake_agent_forget_paths(uint64_t sguid, uint64_t dguid, unsigned sl, unsigned mtu)
{
	change_record(sguid, dguid, sl, mtu, false);
}

void fake_agent_lose(uint16_t type)
{
	atomic_store(&agent.lost, type);
}

void fake_agent_keep_paths(bool keep)
{
	atomic_store(&agent.paths_kept, keep);
}

unsigned fake_agent_paths(unsigned dlid)
{
	atomic_store(&agent.dlid, dlid);
	return atomic_load(&agent.asked);
}

static void give_ends(const struct shim_lid_ask *ask)
{
	struct shim_lid a = {.head = {sizeof(a), SHIM_LID, 0, ask->head.cookie, -EHOSTUNREACH}};

	pthread_mutex_lock(&agent.lock);
	agent.lid_asked++;
	if (ask->lid == agent.lid) {
		a.head.status = 0;
		a.count = agent.lid_guids;
		a.shared = a.count > 1 || agent.stranger;
	}
	if (agent.lid_stale && a.count && !ask->anew)
		a.count = 1;
	for (unsigned i = 0; i < a.count; i++) {
		write_gid(agent.lid_stale && !ask->anew ? agent.lid_stale : agent.lid_guid[i],
			  a.end[i].dgid);
		a.end[i].dlid = a.end[i].slid = (uint16_t)atomic_load(&agent.dlid);
		a.end[i].mtu = 4096;
	}
	pthread_mutex_unlock(&agent.lock);
	answer(&a);
}

unsigned fake_agent_lid(unsigned lid, unsigned count, const uint64_t *guids)
{
	unsigned asked;

	pthread_mutex_lock(&agent.lock);
	agent.lid = lid;
	agent.lid_guids = count;
	memcpy(agent.lid_guid, guids, count * sizeof(*guids));
	asked = agent.lid_asked;
	pthread_mutex_unlock(&agent.lock);
	return asked;
}

void fake_agent_stale_lid(uint64_t guid)
{
	pthread_mutex_lock(&agent.lock);
	agent.lid_stale = guid;
	pthread_mutex_unlock(&agent.lock);
}

void fake_agent_stranger(uint64_t guid)
{
	pthread_mutex_lock(&agent.lock);
	agent.stranger = guid;
	pthread_mutex_unlock(&agent.lock);
}

static void give_number(struct shim_qp_number *n)
{
	bool taken = atomic_load(&agent.numbers_taken);

	n->head.status = taken && n->vqpn ? -EADDRINUSE : 0;
	if (!n->vqpn)
		n->vqpn = SHIM_QPN_MAX - 1 - agent.numbers_given++;
	if (n->head.cookie)
		answer(n);
}

void fake_agent_take_numbers(bool take)
{
	atomic_store(&agent.numbers_taken, take);
}

void fake_agent_require_grh(void)
{
	atomic_store(&agent.grh_required, true);
}

static void packet(struct shim_head *h)
{
	switch (h->type) {
	case SHIM_HELLO:
		welcome(h);
		break;
	case SHIM_SEND:
		bring_back((struct shim_relay *)h);
		break;
	case SHIM_QP_ADD:
		give_number((struct shim_qp_number *)h);
		break;
	case SHIM_PATH:
		give_path((struct shim_path *)h);
		break;
	case SHIM_LID:
		give_ends((const struct shim_lid_ask *)h);
		break;
	case SHIM_LOG:
		take_log((struct shim_log *)h);
		break;
	case SHIM_QUIET:
	case SHIM_RELEASED:
	case SHIM_RESUMED:
	case SHIM_ABORTED:
		take_report(h);
		break;
	default: /* whatever is asked: yes */
		if (h->cookie)
			answer(h);
	}
}

/* Nobody else will connect. */
static void forget_path(void)
{
	struct sockaddr_un addr = agent.addr;

	unlink(addr.sun_path);
	rmdir(dirname(addr.sun_path));
}

static void *agent_main(void *arg)
{
	static union {
		struct shim_head head;
		char data[SHIM_MSG_MAX];
	} in;

	(void)arg;
	agent.shim = accept(agent.listener, NULL, NULL);
	close(agent.listener);
	forget_path();
	while (recv(agent.shim, &in, sizeof(in), 0) > 0)
		packet(&in.head);
	return NULL;
}

static int start(void)
{
	agent.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (agent.listener < 0 || bind(agent.listener, (void *)&agent.addr, sizeof(agent.addr)) ||
	    listen(agent.listener, 1))
		return -errno;
	return -pthread_create(&agent.thread, NULL, agent_main, NULL);
}

int fake_agent_start(void)
{
	char dir[] = "/tmp/ibvmig-fake-XXXXXX";

	if (!mkdtemp(dir))
		return -errno;
	agent.addr.sun_family = AF_UNIX;
	snprintf(agent.addr.sun_path, sizeof(agent.addr.sun_path), "%s/agent", dir);
	setenv(SHIM_SOCKET_ENV, agent.addr.sun_path, 1);
	return start();
}

void fake_agent_leave(void)
{
	shutdown(agent.shim, SHUT_RDWR);
	pthread_join(agent.thread, NULL);
	close(agent.shim);
	agent.welcomed = false;
}

int fake_agent_return(void)
{
	struct sockaddr_un addr = agent.addr;

	return mkdir(dirname(addr.sun_path), 0700) ? -errno : start();
}

static int order(const struct shim_order *o, struct shim_report *ret_report)
{
	uint64_t before;

	pthread_mutex_lock(&agent.lock);
	while (!agent.welcomed) /* after fake_agent_return() */
		pthread_cond_wait(&agent.changed, &agent.lock);
	before = agent.reports;
	agent.heard[0] = '\0';
	answer(o);
	while (agent.reports == before)
		pthread_cond_wait(&agent.changed, &agent.lock);
	*ret_report = agent.last;
	pthread_mutex_unlock(&agent.lock);
	return ret_report->head.status;
}

int fake_agent_order(uint16_t type, uint64_t migration, struct shim_report *ret_report)
{
	struct shim_order o = {.head = {.bytes = sizeof(o), .type = type},
			       .migration = migration,
			       .role = SHIM_ROLE_MOVER,
			       .deadline_ms = DEADLINE_MS,
			       .vguid_count = 1,
			       .vguid = {FAKE_GUID},
			       .device = {FAKE_DEVICE}};

	return order(&o, ret_report);
}

void fake_agent_build(uint64_t migration, bool there)
{
	struct shim_order o = {.head = {.bytes = sizeof(o), .type = SHIM_BUILD},
			       .migration = migration,
			       .role = SHIM_ROLE_MOVER,
			       .vguid_count = 1,
			       .vguid = {FAKE_GUID}};

	if (there)
		strcpy(o.device[0], FAKE_DEVICE);
	pthread_mutex_lock(&agent.lock);
	answer(&o);
	pthread_mutex_unlock(&agent.lock);
}

int fake_agent_order_peer(uint16_t type, uint64_t migration, uint64_t vguid,
			  struct shim_report *ret_report)
{
	struct shim_order o = {.head = {.bytes = sizeof(o), .type = type},
			       .migration = migration,
			       .role = SHIM_ROLE_PEER,
			       .deadline_ms = DEADLINE_MS,
			       .vguid_count = 1,
			       .vguid = {vguid}};

	return order(&o, ret_report);
}
