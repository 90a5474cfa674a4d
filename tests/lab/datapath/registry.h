/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The LIDs that senders use for vGUIDs: what path records say. They come from ibvmig-sm, asked by a
 * thread of its own, since a call may block. */
#ifndef IBVMIG_LAB_REGISTRY_H
#define IBVMIG_LAB_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#define REGISTRY_MAX 256

struct registry_entry {
	uint64_t vguid;
	unsigned lid;
};

/* url: borrowed for the life of the process. 0 or -errno. */
int registry_start(const char *url);

/* Asks again soon, not only once a second. */
void registry_hurry(void);

/* Copies what ibvmig-sm said last. The number of entries, or -1 when it did not answer.
 * *ret_version differs where the answer does. */
int registry_read(struct registry_entry entries[static REGISTRY_MAX], uint64_t *ret_version);

#endif
