/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/strategy.h"
#include "common/json.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

const char *const strategy_names[] = {
	[STRATEGY_AUTO] = "auto",   [STRATEGY_NATIVE] = "native", [STRATEGY_LATE] = "late",
	[STRATEGY_EARLY] = "early", [STRATEGY_COLD] = "cold",
};

int strategy_parse(const char *text, enum domain_strategy *ret_strategy)
{
	for (unsigned i = 0; i < ARRAY_SIZE(strategy_names); i++) {
		if (!str_eq(text, strategy_names[i]))
			continue;
		*ret_strategy = (enum domain_strategy)i;
		return 0;
	}
	return -EINVAL;
}

/* ---- what each one needs; why: "" if it is possible ---- */

typedef void needs(const struct strategy_facts *f, char why[static STRATEGY_WHY_MAX]);

static void say(char why[static STRATEGY_WHY_MAX], const char *text)
{
	snprintf(why, STRATEGY_WHY_MAX, "%s", text);
}

static void native_needs(const struct strategy_facts *f, char why[static STRATEGY_WHY_MAX])
{
	if (f->passed)
		say(why, "the VF is passed to QEMU as a descriptor, which no QEMU can start with: "
			 "set vfio-backend = group, and start the VM again");
	else if (!f->state_here)
		say(why, "the VF's driver at the source cannot migrate its state");
	else if (!f->fixed)
		say(why, "the VF was attached to be unplugged: it can be native once the VM has "
			 "been started, or has arrived, with strategy native or auto");
	else if (!f->state_there)
		say(why, "the VF at the destination cannot take another one's state");
	else if (f->copy == COPY_POST)
		say(why, "QEMU cannot migrate a VFIO device's state with post-copy");
}

/* Every strategy but native takes the VF away: the guest has to stop using it first, and to give it
 * up. The VF at the destination is not known yet where native was not asked for. */
static void unplug_needs(const struct strategy_facts *f, char why[static STRATEGY_WHY_MAX])
{
	bool may_be_native = f->state_here && f->fixed && f->copy == COPY_LIVE;

	if (f->blocked && f->copy != COPY_SAVE)
		say(why, "the VM's QEMU refuses to migrate while it has a VF of this class: "
			 "QEMU >= 10.1 lets it leave, or one with the patch of hooks/qemu");
	else if (f->paused)
		snprintf(why, STRATEGY_WHY_MAX,
			 "the VM is paused, and only a guest that runs gives its VF up: virsh "
			 "resume %.255s%s",
			 f->paused,
			 may_be_native ? ", or strategy native, which asks nothing of it" : "");
	else if (!f->agent && f->agent_needed)
		say(why, "no agent answers in the guest");
}

static void late_needs(const struct strategy_facts *f, char why[static STRATEGY_WHY_MAX])
{
	unplug_needs(f, why);
	if (*why)
		return;
	if (!f->agent)
		say(why, "no agent answers in the guest, and without one what the device writes "
			 "during the copy would be lost");
	else if (f->fixed)
		say(why, "the VF was attached to migrate by itself, and QEMU unplugs no such "
			 "device while it migrates");
	else if (f->kernel_users)
		snprintf(why, STRATEGY_WHY_MAX,
			 "%s %s the VF inside the guest's kernel: what the device writes for %s "
			 "during the copy would be lost",
			 f->kernel_user_names, f->kernel_users > 1 ? "use" : "uses",
			 f->kernel_users > 1 ? "them" : "it");
	else if (f->copy == COPY_POST)
		say(why, "with post-copy the guest may leave before the VF has");
}

static void cold_needs(const struct strategy_facts *f, char why[static STRATEGY_WHY_MAX])
{
	if (f->copy == COPY_SAVE)
		unplug_needs(f, why);
	else
		say(why, "a live migration is not cold: ibvmig save here, ibvmig restore there");
}

static needs *const table[] = {
	[STRATEGY_NATIVE] = native_needs,
	[STRATEGY_LATE] = late_needs,
	[STRATEGY_EARLY] = unplug_needs,
	[STRATEGY_COLD] = cold_needs,
};

int strategy_choose(enum domain_strategy asked, const struct strategy_facts *f,
		    struct strategy_choice *ret_choice)
{
	struct strategy_choice c = {.chosen = asked};
	int first = asked == STRATEGY_AUTO ? STRATEGY_NATIVE : (int)asked;
	int last = asked == STRATEGY_AUTO ? STRATEGY_COLD : (int)asked;

	for (int s = first; s <= last; s++) {
		table[s](f, c.why_not[s]);
		if (*c.why_not[s])
			continue;
		c.chosen = (enum domain_strategy)s;
		*ret_choice = c;
		return 0;
	}
	*ret_choice = c;
	return -ENOTSUP;
}

/* ---- in words ---- */

struct json_object *strategy_json(enum domain_strategy asked, const struct strategy_choice *c)
{
	struct json_object *o = json_object_new_object(), *why = json_object_new_object();

	for (int s = STRATEGY_NATIVE; s <= STRATEGY_COLD; s++)
		if (*c->why_not[s])
			json_set_str(why, strategy_names[s], c->why_not[s]);
	json_set_str(o, "asked", strategy_names[asked]);
	json_set_str(o, "chosen", strategy_names[c->chosen]);
	json_set(o, "why_not", why);
	return o;
}

void strategy_refusal(enum domain_strategy asked, const struct strategy_choice *c, char *text,
		      unsigned bytes)
{
	unsigned n = 0;
	int next;

	if (asked != STRATEGY_AUTO) {
		snprintf(text, bytes, "strategy %s is not possible: %s", strategy_names[asked],
			 c->why_not[asked]);
		return;
	}
	for (int s = STRATEGY_NATIVE; s <= STRATEGY_COLD && n < bytes; s = next) {
		n += (unsigned)snprintf(text + n, bytes - n, "%s%s",
					n ? "; " : "no strategy is possible: ", strategy_names[s]);
		for (next = s + 1;
		     next <= STRATEGY_COLD && n < bytes && !strcmp(c->why_not[next], c->why_not[s]);
		     next++)
			n += (unsigned)snprintf(text + n, bytes - n, ", %s", strategy_names[next]);
		if (n < bytes)
			n += (unsigned)snprintf(text + n, bytes - n, ": %s", c->why_not[s]);
	}
}
