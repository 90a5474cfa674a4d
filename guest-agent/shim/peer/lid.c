/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs that the program names. A LID may be one that the other end had when its program told it. */
#include "guest-agent/shim/peer/lid.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/port/lid.h"

#include <errno.h>
#include <string.h>

#define ANSWER_MS 3000 /* the agent itself waits 2 s for the host */

/* Outside of the control verbs: a suspend need not wait for the host's answer. */
static int ask_agent(struct shim_lid_ask *ask, struct shim_lid *ret_answer)
{
	int rc;

	ctl_exit();
	do
		rc = shim_call(ask, ret_answer, sizeof(*ret_answer), ANSWER_MS);
	while (rc == -ECONNRESET && shim_await_agent(SHIM_AGENT_BACK_MS));
	ctl_enter();
	return rc;
}

int lid_find_ends(const struct shim_context *c, uint8_t port, uint16_t lid, uint16_t pkey,
		  bool anew, struct lid_ends *ret_ends)
{
	struct shim_lid_ask ask = {.head = {.bytes = sizeof(ask), .type = SHIM_LID},
				   .lid = lid,
				   .pkey = pkey,
				   .anew = anew};
	struct shim_lid answer;
	union ibv_gid gid;
	int rc;

	if (!lid_is_unicast(lid) || real_verbs.query_gid(c->real, port, 0, &gid))
		return -EINVAL;
	memcpy(ask.sgid, gid.raw, 16);
	rc = ask_agent(&ask, &answer);
	if (rc)
		return rc;
	if (!answer.count || answer.count > SHIM_ENDS_MAX)
		return -EHOSTUNREACH;
	memcpy(ret_ends->sgid, gid.raw, 16);
	ret_ends->shared = answer.shared;
	ret_ends->count = answer.count;
	for (unsigned i = 0; i < answer.count; i++) {
		memcpy(ret_ends->dgid[i], answer.end[i].dgid, 16);
		route_told(gid.raw, pkey, &answer.end[i]);
	}
	return 0;
}

void lid_translate(const struct shim_context *c, const struct shim_route *r, struct ibv_ah_attr *ah)
{
	bool same;

	if (!r || !route_leads(r) || !r->path.dlid || !lid_is_unicast(ah->dlid))
		return;
	same = lid_same_port(c, ah->port_num, ah->dlid, r->path.dlid);
	if (!same)
		ah->dlid = r->path.dlid;
	if (!same || r->changed) /* the program may have the SL of before a fault */
		ah->sl = r->path.sl;
}
