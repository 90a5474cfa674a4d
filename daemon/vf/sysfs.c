/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/sysfs.h"
#include "common/util.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

/* root, '/', and the path of the format in full[PATH_MAX]; a path that does not fit names nothing.
 */
#define FULL_PATH(s, full, fmt)                                                                    \
	do {                                                                                       \
		va_list ap_;                                                                       \
                                                                                                   \
		va_start(ap_, fmt);                                                                \
		full_path(s, full, fmt, ap_);                                                      \
		va_end(ap_);                                                                       \
	} while (0)

static void full_path(const struct sysfs *s, char full[PATH_MAX], const char *fmt, va_list ap)
{
	int n = snprintf(full, PATH_MAX, "%s/", s->root), m;

	m = n < PATH_MAX ? vsnprintf(full + n, PATH_MAX - (size_t)n, fmt, ap) : PATH_MAX;
	if (n + m >= PATH_MAX)
		full[0] = '\0';
}

static int read_value(const char *path, char text[static SYSFS_VALUE_MAX])
{
	int fd AUTO_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, SYSFS_VALUE_MAX - 1);

	if (n < 0)
		return -errno;
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	text[n] = '\0';
	return 0;
}

int sysfs_read(const struct sysfs *s, char text[static SYSFS_VALUE_MAX], const char *fmt, ...)
{
	char path[PATH_MAX], value[SYSFS_VALUE_MAX];
	int rc;

	FULL_PATH(s, path, fmt);
	rc = read_value(path, value);
	if (!rc)
		strcpy(text, value);
	return rc;
}

int sysfs_read_u64(const struct sysfs *s, uint64_t *ret_value, const char *fmt, ...)
{
	char path[PATH_MAX], value[SYSFS_VALUE_MAX];
	int rc;

	FULL_PATH(s, path, fmt);
	rc = read_value(path, value);
	return rc ? rc : parse_u64(value, 0, UINT64_MAX, ret_value);
}

int sysfs_write(const struct sysfs *s, const char *text, const char *fmt, ...)
{
	char path[PATH_MAX];
	int fd AUTO_CLOSE = -1;

	FULL_PATH(s, path, fmt);
	if (s->write)
		return s->write(s, path + strlen(s->root) + 1, text);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

bool sysfs_exists(const struct sysfs *s, const char *fmt, ...)
{
	char path[PATH_MAX];

	FULL_PATH(s, path, fmt);
	return !access(path, F_OK);
}

int sysfs_link(const struct sysfs *s, char name[static SYSFS_NAME_MAX], const char *fmt, ...)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *last;
	ssize_t n;

	FULL_PATH(s, path, fmt);
	n = readlink(path, target, sizeof target - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	last = strrchr(target, '/');
	last = last ? last + 1 : target;
	if (strlen(last) >= SYSFS_NAME_MAX)
		return -ENAMETOOLONG;
	strcpy(name, last);
	return 0;
}

static int by_version(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* 0, or -ENOMEM */
static int append(struct sysfs_list *l, size_t *room, const char *name)
{
	if (l->count == *room) {
		size_t more = *room ? *room * 2 : 64;
		char **grown = realloc(l->names, more * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		l->names = grown;
		*room = more;
	}
	l->names[l->count] = strdup(name);
	if (!l->names[l->count])
		return -ENOMEM;
	l->count++;
	return 0;
}

struct sysfs_list sysfs_list(const struct sysfs *s, const char *fmt, ...)
{
	struct sysfs_list l = {0};
	char path[PATH_MAX];
	struct dirent *e;
	size_t room = 0;
	DIR *dir;

	FULL_PATH(s, path, fmt);
	dir = opendir(path);
	if (!dir)
		return l;
	while (l.count < SYSFS_ENTRIES_MAX && (e = readdir(dir)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < SYSFS_NAME_MAX &&
		    append(&l, &room, e->d_name))
			break;
	closedir(dir);
	if (l.count)
		qsort(l.names, l.count, sizeof *l.names, by_version);
	return l;
}

void sysfs_list_free(struct sysfs_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->names[i]);
	free(l->names);
	*l = (struct sysfs_list){0};
}
