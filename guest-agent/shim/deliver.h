/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The packets of other processes. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_DELIVER_H
#define IBVMIG_GUEST_AGENT_SHIM_DELIVER_H

#include "guest-agent/shim/core/part.h"

#pragma GCC visibility push(hidden)
/* Questions that were put off while a QP was between two devices. */
extern const struct shim_part deliver_part;

/* A packet, as the agent hands it over. */
void peer_delivered(const struct shim_relay *r);
/* No way leads to the guest with that GID. */
void peer_unreachable(const uint8_t dgid[16]);
#pragma GCC visibility pop

#endif
