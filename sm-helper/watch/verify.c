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

int verify_begin(struct verify *v, struct probe *m, unsigned sources,
		 char error[static PROBE_ERROR_MAX])
{
	unsigned silent;
	int rc;

	*v = (struct verify){.m = m, .sources = sources};
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

static int check_sa(struct verify *v, const struct reg_entry *e, char *text)
{
	const struct ib_gid own = {IB_GID_PREFIX_LL, v->own_guid},
			    gid = {IB_GID_PREFIX_LL, e->vguid};
	char why[PROBE_ERROR_MAX];
	struct probe_path path;

	if (probe_path(v->m, 0, &own, &gid, 0, &path, why))
		return wrong(text, "%s", why);
	return path.dlid == e->lid
		       ? 0
		       : wrong(text, "the SA's record says LID %u, not %u", path.dlid, e->lid);
}

int verify_entry(struct verify *v, const struct reg_entry *e, unsigned *ret_walks,
		 char ret_text[static VERIFY_TEXT_MAX])
{
	struct lft_reader lfts = {v->m, v->own_guid};
	char why[PROBE_ERROR_MAX];
	bool shared = e->mode == ADDRESS_SHARED_PORT;
	uint64_t shown, guid = shared ? e->at.switch_guid : e->vguid;
	uint32_t end = FABRIC_NONE;
	unsigned walks;
	int rc;

	*ret_walks = 0;
	rc = shared ? check_shared(v, e, &end, ret_text) : check_place(v, e, &end, ret_text);
	if (rc || (rc = check_sa(v, e, ret_text)))
		return rc;
	for (unsigned i = 0; i < 1u << v->f.end[end].lmc; i++, *ret_walks += walks)
		if (walk_verify(&v->f, (uint16_t)(e->lid + i), end, v->sources, lft_fetch, &lfts,
				&walks, why, sizeof why))
			return wrong(ret_text, "%s", why);
	if (probe_node_info_lid(v->m, e->lid, &shown, why))
		return wrong(ret_text, "%s", why);
	return shown == guid ? 0
			     : wrong(ret_text, "LID %u answers as 0x%016" PRIx64, e->lid, shown);
}
