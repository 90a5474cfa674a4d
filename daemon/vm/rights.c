/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/rights.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/partition.h"
#include "daemon/base/settings.h"
#include "daemon/vm/vm.h"

#define FRESH_MS 10000 /* an operator changes partitions by hand */

static void ask_run(struct job *j)
{
	json_set(j->out, "answer",
		 partition_ask(j->d->settings, json_object_get(json_opt(j->in, "guids")), false));
}

static void ask_done(struct job *j)
{
	struct json_object *answer = json_opt(j->out, "answer");
	struct sm_state *sm = &j->d->sm;

	/* An ibvmig-sm that is away takes nothing back: guests speak to whom they could before. */
	if (!sm->partitions || json_count(json_opt(answer, "guids"))) {
		json_object_put(sm->partitions);
		sm->partitions = json_object_get(answer);
	}
	sm->partitions_ms = now_ms();
	sm->partitions_asking = false;
	if (sm->partitions_news)
		vm_rights_refresh(j->d);
}

static struct json_object *guids_here(struct daemon *d)
{
	struct json_object *list = json_object_new_array();

	for (struct vm *vm = d->vms; vm; vm = vm->next)
		for (unsigned i = 0; !vm->gone && i < vm->vf_count; i++) {
			char text[IB_GUID_TEXT];

			ib_guid_format(vm->vfs[i].want.vguid, text);
			json_object_array_add(list, json_object_new_string(text));
		}
	return list;
}

void vm_rights_refresh(struct daemon *d)
{
	struct sm_state *sm = &d->sm;
	bool fresh = sm->partitions && !sm->partitions_news &&
		     now_ms() - sm->partitions_ms < FRESH_MS;
	struct json_object *in;

	if (!d->settings->sm_url || !d->vms || fresh || sm->partitions_asking)
		return;
	in = json_object_new_object();
	json_set(in, "guids", guids_here(d));
	sm->partitions_asking = !job_start(d, in, ask_run, ask_done, NULL, 0);
	sm->partitions_news = sm->partitions_news && !sm->partitions_asking;
}

void vm_rights_news(struct daemon *d)
{
	d->sm.partitions_news = true;
	vm_rights_refresh(d);
}

const char *vm_right(const struct daemon *d, const struct vm_vf *v)
{
	static const char *const text[] = {NULL, "none", "limited", "full"};
	char guid[IB_GUID_TEXT];

	ib_guid_format(v->want.vguid, guid);
	return text[partition_own(d->sm.partitions, guid, v->want.pkey)];
}
