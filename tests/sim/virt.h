/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between libvirt's played library (libvirt.c), the libvirtd behind it (virt.c,
 * save.c), and the played QEMU (qemu.c). */
#ifndef IBVMIG_TESTS_FAKE_SIM_VIRT_H
#define IBVMIG_TESTS_FAKE_SIM_VIRT_H

#include "tests/sim/world.h"

/* Events to the daemon of that host, if it is connected. */
void sim_lifecycle(int host, struct sim_guest *g, int event, int detail);
void sim_monitor(int host, struct sim_guest *g, const char *event, const char *details);
void sim_libvirt_conns_broke(int host);

unsigned sim_libvirtd_life(int host);
/* A step of a libvirtd that is stopped comes later: true, and it will be called then. */
bool sim_libvirtd_waits(int host, void (*step)(void *arg), void *arg);
/* mark: an element of the metadata, or "". Owned by the caller. */
char *sim_domain_xml(struct sim_guest *g, const char *channel, const char *mark);
/* The QEMU of g on that host, or NULL. */
struct sim_qemu *sim_qemu_at(int host, struct sim_guest *g);
struct sim_qemu *sim_qemu_new(int host, struct sim_guest *g, enum sim_vcpu vcpu);
/* detail: of the event STOPPED. */
void sim_qemu_gone(struct sim_qemu *q, int detail);
void sim_set_job(struct sim_qemu *q, enum sim_job job);
/* The QEMU's migration is under way. */
bool sim_migrates(const struct sim_qemu *q);
/* The QEMU has the devices that the hook has put into this XML; false: it does not start with
 * them. */
bool sim_qemu_start_devices(struct sim_qemu *q, const char *xml);

/* virsh save of guest 0, with this XML; false: it is refused. */
bool sim_save(struct sim_qemu *q, const char *xml);
/* The image has the mark that the daemon has put into this XML's metadata. */
void sim_image_mark(const char *xml);
bool sim_save_abort(int host);
void sim_save_libvirtd_died(int host);

struct json_object *sim_qmp(struct sim_qemu *q, const char *execute, struct json_object *args);

#endif
