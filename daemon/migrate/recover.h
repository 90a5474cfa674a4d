/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Open migrations after a restart of ibvmigd. */
#ifndef IBVMIG_DAEMON_MIGRATE_RECOVER_H
#define IBVMIG_DAEMON_MIGRATE_RECOVER_H

struct daemon;
struct migration;

/* The journal's open records come into memory; migrate_recover() goes on with them. */
void recover_load(struct daemon *d);
/* Asks libvirt (again) where the VM of an open migration is, and goes on from there. */
void recover_probe(struct migration *m);

#endif
