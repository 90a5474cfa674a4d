/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a domain's XML tells us: its <ibvmig:vf> metadata, its guest channel, its root ports. */
#ifndef IBVMIG_DAEMON_DOMAIN_H
#define IBVMIG_DAEMON_DOMAIN_H

#include "daemon/strategy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOMAIN_XML_MAX (4u << 20)
#define DOMAIN_CHANNEL "org.ibvmig.0"
#define DOMAIN_XMLNS   "urn:ibvmig:1"

struct domain_vf {
	char pf[64];
	uint64_t vguid;
	uint16_t pkey;
	unsigned index; /* 0 to 15; the device's id in QEMU is "ibvf" and this */
	char pci[16];   /* the VF's address on the host that reads this; "": any free one of pf */
	enum domain_strategy strategy;
};

struct domain_info {
	char uuid[37];
	char *name;          /* owned */
	bool wants_vf;       /* there is an <ibvmig:vf> */
	struct domain_vf vf; /* valid if wants_vf and no problem */
	char *problem;       /* owned; which value is wrong and what is allowed, or NULL */
	char *channel_path;  /* owned; the host's socket of the guest channel, or NULL */
	char *channel_alias; /* owned; its id in QEMU, or NULL */
	char root_port[16];  /* QEMU's id of a free pcie-root-port, or "" */
};

/* 0; -EBADMSG if xml is not a domain (nothing is returned then). */
int domain_parse(const char *xml, size_t bytes, struct domain_info **ret_info);
void domain_free(struct domain_info *info);

#endif
