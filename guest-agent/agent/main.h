/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-agent: between the host and the verbs shims of the processes of one guest. One thread,
 * one sd-event loop; each file below owns one of the structs named here. */
#ifndef IBVMIG_GUEST_AGENT_AGENT_MAIN_H
#define IBVMIG_GUEST_AGENT_AGENT_MAIN_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "common/ib.h"
#include "guest-agent/proto/shim.h"

#define AGENT_PROTO_VERSION 1
#define AGENT_PORT          "/dev/virtio-ports/org.ibvmig.0"
#define AGENT_VFS_MAX       SHIM_VGUIDS_MAX

struct agent_host;
struct path_change;
struct agent_shim;

struct agent {
	sd_event *loop; /* owned */
	uint64_t started_ms;
	const char *socket_path; /* the shims connect there */
	unsigned fault;          /* enum shim_fault */
	bool grh_required;       /* InfiniBand ports tell programs that they want GRHs */

	/* agent/host.c */
	struct agent_host *host; /* owned */
	bool path_cache;         /* the host's word: path records may be kept */
	unsigned vf_count;
	uint64_t vf[AGENT_VFS_MAX]; /* vGUIDs that the host says are ours */

	/* agent/shim.c */
	int listener, spare;                         /* spare: see turn_away() */
	struct agent_shim *slots[SHIM_SLOT_MAX + 1]; /* by slot; owned */
	unsigned last_slot;
	uint16_t *slot_of_qpn; /* owned; by virtual QPN, 0: nobody's */
	uint32_t last_qpn;     /* of those that the agent has given, downwards */
};

/* agent/host.c: the port to the host and what the host asks. */
int agent_host_open(struct agent *a, const char *port);
void agent_host_close(struct agent *a);
bool agent_host_connected(const struct agent *a);
/* Takes the ownership of msg. */
void agent_host_send(struct agent *a, struct json_object *msg);
/* The same for a user's process, behind all that the agent itself says; users take turns. */
void agent_host_send_of(struct agent *a, uid_t uid, struct json_object *msg);
void agent_answer(struct agent *a, uint64_t id, struct json_object *answer);
void agent_answer_error(struct agent *a, uint64_t id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Into the host's log as well as ours; at most 20 lines a minute get there. */
void agent_log(struct agent *a, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* agent/shim.c: processes and their numbers. */

/* The bounds of all processes of one user together; root has none. Anybody may connect. */
#define AGENT_USER_CONNECTIONS_MAX 768u        /* three quarters of the slots */
#define AGENT_USER_QPS_MAX         (1u << 20)  /* as four HCAs have */
#define AGENT_USER_OUT_MAX         (64u << 20) /* bytes that wait for them */
#define AGENT_USER_WILLS_MAX       (1u << 17)
#define AGENT_USER_WAITS_MAX       1024u /* questions for paths that have no answer yet */

struct agent_user {
	struct agent_user *next;
	uid_t uid;
	unsigned connections, qps, wills;
	unsigned waits, asking; /* asking: of these, those that the host has */
	uint64_t out_bytes;
};

static inline bool agent_user_may(const struct agent_user *u, uint64_t has, uint64_t max)
{
	return !u->uid || has < max;
}

/* A user is there while it has a connection or a wait. */
void agent_user_wait(struct agent_user *u);
void agent_user_waited(struct agent_user *u);

struct agent_shim {
	struct agent *agent;     /* borrowed */
	struct agent_user *user; /* likewise */
	int fd;                  /* owned */
	sd_event_source *io;     /* owned */
	struct agent_packet *out, **out_end;
	uint64_t out_bytes;
	uint16_t slot; /* 0 before hello */
	uint64_t instance;
	int32_t pid;
	char comm[SHIM_COMM_MAX];
	unsigned qps;
	bool qps_refused;  /* it has been named for that */
	uint32_t *numbers; /* owned; its QPNs, and some that were */
	uint32_t number_count, number_room;
	uint64_t claims;          /* the migration for which it says that it is suspended, or 0 */
	bool suspend_pending;     /* the present step of a suspend or resume waits for it */
	struct agent_will *wills; /* owned */
	unsigned will_count;
	struct agent_met *met; /* owned; whom it exchanges datagrams with */
	unsigned met_count;
	/* A process that has come while others were suspended is being suspended like them. */
	enum { JOIN_NONE, JOIN_QUIET, JOIN_RELEASE } join;
};

int agent_shim_listen(struct agent *a, const char *path);
void agent_shim_close_all(struct agent *a);
/* Copies the packet. A shim that does not read is dropped. */
void agent_shim_send(struct agent_shim *s, const void *packet);
/* NULL where the number is nobody's. */
struct agent_shim *agent_shim_by_slot(struct agent *a, unsigned slot, uint64_t instance);
struct agent_shim *agent_shim_by_qpn(struct agent *a, uint32_t vqpn);

/* For each process that has said hello. */
#define agent_for_each_shim(a, s)                                                                  \
	for (unsigned slot_ = 1; slot_ <= SHIM_SLOT_MAX; slot_++)                                  \
		if (((s) = (a)->slots[slot_]))

/* A process's text as ASCII without control characters, which logs and JSON can take: other bytes
 * become '?'. At most max bytes are read and room - 1 are written. */
void agent_text(char *to, size_t room, const char *from, size_t max);

/* agent/relay.c: packets between shims, in this guest or through the host. */
void agent_relay_from_shim(struct agent *a, struct agent_shim *s, const struct shim_relay *r);
/* A process may die without a word to those that it exchanges datagrams with: tells them. */
void agent_relay_ended(struct agent_shim *s);
/* A process has come, or has named a QP (not 0): packets that were held for it. */
void agent_relay_again(struct agent *a, uint32_t vqpn);
void agent_relay_from_host(struct agent *a, struct json_object *msg);
void agent_relay_failed(struct agent *a, struct json_object *msg);

/* agent/sender.c: the rules of proto/senders.h. True if it is a packet of this build, and its
 * entries follow the head: what the others of these are given. */
bool agent_packet_valid(const struct peer_head *h, size_t bytes);
/* For whoever in this guest knows the process that it is about. */
bool agent_for_all(const struct peer_head *h);
/* NULL, or why the packet is dropped; as the next ones. */
const char *agent_sender_refused(struct agent *a, const struct agent_shim *s,
				 const struct peer_head *h);
/* The same for a packet that is to be sent when the process has ended. */
const char *agent_will_refused(struct agent *a, const struct agent_shim *s,
			       const struct peer_head *h);
/* The sender is in another VM, whose GIDs its host has checked. */
const char *agent_stranger_refused(struct agent *a, const struct peer_head *h);
/* The packet has come, for that process. */
const char *agent_receiver_refused(struct agent *a, const struct agent_shim *s,
				   const struct peer_head *h);

/* agent/will.c: packets that a process leaves, to be sent when it has ended: its connections with
 * librdmacm end, and their other ends must hear of it. At most 8192 of each process. */
void agent_will_keep(struct agent_shim *s, const struct shim_relay *r);
void agent_will_drop(struct agent_shim *s, const struct shim_relay *r);
/* Sends them if the process has ended; frees them. */
void agent_will_end(struct agent_shim *s, bool send);

/* agent/path.c: path records, asked for once by the guest. */
void agent_path_ask(struct agent_shim *s, const struct shim_path *ask);
/* The host's answer to a `path` of ours. */
void agent_path_answer(struct agent *a, uint64_t id, struct json_object *answer);
void agent_path_forget_shim(struct agent_shim *s);
void agent_path_counters(struct json_object *ret_obj);
/* Questions of other files: an id that no other has; `path` with that id, to which the destination
 * is added (pkey 0: none). The question counts as one. */
uint64_t agent_path_new_id(void);
struct json_object *agent_path_question(uint64_t id, const uint8_t sgid[16], uint16_t pkey);
/* A record of the host's. 0 or -errno. */
int agent_path_parse(struct json_object *record, struct shim_path *ret_record);
/* The end that has the LID for itself, if it is known. */
bool agent_path_at_lid(const struct agent *a, const struct shim_lid_ask *ask,
		       struct shim_end *ret_end);
/* Keeps the record to one that a LID stands for. sole: it has the LID for itself. Processes hear
 * if it is another one than was kept. */
void agent_path_learn(struct agent *a, const struct shim_lid_ask *ask, const struct shim_end *end,
		      bool sole);
/* Records may be kept from now on; false: they may not, and those that are there go. */
void agent_path_use(struct agent *a, bool on);
/* Processes that have QPs there hear of it. */
void agent_path_change(struct agent *a, const struct path_change *change);
void agent_path_flush(struct agent *a);

/* agent/lid.c: the ports that a program may mean that names a LID and no GID. */
void agent_lid_ask(struct agent_shim *s, const struct shim_lid_ask *ask);
/* The host's answer to a `path` of ours with a LID; others are left alone. */
void agent_lid_answer(struct agent *a, uint64_t id, struct json_object *answer);
void agent_lid_forget_shim(struct agent_shim *s);
/* A path has changed: answers that are on their way are not kept. */
void agent_lid_stale(void);

/* agent/notice.c: what the host tells of paths: `repath`, `unpath`, `path-cache`, and the list
 * `paths` of a `resume` (absent: no path has changed). */
void agent_repath(struct agent *a, uint64_t id, struct json_object *msg);
void agent_unpath(struct agent *a, uint64_t id, struct json_object *msg);
void agent_path_cache(struct agent *a, uint64_t id, struct json_object *msg);
void agent_notice_moved(struct agent *a, struct json_object *resume);

/* agent/query.c */
/* deadline_ms: within which the host wants the answer; 0: it does not say. */
void agent_query(struct agent *a, uint64_t id, uint64_t deadline_ms);
void agent_query_process(struct agent_shim *s, const struct shim_process *p);
void agent_query_qp(struct agent_shim *s, const struct shim_qp_info *q);
void agent_query_peer(struct agent_shim *s, const struct shim_peer_info *p);
void agent_query_end(struct agent_shim *s, uint32_t cookie);
void agent_query_forget_shim(struct agent_shim *s);

/* agent/holders.c: adds the processes without a shim that have an RDMA device open. */
void agent_holders(struct agent *a, struct json_object *uncovered);
/* True if that process, in digits, has a device open. */
bool agent_holds_device(const char *pid);

/* agent/kernel.c: adds {"device","module","what"} for each user of our RDMA devices inside the
 * kernel. 0 or -EIO: the kernel does not tell. */
int agent_kernel_users(struct agent *a, struct json_object *list);
void agent_kernel_user_add(struct json_object *list, const char *device, const char *module);

/* agent/suspend.c: suspend and resume. */
void agent_suspend(struct agent *a, uint64_t id, struct json_object *msg);
void agent_resume(struct agent *a, uint64_t id, struct json_object *msg);
void agent_suspend_report(struct agent_shim *s, const struct shim_report *r);
void agent_suspend_forget_shim(struct agent_shim *s);
/* A process that has just said hello, so that it takes part in a suspend that already runs.
 * suspended: as in struct shim_hello. */
void agent_suspend_new_shim(struct agent_shim *s, uint64_t suspended);
/* True if a process that starts now must not open a device. */
bool agent_suspend_holds(void);

/* agent/settle.c: true: processes of an agent before us have not found us yet. When they have, or
 * after a while, run() is called. The request then has what is left of its deadline. A suspend is
 * refused then, where one of them has a device open. */
bool agent_settle(struct agent *a, uint64_t id, struct json_object *msg,
		  void (*run)(struct agent *a, uint64_t id, struct json_object *msg));
/* A process has been dropped, and may come back. */
void agent_settle_anew(void);
/* True if a process that is not connected may still come, after a restart of the agent. */
bool agent_unsettled(struct agent *a);

/* agent/device.c: RDMA devices of this guest, from sysfs. */
/* The device (name) whose port shows a GID with this interface id and is ACTIVE. Returns 0 or
 * -ENODEV. -EAGAIN: it is there but cannot be opened yet. -ENETDOWN: it can (name) but is not
 * ACTIVE. */
int agent_device_find(uint64_t vguid, char ret_name[static SHIM_DEVICE_MAX]);
bool agent_device_is_ours(struct agent *a, const uint8_t gid[16]);
/* Makes address resolution on a RoCE device quick. */
void agent_device_hurry(const char *device);
/* Has the kernel look for new PCI devices, in a thread of its own. */
void agent_device_rescan(void);
/* True if the link-layer address of a RoCE peer is known, and always on InfiniBand; else it is
 * asked for. No QP is connected before, because ib_core (drivers/infiniband/core/addr.c) may sleep
 * a whole second. That happens where the neighbour answers between its look at the neighbour table
 * and its wait. */
bool agent_device_met(const uint8_t sgid[16], const uint8_t dgid[16]);
/* Calls changed() whenever a device, a port or an address may have changed. 0 or -errno. */
int agent_device_watch(struct agent *a, void (*changed)(struct agent *a));

/* agent/ballast.c */
void agent_ballast(struct agent *a, uint64_t id, struct json_object *msg);

#endif
