/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mark that a saved VM's image carries in its metadata: which record keeps its VF and address,
 * and at which host. */
#ifndef IBVMIG_DAEMON_LIBVIRT_DOMAIN_SAVED_H
#define IBVMIG_DAEMON_LIBVIRT_DOMAIN_SAVED_H

#include <stdbool.h>

/* The mark has a namespace of its own: libvirt keeps one element of each namespace, and ours is
 * <ibvmig:vf>. */
#define DOMAIN_SAVED_XMLNS "urn:ibvmig:saved:1"

struct domain_saved {
	char id[37], host[64], url[256];
};

/* false: xml is no domain, or has no mark. */
bool domain_saved_parse(const char *xml, struct domain_saved *ret_saved);
/* xml with this mark in place of an earlier one; owned by the caller. NULL: it is no domain. */
char *domain_saved_mark(const char *xml, const struct domain_saved *saved);

#endif
