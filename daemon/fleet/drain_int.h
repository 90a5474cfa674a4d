/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the files of drain: drain.c drives, fleet/drain_rest.c is asked. */
#ifndef IBVMIG_DAEMON_FLEET_DRAIN_INT_H
#define IBVMIG_DAEMON_FLEET_DRAIN_INT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct http_exchange;
struct loop_timer;

enum drain_move_state {
	MOVE_WAITS,
	MOVE_RUNS,
	MOVE_DONE,
	MOVE_FAILED, /* the VM is where it was */
	MOVE_PARKED, /* an operator must look */
	MOVE_CANNOT, /* no host can take it */
	MOVE_BACK,   /* the drain was given up first */
};

struct drain_move {
	struct json_object *show; /* owned; what GET tells of it */
	enum drain_move_state state;
	bool calling; /* the VM's host is being asked */
	bool crowded; /* others are, or were, under way beside it */
	bool alone;   /* waits until nobody else is under way */
	bool cancel_sent;
	unsigned tries;
	uint64_t job; /* job of the VM's host; 0: not known yet */
	uint64_t look_ms, rest_until_ms;
	uint64_t heard_ms; /* when its host has answered last */
};

enum drain_state {
	DRAIN_PLANS,
	DRAIN_PLANNED,
	DRAIN_RUNS,
	DRAIN_ENDED,
	DRAIN_STOPPED,
	DRAIN_FAILED
};

struct drain {
	struct drain *next;
	struct daemon *d; /* borrowed */
	uint64_t number;
	char host[64]; /* the host that is emptied, or "" */
	enum drain_state state;
	unsigned parallel;
	bool persistent, dry_run;
	bool stop, cancel; /* nothing new; what is under way is given up */
	bool ranked;
	char *rank_error;         /* owned; why the fabric's word is missing, or NULL */
	struct drain_move *moves; /* owned; count of them */
	size_t count;
	unsigned calls;           /* under way */
	struct loop_timer *timer; /* owned */
	uint64_t started_ms, ended_ms;
	char *asked;          /* owned; JSON: the plan's input, or {"moves"}; NULL of a dry run */
	bool taken_up;        /* begun by an earlier life of this daemon */
	char *error;          /* owned; why it has failed, or NULL */
	uint64_t patience_ms; /* taken up: until then hosts may be silent */
	struct http_exchange *asker; /* waits for the plan, or NULL */
};

/* list: of moves, as plan_moves() makes them, with "from" and "url". 0 or -ENOMEM. */
int drain_take_moves(struct drain *dr, struct json_object *list);
/* 0 or -errno. */
int drain_begin(struct drain *dr);
void drain_stop(struct drain *dr, bool cancel);

/* fleet/drain_again.c. While it runs, what was asked for is in the journal. 0 or -errno. */
int drain_save(const struct drain *dr);
void drain_forget(const struct drain *dr);
/* saved: of the journal. NULL: out of memory. */
struct drain *drain_restore(struct daemon *d, struct json_object *saved);
size_t drain_count(const struct drain *dr, enum drain_move_state state);

#endif
