/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A domain's XML tells this: its <ibvmig:vf> metadata, its guest channel, its root ports. */
#ifndef IBVMIG_DAEMON_LIBVIRT_DOMAIN_H
#define IBVMIG_DAEMON_LIBVIRT_DOMAIN_H

#include "daemon/base/limits.h"
#include "daemon/base/strategy.h"
#include "daemon/vf/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOMAIN_XML_MAX (4u << 20)
#define DOMAIN_CHANNEL "org.ibvmig.0"
#define DOMAIN_XMLNS   "urn:ibvmig:1"

struct domain_info {
	char uuid[37];
	char *name;    /* owned */
	bool wants_vf; /* there is an <ibvmig:vf> */
	/* Valid if there is no problem: by index, no index and no vGUID twice. */
	struct vf_want vfs[DOMAIN_VFS_MAX];
	unsigned vf_count;
	enum domain_strategy strategy; /* the VFs have one strategy together */
	char *problem;       /* owned; which value is wrong and what is allowed, or NULL */
	char *channel_path;  /* owned; the host's socket of the guest channel, or NULL */
	char *channel_alias; /* owned; its id in QEMU, or NULL */
	char root_ports[DOMAIN_VFS_MAX][16]; /* QEMU's ids of free pcie-root-ports */
	unsigned root_port_count;
};

/* 0; -EBADMSG if xml is not a domain (nothing is returned then). */
int domain_parse(const char *xml, size_t bytes, struct domain_info **ret_info);
void domain_free(struct domain_info *info);
/* QEMU's id of the VF's device. */
void domain_dev_id(const struct vf_want *vf, char ret_id[static QMP_DEV_ID]);

#endif
