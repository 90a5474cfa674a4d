/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibsim's console: a FIFO for commands; what it prints goes to a file. */
#ifndef IBVMIG_LAB_CONSOLE_H
#define IBVMIG_LAB_CONSOLE_H

#include <stddef.h>

/* Sends one line and waits until ibsim has carried it out. 0, -ENXIO (ibsim does not run),
 * -ETIMEDOUT, or -errno. */
int console_command(const char *fifo, const char *output, const char *line, unsigned deadline_ms);

#endif
