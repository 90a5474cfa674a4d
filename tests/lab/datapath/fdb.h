/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Static forwarding entries of one host's data bridge. */
#ifndef IBVMIG_LAB_FDB_H
#define IBVMIG_LAB_FDB_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#define FDB_MAX   256
#define FDB_PORTS 64

struct fdb_port {
	char name[IF_NAMESIZE];
	int ifindex;
};

struct fdb_entry {
	uint64_t vguid;
	uint8_t mac[6];
	int ifindex; /* port where the bridge has it now; 0: nowhere */
	bool seen;   /* in the present round */
};

struct fdb {
	const char *host; /* borrowed */
	int events;       /* netlink: links of the host's namespace come and go */
	int calls;
	struct fdb_port ports[FDB_PORTS];
	int port_count;
	struct fdb_entry entries[FDB_MAX];
	int count;
};

/* Opens netlink in the namespace /run/netns/HOST; the caller's own stays. 0 or -errno. */
int fdb_open(struct fdb *b, const char *host);

/* Reads events that wait. True where the ports of the bridge are others than before. */
bool fdb_links_changed(struct fdb *b);

/* A round: begin, then the port (NULL or unknown: none) for each vGUID, then end, which drops the
 * entries of vGUIDs that were not named. fdb_set() is true where the entry was changed. */
void fdb_begin(struct fdb *b);
bool fdb_set(struct fdb *b, uint64_t vguid, const char *port);
void fdb_end(struct fdb *b);

#endif
