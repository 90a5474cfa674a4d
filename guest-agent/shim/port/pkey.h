/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The P_Key tables of a device's ports as its program knows them. Another device may have the same
 * P_Keys at other indices: the program's indices stay, and stand for the values that it has seen
 * there. Values are in host order, with the membership bit. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_PORT_PKEY_H
#define IBVMIG_GUEST_AGENT_SHIM_PORT_PKEY_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* The device has been opened: no index of it is known yet. */
void pkeys_opened(struct shim_context *c);
/* The device's index for the program's, or -EADDRNOTAVAIL: its table has no such P_Key. */
int pkey_index(struct shim_context *c, uint8_t port, int index);
/* The program's index for the device's. */
int pkey_index_of_device(struct shim_context *c, uint8_t port, int index);
/* The P_Key at the program's index; 0: unknown. */
uint16_t pkey_value(struct shim_context *c, uint8_t port, int index);
/* The table is read again where it still is the program's own: it may have been changed since. */
void pkeys_refresh(struct shim_context *c);
/* True if the device has the P_Key at the program's index as a limited member only. */
bool pkey_is_limited_now(struct shim_context *c, uint8_t port, int index);
/* True if q is in a state in which it has a partition. */
bool pkey_matters(const struct shim_qp *q);
/* Under ctl: the answers to ibv_query_pkey() and ibv_get_pkey_index(), which say what they return.
 */
int pkey_query(struct shim_context *c, uint8_t port, int index, __be16 *ret_pkey);
int pkey_find(struct shim_context *c, uint8_t port, __be16 pkey);
void pkeys_forget_all(void); /* in a child: the lock is the parent's */
#pragma GCC visibility pop

#endif
