/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's partition policy (opensm(8), partitions.conf) for any GUID: OpenSM itself drops each
 * GUID that no port shows when it reads the file. Pure, no OpenSM in it. The file is read as
 * osm_prtn_config.c of OpenSM 3.3.23 reads it, prefixes of words included. Where OpenSM gives a
 * file up, all ports are full members of 0x7fff, and of nothing else. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_POLICY_H
#define IBVMIG_SM_HELPER_PLUGIN_POLICY_H

#include "sm-helper/proto/plugin.h"

#include <stdbool.h>
#include <stddef.h>

#define POLICY_DEFAULT   0x7fff /* P_Key of the default partition */
#define POLICY_FULL      0x8000
#define POLICY_RULES_MAX 1000000

/* The last rule that fits a port counts, for each partition. */
struct policy_rule {
	uint64_t guid; /* SM_WHO_GUID only */
	uint16_t pkey; /* without the bit of full members */
	uint8_t who;   /* enum sm_who */
	uint8_t as;    /* enum sm_member_as, never NONE */
	bool indx0;    /* the P_Key goes to index 0 */
	bool ours;     /* added by policy_add() */
};

/* A partition, as its last definition has it. */
struct policy_partition {
	uint16_t pkey;
	uint8_t sl;
	bool indx0;
	bool groups; /* OpenSM makes multicast groups for it, ipoib's or others */
	char name[SM_PARTITION_NAME_MAX]; /* "" without one */
};

struct policy {
	struct policy_rule *rule; /* owned */
	size_t rules, room;
	struct policy_partition *partition; /* owned */
	size_t partitions;
	bool both;         /* allow_both_pkeys: a port may be both in one partition */
	bool open_end;     /* the file's last definition has no ";" */
	unsigned bad_line; /* 0; else OpenSM gives the file up there */
};

struct policy_options {
	bool both, qos; /* OpenSM's allow_both_pkeys and qos */
	/* The number of a partition that the file gives only a name; 0: not known, its rules are
	 * left out. NULL: 1, 2, 3 and so on. */
	uint16_t (*pkey_of)(void *context, const char *name);
	void *context;
};

/* A port, for which the policy is asked. */
struct policy_port {
	uint64_t guid;
	uint8_t type; /* enum sm_node_type */
	bool self;    /* OpenSM's own */
};

/* P_Keys of a port, in the order in which OpenSM gives them out. */
struct policy_pkeys {
	uint16_t pkey[SM_PKEYS_MAX];
	unsigned count;  /* may be more than fit */
	uint16_t index0; /* the one that must be at index 0; 0: the default partition's */
};

/* text: the file, or NULL for none. 0 or -ENOMEM; *ret_policy: policy_free() it. */
int policy_parse(const char *text, size_t bytes, const struct policy_options *options,
		 struct policy *ret_policy);
void policy_free(struct policy *p);

/* Adds a member after all that the file says. 0, -ENOENT: there is no such partition; -ENOMEM. */
int policy_add(struct policy *p, uint16_t pkey, uint64_t guid, enum sm_member_as as);
/* The same where it is none of those added before, for lists of many: nothing is looked through. */
int policy_append(struct policy *p, uint16_t pkey, uint64_t guid, enum sm_member_as as);
/* Takes away what was added; true if there was such a rule. */
bool policy_drop(struct policy *p, uint16_t pkey, uint64_t guid);

/* NULL: there is none. */
const struct policy_partition *policy_find(const struct policy *p, uint16_t pkey);
/* What this port is in this partition. */
enum sm_member_as policy_member(const struct policy *p, uint16_t pkey,
				const struct policy_port *port);
/* Everything that the port is a member of, added to what is there already: the table of a port that
 * shows several GUIDs has the P_Keys of all. Of full and limited only full stays, without `both`.
 */
void policy_port_pkeys(const struct policy *p, const struct policy_port *port,
		       struct policy_pkeys *keys);

#endif
