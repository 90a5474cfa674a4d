/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Open migrations after a restart of ibvmigd. */
#ifndef IBVMIG_DAEMON_MIGRATE_RECOVER_H
#define IBVMIG_DAEMON_MIGRATE_RECOVER_H

#include <stdbool.h>

struct daemon;
struct migration;

/* A record of an older life of this host still has to learn these. */
struct recovery {
	bool unprobed; /* no step runs until libvirt has told where the VM is */
	bool probing;  /* libvirt is being asked */
	bool rebooted; /* the kernel is another one: the QEMU of then is gone, whatever runs here
			* now, and what its VFs showed */
	unsigned
		probes; /* questions that found neither the VM here nor a destination that has it */
};

/* The journal's open records come into memory; migrate_recover() goes on with them. */
void recover_load(struct daemon *d);
/* Asks libvirt (again) where the VM of an open migration is, and goes on from there. */
void recover_probe(struct migration *m);

#endif
