/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libvirt's event loop API on sd-event. libvirt calls it from any thread that makes a call, while
 * sd-event is for one thread: so descriptors and timers live in an epoll set of their own (the
 * kernel does the locking) and sd-event watches that one set. */
#ifndef IBVMIG_DAEMON_EVENTS_LIBVIRT_H
#define IBVMIG_DAEMON_EVENTS_LIBVIRT_H

#include <systemd/sd-event.h>

/* Once per process, before the first libvirt call. Callbacks run in the loop's thread. 0/-errno. */
int events_libvirt_register(sd_event *loop);

#endif
