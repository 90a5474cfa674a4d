/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Static forwarding entries of one host's data bridge: the port of a MAC, and the ports of a group.
 */
#ifndef IBVMIG_LAB_FDB_H
#define IBVMIG_LAB_FDB_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#define FDB_MAX   1024
#define FDB_PORTS 64

struct fdb_port {
	char name[IF_NAMESIZE];
	int ifindex;
	int bridge; /* ifindex of the bridge that it is a port of */
};

/* A group has an entry for each of its ports. */
struct fdb_entry {
	uint8_t mac[6];
	char port[IF_NAMESIZE]; /* of a group; "" for a single MAC, which has one port at a time */
	int ifindex;            /* port where the bridge has it now; 0: nowhere */
	int bridge;             /* the same */
	bool seen;              /* in the present round */
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

/* The port of this name, or NULL. */
const struct fdb_port *fdb_port(const struct fdb *b, const char *name);

/* A round: begin, then the port of each MAC (NULL or unknown: none) and each port of a group, then
 * end, which drops the entries that were not named. */
void fdb_begin(struct fdb *b);
void fdb_set(struct fdb *b, const uint8_t mac[6], const char *port);
void fdb_join(struct fdb *b, const uint8_t group[6], const char *port);
void fdb_end(struct fdb *b);

#endif
