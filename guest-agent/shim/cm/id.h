/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm under the shim. The program holds channels, ids and events of ours; librdmacm's own,
 * which stand for objects of the kernel on the device that leaves, are below them.
 *
 * A thread of ours takes all events of the kernel as they come, so that what was told before a
 * migration is known when it begins. Once a connection has had a part in a migration, the kernel is
 * not asked about it any more (.detached). The two shims tell each other when it ends.
 *
 * The lock cm.lock is taken after shim.ctl (core/objects.h), and only channel descriptors are
 * touched under it. Whoever calls librdmacm is inside a control verb (ctl_enter), so that
 * librdmacm's locks are free while the helper thread works. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CM_ID_H
#define IBVMIG_GUEST_AGENT_SHIM_CM_ID_H

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/peer/peer.h"

#define CM_OPTIONS_MAX      8
#define CM_OPTION_BYTES_MAX 8

struct cm_real {
#define REAL_CM(ret, name, version, ...) ret (*name)(__VA_ARGS__);
#include "guest-agent/shim/cm/real.def"
#undef REAL_CM
	int (*rsocket)(int domain, int type, int protocol);
};

/* Functions of librdmacm 1.4 (rdma-core 54), whose header may not be there. */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

/* Loaded on first use; what this librdmacm lacks fails with ENOSYS. */
const struct cm_real *cm_load(void);
#define real_cm (*cm_load())
/* librdmacm calls its own functions, and verbs, by name: such a call is not the program's. */
bool cm_is_caller(const void *return_address);
#define CALLED_BY_CM cm_is_caller(__builtin_return_address(0))
/* True if the program's call is librdmacm's to answer: there is no cover, or the call is not the
 * program's. */
#define NOT_OURS (CALLED_BY_CM || !cm_start())

enum cm_state {
	CM_IDLE,      /* also when it is bound */
	CM_RESOLVING, /* an address or a route */
	CM_RESOLVED,  /* an address, and a route if .routed */
	CM_LISTENING,
	CM_REQUESTED, /* by the other end, not accepted yet */
	CM_CONNECTING,
	CM_CONNECTED,
	CM_DISCONNECTING, /* our program has asked for it */
	CM_CLOSED,
};

struct cm_channel {
	struct list link;
	struct rdma_event_channel *real; /* owned; non-blocking */
	struct list events;              /* struct cm_event: not taken by the program yet */
	uint64_t serial;                 /* from 1; no two have the same, at whatever address */
	bool busy;                       /* the thread works on it */
	struct rdma_event_channel v;     /* .fd is an eventfd: one for each element of .events */
};

/* A copy of librdmacm's, which is acknowledged at once: its ids must be free to go at any time. */
struct cm_event {
	struct list link;
	struct cm_id *id; /* borrowed; who counts it */
	struct rdma_cm_event v;
	char private_data[UINT8_MAX];
};

struct cm_option {
	int level, name;
	size_t bytes;
	char value[CM_OPTION_BYTES_MAX];
};

struct cm_join {
	struct list link;
	struct sockaddr_storage addr;
	uint32_t flags;
	void *context;
	bool asked; /* the event has not come */
	bool again; /* after a migration: the program does not see its event */
};

struct cm_id {
	struct list link;
	struct cm_channel *channel; /* borrowed, owned if .sync */
	struct rdma_cm_id *real;    /* owned */
	enum cm_state state;
	bool sync;  /* calls about it wait for their event */
	bool dying; /* the program destroys it */
	bool routed, timewait_told;
	bool detached;    /* the kernel's events about it are not the program's any more */
	bool parted;      /* the resume after that is over */
	bool kernel_ends; /* the kernel is to be told that the connection is over */
	bool lost;        /* the other end had ended before the migration */
	bool moves;       /* the id is made again on the new device */
	bool redo;        /* as soon as that works; calls about it wait */
	bool redo_route;  /* the address is resolved, next is the route */
	bool resolving;   /* the events of this are not the program's */
	uint64_t moves_until_us;
	unsigned calls; /* inside cm_enter(): .real stays */
	unsigned round; /* the thread's, in which the id was looked at */
	int backlog, timeout_ms;
	uint32_t vqpn;  /* the own QP's, 0: not known */
	uint32_t dvqpn; /* the other end's, 0: not known */
	struct cm_ends ends;
	unsigned told, acked; /* events that the program has taken */
	unsigned option_count;
	struct cm_option option[CM_OPTIONS_MAX];
	struct list joins;                /* struct cm_join, owned */
	struct ibv_sa_path_rec *path_rec; /* owned */
	struct ibv_qp_init_attr *qp_init; /* owned; of rdma_create_ep: for each request */
	struct rdma_cm_id *first;         /* owned; .real has replaced it, .v.pd may be its own */
	struct rdma_cm_id v;
};

struct cm {
	pthread_mutex_t service; /* before .lock: held while an event of the kernel is taken */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list channels, ids;
	int epoll, wake;     /* the thread's */
	atomic_bool pending; /* ids wait to be made again */
};

extern struct cm cm;

/* cm.lock. A thread is not cancelled while it holds it: programs cancel those that sleep in
 * rdma_get_cm_event(), and under the lock descriptors are read and written. */
void cm_lock(void);
void cm_unlock(void);

#define to_cm_id(p) container_of(p, struct cm_id, v)

/* shim/cm/channel.c */
/* Starts the thread, once. false: there is no agent, step aside. */
bool cm_start(void);
void cm_wake(void);
void cm_forget_all(void); /* in a child: a thread of its own starts with its first call */
/* 0 or -errno. */
int cm_channel_new(struct cm_channel **ret_channel);
void cm_channel_free(struct cm_channel *ch);
struct cm_channel *cm_channel_find(const struct rdma_event_channel *v);
/* As rdma_get_cm_event(): -1 and errno. */
int cm_next_event(struct cm_channel *ch, struct rdma_cm_event **ret_event);
/* told: the program had it. */
void cm_event_ack(struct cm_event *e, bool told);
/* Under cm.lock: an event that we make. */
void cm_push(struct cm_id *id, enum rdma_cm_event_type type, int status);
/* Under cm.lock: takes the events off that the program has not got; list of struct cm_event. */
void cm_take_events(struct cm_id *id, struct list *ret_events);
void cm_requeue(struct cm_channel *ch, struct list *events);
/* Takes the events of the kernel. In the thread; or in the helper thread while no other is inside a
 * control verb. */
void cm_channel_service(struct cm_channel *ch);

/* shim/cm/id.c */
struct cm_id *cm_id_new(struct cm_channel *ch, void *context);
void cm_id_free(struct cm_id *id);
/* Copies what librdmacm has found out to what the program sees, and back what the program set. */
void cm_pull(struct cm_id *id);
/* Returns the state that was before. */
enum cm_state cm_set(struct cm_id *id, enum cm_state state);
enum cm_state cm_get(struct cm_id *id);
int cm_error(int error);
int cm_destroy(struct cm_id *id);
int cm_ack(struct rdma_cm_event *e);
/* The functions of the same name, for our own use. */
int cm_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *context,
		 enum rdma_port_space ps);
int cm_resolve_addr(struct cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms);
int cm_resolve_route(struct cm_id *id, int timeout_ms);
int cm_set_path(struct cm_id *id, void *paths, size_t bytes);
void cm_destroy_qp(struct cm_id *id);
/* The program destroys a QP that an id may have. Inside a control verb. */
void cm_forget_qp(const struct ibv_qp *qp);
void cm_destroy_srq(struct cm_id *id);
void cm_destroy_ep(struct cm_id *id);
int cm_create_qp(struct cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
/* Waits for the event of a call where the id is synchronous. -1 and errno. */
int cm_complete(struct cm_id *id);

/* Around a call of librdmacm about an id. errno is the call's. */
#define CM_AROUND(id, enter, call)                                                                 \
	({                                                                                         \
		int rc_ = enter(id), errno_;                                                       \
		if (!rc_) {                                                                        \
			rc_ = call;                                                                \
			errno_ = errno;                                                            \
			cm_exit(id);                                                               \
			errno = errno_;                                                            \
		}                                                                                  \
		rc_;                                                                               \
	})
#define CM_CALL(id, call)  CM_AROUND(id, cm_enter, real_cm.call)
#define CM_READY(id, call) CM_AROUND(id, cm_enter_ready, real_cm.call)
/* A call that begins something, and the state from then on; if it fails at once, what was. */
#define CM_BEGIN(id, enter, next, call)                                                            \
	CM_AROUND(id, enter, ({                                                                    \
			  enum cm_state was_ = cm_set(id, next);                                   \
			  int ret_ = call;                                                         \
			  if (ret_)                                                                \
				  cm_set(id, was_);                                                \
			  ret_;                                                                    \
		  }))
/* A migration that is under way ends first. 0. */
int cm_enter(struct cm_id *id);
/* And if it leaves the id to be made again on another device, that is done, or given up. Returns 0;
 * or -1 and errno: the kernel does not know the id any more. */
int cm_enter_ready(struct cm_id *id);
void cm_exit(struct cm_id *id);

/* shim/cm/route.c: the path record of a resolved address, from the agent. 0 or -errno. */
struct ibv_path_data;
int cm_cached_path(struct cm_id *id, struct ibv_path_data *ret_path, unsigned timeout_ms);

/* shim/cm/redo.c: makes an id again that was on a device that left. In the thread, or the helper
 * thread; cm.service is held. 0 or -errno: try again. */
int cm_redo(struct cm_id *id);
bool cm_alive(struct cm_id *id);

/* shim/cm/job.c */
extern const struct shim_part cm_part;
/* Another process has ended a connection that the kernel does not know any more. Under ctl. */
void cm_peer_disconnected(const struct peer_head *h, const struct peer_qp *e);
/* Takes note of an event of the kernel: in the thread, under cm.lock. true: the event is not for
 * the program. */
bool cm_hidden(struct cm_id *id, const struct rdma_cm_event *e);
/* In the thread: what was put off. */
void cm_background(void);

/* shim/cm/conn.c: the program ends a connection that the kernel does not know any more. */
void cm_say_disconnect(struct cm_id *id);
/* A channel, NULL: one of its own. As rdma_migrate_id(). */
int cm_migrate(struct cm_id *id, struct cm_channel *to);

#endif
