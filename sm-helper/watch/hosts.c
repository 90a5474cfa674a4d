/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/watch/hosts.h"
#include "common/http/client.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ASK_MS 3000
#define ALL_MS 10000

static struct host_answer *find(const struct hosts *h, const struct reg_vf *at)
{
	for (size_t i = 0; i < h->count; i++)
		if (!strcmp(h->answer[i].host, at->host) && !strcmp(h->answer[i].url, at->url))
			return &h->answer[i];
	return NULL;
}

static struct host_answer *add(struct hosts *h, const struct reg_vf *at)
{
	struct host_answer *grown = realloc(h->answer, (h->count + 1) * sizeof *grown);

	if (!grown)
		return NULL;
	h->answer = grown;
	grown += h->count++;
	*grown = (struct host_answer){.asked_ms = wall_ms()};
	strcpy(grown->host, at->host);
	strcpy(grown->url, at->url);
	return grown;
}

void hosts_ask(struct hosts *h, const struct reg_entry *e)
{
	struct json_object *status = NULL;
	char error[HTTP_ERROR_MAX];
	struct host_answer *a;

	if (!h->since_ms)
		h->since_ms = now_ms();
	if (!*e->at.url || find(h, &e->at) || now_ms() > h->since_ms + ALL_MS ||
	    !(a = add(h, &e->at)))
		return;
	if (http_call(a->url, "GET", "/v1/status", NULL, ASK_MS, &status, error))
		return;
	/* an answer that is not this daemon's says nothing of the host */
	if (!strcmp(json_opt_str(status, "host", ""), a->host) &&
	    json_object_is_type(json_opt(status, "vfs"), json_type_array))
		a->status = status;
	else
		json_object_put(status);
}

void hosts_free(struct hosts *h)
{
	for (size_t i = 0; i < h->count; i++)
		json_object_put(h->answer[i].status);
	free(h->answer);
	*h = (struct hosts){0};
}

static enum hosts_verdict differ(char *text, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static enum hosts_verdict differ(char *text, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, HOSTS_TEXT_MAX, fmt, ap);
	va_end(ap);
	return HOSTS_DIFFER;
}

static uint64_t guid_of(struct json_object *vf, const char *key)
{
	uint64_t guid;

	return ib_guid_parse(json_opt_str(vf, key, ""), &guid) ? 0 : guid;
}

/* The host's VF whose field is this GUID, or NULL. */
static struct json_object *vf_with(struct json_object *status, const char *key, uint64_t guid)
{
	struct json_object *vfs = json_opt(status, "vfs");

	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);

		if (guid_of(vf, key) == guid)
			return vf;
	}
	return NULL;
}

static enum hosts_verdict check(struct json_object *status, const struct reg_entry *e, char *text)
{
	struct json_object *vf = vf_with(status, "parked_guid", e->at.parked_guid);
	struct json_object *has = vf_with(status, "vguid", e->vguid);

	if (!vf)
		return differ(text,
			      "host %s has no VF with the parked GUID 0x%016" PRIx64
			      " that the registry has for VF %s",
			      e->at.host, e->at.parked_guid, e->at.vf);
	if (strcmp(json_opt_str(vf, "name", ""), e->at.vf))
		return differ(
			text, "the VF with parked GUID 0x%016" PRIx64 " is %s at host %s, not %s",
			e->at.parked_guid, json_opt_str(vf, "name", "?"), e->at.host, e->at.vf);
	if (has == vf)
		return HOSTS_AGREE;
	if (has)
		return differ(text, "host %s has the vGUID on VF %s, not on %s", e->at.host,
			      json_opt_str(has, "name", "?"), e->at.vf);
	return differ(text, "host %s does not use VF %s for the vGUID", e->at.host, e->at.vf);
}

enum hosts_verdict hosts_check(const struct hosts *h, const struct reg_entry *e,
			       char ret_text[static HOSTS_TEXT_MAX])
{
	const struct host_answer *a = find(h, &e->at);

	if (!a || !a->status || e->intent != REG_NONE || e->since_ms >= a->asked_ms)
		return HOSTS_UNKNOWN;
	return check(a->status, e, ret_text);
}
