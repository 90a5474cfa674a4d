/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Strategy cold: a VM is saved to a file, and restored on this host or another with its addresses
 * (docs/migration.md, "Save and restore"). cold.c: the host that saves; migrate/dst_restore.c: the
 * one that restores. */
#ifndef IBVMIG_DAEMON_MIGRATE_SRC_SAVED_H
#define IBVMIG_DAEMON_MIGRATE_SRC_SAVED_H

#include "daemon/migrate/step.h"

/* Saves, and restores, under way at a time; each keeps a worker until its file is through. */
#define COLD_JOBS_MAX 8

struct domain_info;

/* Routes. POST /v1/vms/NAME/save {"file"} → the record, once the VM is saved, or 202 with it if the
 * same was asked for and is under way. POST /v1/restore
 * {"file"[,"source_lost"]} → {"vm","migration"}, once libvirt has started it, or 202 {"file"}. */
void cold_post_save(struct http_request *req);
void cold_post_restore(struct http_request *req);

/* ---- the host that saves; src_saved() is in migrate/step.h ---- */

/* Answers /v1/peer/prepare. true: it is about a VM that was saved here, and has been answered. */
bool cold_answer_prepare(struct http_request *req, struct record *asked);
/* The destination has not restored the VM after all. */
void cold_not_restored(struct migration *m);
/* libvirt's and QEMU's word on a VM that is being saved. true: nothing else is to be done. */
bool cold_vm_changed(struct migration *m, enum virt_change c);
/* A restart of ours found it in SAVED. */
void cold_recover(struct migration *m);
/* The operator gives the saved VM's connections and address up. false: it is not in that state. */
bool cold_give_up(struct migration *m);
/* A saved VM's address is kept here. */
bool cold_keeps(const struct daemon *d, uint64_t vguid);
/* The record has ended without the VM: its VF and address are given back. */
void cold_release(struct migration *m);

/* ---- the host that restores ---- */

/* libvirt's hook "restore begin": answers it. */
void cold_hook(struct http_request *req, const struct domain_info *info, const char *xml);
/* A VM that was started here is known now: one that was saved goes on with its connections. */
void cold_vm_started(struct vm *vm);
/* The VM has got its VF, and no record of a save awaits it: its programs go on without
 * connections. */
void cold_resume_alone(struct vm *vm);
/* PREPARE at the destination is over its time: libvirt may not have restored the VM. */
int cold_look_for_vm(struct migration *m);

#endif
