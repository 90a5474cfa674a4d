/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/watch/verify.h"
#include "common/util.h"
#include "sm-helper/fabric/discover.h"
#include "sm-helper/fabric/lft_reader.h"
#include "vswitch/moves/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

int verify_begin(struct verify *v, struct probe *m, struct reach *reach, unsigned sources,
		 char error[static PROBE_ERROR_MAX])
{
	unsigned silent;
	int rc;

	*v = (struct verify){.m = m, .reach = reach, .sources = sources};
	if ((rc = probe_own_guid(m, &v->own_guid, error)))
		return rc;
	return discover_fabric(m, &v->f, &silent, error);
}

void verify_end(struct verify *v)
{
	fabric_clear(&v->f);
}

static int wrong(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int wrong(char *text, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, VERIFY_TEXT_MAX, fmt, ap);
	va_end(ap);
	return -EHOSTUNREACH;
}

/* Checks where the vGUID is, and with which LID. */
static int check_place(struct verify *v, const struct reg_entry *e, uint32_t *ret_end, char *text)
{
	uint32_t end = fabric_find_end(&v->f, e->vguid);
	const struct fabric_end *x;

	if (end == FABRIC_NONE || v->f.end[end].sw == FABRIC_NONE)
		return wrong(text, "no port shows the vGUID");
	x = &v->f.end[end];
	if (v->f.sw[x->sw].guid != e->at.switch_guid || x->sw_port != e->at.switch_port)
		return wrong(text,
			     "%s shows the vGUID, at port %u of switch 0x%016" PRIx64
			     ", not at port %u of 0x%016" PRIx64,
			     x->desc, x->sw_port, v->f.sw[x->sw].guid, e->at.switch_port,
			     e->at.switch_guid);
	if (x->lid != e->lid)
		return wrong(text, "%s has LID %u, not %u", x->desc, x->lid, e->lid);
	*ret_end = end;
	return 0;
}

/* The same where it shares the LID of its host's port. */
static int check_shared(struct verify *v, const struct reg_entry *e, uint32_t *ret_end, char *text)
{
	uint32_t end = fabric_find_end(&v->f, e->at.switch_guid);
	char why[PROBE_ERROR_MAX];
	uint64_t shown;

	if (end == FABRIC_NONE)
		return wrong(text, "the port 0x%016" PRIx64 " that shows it is not in the fabric",
			     e->at.switch_guid);
	if (v->f.end[end].lid != e->lid)
		return wrong(text, "%s has LID %u, not %u", v->f.end[end].desc, v->f.end[end].lid,
			     e->lid);
	if (probe_guid(v->m, e->lid, e->at.switch_guid, e->at.switch_port, &shown, why))
		return wrong(text, "%s", why);
	if (shown != e->vguid)
		return wrong(text, "entry %u of %s shows 0x%016" PRIx64, e->at.switch_port,
			     v->f.end[end].desc, shown);
	*ret_end = end;
	return 0;
}

/* By the P_Key tables of both ports the SA has a path for us. Also where they cannot be read: then
 * its answer stands. */
static bool should_see(struct verify *v, uint32_t end)
{
	const struct probe_route own = {0};
	struct pkeys ours, theirs;
	char ignored[PROBE_ERROR_MAX];
	struct probe_route route = {0};

	return reach_route(v->m, &v->f, end, &route, ignored) ||
	       probe_pkeys(v->m, &own, &ours, ignored) ||
	       probe_pkeys(v->m, &route, &theirs, ignored) || pkeys_meet(&ours, &theirs);
}

static int check_sa(struct verify *v, const struct reg_entry *e, uint32_t end,
		    struct verify_result *r)
{
	const struct ib_gid own = {IB_GID_PREFIX_LL, v->own_guid},
			    gid = {IB_GID_PREFIX_LL, e->vguid};
	char why[PROBE_ERROR_MAX];
	struct probe_path path;
	int rc = probe_path(v->m, 0, &own, &gid, 0, &path, why);

	r->sa = !rc;
	if (rc == -ENOENT && !should_see(v, end))
		return 0;
	if (rc)
		return wrong(r->text, "%s", why);
	return path.dlid == e->lid
		       ? 0
		       : wrong(r->text, "the SA's record says LID %u, not %u", path.dlid, e->lid);
}

static int check_walks(struct verify *v, const struct reg_entry *e, uint32_t end,
		       struct verify_result *r)
{
	struct lft_reader lfts = {v->m, v->own_guid};
	char why[PROBE_ERROR_MAX];
	unsigned walks;

	for (unsigned i = 0; i < 1u << v->f.end[end].lmc; i++, r->walks += walks)
		if (walk_verify(&v->f, (uint16_t)(e->lid + i), end, v->sources, lft_fetch, &lfts,
				&walks, why, sizeof why))
			return wrong(r->text, "%s", why);
	return 0;
}

int verify_entry(struct verify *v, const struct reg_entry *e, struct verify_result *ret_result)
{
	char why[PROBE_ERROR_MAX];
	bool shared = e->mode == ADDRESS_SHARED_PORT;
	uint64_t guid = shared ? e->at.switch_guid : e->vguid;
	uint32_t end = FABRIC_NONE;
	int rc;

	*ret_result = (struct verify_result){0};
	rc = shared ? check_shared(v, e, &end, ret_result->text)
		    : check_place(v, e, &end, ret_result->text);
	if (rc || (rc = check_sa(v, e, end, ret_result)) ||
	    (rc = check_walks(v, e, end, ret_result)))
		return rc;
	if (reach_lid(v->reach, v->m, &v->f, end, e->lid, guid, &ret_result->by, why))
		return wrong(ret_result->text, "%s", why);
	return 0;
}
