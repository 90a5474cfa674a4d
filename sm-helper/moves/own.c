/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/own.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/registry/owner.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WAY_OUT                                                                                    \
	"`ibvmig-sm rebuild` shows what daemons and OpenSM know, and with --apply this registry "  \
	"takes that and the subnet over"

static bool is_ours(struct ops *o, const struct sm_owner *has)
{
	struct reg_owner own = registry_owner(o->registry);

	return has->registry == own.registry && has->grant == own.wanted;
}

/* A registry that has never had the subnet and knows nothing, where another one has bound
 * something. Where nobody has had it, a sweep may have seen what hosts are about to bind. */
static bool is_empty(struct ops *o, const struct sm_owner *has, uint32_t bound)
{
	return bound && has->registry && !registry_owner(o->registry).granted &&
	       !registry_count(o->registry);
}

static int claim(struct ops *o, uint32_t flags, char error[static BACKEND_ERROR_MAX])
{
	struct sm_owner_request want = {.flags = flags};
	struct reg_owner own;
	struct sm_owner got;
	int rc = registry_want_grant(o->registry);

	if (rc)
		return backend_fail(error, rc, "the registry cannot be written");
	own = registry_owner(o->registry);
	want.was = own.granted;
	want.owner = (struct sm_owner){
		.registry = own.registry, .epoch = own.epoch, .grant = own.wanted};
	snprintf(want.owner.name, sizeof want.owner.name, "%s", o->name);
	if ((rc = backend_claim(o->backend, &want, &got, error)))
		return rc;
	log_notice("registry %016" PRIx64 " has the subnet, by grant %" PRIu64, got.registry,
		   got.epoch);
	o->owner = got;
	rc = registry_granted(o->registry, got.epoch);
	return rc ? backend_fail(error, rc, "the registry cannot be written") : 0;
}

void own_claim(struct ops *o, const struct sm_status_reply *s)
{
	char ignored[BACKEND_ERROR_MAX];

	o->owner = s->owner;
	o->bound = s->bound;
	if (!backend_claims(o->backend) || registry_judge(o->registry, UINT32_MAX).state ||
	    (o->claimed && is_ours(o, &s->owner)) || is_empty(o, &s->owner, s->bound))
		return;
	o->claimed = !claim(o, 0, ignored);
}

int own_take(struct ops *o, struct op_error *e)
{
	char text[BACKEND_ERROR_MAX];
	int rc = backend_claims(o->backend) ? claim(o, SM_OWNER_TAKE, text) : 0;

	o->claimed = o->claimed || !rc;
	return rc ? ops_fail_plugin(e, rc, text) : 0;
}

static void since_text(uint64_t wall, char text[static 32])
{
	time_t t = (time_t)(wall / 1000);
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(text, 32, "%Y-%m-%d %H:%M:%S UTC", &tm))
		strcpy(text, "?");
}

/* Another one has it, or none. */
static void tell_fenced(struct ops *o, const struct sm_owner *has, char why[static OWN_WHY_MAX])
{
	struct reg_owner own = registry_owner(o->registry);
	char since[32];

	since_text(has->since_ms, since);
	snprintf(why, OWN_WHY_MAX,
		 "registry %016" PRIx64 " (%s) has the subnet since %s, by grant %" PRIu64
		 "; this is registry %016" PRIx64 ", grant %" PRIu64
		 ", and changes nothing. Stop the one that is not to go on; "
		 "here " WAY_OUT,
		 has->registry, has->name, since, has->epoch, own.registry, own.epoch);
}

static enum own_state judge(struct ops *o, const struct sm_owner *has, uint32_t bound,
			    char why[static OWN_WHY_MAX])
{
	*why = 0;
	if (!backend_claims(o->backend))
		return OWN_GOOD;
	if (is_empty(o, has, bound)) {
		snprintf(why, OWN_WHY_MAX,
			 "the registry is new and empty, and OpenSM's plugin knows %u bound "
			 "vGUID%s%s%.127s: nothing is changed. " WAY_OUT,
			 bound, bound == 1 ? "" : "s", *has->name ? " of " : "", has->name);
		return OWN_EMPTY;
	}
	if (!has->registry || is_ours(o, has))
		return OWN_GOOD;
	tell_fenced(o, has, why);
	return OWN_FENCED;
}

static void tell_bad(const struct registry_health *h, char why[static OWN_WHY_MAX])
{
	static const char *const what[] = {
		[REGISTRY_CORRUPT] = "the registry is corrupt, and nothing is changed: " WAY_OUT
				     "; the file is kept aside",
		[REGISTRY_FULL] =
			"the registry has no room, and nothing is changed: make room on its disk",
		[REGISTRY_READ_ONLY] =
			"the registry cannot be written, and nothing is changed: make it "
			"writable; where it could not be opened, start again",
		[REGISTRY_FAILING] = "the registry cannot be read or written, and nothing is "
				     "changed: look at its disk",
	};

	snprintf(why, OWN_WHY_MAX, "%s (%.300s)", what[h->state], h->why);
}

enum own_state own_state(struct ops *o, const struct sm_status_reply *s,
			 char ret_why[static OWN_WHY_MAX])
{
	struct registry_health h = registry_judge(o->registry, OWN_FRESH_MS);

	*ret_why = 0;
	if (h.state) {
		tell_bad(&h, ret_why);
		return OWN_BAD;
	}
	return s ? judge(o, &s->owner, s->bound, ret_why) : OWN_GOOD;
}

const char *own_state_name(struct ops *o, enum own_state s)
{
	static const char *const name[] = {"good", "bad", "empty", "fenced"};

	return s == OWN_BAD ? registry_state_name(registry_judge(o->registry, UINT32_MAX).state)
			    : name[s];
}

int own_check(struct ops *o, unsigned fresh_ms, struct op_error *e)
{
	struct registry_health h = registry_judge(o->registry, fresh_ms);
	char why[OWN_WHY_MAX], code[32];
	enum own_state s = OWN_BAD;

	if (h.state)
		tell_bad(&h, why);
	else
		s = judge(o, &o->owner, o->bound, why);
	if (s == OWN_GOOD)
		return 0;
	snprintf(code, sizeof code, "registry-%s", own_state_name(o, s));
	return ops_fail(e, s == OWN_FENCED ? -EKEYREJECTED : -EROFS, 503, code, "%s", why);
}
