/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Partitions of who sends a message and of who gets it: those that share none, by which packets
 * could pass between their ports, do not hear of each other either. */
#ifndef IBVMIG_DAEMON_VM_RELAY_PKEYS_H
#define IBVMIG_DAEMON_VM_RELAY_PKEYS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

struct vm;

/* The P_Keys of a VM's port: its own, then those that ibvmig-sm has told. The caller's.
 * NULL: none is known. */
struct json_object *relay_pkeys(const struct vm *vm, uint64_t guid);
/* True if the VM's port and one with these P_Keys can reach each other, or one of both is not known
 * (NULL: of a host of an older version, too). */
bool relay_pkeys_meet(const struct vm *vm, uint64_t guid, struct json_object *pkeys);

#endif
