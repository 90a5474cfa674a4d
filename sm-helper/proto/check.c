/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/proto/check.h"
#include "common/ib.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int refuse(char *reason, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(char *reason, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, SM_REASON_MAX, fmt, ap);
	va_end(ap);
	return error;
}

static int check_target(const struct sm_target *t, unsigned i, char *reason)
{
	if (!t->switch_guid || !t->node_guid || !t->port_guid || !~t->node_guid || !~t->port_guid)
		return refuse(reason, -EINVAL, "target %u: a GUID is 0 or all ones", i);
	if (t->switch_port < 1 || t->switch_port > 254)
		return refuse(reason, -EINVAL, "target %u: switch port %u; allowed is 1 to 254", i,
			      t->switch_port);
	if (t->lid && !ib_lid_is_unicast(t->lid))
		return refuse(reason, -EINVAL, "target %u: LID %u; allowed is 0 (keep) or %u to %u",
			      i, t->lid, IB_LID_UCAST_MIN, IB_LID_UCAST_MAX);
	if ((t->own_lid && !ib_lid_is_unicast(t->own_lid)) ||
	    (t->was_own_lid && !ib_lid_is_unicast(t->was_own_lid)))
		return refuse(reason, -EINVAL,
			      "target %u: own LID %u, before %u; allowed is %u to %u", i,
			      t->own_lid, t->was_own_lid, IB_LID_UCAST_MIN, IB_LID_UCAST_MAX);
	if (t->like_guid && !t->lid)
		return refuse(reason, -EINVAL, "target %u: a copy without a LID", i);
	if (t->like_guid == t->port_guid)
		return refuse(reason, -EINVAL, "target %u: a copy of itself", i);
	return 0;
}

static int check_pair(const struct sm_target *a, const struct sm_target *b, char *reason)
{
	if (a->switch_guid == b->switch_guid && a->switch_port == b->switch_port)
		return refuse(reason, -EINVAL, "port %u of switch 0x%016" PRIx64 " is named twice",
			      a->switch_port, a->switch_guid);
	if (a->port_guid == b->port_guid || a->node_guid == b->node_guid)
		return refuse(reason, -EINVAL, "GUID 0x%016" PRIx64 " is named twice",
			      a->port_guid == b->port_guid ? a->port_guid : a->node_guid);
	if (a->lid && a->lid == b->lid)
		return refuse(reason, -EINVAL, "LID %u is named twice", a->lid);
	return 0;
}

static int check_targets(const struct sm_target *t, unsigned count, char *reason)
{
	int rc;

	for (unsigned i = 0; i < count; i++) {
		if ((rc = check_target(&t[i], i, reason)))
			return rc;
		for (unsigned k = 0; k < i; k++)
			if ((rc = check_pair(&t[k], &t[i], reason)))
				return rc;
	}
	return 0;
}

static int check_intent(const struct sm_intent_request *r, size_t bytes, char *reason)
{
	const size_t fixed = offsetof(struct sm_intent_request, target);

	if (bytes < fixed)
		return refuse(reason, -EPROTO, "intent of %zu bytes; it has at least %zu", bytes,
			      fixed);
	if (r->count > SM_ASSIGN_MAX)
		return refuse(reason, -EINVAL, "%u targets; allowed is 0 to %u", r->count,
			      SM_ASSIGN_MAX);
	if (bytes != fixed + r->count * sizeof r->target[0])
		return refuse(reason, -EPROTO, "intent of %u targets has %zu bytes, not %zu",
			      r->count, fixed + r->count * sizeof r->target[0], bytes);
	return check_targets(r->target, r->count, reason);
}

static int check_assign(const struct sm_assign_request *r, size_t bytes, char *reason)
{
	const size_t fixed = offsetof(struct sm_assign_request, target);

	if (bytes < fixed)
		return refuse(reason, -EPROTO, "assign of %zu bytes; it has at least %zu", bytes,
			      fixed);
	if (r->count < 1 || r->count > SM_ASSIGN_MAX)
		return refuse(reason, -EINVAL, "%u targets; allowed is 1 to %u", r->count,
			      SM_ASSIGN_MAX);
	if (bytes != fixed + r->count * sizeof r->target[0])
		return refuse(reason, -EPROTO, "assign of %u targets has %zu bytes, not %zu",
			      r->count, fixed + r->count * sizeof r->target[0], bytes);
	if (r->flags & ~(uint32_t)SM_ASSIGN_FLAGS)
		return refuse(reason, -EINVAL, "flags 0x%x are unknown", r->flags);
	if (r->deadline_ms < 1 || r->deadline_ms > SM_DEADLINE_MAX_MS)
		return refuse(reason, -EINVAL, "deadline %u ms; allowed is 1 to %u", r->deadline_ms,
			      SM_DEADLINE_MAX_MS);
	return check_targets(r->target, r->count, reason);
}

static int check_owner(const struct sm_owner_request *r, char *reason)
{
	if (!r->owner.registry || !r->owner.grant || !memchr(r->owner.name, 0, SM_OWNER_NAME_MAX))
		return refuse(reason, -EINVAL, "a claim without a registry, a grant or a name");
	if (r->flags & ~(uint32_t)SM_OWNER_TAKE)
		return refuse(reason, -EINVAL, "flags 0x%x are unknown", r->flags);
	return 0;
}

static int check_slot(const struct sm_slot *s, unsigned i, char *reason)
{
	if (!s->port_guid || !~s->port_guid || !~s->guid || s->guid == s->port_guid)
		return refuse(reason, -EINVAL,
			      "entry %u: the port's GUID is 0, all ones or what it shall show", i);
	if (!s->index)
		return refuse(reason, -EINVAL, "entry %u: index 0; allowed is 1 to 255", i);
	return 0;
}

static int check_guids(const struct sm_guids_request *r, size_t bytes, char *reason)
{
	const size_t fixed = offsetof(struct sm_guids_request, slot);
	int rc = 0;

	if (bytes < fixed)
		return refuse(reason, -EPROTO, "guids of %zu bytes; it has at least %zu", bytes,
			      fixed);
	if (r->count < 1 || r->count > SM_ASSIGN_MAX)
		return refuse(reason, -EINVAL, "%u entries; allowed is 1 to %u", r->count,
			      SM_ASSIGN_MAX);
	if (bytes != fixed + r->count * sizeof r->slot[0])
		return refuse(reason, -EPROTO, "guids of %u entries has %zu bytes, not %zu",
			      r->count, fixed + r->count * sizeof r->slot[0], bytes);
	if (r->deadline_ms < 1 || r->deadline_ms > SM_DEADLINE_MAX_MS)
		return refuse(reason, -EINVAL, "deadline %u ms; allowed is 1 to %u", r->deadline_ms,
			      SM_DEADLINE_MAX_MS);
	for (unsigned i = 0; !rc && i < r->count; i++) {
		const struct sm_slot *s = &r->slot[i];

		rc = check_slot(s, i, reason);
		for (unsigned k = 0; !rc && k < i; k++) {
			const struct sm_slot *o = &r->slot[k];

			if (o->port_guid == s->port_guid && o->index == s->index)
				rc = refuse(reason, -EINVAL,
					    "entry %u of port 0x%016" PRIx64 " is named twice",
					    s->index, s->port_guid);
			else if (s->guid && o->guid == s->guid)
				rc = refuse(reason, -EINVAL, "GUID 0x%016" PRIx64 " is named twice",
					    s->guid);
		}
	}
	return rc;
}

static int check_records(const struct sm_records_request *r, size_t bytes, char *reason)
{
	const size_t fixed = offsetof(struct sm_records_request, key);

	if (bytes < fixed)
		return refuse(reason, -EPROTO,
			      "a request for records of %zu bytes; it has at least %zu", bytes,
			      fixed);
	if (r->count < 1 || r->count > SM_RECORDS_MAX)
		return refuse(reason, -EINVAL, "%u records; allowed is 1 to %u", r->count,
			      SM_RECORDS_MAX);
	if (bytes != fixed + r->count * sizeof r->key[0])
		return refuse(reason, -EPROTO, "a request for %u records has %zu bytes, not %zu",
			      r->count, fixed + r->count * sizeof r->key[0], bytes);
	return 0;
}

static int check_memberships(const struct sm_memberships_request *r, size_t bytes, char *reason)
{
	const size_t fixed = offsetof(struct sm_memberships_request, guid);

	if (bytes < fixed)
		return refuse(reason, -EPROTO,
			      "a request for memberships of %zu bytes; it has at least %zu", bytes,
			      fixed);
	if (r->count < 1 || r->count > SM_RECORDS_MAX)
		return refuse(reason, -EINVAL, "%u GUIDs; allowed is 1 to %u", r->count,
			      SM_RECORDS_MAX);
	if (bytes != fixed + r->count * sizeof r->guid[0])
		return refuse(reason, -EPROTO, "a request for %u GUIDs has %zu bytes, not %zu",
			      r->count, fixed + r->count * sizeof r->guid[0], bytes);
	return 0;
}

static int check_member(const struct sm_members_request *r, unsigned i, char *reason)
{
	const struct sm_member *m = &r->member[i];

	if (!m->guid || !~m->guid)
		return refuse(reason, -EINVAL, "member %u: the GUID is 0 or all ones", i);
	if (m->as > SM_MEMBER_FULL)
		return refuse(
			reason, -EINVAL,
			"member %u: membership %u; allowed is 0 (none), 1 (limited), 2 (full)", i,
			m->as);
	for (unsigned k = 0; k < i; k++)
		if (r->member[k].guid == m->guid)
			return refuse(reason, -EINVAL, "GUID 0x%016" PRIx64 " is named twice",
				      m->guid);
	return 0;
}

static int check_members(const struct sm_members_request *r, size_t bytes, char *reason)
{
	const size_t fixed = offsetof(struct sm_members_request, member);
	int rc = 0;

	if (bytes < fixed)
		return refuse(reason, -EPROTO, "members of %zu bytes; they have at least %zu",
			      bytes, fixed);
	if (r->count < 1 || r->count > SM_ASSIGN_MAX)
		return refuse(reason, -EINVAL, "%u members; allowed is 1 to %u", r->count,
			      SM_ASSIGN_MAX);
	if (bytes != fixed + r->count * sizeof r->member[0])
		return refuse(reason, -EPROTO, "a list of %u members has %zu bytes, not %zu",
			      r->count, fixed + r->count * sizeof r->member[0], bytes);
	if (r->flags & ~(unsigned)SM_MEMBERS_STORE)
		return refuse(reason, -EINVAL, "flags 0x%x are unknown", r->flags);
	if (!(r->pkey & 0x7fff))
		return refuse(reason, -EINVAL, "P_Key 0x%04x; allowed is 1 to 0x7fff", r->pkey);
	if (r->deadline_ms < 1 || r->deadline_ms > SM_DEADLINE_MAX_MS)
		return refuse(reason, -EINVAL, "deadline %u ms; allowed is 1 to %u", r->deadline_ms,
			      SM_DEADLINE_MAX_MS);
	for (unsigned i = 0; !rc && i < r->count; i++)
		rc = check_member(r, i, reason);
	return rc;
}

int proto_check_request(const void *packet, size_t bytes, char reason[static SM_REASON_MAX])
{
	static const size_t size[SM_OP_COUNT] = {
		[SM_OP_STATUS] = sizeof(struct sm_status_request),
		[SM_OP_ENDPORTS] = sizeof(struct sm_page_request),
		[SM_OP_LINKS] = sizeof(struct sm_page_request),
		[SM_OP_LFT] = sizeof(struct sm_lft_request),
		[SM_OP_WATCH] = sizeof(struct sm_watch_request),
		[SM_OP_SWEEP] = sizeof(struct sm_sweep_request),
		[SM_OP_PARKED] = sizeof(struct sm_parked_request),
		[SM_OP_PARTITIONS] = sizeof(struct sm_page_request),
		[SM_OP_REROUTE] = sizeof(struct sm_reroute_request),
		[SM_OP_OWNER] = sizeof(struct sm_owner_request),
		[SM_OP_HOMES] = sizeof(struct sm_page_request),
	};
	const struct sm_head *h = packet;

	if (bytes < sizeof *h)
		return refuse(reason, -EPROTO, "a packet of %zu bytes; a head has %zu", bytes,
			      sizeof *h);
	if (h->magic != SM_PROTO_MAGIC || h->version != SM_PROTO_VERSION)
		return refuse(reason, -EPROTO,
			      "protocol version %u; this plugin speaks %u: install ibvmig-sm and "
			      "libibvmigsm.so of one release",
			      h->magic == SM_PROTO_MAGIC ? h->version : 0, SM_PROTO_VERSION);
	if (h->bytes != bytes)
		return refuse(reason, -EPROTO, "the head says %u bytes, %zu came", h->bytes, bytes);
	if (h->op == SM_OP_ASSIGN)
		return check_assign(packet, bytes, reason);
	if (h->op == SM_OP_INTENT)
		return check_intent(packet, bytes, reason);
	if (h->op == SM_OP_GUIDS)
		return check_guids(packet, bytes, reason);
	if (h->op == SM_OP_RECORDS)
		return check_records(packet, bytes, reason);
	if (h->op == SM_OP_MEMBERSHIPS)
		return check_memberships(packet, bytes, reason);
	if (h->op == SM_OP_MEMBERS)
		return check_members(packet, bytes, reason);
	if (h->op >= SM_OP_COUNT || !size[h->op])
		return refuse(reason, -EPROTO, "operation %u is unknown", h->op);
	if (bytes != size[h->op])
		return refuse(reason, -EPROTO, "operation %u has %zu bytes, not %zu", h->op,
			      size[h->op], bytes);
	return h->op == SM_OP_OWNER ? check_owner(packet, reason) : 0;
}
