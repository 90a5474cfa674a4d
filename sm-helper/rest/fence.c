/* SPDX-License-Identifier: GPL-2.0-or-later */
/* POST /v1/fence: a host is off, says somebody, and what a VM has there becomes free. */
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/rest/rest_int.h"
#include "sm-helper/watch/leaks.h"
#include "sm-helper/watch/off.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct fencing {
	struct rest_call *call;
	char vm[REG_TEXT_MAX], host[REG_TEXT_MAX];
	bool sure;               /* an operator answers for it, whatever the fabric shows */
	struct reg_entry *entry; /* owned; those of this VM */
	size_t entries;
};

static void add_entry(void *arg, const struct reg_entry *e)
{
	struct fencing *f = arg;
	struct reg_entry *grown;

	if (strcmp(e->vm, f->vm) || !(grown = realloc(f->entry, (f->entries + 1) * sizeof *grown)))
		return;
	f->entry = grown;
	grown[f->entries++] = *e;
}

/* Makes sure that this VM has nothing on other hosts. */
static int check_host(const struct fencing *f)
{
	for (size_t i = 0; i < f->entries; i++) {
		const struct reg_entry *e = &f->entry[i];

		if (strcmp(e->at.host, f->host))
			return ops_fail(&f->call->error, -EINVAL, 409, "wrong-host",
					"vGUID 0x%016" PRIx64 " of this VM is on VF %s of %s, not "
					"on %s",
					e->vguid, e->at.vf, e->at.host, f->host);
	}
	return 0;
}

static int refuse(const struct fencing *f, const char *why)
{
	return ops_fail(&f->call->error, -EBUSY, 409, "not-fenced", "host %.200s is not off: %s",
			f->host, why);
}

/* Whoever says that the host is off may be wrong: its daemon is asked. */
static int ask_daemon(const struct fencing *f)
{
	const struct reg_vf *at = &f->entry[0].at;
	struct leak_report r = {0};
	char text[REG_TEXT_MAX + 96];
	int rc = 0;

	strcpy(r.host, at->host);
	strcpy(r.url, at->url);
	leaks_ask(&r);
	for (size_t i = 0; !rc && r.answered && i < f->entries; i++) {
		if (!leaks_has(&r, f->entry[i].vguid))
			continue;
		snprintf(text, sizeof text,
			 "its ibvmigd (%s) answers and has vGUID 0x%016" PRIx64 " in use", at->url,
			 f->entry[i].vguid);
		rc = refuse(f, text);
	}
	free(r.guid);
	return rc;
}

/* A host that is only silent may run its VM still. Its card tells; who may operate may know better
 * than that, another host's daemon not. */
static int ask_fabric(const struct fencing *f)
{
	char why[OFF_TEXT_MAX], text[OFF_TEXT_MAX + 128];
	int rc = 0;

	for (size_t i = 0; !rc && !f->sure && i < f->entries; i++) {
		enum off_verdict v = off_look(f->call->rest->ops, &f->entry[i], why);

		if (v == OFF_GONE || (v == OFF_UNSEEN && f->call->roles & REST_NOVA))
			continue;
		snprintf(text, sizeof text,
			 "%s. Once its power is off, `ibvmig-sm fence UUID HOST "
			 "--sure` beside the subnet manager overrules this",
			 why);
		rc = refuse(f, text);
	}
	return rc;
}

/* Lets all go within the time of one change. A vGUID that fails leaves the others let go: the
 * caller says it again. */
static void let_go(const struct fencing *f)
{
	struct json_object *list = json_object_new_array();
	struct rest_call *call = f->call;
	struct ops *o = call->rest->ops;
	char text[IB_GUID_TEXT];

	call->reply = json_object_new_object();
	json_set(call->reply, "vguids", list);
	for (size_t i = 0; i < f->entries; i++) {
		const struct reg_entry *e = &f->entry[i];

		if (action_unbind(o, e->vguid, e->vm, &e->at, rest_deadline_us(call), &call->error))
			return;
		log_notice("fence: vGUID 0x%016" PRIx64 " of %s is taken from %s, which is off%s",
			   e->vguid, e->name, e->at.host, f->sure ? ", as an operator says" : "");
		notice_gone(o, e->vguid);
		ib_guid_format(e->vguid, text);
		json_object_array_add(list, json_object_new_string(text));
	}
}

static void run_fence(struct rest_call *call)
{
	struct fencing f = {.call = call};
	struct json_reader r;

	json_reader_init(&r, call->body);
	rest_need_text(&r, "vm", f.vm);
	rest_need_text(&r, "host", f.host);
	f.sure = json_opt_bool(call->body, "sure", false);
	if (r.error) {
		rest_bad_request(call, r.message);
		return;
	}
	if (f.sure && !(call->roles & REST_NOVA)) {
		ops_fail(&call->error, -EPERM, 403, "forbidden",
			 "\"sure\" is an operator's word: it takes the role nova");
		return;
	}
	if (rest_refuse_change(call))
		return;
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&call->rest->binding);
	if (registry_each(call->rest->ops->registry, add_entry, &f))
		rest_registry_broken(call);
	else if (!check_host(&f) && (!f.entries || (!ask_daemon(&f) && !ask_fabric(&f))))
		let_go(&f);
	free(f.entry);
}

void rest_post_fence(struct http_request *req)
{
	rest_submit_slow(req, run_fence, NULL);
}
