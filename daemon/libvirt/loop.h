/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libvirt's event loop API on sd-event. libvirt calls it from any thread that makes a call, while
 * sd-event is for one thread. Descriptors and timers therefore live in an epoll set of their own,
 * which the kernel locks, and sd-event watches that one set. */
#ifndef IBVMIG_DAEMON_LIBVIRT_LOOP_H
#define IBVMIG_DAEMON_LIBVIRT_LOOP_H

#include <systemd/sd-event.h>

/* Once per process, before the first libvirt call. Callbacks run in the loop's thread. 0/-errno. */
int events_libvirt_register(sd_event *loop);

/* From the loop's thread, at each beat of the daemon: runs those timers of libvirt's that are of a
 * second or more, once they are due. Only its keepalive has such. */
void events_libvirt_beat(void);

#endif
