/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Guests of simulated hosts: ibvmig-agent's end of the channel, and the two ends of a connection
 * between the mover and its peer (world.h; docs/wire.md, "Guest channel"). */
#include "tests/sim/world.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define ANSWER_US  (2 * SIM_MS)
#define SUSPEND_US (40 * SIM_MS)
#define DEVICE_US  (10 * SIM_MS) /* how often the agent looks for its device */
#define ALONE_US                                                                                   \
	(6 * SIM_S) /* then who cannot be reached is given up: guest-agent/shim/job/job.h */
#define BALLAST_US (120 * SIM_S)
#define LATE_US    (2 * SIM_S)

struct sim_guest sim_guests[SIM_GUESTS] = {
	{.name = "g1",
	 .uuid = "11111111-2222-3333-4444-555555555501",
	 .vguids = {0x00a1b2fffe000101, 0x00a1b2fffe000201},
	 .mover = true,
	 .other = &sim_guests[1],
	 .first = HOST_A,
	 .agent_up = true,
	 .live = true},
	{.name = "g2",
	 .uuid = "11111111-2222-3333-4444-555555555502",
	 .vguids = {0x00a1b2fffe000102},
	 .other = &sim_guests[0],
	 .first = HOST_C,
	 .agent_up = true,
	 .live = true},
};
enum sim_replies sim_agent_replies;
unsigned sim_hasty, sim_not_hasty;

unsigned sim_rails(const struct sim_guest *g)
{
	return g->mover && sim_mover.two_vfs ? 2 : 1;
}

/* The mover of the connection that g is an end of. */
static struct sim_guest *mover_of(struct sim_guest *g)
{
	return g->mover ? g : g->other;
}

bool sim_end_lives(const struct sim_guest *end, const struct sim_guest *mover)
{
	return end->live || (!end->mover && end->other != mover);
}

unsigned sim_index(const struct sim_guest *g)
{
	return (unsigned)(g - sim_guests);
}

static struct sim_guest *add_guest(int host)
{
	unsigned i = sim_size.guests++;
	struct sim_guest *g = &sim_guests[i];

	g->name = strf("g%u", i + 1);
	g->uuid = strf("11111111-2222-3333-4444-5555555555%02x", i + 1);
	g->vguids[0] = sim_guests[0].vguids[0] + i;
	g->vguids[1] = sim_guests[0].vguids[1] + i;
	g->first = host;
	g->agent_up = g->live = true;
	return g;
}

struct sim_guest *sim_add_mover(int host, struct sim_guest *peer)
{
	struct sim_guest *g = add_guest(host);

	g->mover = true;
	g->other = peer;
	return g;
}

struct sim_guest *sim_add_pair(int mover_host, int peer_host)
{
	struct sim_guest *g = sim_add_mover(mover_host, NULL);

	g->other = add_guest(peer_host);
	g->other->other = g;
	return g;
}

/* ---- the channel ---- */

static bool reads(struct sim_guest *g, struct sim_qemu *q)
{
	return g->agent_up && g->channel_stuck_until_us <= sim_us() &&
	       g->agent_stopped_until_us <= sim_us() && q->vcpu == VCPU_RUNS;
}

static void on_frame(void *arg, struct json_object *msg)
{
	sim_guest_input(arg, msg);
}

static void pump(struct sim_qemu *q)
{
	char chunk[65536];
	ssize_t n;
	int fd;

	if (q->conn_fd < 0) {
		fd = accept4(q->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		q->conn_fd = fd;
	}
	if (!reads(q->guest, q)) {
		/* QEMU sees that the daemon has gone, whatever the guest does. */
		if (recv(q->conn_fd, chunk, 1, MSG_PEEK) != 0)
			return;
	}
	while ((n = recv(q->conn_fd, chunk, sizeof chunk, 0)) > 0) {
		frame_feed(&q->parser, chunk, (size_t)n, on_frame, q->guest);
		if (q->conn_fd < 0)
			return;
	}
	if (n == 0) {
		close(q->conn_fd);
		q->conn_fd = -1;
	}
}

unsigned sim_channel_fds(struct pollfd *fds)
{
	unsigned n = 0;

	for (unsigned h = 0; h < sim_size.hosts; h++) {
		for (unsigned i = 0; i < sim_size.guests; i++) {
			struct sim_qemu *q = &sim_hosts[h].qemus[i];

			if (q->exists)
				fds[n++] = (struct pollfd){.fd = q->conn_fd >= 0 ? q->conn_fd
										 : q->listen_fd,
							   .events = POLLIN};
		}
	}
	return n;
}

void sim_guest_pump(const struct pollfd *fds)
{
	for (unsigned h = 0; h < sim_size.hosts; h++)
		for (unsigned i = 0; i < sim_size.guests; i++)
			if (sim_hosts[h].qemus[i].exists && (fds++)->revents)
				pump(&sim_hosts[h].qemus[i]);
}

struct message {
	struct sim_guest *guest;
	char *bytes; /* owned */
	size_t n;
};

static void write_message(void *arg)
{
	struct message *m = arg;
	struct sim_qemu *q = sim_qemu_of(m->guest);

	if (q && q->conn_fd >= 0 && m->guest->agent_up)
		(void)!send(q->conn_fd, m->bytes, m->n, MSG_NOSIGNAL);
	free(m->bytes);
	free(m);
}

static void send_later(struct sim_guest *g, struct json_object *msg, uint64_t us)
{
	struct message *m = calloc(1, sizeof *m);
	uint64_t stuck = g->channel_stuck_until_us > g->agent_stopped_until_us
				 ? g->channel_stuck_until_us
				 : g->agent_stopped_until_us;

	m->guest = g;
	m->bytes = frame_pack(msg, &m->n);
	if (stuck > sim_us() + us)
		us = stuck - sim_us();
	sim_after(NULL, us, write_message, m);
}

void sim_channel_send(struct sim_guest *g, struct json_object *msg)
{
	static unsigned count;
	uint64_t us = ANSWER_US;

	if (sim_agent_replies == REPLIES_LATE)
		us += LATE_US;
	if (sim_agent_replies == REPLIES_REORDERED)
		us += ++count % 2 ? 700 * SIM_MS : 0;
	if (sim_agent_replies != REPLIES_LOST)
		send_later(g, msg, us);
	if (sim_agent_replies == REPLIES_DOUBLED)
		send_later(g, msg, us + 20 * SIM_MS);
	json_object_put(msg);
}

/* ---- answers ---- */

static void answer(struct sim_guest *g, uint64_t id, const char *error)
{
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "id", id);
	json_set_bool(o, "ok", !error);
	if (error)
		json_set_str(o, "error", error);
	else
		json_set_u64(o, "qps", 1);
	sim_channel_send(g, o);
}

static void answer_hello(struct sim_guest *g, uint64_t id)
{
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "id", id);
	json_set_bool(o, "ok", true);
	json_set_u64(o, "version", 1);
	json_set_str(o, "agent", "0.1.0");
	json_set_str(o, "boot_id", "x");
	sim_channel_send(g, o);
}

static bool alone(struct sim_guest *g)
{
	return g->process_dead || g->other->process_dead;
}

static struct json_object *vf_ports(const struct sim_guest *g)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < sim_rails(g); i++) {
		struct json_object *o = json_object_new_object();
		bool down = g->port_dead && i == sim_rails(g) - 1;

		json_set_guid(o, "vguid", g->vguids[i]);
		json_set_str(o, "port", down ? "down" : "active");
		json_object_array_add(list, o);
	}
	return list;
}

static void add_gids(struct json_object *list, const struct sim_guest *g)
{
	for (unsigned i = 0; i < sim_rails(g); i++) {
		struct json_object *p = json_object_new_object();
		struct ib_gid gid = {.prefix = 0xfe80000000000000, .guid = g->vguids[i]};
		char text[IB_GID_TEXT];

		ib_gid_format(&gid, text);
		json_set_str(p, "dgid", text);
		json_object_array_add(list, p);
	}
}

static struct json_object *kernel_users(void)
{
	struct json_object *list = json_object_new_array();

	for (const char *at = sim_mover.kernel_user; *at; at += strspn(at, "\n")) {
		struct json_object *o = json_object_new_object();
		char *what AUTO_FREE = strf("%.*s", (int)strcspn(at, "\n"), at);

		json_set_str(o, "what", what);
		json_object_array_add(list, o);
		at += strlen(what);
	}
	return list;
}

/* One process, whose QPs are all in one partition. */
static struct json_object *processes(const struct sim_guest *g)
{
	char *text AUTO_FREE = strf("{\"l\":[{\"pid\":12,\"comm\":\"ib_write_bw\"}]}");
	struct json_object *o AUTO_JSON = NULL, *list, *pkeys = json_object_new_array();

	json_parse(text, strlen(text), &o);
	list = json_object_get(json_opt(o, "l"));
	for (unsigned i = 0; i < sim_rails(g); i++) {
		struct json_object *p = json_object_new_object();

		json_set_guid(p, "vguid", g->vguids[i]);
		json_set_str(p, "pkey", g->pkey ? g->pkey : "0x8001");
		json_object_array_add(pkeys, p);
	}
	json_set(json_object_array_get_idx(list, 0), "pkeys", pkeys);
	return list;
}

static void answer_query(struct sim_guest *g, uint64_t id)
{
	struct json_object *o = json_object_new_object(), *peers = json_object_new_array();

	for (unsigned i = 0; !alone(g) && i < sim_size.guests; i++) {
		const struct sim_guest *one = &sim_guests[i];

		if (g->mover ? one == g->other : one->mover && one->other == g)
			add_gids(peers, one);
	}
	json_set_u64(o, "id", id);
	json_set_bool(o, "ok", true);
	json_set(o, "peers", peers);
	json_set(o, "uncovered", json_object_new_array());
	json_set(o, "processes", processes(g));
	json_set(o, "vfs", vf_ports(g));
	if (g->mover && sim_mover.kernel_user)
		json_set(o, "kernel", kernel_users());
	sim_channel_send(g, o);
}

/* ---- suspend and resume ---- */

static void job_over(struct sim_guest *g, const char *error)
{
	uint64_t id = g->job.id;

	g->job.busy = g->job.ready = false;
	g->job.id = 0;
	sim_cancel(g->job.timer);
	g->job.timer = NULL;
	if (id)
		answer(g, id, error);
}

static void become_suspended(struct sim_guest *g)
{
	g->live = false;
	memcpy(g->suspended, g->job.migration, sizeof g->suspended);
	job_over(g, NULL);
}

/* A step of a stopped agent goes on with it. */
static bool waits_for_agent(struct sim_guest *g, void (*step)(void *arg))
{
	if (g->agent_stopped_until_us <= sim_us())
		return false;
	g->job.timer = sim_after(NULL, g->agent_stopped_until_us - sim_us(), step, g);
	return true;
}

static bool process_acts(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);

	return g->process_stopped_until_us <= sim_us() && (!q || q->vcpu == VCPU_RUNS);
}

/* The connection is quiet when both ends say so; an end that waits in vain runs on. */
static void look_for_quiet(void *arg)
{
	struct sim_guest *g = arg, *o = g->other;
	bool both = o->job.busy && !o->job.resume && !strcmp(o->job.migration, g->job.migration);
	bool act = process_acts(g) && (process_acts(o) || !both);

	if (waits_for_agent(g, look_for_quiet))
		return;
	g->job.timer = NULL;
	if (sim_us() >= g->job.deadline_us) {
		job_over(g, "step \"quiet\" took too long");
	} else if (!act) {
		g->job.timer = sim_after(NULL, DEVICE_US, look_for_quiet, g);
	} else if (alone(g) || both || !strcmp(o->suspended, g->job.migration)) {
		become_suspended(g);
		if (both)
			become_suspended(o);
	} else {
		g->job.timer = sim_after(NULL, DEVICE_US, look_for_quiet, g);
	}
}

static bool shows(int host, const char *vf, uint64_t vguid)
{
	for (unsigned i = 0; i < sim_size.vfs; i++)
		if (!strcmp(sim_hosts[host].vfs[i].name, vf))
			return sim_hosts[host].vfs[i].guid == vguid;
	return false;
}

/* The devices that the VM has show the vGUIDs, and the subnet agrees. */
static bool devices_ready(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);
	bool ready = !g->port_dead && q && q->vcpu == VCPU_RUNS;

	for (unsigned i = 0; ready && i < sim_rails(g); i++) {
		struct sim_binding *b = sim_binding(g->vguids[i]);

		ready = q->devices[i].there && !q->devices[i].unseen && b &&
			!strcmp(b->host, sim_hosts[q->host].name) &&
			!strcmp(b->vf, q->devices[i].vf) &&
			shows(q->host, q->devices[i].vf, g->vguids[i]);
	}
	return ready;
}

static void resumed(struct sim_guest *g)
{
	g->live = true;
	g->suspended[0] = '\0';
	job_over(g, NULL);
}

/* Nobody has had a way to the other end's VM for a while of this resume. */
static bool gives_up(struct sim_guest *g)
{
	if (sim_qemu_of(g->other))
		g->job.alone_us = 0;
	else if (!g->job.alone_us)
		g->job.alone_us = sim_us();
	return g->job.alone_us && sim_us() - g->job.alone_us > ALONE_US;
}

/* Both ends must have been asked: they meet. An end that was not suspended is there already. */
static void look_for_device(void *arg)
{
	struct sim_guest *g = arg, *o = g->other;
	bool alone_now = gives_up(g);
	bool o_lives = sim_end_lives(o, mover_of(g));
	bool needs_other = !alone(g) && !o_lives && !alone_now && !mover_of(g)->connection_ended;

	if (waits_for_agent(g, look_for_device))
		return;
	g->job.timer = NULL;
	if (sim_us() >= g->job.deadline_us) {
		char *dead AUTO_FREE = strf("no port with vGUID 0x%016llx is ACTIVE",
					    (unsigned long long)g->vguids[sim_rails(g) - 1]);

		job_over(g, g->job.ready ? "the peer did not come" : dead);
		return;
	}
	g->job.ready = process_acts(g) && (!g->mover || devices_ready(g));
	if (g->job.ready && (!needs_other || (o->job.busy && o->job.resume && o->job.ready))) {
		mover_of(g)->connection_ended |= alone_now && !o_lives;
		resumed(g);
		if (needs_other)
			resumed(o);
		return;
	}
	g->job.timer = sim_after(NULL, DEVICE_US, look_for_device, g);
}

static bool refuse_busy(struct sim_guest *g, uint64_t id, bool resume, const char *migration)
{
	if (!g->job.busy)
		return false;
	if (g->job.resume == resume && !strcmp(g->job.migration, migration))
		g->job.id = id; /* asked again */
	else
		answer(g, id, "a step of another suspend or resume is running");
	return true;
}

static void job_begin(struct sim_guest *g, uint64_t id, bool resume, struct json_object *msg)
{
	if (g->mover)
		++*(sim_journal_synced(sim_qemu_of(g)->host) ? &sim_not_hasty : &sim_hasty);
	g->job.busy = true;
	g->job.resume = resume;
	g->job.ready = false;
	g->job.alone_us = 0;
	g->job.id = id;
	g->job.deadline_us = sim_us() + json_opt_u64(msg, "deadline_ms", 0) * SIM_MS;
	snprintf(g->job.migration, sizeof g->job.migration, "%s",
		 json_opt_str(msg, "migration", ""));
}

static bool names(struct json_object *msg, uint64_t vguid)
{
	struct json_object *list = json_opt(msg, "vguids");
	char text[IB_GUID_TEXT];

	ib_guid_format(vguid, text);
	for (size_t k = 0; k < json_count(list); k++)
		if (str_eq(json_object_get_string(json_object_array_get_idx(list, k)), text))
			return true;
	return false;
}

/* The mover whose connection with g the request is about, by all of its VFs; NULL: it does not name
 * them. */
static struct sim_guest *mover_named(struct sim_guest *g, struct json_object *msg)
{
	for (unsigned i = 0; i < sim_size.guests; i++) {
		struct sim_guest *m = &sim_guests[i];
		unsigned found = 0;

		for (unsigned r = 0; m->mover && r < sim_rails(m); r++)
			found += names(msg, m->vguids[r]);
		if (found && found == sim_rails(m) && (m == g || m->other == g))
			return m;
	}
	return NULL;
}

static void suspend(struct sim_guest *g, uint64_t id, struct json_object *msg)
{
	const char *migration = json_opt_str(msg, "migration", "");

	if (refuse_busy(g, id, false, migration))
		return;
	if (*g->suspended) {
		answer(g, id,
		       strcmp(g->suspended, migration) ? "already suspended by another migration"
						       : NULL);
		return;
	}
	if (!g->mover)
		g->other = mover_named(g, msg);
	job_begin(g, id, false, msg);
	g->job.timer = sim_after(NULL, SUSPEND_US, look_for_quiet, g);
}

/* A guest hears of no device that QEMU has started with. */
static void rescan(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);

	for (unsigned i = 0; q && i < SIM_RAILS; i++)
		q->devices[i].unseen = false;
}

static void resume(struct sim_guest *g, uint64_t id, struct json_object *msg)
{
	if (json_opt_bool(msg, "rescan", false))
		rescan(g);
	/* A suspend that is not through yet is taken back first. */
	if (g->job.busy && !g->job.resume)
		job_over(g, "the host asked for a resume before the suspend was through");
	if (refuse_busy(g, id, true, json_opt_str(msg, "migration", "")))
		return;
	if (strcmp(g->suspended, json_opt_str(msg, "migration", ""))) {
		answer(g, id, NULL); /* the guest is not suspended for this migration */
		return;
	}
	job_begin(g, id, true, msg);
	look_for_device(g);
}

static void ballast(struct sim_guest *g, uint64_t id, struct json_object *msg)
{
	g->ballast_bytes = json_opt_u64(msg, "bytes", 0);
	g->ballast_until_us = g->ballast_bytes ? sim_us() + BALLAST_US : 0;
	answer(g, id, NULL);
}

void sim_guest_input(struct sim_guest *g, struct json_object *msg)
{
	const char *op = json_opt_str(msg, "op", "");
	uint64_t id = json_opt_u64(msg, "id", 0);

	if (!strcmp(op, "hello"))
		answer_hello(g, id);
	else if (!strcmp(op, "query"))
		answer_query(g, id);
	else if ((!strcmp(op, "suspend") || !strcmp(op, "resume")) && !mover_named(g, msg))
		answer(g, id, "the request does not name all VFs of the mover");
	else if (!strcmp(op, "suspend"))
		suspend(g, id, msg);
	else if (!strcmp(op, "resume"))
		resume(g, id, msg);
	else if (!strcmp(op, "ballast"))
		ballast(g, id, msg);
}

bool sim_guest_lets_go(struct sim_guest *g, unsigned rail)
{
	bool ignores = g->ignores_device_del && rail == sim_rails(g) - 1;

	return !ignores && (!g->live || g->process_dead);
}

/* ---- deaths ---- */

static void agent_back(void *arg)
{
	struct sim_guest *g = arg;

	g->agent_up = true;
	sim_channel_event(g, true);
}

/* The shims keep what is suspended, and take back what is not. */
void sim_guest_agent_kill(struct sim_guest *g, uint64_t down_us)
{
	g->job.id = 0;
	job_over(g, NULL);
	g->ballast_until_us = 0;
	g->agent_up = false;
	sim_channel_event(g, false);
	sim_after(NULL, down_us, agent_back, g);
}

void sim_guest_process_kill(struct sim_guest *g)
{
	g->process_dead = true;
}
