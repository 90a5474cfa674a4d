/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Client of ibvmig-sm (docs/wire.md, "Fabric"). What blocks is for workers only. */
#ifndef IBVMIG_DAEMON_BASE_SM_H
#define IBVMIG_DAEMON_BASE_SM_H

#include "common/http/client.h"

#include <stdbool.h>
#include <stdint.h>

#define SM_DEADLINE_MS 10000 /* for a question */
/* The deadline of a bind, unbind or move, and of a fence, which unbinds: ibvmig-sm answers within
 * 18 s, its undo included (docs/wire.md). */
#define SM_CHANGE_MS 20000

struct daemon;
struct settings;

/* Blocks. Without sm-url: 0 and an empty answer. body: owned by the call. */
int sm_call(const struct settings *s, const char *method, const char *path,
	    struct json_object *body, struct json_object **ret_answer, char *error);
/* The same for a POST that changes nothing and has its own deadline. */
int sm_ask(const struct settings *s, const char *path, struct json_object *body, unsigned ms,
	   struct json_object **ret_answer, char *error);
/* The same for POST of a change. */
int sm_change(const struct settings *s, const char *path, struct json_object *body,
	      struct json_object **ret_answer, char *error);
/* Blocks. Whether moves are possible; -EHOSTDOWN with the reason if not. */
int sm_check(const struct settings *s, bool *ret_caching, char *error);

/* From the loop: asks for the state again unless that was a moment ago; then calls done(arg). */
void sm_refresh(struct daemon *d, void (*done)(void *arg), void *arg);
/* ibvmig-sm's word on whether path records may be kept. */
void sm_set_caching(struct daemon *d, bool caching);
/* changed() is called whenever that word is another one. */
void sm_on_caching(struct daemon *d, void (*changed)(struct daemon *d));
struct json_object *sm_status(const struct daemon *d);

#endif
