/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entry points of the event plugin: socket, thread, OpenSM's events, the count of path requests. */
#include "sm-helper/plugin/distinguisher/distinguisher.h"
#include "sm-helper/plugin/engine.h"
#include "sm-helper/plugin/homes.h"
#include "sm-helper/plugin/keep.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/master/owner.h"
#include "sm-helper/plugin/parked.h"
#include "sm-helper/plugin/partitions/partitions.h"
#include "sm-helper/plugin/smps.h"
#include "sm-helper/plugin/wire.h"
#include "sm-helper/proto/check.h"
#include "common/util.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include <opensm/osm_event_plugin.h>
#include <opensm/osm_log.h>
#include <opensm/osm_msgdef.h>
#include <opensm/osm_version.h>

#define DEFAULT_SOCKET "/run/ibvmig/sm-plugin.sock"
#define SOCKET_OPTION  "ibvmig-socket="
#define IDLE_MS        100 /* without a request: then plugin_store() writes all */

/* OpenSM's handler of PathRecord requests: exported by the program, declared in no header. */
extern void osm_pr_rcv_process(void *context, void *data);

union any_request {
	struct sm_head head;
	struct sm_page_request page;
	struct sm_lft_request lft;
	struct sm_assign_request assign;
	struct sm_records_request records;
	struct sm_watch_request watch;
	struct sm_reroute_request reroute;
	struct sm_intent_request intent;
	struct sm_guids_request guids;
	struct sm_parked_request parked;
	struct sm_memberships_request memberships;
	struct sm_members_request members;
	struct sm_owner_request owner;
};

union any_reply {
	struct sm_reply_head h;
	struct sm_status_reply status;
	struct sm_endports_reply endports;
	struct sm_links_reply links;
	struct sm_lft_reply lft;
	struct sm_assign_reply assign;
	struct sm_records_reply records;
	struct sm_sweep_reply sweep;
	struct sm_reroute_reply reroute;
	struct sm_intent_reply intent;
	struct sm_guids_reply guids;
	struct sm_parked_reply parked;
	struct sm_memberships_reply memberships;
	struct sm_partitions_reply partitions;
	struct sm_members_reply members;
	struct sm_owner_reply owner;
	struct sm_homes_reply homes;
};

/* Answers client i if what it watches is past. False: it is gone. */
static bool serve_watch(struct plugin *p, int i)
{
	struct sm_watch_request *w = &p->watch[i];
	struct sm_watch_reply reply = {
		.h.head = {SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_WATCH, w->head.id, sizeof reply},
		.instance = p->instance,
		.generation = atomic_load(&p->count.generation),
	};

	if (!w->head.op || (w->instance == reply.instance && w->generation == reply.generation))
		return true;
	w->head.op = 0;
	return send(p->client_fd[i], &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       sizeof reply;
}

/* Likewise for a comparison of paths. */
static bool serve_reroute(struct plugin *p, int i)
{
	struct sm_reroute_request *w = &p->await[i];
	static struct sm_reroute_reply reply; /* only our thread comes here */
	int rc;

	if (!w->head.op || !distinguisher_answers(p, w))
		return true;
	memset(&reply, 0, sizeof reply);
	reply.h.head = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_REROUTE, w->head.id,
					0};
	rc = plugin_reroute(p, w, &reply);
	w->head.op = 0;
	reply.h.error = rc < 0 ? rc : 0;
	reply.h.head.bytes = rc < 0 ? sizeof reply.h : (uint32_t)rc;
	return send(p->client_fd[i], &reply, reply.h.head.bytes, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)reply.h.head.bytes;
}

static void sweep_begins(struct plugin *p)
{
	pthread_mutex_lock(&p->gate);
	if (p->batch_waits)
		pthread_cond_wait(&p->batch_ended, &p->gate);
	p->sweeping = true;
	p->end_asked = false;
	atomic_fetch_add(&p->count.heavy_sweeps, 1);
	pthread_mutex_unlock(&p->gate);
	keep_remember(p);
	engines_wrap(p);
}

static bool changes(const union any_request *req)
{
	uint16_t op = req->head.op;

	return op == SM_OP_ASSIGN || op == SM_OP_GUIDS || op == SM_OP_INTENT ||
	       op == SM_OP_MEMBERS || (op == SM_OP_PARKED && req->parked.flags);
}

static int dispatch(struct plugin *p, int i, const union any_request *req, union any_reply *reply)
{
	int rc = changes(req) ? owner_check(p, i, &reply->h) : 0;

	if (rc)
		return rc;
	switch (req->head.op) {
	case SM_OP_STATUS:
		return plugin_status(p, &reply->status);
	case SM_OP_ENDPORTS:
		return plugin_endports(p, &req->page, &reply->endports);
	case SM_OP_LINKS:
		return plugin_links(p, &req->page, &reply->links);
	case SM_OP_LFT:
		return plugin_lft(p, &req->lft, &reply->lft);
	case SM_OP_ASSIGN:
		return plugin_assign(p, &req->assign, &reply->assign);
	case SM_OP_RECORDS:
		return plugin_records(p, &req->records, &reply->records);
	case SM_OP_SWEEP:
		return plugin_sweep(p, &reply->sweep);
	case SM_OP_INTENT:
		return plugin_intent(p, &req->intent, &reply->intent);
	case SM_OP_GUIDS:
		return plugin_guids(p, &req->guids, &reply->guids);
	case SM_OP_PARKED:
		return plugin_parked(p, &req->parked, &reply->parked);
	case SM_OP_MEMBERSHIPS:
		return plugin_memberships(p, &req->memberships, &reply->memberships);
	case SM_OP_PARTITIONS:
		return plugin_partitions(p, &req->page, &reply->partitions);
	case SM_OP_MEMBERS:
		return plugin_members(p, &req->members, &reply->members);
	case SM_OP_OWNER:
		return plugin_owner(p, i, &req->owner, &reply->owner);
	case SM_OP_HOMES:
		return plugin_homes(p, &req->page, &reply->homes);
	default:
		return plugin_refuse(&reply->h, -EPROTO, "operation %u is unknown", req->head.op);
	}
}

/* Serves one request of client i with one reply. False: the client is gone. */
static bool serve(struct plugin *p, int i)
{
	int fd = p->client_fd[i];
	static union any_request req; /* only our thread comes here */
	static union any_reply reply;
	ssize_t got = recv(fd, &req, sizeof req, MSG_TRUNC | MSG_DONTWAIT);
	int rc;

	if (got <= 0)
		return got < 0 && (errno == EINTR || errno == EAGAIN);
	memset(&reply, 0, sizeof reply);
	reply.h.head = (struct sm_head){
		.magic = SM_PROTO_MAGIC,
		.version = SM_PROTO_VERSION,
		.op = (size_t)got >= sizeof req.head ? req.head.op : 0,
		.id = (size_t)got >= sizeof req.head ? req.head.id : 0,
	};
	rc = proto_check_request(&req, (size_t)got, reply.h.reason);
	if (!rc && req.head.op == SM_OP_WATCH) {
		p->watch[i] = req.watch;
		return serve_watch(p, i);
	}
	if (!rc && req.head.op == SM_OP_REROUTE) {
		p->await[i] = req.reroute;
		return serve_reroute(p, i);
	}
	if (!rc)
		rc = dispatch(p, i, &req, &reply);
	reply.h.error = rc < 0 ? rc : 0;
	reply.h.head.bytes = rc < 0 ? sizeof reply.h : (uint32_t)rc;
	return send(fd, &reply, reply.h.head.bytes, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)reply.h.head.bytes;
}

static void accept_client(struct plugin *p)
{
	int fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (int i = 0; i < PLUGIN_CLIENTS_MAX; i++)
		if (p->client_fd[i] < 0) {
			p->client_fd[i] = fd;
			p->watch[i].head.op = p->await[i].head.op = 0;
			p->grant[i] = 0;
			return;
		}
	close(fd);
}

static void close_client(struct plugin *p, int i)
{
	close(p->client_fd[i]);
	p->client_fd[i] = -1;
	p->watch[i].head.op = p->await[i].head.op = 0;
}

static void serve_clients(struct plugin *p, const struct pollfd pfd[PLUGIN_CLIENTS_MAX])
{
	for (int i = 0; i < PLUGIN_CLIENTS_MAX; i++)
		if (p->client_fd[i] >= 0 && pfd[i].revents && !serve(p, i))
			close_client(p, i);
	for (int i = 0; i < PLUGIN_CLIENTS_MAX; i++)
		if (p->client_fd[i] >= 0 && !(serve_watch(p, i) && serve_reroute(p, i)))
			close_client(p, i);
}

static void *serve_thread(void *arg)
{
	struct plugin *p = arg;
	struct pollfd pfd[3 + PLUGIN_CLIENTS_MAX];
	eventfd_t changes;
	int n;

	for (;;) {
		pfd[0] = (struct pollfd){.fd = p->stop_fd, .events = POLLIN};
		pfd[1] = (struct pollfd){.fd = p->listen_fd, .events = POLLIN};
		pfd[2] = (struct pollfd){.fd = p->changed_fd, .events = POLLIN};
		for (int i = 0; i < PLUGIN_CLIENTS_MAX; i++)
			pfd[3 + i] = (struct pollfd){.fd = p->client_fd[i], .events = POLLIN};
		n = poll(pfd, ARRAY_SIZE(pfd), p->neighbors_stale ? IDLE_MS : -1);
		if (n < 0 && errno != EINTR)
			return NULL;
		plugin_store(p, !n);
		if (pfd[0].revents)
			return NULL;
		if (pfd[2].revents & POLLIN)
			eventfd_read(p->changed_fd, &changes);
		serve_clients(p, pfd + 3);
		if (pfd[1].revents & POLLIN)
			accept_client(p);
	}
}

/* event_plugin_options "... ibvmig-socket=PATH ...", else $IBVMIG_SM_SOCKET, else the default. */
static int find_path(struct plugin *p)
{
	const char *options = p->osm->subn.opt.event_plugin_options;
	const char *at = options ? strstr(options, SOCKET_OPTION) : NULL;
	size_t n;

	at = at ? at + strlen(SOCKET_OPTION) : getenv("IBVMIG_SM_SOCKET");
	if (!at || !*at)
		at = DEFAULT_SOCKET;
	n = strcspn(at, " \t,;");
	if (n >= sizeof p->path)
		return -ENAMETOOLONG;
	memcpy(p->path, at, n);
	return 0;
}

static int listen_on(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd AUTO_CLOSE = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	strcpy(a.sun_path, path);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) || chmod(path, 0600) || listen(fd, 4))
		return -errno;
	return TAKE_FD(fd);
}

/* OpenSM counts SA MADs of all kinds together; PathRecord requests alone are seen by standing
 * between its dispatcher and its handler. */
static void count_path_request(void *context, void *data)
{
	struct plugin *p = context;

	atomic_fetch_add(&p->count.sa_path_requests, 1);
	osm_pr_rcv_process(&p->osm->sa, data);
}

/* No MAD has arrived yet at load time: OpenSM binds to QP1 later. osm_sa_destroy() unregisters our
 * handle like its own. */
static int hook_path_requests(struct plugin *p)
{
	osm_sa_t *sa = &p->osm->sa;

	cl_disp_unregister(sa->pr_disp_h);
	sa->pr_disp_h = cl_disp_register(sa->p_disp, OSM_MSG_MAD_PATH_RECORD, count_path_request,
					 p);
	if (sa->pr_disp_h != CL_DISP_INVALID_HANDLE)
		return 0;
	sa->pr_disp_h = cl_disp_register(sa->p_disp, OSM_MSG_MAD_PATH_RECORD, osm_pr_rcv_process,
					 sa);
	return -EIO;
}

static int start_thread(struct plugin *p)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	rc = pthread_create(&p->thread, NULL, serve_thread, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

static int start(struct plugin *p)
{
	int rc = find_path(p);

	if (rc)
		return rc;
	if ((p->listen_fd = listen_on(p->path)) < 0)
		return p->listen_fd;
	if ((p->stop_fd = eventfd(0, EFD_CLOEXEC)) < 0 ||
	    (p->changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
		return -errno;
	if ((rc = homes_open(p)) || (rc = master_open(p)) || (rc = owner_open(p)) ||
	    (rc = partitions_open(p)) || (rc = hook_path_requests(p)) || (rc = wire_hook(p)) ||
	    (rc = smps_hook(p)))
		return rc;
	if ((rc = distinguisher_start(p)))
		return rc;
	return start_thread(p);
}

static void *plugin_create(osm_opensm_t *osm)
{
	struct plugin *p = calloc(1, sizeof *p);
	struct timespec now;
	int rc;

	if (!p)
		return NULL;
	p->osm = osm;
	p->listen_fd = p->stop_fd = p->changed_fd = p->record_fd = -1;
	master_read_fault(p);
	memset(p->client_fd, -1, sizeof p->client_fd);
	pthread_mutex_init(&p->gate, NULL);
	pthread_cond_init(&p->sweep_ended, NULL);
	pthread_cond_init(&p->batch_ended, NULL);
	atomic_store(&p->count.generation, 1);
	clock_gettime(CLOCK_REALTIME, &now);
	p->instance = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
	rc = start(p);
	if (rc) {
		osm_log(&osm->log, OSM_LOG_SYS,
			"ibvmig: not loaded, VMs cannot move: socket \"%s\": %s\n", p->path,
			strerror(-rc));
		if (p->listen_fd >= 0)
			close(p->listen_fd);
		if (p->stop_fd >= 0)
			close(p->stop_fd);
		if (p->changed_fd >= 0)
			close(p->changed_fd);
		if (p->record_fd >= 0)
			close(p->record_fd);
		return NULL; /* p stays: OpenSM's dispatcher may have handlers of ours already */
	}
	osm_log(&osm->log, OSM_LOG_SYS, "ibvmig: version " IBVMIG_VERSION " listens on %s\n",
		p->path);
	return p;
}

static void plugin_delete(void *arg)
{
	struct plugin *p = arg;

	eventfd_write(p->stop_fd, 1);
	pthread_join(p->thread, NULL);
	distinguisher_stop(p);
	plugin_store(p, true);
	partitions_close(p);
	parked_free(p);
	for (int i = 0; i < PLUGIN_CLIENTS_MAX; i++)
		if (p->client_fd[i] >= 0)
			close(p->client_fd[i]);
	close(p->listen_fd);
	close(p->stop_fd);
	unlink(p->path);
	/* p stays: the dispatcher's registration points to it until osm_sa_destroy(). So do
	 * changed_fd and record_fd: a sweep may still end. */
}

static void sweep_over(struct plugin *p, bool ready)
{
	pthread_mutex_lock(&p->gate);
	p->ready = p->ready || ready;
	/* OpenSM still knows what was asked for after the discovery, and sweeps again */
	plugin_end_sweep(p, ready && p->osm->subn.force_heavy_sweep);
	pthread_mutex_unlock(&p->gate);
}

/* LFT_CHANGE and TRAP come with OpenSM's lock held: take none that is held while it is taken. The
 * sweep events come from the sweeper without it. */
static void plugin_report(void *arg, osm_epi_event_id_t event, void *data)
{
	struct plugin *p = arg;

	switch (event) {
	case OSM_EVENT_ID_HEAVY_SWEEP_START:
		sweep_begins(p);
		break;
	case OSM_EVENT_ID_HEAVY_SWEEP_DONE: /* the discovery only; nothing is written yet */
		if (!master_swept(p))
			keep_swept(p);
		partitions_swept(p);
		break;
	case OSM_EVENT_ID_SUBNET_UP:
		master_up(p);
		partitions_up(p);
		sweep_over(p, true);
		distinguisher_wake(p);
		break;
	case OSM_EVENT_ID_UCAST_ROUTING_DONE: /* within a heavy sweep too, whose end is not yet */
		if ((uintptr_t)data == UCAST_ROUTING_REROUTE) {
			plugin_changed(p);
			distinguisher_wake(p);
		}
		break;
	case OSM_EVENT_ID_TRAP:
		distinguisher_heard(p, data);
		break;
	case OSM_EVENT_ID_STATE_CHANGE:
		sweep_over(p, false);
		break;
	case OSM_EVENT_ID_LFT_CHANGE:
		if (((osm_epi_lft_change_event_t *)data)->flags & LFT_CHANGED_BLOCK)
			atomic_fetch_add(&p->count.lft_changes, 1);
		break;
	default:
		break;
	}
}

/* Looked up by this name; OpenSM refuses a plugin that was built for another version of it. */
osm_event_plugin_t osm_event_plugin = {
	.osm_version = OSM_VERSION,
	.create = plugin_create,
	.delete = plugin_delete,
	.report = plugin_report,
};
