/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/verify.h"
#include "common/util.h"
#include "sm-helper/discover.h"
#include "sm-helper/lft_reader.h"
#include "vswitch/walk.h"

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

/* Where the vGUID is, and with which LID. */
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
	uint32_t end = FABRIC_NONE;
	uint64_t shown;
	int rc;

	*ret_walks = 0;
	if ((rc = check_place(v, e, &end, ret_text)) || (rc = check_sa(v, e, ret_text)))
		return rc;
	if (walk_verify(&v->f, e->lid, end, v->sources, lft_fetch, &lfts, ret_walks, why,
			sizeof why))
		return wrong(ret_text, "%s", why);
	if (probe_node_info_lid(v->m, e->lid, &shown, why))
		return wrong(ret_text, "%s", why);
	return shown == e->vguid
		       ? 0
		       : wrong(ret_text, "LID %u answers as 0x%016" PRIx64, e->lid, shown);
}
