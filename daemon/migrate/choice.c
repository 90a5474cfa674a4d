/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/src.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/base/daemon.h"
#include "daemon/migrate/machine.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

#define AND_MORE_MAX 32

/* Counts and names the users of the VF inside the guest's kernel: "A, B and C", or "A, B and 7
 * more" where there is no room for all. */
static unsigned kernel_users(struct json_object *query, char names[static STRATEGY_USERS_MAX])
{
	struct json_object *list = json_opt(query, "kernel");
	size_t count = json_count(list), n = 0;

	*names = '\0';
	for (size_t i = 0; i < count; i++) {
		const char *name = json_opt_str(json_object_array_get_idx(list, i), "what",
						"a kernel module");
		const char *between = i + 1 < count ? ", " : " and ";
		char one[128];
		int bytes = snprintf(one, sizeof one, "%s%.100s", i ? between : "", name);

		if (n + (size_t)bytes + AND_MORE_MAX > STRATEGY_USERS_MAX) {
			snprintf(names + n, AND_MORE_MAX, " and %zu more", count - i);
			break;
		}
		memcpy(names + n, one, (size_t)bytes + 1);
		n += (size_t)bytes;
	}
	return (unsigned)count;
}

void choice_facts(struct vm *vm, struct json_object *query, struct strategy_facts *ret_facts)
{
	unsigned with_state = 0, fixed = 0, blocking = 0, passed = 0;

	for (unsigned i = 0; i < vm->vf_count; i++) {
		const struct vf *vf = vm->vfs[i].lease;
		const char *attach = vf && vf->attach ? vf->attach : "[]";
		bool state = qmp_device_flag(attach, QMP_MIGRATES_STATE);
		bool stays = qmp_device_flag(attach, QMP_STAYS);

		with_state += state;
		fixed += stays || qmp_device_flag(attach, QMP_NATIVE);
		blocking += stays && !state;
		passed += qmp_device_flag(attach, QMP_NEEDS_GROUP);
	}
	*ret_facts = (struct strategy_facts){
		.state_here = with_state && with_state == vm->vf_count,
		.passed = passed,
		.fixed = fixed,
		.blocked = blocking,
		.agent = query,
		.agent_needed = vm->d->settings->require_agent,
	};
	ret_facts->kernel_users = kernel_users(query, ret_facts->kernel_user_names);
}

void choice_uncovered(struct json_object *query, char *why, unsigned bytes)
{
	struct json_object *list = json_opt(query, "uncovered"), *o;

	*why = '\0';
	if (!json_count(list))
		return;
	o = json_object_array_get_idx(list, 0);
	snprintf(why, bytes,
		 "process %llu (%.40s) in the guest uses InfiniBand in a way that cannot be moved: "
		 "%.200s; stop it, or start it under ibvmig-run",
		 (unsigned long long)json_opt_u64(o, "pid", 0), json_opt_str(o, "comm", "?"),
		 json_opt_str(o, "why", "it is not under ibvmig-run"));
}

static int choose(struct migration *m, const struct strategy_facts *facts)
{
	struct strategy_choice c;
	char why[HTTP_ERROR_MAX];
	int rc = strategy_choose(m->rec.asked, facts, &c);

	json_set(m->rec.data, "choice", strategy_json(m->rec.asked, &c));
	if (rc) {
		strategy_refusal(m->rec.asked, &c, why, sizeof why);
		return migrate_error(m, rc, "%s", why);
	}
	m->rec.strategy = c.chosen;
	for (int s = STRATEGY_NATIVE; s < (int)c.chosen; s++)
		if (*c.why_not[s])
			log_info("VM %s: migration %s: %s, not %s: %s", m->rec.vm_name, m->rec.id,
				 strategy_name(c.chosen), strategy_name((enum domain_strategy)s),
				 c.why_not[s]);
	return 0;
}

int choice_make(struct migration *m, struct strategy_facts *facts)
{
	facts->state_there = m->rec.state_there;
	facts->copy = m->rec.file ? COPY_SAVE : COPY_LIVE;
	return choose(m, facts);
}

int choice_still_fits(struct migration *m, struct json_object *query)
{
	char users[STRATEGY_USERS_MAX];
	unsigned count = kernel_users(query, users);

	if (!count || m->rec.strategy != STRATEGY_LATE)
		return 0;
	return migrate_error(m, -EBUSY,
			     "%s %s begun to use the VF inside the guest's kernel since "
			     "PREPARE: what the device has written there during the copy would be "
			     "lost; migrate it again, with strategy auto or early",
			     users, count > 1 ? "have" : "has");
}

int choice_for_post_copy(struct migration *m)
{
	bool native = m->rec.strategy == STRATEGY_NATIVE;
	struct strategy_facts f = {.state_here = native,
				   .state_there = native,
				   .fixed = native,
				   .agent = true,
				   .copy = COPY_POST};
	int rc = choose(m, &f);

	/* A VF that is to leave early then had to leave before QEMU began. */
	if (!rc && native)
		rc = migrate_error(
			m, -ENOTSUP,
			"its VF migrates by itself, which QEMU cannot do with post-copy; "
			"ask for strategy early, or leave out --postcopy");
	return rc;
}
