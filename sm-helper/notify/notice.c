/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/notify/notice.h"
#include "sm-helper/notify/outbox.h"
#include "common/http/client.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/paths/interest.h"

#include <string.h>

#define NOTICE_MS 2000
#define SETTLE_MS 500

struct hosts {
	struct reg_subscription *list; /* owned */
	size_t count;
};

static void collect(void *arg, const struct reg_subscription *s)
{
	struct hosts *h = arg;
	struct reg_subscription *grown = realloc(h->list, (h->count + 1) * sizeof *grown);

	if (!grown)
		return;
	h->list = grown;
	h->list[h->count++] = *s;
}

int notice_send(void *arg, const char *url, struct json_object *body, char *error)
{
	struct json_object *answer AUTO_JSON = NULL;

	(void)arg;
	return http_call(url, "POST", "/v1/peer/repath", body, NOTICE_MS, &answer, error);
}

void notice_lost(void *arg, const char *host, const char *url, const char *error)
{
	struct ops *o = arg;

	log_warn("notice to %s (%s) failed %d times: %s; it gets no more until it subscribes again",
		 host, url, OUTBOX_TRIES, error);
	registry_unsubscribe(o->registry, host);
	interest_lost(o->interest, host);
}

/* The list to each host, in one message; takes over the list. The caller's answer waits for the
 * first attempts, so that who has heard of a move by its answer finds the hosts told. A host that
 * does not answer holds it up for SETTLE_MS. */
static unsigned tell_all(struct ops *o, struct json_object *list)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	bool empty = !json_object_array_length(list);
	struct hosts h = {0};
	unsigned told = 0;

	json_set(body, "notices", list);
	if (empty)
		return 0;
	registry_each_subscription(o->registry, collect, &h);
	for (size_t i = 0; i < h.count; i++)
		if (outbox_post(o->outbox, h.list[i].host, h.list[i].url, body))
			told++;
		else
			interest_lost(o->interest, h.list[i].host);
	free(h.list);
	if (told)
		outbox_settle(o->outbox, SETTLE_MS);
	return told;
}

/* Adds an item to tell; borrowed from the list. */
static struct json_object *about(struct json_object *list, uint64_t vguid)
{
	struct json_object *notice = json_object_new_object();
	struct ib_gid gid = {IB_GID_PREFIX_LL, vguid};
	char text[IB_GID_TEXT];

	ib_gid_format(&gid, text);
	json_set_guid(notice, "vguid", vguid);
	json_set_str(notice, "gid", text);
	json_object_array_add(list, notice);
	return notice;
}

unsigned notice_mtu_bytes(unsigned code)
{
	return code >= 1 && code <= 5 ? 128u << code : 0;
}

struct json_object *notice_paths(const struct move_result *res, const struct moved *m)
{
	struct json_object *list = json_object_new_array();
	unsigned n = 0;

	for (unsigned i = 0; i < res->path_count; i++) {
		const struct sm_path *p = &res->path[i];
		struct json_object *o;

		if (p->moved != m->vguid)
			continue;
		n++;
		o = json_object_new_object();
		json_set_guid(o, "peer", p->peer);
		json_set_u64(o, "sl_to", p->sl_to);
		json_set_u64(o, "sl_from", p->sl_from);
		json_set_u64(o, "mtu", notice_mtu_bytes(p->mtu));
		json_set_u64(o, "rate", p->rate);
		json_object_array_add(list, o);
	}
	if (n == m->paths_changed)
		return list;
	json_object_put(list);
	return NULL;
}

unsigned notice_moved(struct ops *o, const struct move_result *res)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < res->moves; i++) {
		const struct moved *m = &res->move[i];
		struct json_object *notice, *paths;

		if (!m->paths_changed)
			continue;
		interest_doubt(o->interest, m->vguid);
		notice = about(list, m->vguid);
		json_set_u64(notice, "lid", m->lid_after);
		if ((paths = notice_paths(res, m)))
			json_set(notice, "paths", paths);
	}
	return tell_all(o, list);
}

unsigned notice_gone(struct ops *o, uint64_t vguid)
{
	struct json_object *list = json_object_new_array();

	interest_drop(o->interest, vguid);
	json_set_bool(about(list, vguid), "gone", true);
	return tell_all(o, list);
}
