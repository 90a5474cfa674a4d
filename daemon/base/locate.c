/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/locate.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"

#include <errno.h>
#include <string.h>

#define PEER_DEADLINE_MS 2000

static void fill(struct location *l, const char *host, const char *url, const char *vm,
		 const char *name)
{
	snprintf(l->name, sizeof l->name, "%s", name);
	snprintf(l->host, sizeof l->host, "%s", host);
	snprintf(l->url, sizeof l->url, "%s", url);
	snprintf(l->vm, sizeof l->vm, "%s", vm);
}

static bool has_field(struct json_object *o, const char *key, const char *value)
{
	return str_eq(json_opt_str(o, key, ""), value);
}

/* True if the VM, or one of its VFs, has key = value. */
static bool is_it(struct json_object *vm, const char *key, const char *value)
{
	struct json_object *vfs = json_opt(vm, "vfs");

	for (size_t i = 0; i < json_count(vfs); i++)
		if (has_field(json_object_array_get_idx(vfs, i), key, value))
			return true;
	return has_field(vm, key, value);
}

/* True if a daemon's answer has such a VM. */
static bool has_vm(struct json_object *answer, const char *key, const char *value,
		   struct location *ret, const char *host, const char *url)
{
	struct json_object *list = json_opt(answer, "vms");

	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *vm = json_object_array_get_idx(list, i);

		if (!is_it(vm, key, value))
			continue;
		fill(ret, host, url, json_opt_str(vm, "uuid", ""), json_opt_str(vm, "name", ""));
		return true;
	}
	return false;
}

static int ask_peers(const struct settings *s, const char *key, const char *value,
		     struct location *ret, char *error)
{
	char silent[HTTP_ERROR_MAX] = "";

	for (size_t i = 0; i < s->peer_count; i++) {
		struct json_object *answer AUTO_JSON = NULL;
		const struct settings_peer *p = &s->peers[i];

		if (str_eq(p->url, s->url))
			continue;
		if (http_call(p->url, "GET", "/v1/vms", NULL, PEER_DEADLINE_MS, &answer, error))
			snprintf(silent, sizeof silent, " (no answer from %.60s: %.300s)", p->name,
				 error);
		else if (has_vm(answer, key, value, ret, p->name, p->url))
			return 0;
	}
	snprintf(error, HTTP_ERROR_MAX, "no ibvmigd knows %s %.60s%.350s", key, value, silent);
	return -ENOENT;
}

int locate_guid(const struct settings *s, uint64_t guid, struct location *ret, char *error)
{
	struct json_object *answer AUTO_JSON = NULL;
	char text[IB_GUID_TEXT], path[64];
	int rc;

	ib_guid_format(guid, text);
	if (!s->sm_url)
		return ask_peers(s, "vguid", text, ret, error);
	snprintf(path, sizeof path, "/v1/vguids/%s", text);
	rc = sm_call(s, "GET", path, NULL, &answer, error);
	if (rc)
		return rc == -EREMOTEIO ? -ENOENT : rc;
	fill(ret, json_opt_str(answer, "host", ""), json_opt_str(answer, "url", ""),
	     json_opt_str(answer, "vm", ""), json_opt_str(answer, "name", ""));
	if (!*ret->url) {
		snprintf(error, HTTP_ERROR_MAX, "ibvmig-sm does not know the host of %s", text);
		return -ENOENT;
	}
	return 0;
}

int locate_vm(const struct settings *s, const char *vm, struct location *ret, char *error)
{
	return ask_peers(s, "uuid", vm, ret, error);
}
