/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/relay.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/vm/channel.h"
#include "daemon/vm/relay_int.h"
#include "daemon/vm/relay_pkeys.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <string.h>

#define RELAY_TEXT_MAX (RELAY_BODY_MAX / 3 * 4 + 8)
#define KEEP_BYTES     512 /* that a message costs beside its text */
#define PKEY_BYTES     16  /* and each of its P_Keys */

int relay_new(struct daemon *d, struct relay **ret_relay)
{
	struct relay *r = calloc(1, sizeof *r);

	if (!r)
		return -ENOMEM;
	r->d = d;
	*ret_relay = r;
	return 0;
}

void relay_free(struct relay *r)
{
	if (!r)
		return;
	relay_routes_free(r);
	relay_hosts_free(r);
	free(r);
}

/* ---- senders and their messages ---- */

static struct sender *sender_of(struct relay *r, uint64_t key)
{
	struct sender *s = r->senders;

	while (s && s->key != key)
		s = s->next;
	if (s || !(s = calloc(1, sizeof *s)))
		return s;
	s->key = key;
	s->next = r->senders;
	r->senders = s;
	return s;
}

static void sender_leave(struct relay *r, struct sender *s, size_t bytes)
{
	struct sender **at = &r->senders;

	s->bytes -= bytes;
	if (--s->messages)
		return;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s);
}

static uint64_t guid_of(struct json_object *msg, const char *key)
{
	struct ib_gid gid;

	return ib_gid_parse(json_opt_str(msg, key, ""), &gid) ? 0 : gid.guid;
}

/* Only known fields leave the host. */
static struct json_object *known_fields(struct json_object *msg)
{
	struct json_object *copy = json_object_new_object();

	json_set_str(copy, "from", json_opt_str(msg, "from", ""));
	json_set_str(copy, "to", json_opt_str(msg, "to", ""));
	json_set_str(copy, "body", json_opt_str(msg, "body", ""));
	return copy;
}

static bool has_room(const struct sender *s, size_t bytes)
{
	return s->messages <= RELAY_QUEUE_MAX && s->bytes + bytes <= RELAY_QUEUE_BYTES;
}

/* NULL: the VM has as many as it may, or there is no memory. */
static struct message *message_new(struct relay *r, const struct vm *vm, struct json_object *msg)
{
	struct json_object *pkeys AUTO_JSON = NULL;
	size_t bytes = strlen(json_opt_str(msg, "body", "")) + KEEP_BYTES;
	struct sender *s = sender_of(r, vm->vfs[0].want.vguid);
	struct message *m = NULL;

	if (!s)
		return NULL;
	s->messages++; /* from here on it is freed with its last message */
	if (has_room(s, bytes))
		pkeys = relay_pkeys(vm, guid_of(msg, "from"));
	bytes += json_count(pkeys) * PKEY_BYTES;
	if (has_room(s, bytes))
		m = calloc(1, sizeof *m);
	if (!m) {
		sender_leave(r, s, 0);
		return NULL;
	}
	*m = (struct message){.sender = s, .to = guid_of(msg, "to"), .bytes = bytes};
	m->json = known_fields(msg);
	if (pkeys)
		json_set(m->json, "pkeys", TAKE(pkeys));
	s->bytes += bytes;
	return m;
}

void relay_message_free(struct relay *r, struct message *m)
{
	sender_leave(r, m->sender, m->bytes);
	json_object_put(m->json);
	free(m);
}

/* The sender, if it is on this host, hears of it; another host is told in the answer. */
void relay_failed(struct relay *r, struct message *m, const char *error)
{
	struct vm *vm = vm_by_guid(r->d, guid_of(m->json, "from"));
	const char *to = json_opt_str(m->json, "to", "?");

	log_debug("relay from %s to %s: %s", json_opt_str(m->json, "from", "?"), to, error);
	if (vm)
		vm_channel_relay_failed(vm, to, error);
	relay_message_free(r, m);
}

void relay_again(struct relay *r, struct message *m, const char *url, const char *error)
{
	if (m->tries++ >= RELAY_RETRIES_MAX) {
		relay_failed(r, m, error);
		return;
	}
	relay_route_wrong(r, m->to, url);
	relay_send(r, m);
}

/* A VM of this host gets it. 0, or -errno if its guest cannot take it. -EACCES: it shares no
 * partition with the sender. */
static int deliver(struct vm *vm, struct json_object *msg)
{
	struct json_object *copy;

	if (!relay_pkeys_meet(vm, guid_of(msg, "to"), json_opt(msg, "pkeys")))
		return -EACCES;
	copy = known_fields(msg);
	json_set_str(copy, "op", "relay");
	return agent_send_of(vm->agent, guid_of(msg, "from"), copy);
}

void relay_send(struct relay *r, struct message *m)
{
	struct vm *vm = vm_by_guid(r->d, m->to);
	int rc = vm && vm->agent ? deliver(vm, m->json) : -ENOTCONN;

	if (rc == -EACCES)
		relay_failed(r, m, RELAY_BARRED);
	else if (!rc)
		relay_message_free(r, m);
	else if (rc == -ENOBUFS)
		relay_failed(r, m, "too many messages wait for its guest");
	else
		relay_route_add(r, m);
}

/* ---- in and out ---- */

/* Other text may be six times as long in a call as it is here, and the host would refuse the call
 * with all that goes along with it. */
static bool is_base64(const char *text)
{
	return !text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				  "+/=")];
}

static const char *check(struct json_object *msg)
{
	const char *body = json_opt_str(msg, "body", "");
	struct ib_gid gid;

	if (ib_gid_parse(json_opt_str(msg, "to", ""), &gid))
		return "field \"to\" must be a GID";
	if (ib_gid_parse(json_opt_str(msg, "from", ""), &gid))
		return "field \"from\" must be a GID";
	if (strlen(body) > RELAY_TEXT_MAX || !is_base64(body))
		return "field \"body\" must be at most 256 KiB of base 64";
	return NULL;
}

void relay_from_guest(struct relay *r, struct vm *vm, struct json_object *msg)
{
	const char *wrong = check(msg);
	struct message *m = NULL;

	if (!wrong && !vm_has_guid(vm, guid_of(msg, "from")))
		wrong = "field \"from\" is not a GID of this VM";
	if (!wrong && !(m = message_new(r, vm, msg)))
		wrong = "too many messages of this VM wait";
	if (wrong)
		vm_channel_relay_failed(vm, json_opt_str(msg, "to", ""), wrong);
	else
		relay_send(r, m);
}

void relay_receive(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *list, *refused, *answer, *barred AUTO_JSON = NULL;
	struct json_reader r;

	json_reader_init(&r, req->body);
	list = json_need_array(&r, "messages");
	if (r.error) {
		http_fail(req->exchange, 400, "bad-field", "%s", r.message);
		return;
	}
	refused = json_object_new_array();
	barred = json_object_new_array();
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *msg = json_object_array_get_idx(list, i);
		struct vm *vm = check(msg) ? NULL : vm_by_guid(d, guid_of(msg, "to"));
		int rc = vm && vm->agent ? deliver(vm, msg) : -ENOTCONN;

		if (rc)
			json_object_array_add(rc == -EACCES ? barred : refused,
					      json_object_new_uint64(i));
	}
	answer = json_object_new_object();
	if (json_count(barred))
		json_set(answer, "barred", json_object_get(barred));
	json_set(answer, "refused", refused);
	http_reply(req->exchange, 200, answer);
}
