/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Leases of migrations. While a VM migrates and still has its VF, ibvmigd says again and again that
 * it is there; when it has not for LEASE_MS, ibvmig-lease cancels libvirt's job. A lease is a file
 * named by the VM's UUID with the deadline on CLOCK_MONOTONIC, in a folder that a reboot empties.
 * Both sides may be killed and started at any time. */
#ifndef IBVMIG_DAEMON_STORE_LEASE_H
#define IBVMIG_DAEMON_STORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#define LEASE_DIR      "/run/ibvmig/leases"
#define LEASE_MS       4000 /* held pre-copy lasts longer: 8 MiB at 1.3 MiB/s */
#define LEASE_RENEW_MS 1000
#define LEASE_RETRY_MS 500

struct daemon;
struct lease_keeper;

/* lease.c: the files. 0 or -errno. */
int lease_put(const char *dir, const char *uuid, uint64_t deadline_us);
void lease_drop(const char *dir, const char *uuid);

/* Makes dir if need be and takes it for this process: the lock, or -errno (-EWOULDBLOCK: another
 * ibvmig-lease has it). */
int lease_claim(const char *dir);
/* True while an ibvmig-lease runs on it. */
bool lease_is_claimed(const char *dir);

/* migrate/lease_keep.c: ibvmigd's side. */
int lease_keeper_new(struct daemon *d, struct lease_keeper **ret_keeper);
void lease_keeper_free(struct lease_keeper *k);
/* Makes the files what the migrations' states ask for. After each change of a state. */
void lease_sync(struct daemon *d);

/* lease.c: the holder's side. */
struct lease_holder {
	const char *dir;
	/* Ends libvirt's migration of the VM, if the lease has run out still when all that takes
	 * its time is done. 0: there is none (any more); -errno: look again. */
	int (*cut)(void *arg, const char *uuid);
	void *arg;
};

/* Looks at all leases, and cuts those that have run out. Returns after how many ms to look again;
 * -1: there is none. A deadline that is further away than any that ibvmigd writes has run out. */
int lease_look(const struct lease_holder *h, uint64_t now_us);
/* As the file says now; not, where there is none. */
bool lease_has_run_out(const char *dir, const char *uuid, uint64_t now_us);

#endif
