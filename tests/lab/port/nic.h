/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The tap of a lab VF, from the host's side: frames that its guest sends to the port's agent. */
#ifndef IBVMIG_LAB_PORT_NIC_H
#define IBVMIG_LAB_PORT_NIC_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nic {
	char name[IF_NAMESIZE];
	int events;  /* readable where links of the namespace come and go */
	int packets; /* readable where a frame waits; -1 while there is no such link */
	int ifindex; /* 0: there is none */
};

/* Watches the link with this name in the caller's network namespace. 0 or -errno. */
int nic_open(struct nic *nic, const char *name);

/* Looks whether the link is there, after an event or at the start. True where it has come, gone, or
 * is another one with the same name. */
bool nic_changed(struct nic *nic);

/* A frame for the agent: of control, or for QP1. Its length, 0 when none waits, or -errno. */
int nic_receive(struct nic *nic, uint8_t *frame, size_t size);

/* 0 or -errno. */
int nic_send(struct nic *nic, const uint8_t *frame, size_t bytes);

#endif
