/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The configuration of ibvmigd, read once; constant afterwards, so any thread may read it. */
#ifndef IBVMIG_DAEMON_BASE_SETTINGS_H
#define IBVMIG_DAEMON_BASE_SETTINGS_H

#include "common/settings.h"
#include "common/tls/conf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SETTINGS_PEERS_MAX 256

struct conf;

/* The keys of ibvmigd.conf; ibvmig-lease reads the same file. */
extern const struct setting ibvmigd_settings[];

struct settings_peer {
	char *name; /* owned */
	char *url;  /* owned */
};

struct settings_group {
	bool given;
	gid_t gid;
};

struct settings {
	struct conf *conf; /* owned; holds the strings below, and what the provider mlx5 reads */
	char *url;         /* owned; where other hosts reach this daemon */
	struct tls_conf tls;
	const char *host_name;
	const char *listen; /* ADDR:PORT, or NULL */
	const char *socket;
	const char *state_dir;
	const char *lease_dir;     /* daemon/store/lease.h */
	const char *sm_url;        /* NULL: no ibvmig-sm (tests only) */
	const char *provider_exec; /* the program; NULL with the provider mlx5 */
	const char *libvirt_uri;
	const char *migrate_uri; /* URI of another host's libvirt, with %s for the host's name */
	struct settings_peer *peers; /* owned */
	size_t peer_count;
	uint64_t hold_bytes;    /* pre-copy is held while this much remains */
	uint64_t ballast_bytes; /* memory that the agent keeps dirty during HOLD */
	bool require_agent;
	const char *pre_attach;   /* borrowed from conf: the property that lets a device leave, for
				   * VFs that QEMU starts with at a destination; NULL: device_add */
	unsigned keep_migrations; /* records of ended migrations in the journal, at most */
	unsigned saved_peers_s;   /* the peers of a saved VM wait for it so long */
	struct settings_group admin_group, read_group; /* members may use the socket, as root may */
	unsigned requests_per_s;                       /* from one client; 0: not limited */
};

/* 0, or a negative errno; *ret_error (owned by the caller) then says what to change. */
int settings_load(const char *path, struct settings **ret_settings, char **ret_error);
void settings_free(struct settings *s);

/* The URL of a configured host, or NULL. */
const char *settings_peer_url(const struct settings *s, const char *host_name);
/* The same; this host's own URL for its own name. */
const char *settings_host_url(const struct settings *s, const char *host_name);

#endif
