/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/store/lease.h"
#include "common/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define UUID_TEXT 36
#define TEXT_MAX  32

static bool is_uuid(const char *name)
{
	return strlen(name) == UUID_TEXT && strspn(name, "0123456789abcdefABCDEF-") == UUID_TEXT;
}

static char *file_of(const char *dir, const char *uuid)
{
	return strf("%s/%s", dir, uuid);
}

/* Written in place, in one piece: a reader sees the old or the new deadline, or an empty file. */
int lease_put(const char *dir, const char *uuid, uint64_t deadline_us)
{
	char *path AUTO_FREE = file_of(dir, uuid), text[TEXT_MAX];
	int fd AUTO_CLOSE = -1, n = snprintf(text, sizeof text, "%020" PRIu64 "\n", deadline_us);

	if (!path)
		return -ENOMEM;
	if (mkdir(dir, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	return pwrite(fd, text, (size_t)n, 0) == n ? 0 : -EIO;
}

void lease_drop(const char *dir, const char *uuid)
{
	char *path AUTO_FREE = file_of(dir, uuid);

	if (path)
		unlink(path);
}

static int lock(const char *dir)
{
	int fd AUTO_CLOSE = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) ? -errno : TAKE_FD(fd);
}

int lease_claim(const char *dir)
{
	make_parent_dir(dir);
	return mkdir(dir, 0700) && errno != EEXIST ? -errno : lock(dir);
}

bool lease_is_claimed(const char *dir)
{
	int fd AUTO_CLOSE = lock(dir);

	return fd == -EWOULDBLOCK;
}

/* false: it is just being made, or has just gone. */
static bool read_deadline(const char *dir, const char *uuid, uint64_t *ret_us)
{
	char *path AUTO_FREE = file_of(dir, uuid), *text AUTO_FREE = NULL;
	const char *digits;

	if (!path || read_file(path, TEXT_MAX, &text, NULL) || !*text)
		return false;
	text[strcspn(text, "\n")] = '\0';
	digits = text + strspn(text, "0");
	if (parse_u64(*digits ? digits : "0", 0, UINT64_MAX, ret_us))
		*ret_us = 0; /* nonsense has run out */
	return true;
}

/* Written after now_us was read, it is later than now_us + LEASE_MS. */
static bool is_over(uint64_t deadline_us, uint64_t now_us)
{
	return deadline_us <= now_us || deadline_us > now_us + 2 * LEASE_MS * 1000;
}

bool lease_has_run_out(const char *dir, const char *uuid, uint64_t now_us)
{
	uint64_t deadline_us;

	return read_deadline(dir, uuid, &deadline_us) && is_over(deadline_us, now_us);
}

/* When to look at it again, in us; 0: it is settled. */
static uint64_t look_at(const struct lease_holder *h, const char *uuid, uint64_t now_us)
{
	uint64_t deadline_us;
	int rc;

	if (!read_deadline(h->dir, uuid, &deadline_us))
		return now_us + LEASE_RETRY_MS * 1000;
	if (!is_over(deadline_us, now_us))
		return deadline_us;
	rc = h->cut(h->arg, uuid);
	if (rc)
		return now_us + LEASE_RETRY_MS * 1000;
	lease_drop(h->dir, uuid);
	return 0;
}

int lease_look(const struct lease_holder *h, uint64_t now_us)
{
	DIR *dir = opendir(h->dir);
	uint64_t next_us = UINT64_MAX;
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		uint64_t at_us = is_uuid(e->d_name) ? look_at(h, e->d_name, now_us) : 0;

		if (at_us && at_us < next_us)
			next_us = at_us;
	}
	if (dir)
		closedir(dir);
	return next_us == UINT64_MAX ? -1 : (int)((next_us - now_us) / 1000 + 1);
}
