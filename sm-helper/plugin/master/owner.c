/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/master/owner.h"
#include "sm-helper/plugin/master/master.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include <opensm/osm_log.h>

#define FILE_NAME "ibvmig-owner"

struct owner_file {
	uint64_t check;
	struct sm_owner owner;
};

int owner_open(struct plugin *p)
{
	char *path AUTO_FREE = master_cache_path(FILE_NAME);
	struct owner_file f = {0};
	int fd AUTO_CLOSE = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (!path)
		return -ENOMEM;
	if (fd < 0)
		return 0;
	if (read(fd, &f, sizeof f) != sizeof f || f.check != checksum64(&f.owner, sizeof f.owner) ||
	    !memchr(f.owner.name, 0, sizeof f.owner.name)) {
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: %s is damaged: any registry may claim this subnet\n", path);
		return 0;
	}
	p->owner = f.owner;
	return 0;
}

/* A rename is on the disk when its directory is. EINVAL: this filesystem has no such thing. */
static int sync_directory(void)
{
	char *path AUTO_FREE = master_cache_path("");
	int fd AUTO_CLOSE = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	return fd < 0 || (fsync(fd) && errno != EINVAL) ? -errno : 0;
}

/* Leaves the file whole and on the disk, or as it was. */
static int store(const struct sm_owner *owner)
{
	char *path AUTO_FREE = master_cache_path(FILE_NAME);
	char *new AUTO_FREE = master_cache_path(FILE_NAME ".new");
	struct owner_file f = {checksum64(owner, sizeof *owner), *owner};
	int fd AUTO_CLOSE = -1;

	if (!path || !new)
		return -ENOMEM;
	if ((fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) < 0)
		return -errno;
	errno = 0;
	if (write(fd, &f, sizeof f) != sizeof f || fsync(fd) || rename(new, path))
		return errno ? -errno : -EIO;
	return sync_directory();
}

static int refuse(const struct plugin *p, struct sm_reply_head *h)
{
	if (!p->owner.registry)
		return plugin_refuse(h, -EKEYREJECTED, "no registry has claimed this subnet");
	return plugin_refuse(h, -EKEYREJECTED,
			     "registry %016" PRIx64 " (%s) has this subnet, by "
			     "grant %" PRIu64,
			     p->owner.registry, p->owner.name, p->owner.epoch);
}

/* True for a claim of who has the subnet, or where nobody else has it. */
static bool may_have(const struct plugin *p, const struct sm_owner_request *req)
{
	const struct sm_owner *has = &p->owner;

	return !has->registry || req->flags & SM_OWNER_TAKE ||
	       (has->registry == req->owner.registry && has->grant == req->was);
}

/* A new grant. Its number is above all that either side has seen. */
static int give(struct plugin *p, const struct sm_owner *want, struct sm_reply_head *h)
{
	struct sm_owner now = *want;
	int rc;

	now.epoch = 1 + (want->epoch > p->owner.epoch ? want->epoch : p->owner.epoch);
	now.since_ms = wall_ms();
	if ((rc = store(&now)))
		return plugin_refuse(h, rc, "OpenSM's cache directory cannot be written: %s",
				     strerror(-rc));
	osm_log(&p->osm->log, OSM_LOG_SYS,
		"ibvmig: registry %016" PRIx64 " (%s) has this subnet, by grant %" PRIu64 "\n",
		now.registry, now.name, now.epoch);
	p->owner = now;
	return 0;
}

int plugin_owner(struct plugin *p, int client, const struct sm_owner_request *req,
		 struct sm_owner_reply *r)
{
	bool has = p->owner.registry == req->owner.registry && p->owner.grant == req->owner.grant;
	int rc = 0;

	if (!has && !may_have(p, req))
		return refuse(p, &r->h);
	if (!has && (rc = give(p, &req->owner, &r->h)))
		return rc;
	p->grant[client] = p->owner.grant;
	r->owner = p->owner;
	return sizeof *r;
}

int owner_check(const struct plugin *p, int client, struct sm_reply_head *h)
{
	return p->owner.registry && p->grant[client] == p->owner.grant ? 0 : refuse(p, h);
}
