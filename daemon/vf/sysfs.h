/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attributes below /sys, by printf-like paths relative to its root. Blocks only as long as the
 * kernel does. */
#ifndef IBVMIG_DAEMON_VF_SYSFS_H
#define IBVMIG_DAEMON_VF_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSFS_VALUE_MAX   512
#define SYSFS_NAME_MAX    64
#define SYSFS_ENTRIES_MAX 65536

struct sysfs {
	const char *root; /* "/sys", or a tree of a test */
	/* Tests play the kernel here; NULL: the attribute is written. 0 or -errno. */
	int (*write)(const struct sysfs *s, const char *path, const char *text);
};

/* The attribute's text without white space at its end. 0 or -errno; -EOPNOTSUPP and others are the
 * driver's own. */
int sysfs_read(const struct sysfs *s, char text[static SYSFS_VALUE_MAX], const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A number, also with 0x. 0, -errno, or -EINVAL where it is none. */
int sysfs_read_u64(const struct sysfs *s, uint64_t *ret_value, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* In one write(2), as attributes want it. 0 or -errno of the driver. */
int sysfs_write(const struct sysfs *s, const char *text, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool sysfs_exists(const struct sysfs *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The last part of what a symbolic link leads to: "vfio-pci" of .../driver. 0 or -errno. */
int sysfs_link(const struct sysfs *s, char name[static SYSFS_NAME_MAX], const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The entries of a folder in the order of their names and numbers (ib2 before ib10), at most
 * SYSFS_ENTRIES_MAX. A folder that is not there has none. */
struct sysfs_list {
	char **names; /* owned */
	size_t count;
};

struct sysfs_list sysfs_list(const struct sysfs *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void sysfs_list_free(struct sysfs_list *l);
#define AUTO_LIST __attribute__((cleanup(sysfs_list_free)))

#endif
