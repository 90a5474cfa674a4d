/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Code that calls verbs by name as a program does, and is none: librdmacm and this library. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_CALLERS_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)
/* Notes librdmacm, by the address of a function of it, and this library: a tail call from there
 * seems to come from here. Once, before callers_has(). */
void callers_note(uintptr_t in_librdmacm);
/* True if a call comes from either. */
bool callers_has(const void *return_address);
/* True if librdmacm opens a device: then it gets the same context again, after a migration too.
 * false before callers_note(). */
bool cm_opens_device(const void *return_address);
#pragma GCC visibility pop

#endif
