/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VM's agent may ask us for this, and each claim is checked. */
#ifndef IBVMIG_DAEMON_VM_CHANNEL_H
#define IBVMIG_DAEMON_VM_CHANNEL_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

struct vm;

/* Connects to the guest channel at path. incoming: the guest does not run yet. */
int vm_channel_open(struct vm *vm, const char *path, bool incoming);
/* Tells the guest that a relay could not be delivered. */
void vm_channel_relay_failed(struct vm *vm, const char *to, const char *error);

#endif
