/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the played libvirt (sim_libvirt.c) and the played QEMU (sim_virt.c). */
#ifndef IBVMIG_TESTS_FAKE_SIM_VIRT_H
#define IBVMIG_TESTS_FAKE_SIM_VIRT_H

#include "tests/fake/sim.h"

/* Events to the daemon of that host, if it is connected. */
void sim_lifecycle(int host, struct sim_guest *g, int event, int detail);
void sim_monitor(int host, struct sim_guest *g, const char *event, const char *details);
void sim_libvirt_conns_broke(int host);

unsigned sim_libvirtd_life(int host);
/* Owned by the caller. */
char *sim_domain_xml(struct sim_guest *g, const char *channel);
struct json_object *sim_qmp(struct sim_qemu *q, const char *execute, struct json_object *args);

#endif
