/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The wiring of ibvmigd: its parts are put together here, and taken apart. */
#ifndef IBVMIG_DAEMON_START_H
#define IBVMIG_DAEMON_START_H

struct daemon;

/* Tells malloc how ibvmigd uses its heap. Before the first thread starts. */
void daemon_set_heap(void);
/* Reads the configuration into d, which is zeroed. 0, or -errno; *ret_error (owned by the caller)
 * then says what to change. */
int daemon_configure(struct daemon *d, const char *path, char **ret_error);
/* d: zeroed but for what daemon_configure() has read, and the loop; d owns both from then on. 0, or
 * -errno with a line in *ret_error, owned by the caller. */
int daemon_start(struct daemon *d, char **ret_error);
void daemon_stop(struct daemon *d);

#endif
