/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/backend/look.h"
#include "sm-helper/backend/backend.h"
#include "common/util.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FIRST_MS 5000
#define LOOK_MS  300   /* then what was told before is told again */
#define OLD_MS   60000 /* unless it is older */

struct look {
	const char *path;     /* borrowed */
	pthread_mutex_t lock; /* guards the next three; held while an answer is awaited */
	int fd;               /* -1: not connected */
	uint32_t next_id;
	bool asked; /* the last question is not answered yet */
	pthread_mutex_t seen_lock;
	struct sm_status_reply seen; /* guarded by seen_lock, as the next */
	uint64_t seen_ms;            /* 0: this connection has told nothing yet */
};

int look_connect(const char *path, int *ret_fd, char *error)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd AUTO_CLOSE = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return backend_fail(error, -errno, "socket: %s", strerror(errno));
	if (strlen(path) >= sizeof a.sun_path)
		return backend_fail(error, -ENAMETOOLONG,
				    "plugin-socket \"%s\" is longer than %zu bytes", path,
				    sizeof a.sun_path - 1);
	strcpy(a.sun_path, path);
	if (connect(fd, (struct sockaddr *)&a, sizeof a))
		return backend_fail(
			error, -ECONNREFUSED,
			"no OpenSM plugin at %s (%s): is OpenSM running with event_plugin_name "
			"ibvmigsm and event_plugin_options ibvmig-socket=%s? Its log says why "
			"a plugin is not loaded",
			path, strerror(errno), path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int look_fail(const char *path, int rc, char *error)
{
	return backend_fail(error, rc == -ETIMEDOUT ? rc : -ECONNRESET,
			    rc == -ETIMEDOUT ? "the OpenSM plugin at %s does not answer"
			    : rc == -EPROTO  ? "the OpenSM plugin at %s is of another version"
					     : "the OpenSM plugin at %s has closed the connection",
			    path);
}

struct look *look_new(const char *path)
{
	struct look *l = calloc(1, sizeof *l);

	if (!l)
		return NULL;
	l->path = path;
	l->fd = -1;
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutex_init(&l->seen_lock, NULL);
	return l;
}

void look_free(struct look *l)
{
	if (!l)
		return;
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

/* Gives the last status that was told and is not too old; false: there is none. */
static bool recall(struct look *l, struct sm_status_reply *ret_status, uint64_t *ret_age_ms)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&l->seen_lock);
	uint64_t age = now_ms() - l->seen_ms;

	if (!l->seen_ms || age > OLD_MS)
		return false;
	*ret_status = l->seen;
	*ret_age_ms = age;
	return true;
}

static void remember(struct look *l, const struct sm_status_reply *seen)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&l->seen_lock);

	l->seen_ms = seen ? now_ms() : 0;
	if (seen)
		l->seen = *seen;
}

/* The end of the connection is the end of that OpenSM: nothing of it is told any more. */
static int hang_up(struct look *l, int rc)
{
	close(l->fd);
	l->fd = -1;
	l->asked = false;
	remember(l, NULL);
	return rc;
}

/* The answer that is outstanding. 0, -ETIMEDOUT: it still is; -ECONNRESET, -EPROTO. */
static int hear(struct look *l, uint64_t until_ms, struct sm_status_reply *r)
{
	struct pollfd p = {.fd = l->fd, .events = POLLIN};
	uint64_t now = now_ms();
	ssize_t n;

	if (poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0) <= 0)
		return -ETIMEDOUT;
	memset(r, 0, sizeof *r);
	n = recv(l->fd, r, sizeof *r, MSG_TRUNC);
	if (n <= 0)
		return hang_up(l, -ECONNRESET);
	if (n != sizeof *r || r->h.error || r->h.head.magic != SM_PROTO_MAGIC ||
	    r->h.head.version != SM_PROTO_VERSION || r->h.head.id != l->next_id)
		return hang_up(l, -EPROTO);
	l->asked = false;
	remember(l, r);
	return 0;
}

/* Asks one question, after the answer to the one before. */
static int ask(struct look *l, uint64_t until_ms, struct sm_status_reply *r, char *error)
{
	struct sm_status_request req;
	int rc = l->fd < 0 ? look_connect(l->path, &l->fd, error) : 0;

	if (!rc && l->asked)
		rc = hear(l, until_ms, r);
	if (rc)
		return rc;
	req.head = (struct sm_head){SM_PROTO_MAGIC, SM_PROTO_VERSION, SM_OP_STATUS, ++l->next_id,
				    sizeof req};
	if (send(l->fd, &req, sizeof req, MSG_NOSIGNAL) != sizeof req)
		return hang_up(l, -ECONNRESET);
	l->asked = true;
	return hear(l, until_ms, r);
}

int look_status(struct look *l, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		char *error)
{
	uint64_t until_ms;
	int rc = -ETIMEDOUT;

	if (pthread_mutex_trylock(&l->lock)) { /* somebody asks already */
		if (recall(l, ret_status, ret_age_ms))
			return 0;
		pthread_mutex_lock(&l->lock);
	}
	pthread_mutex_t *m AUTO_UNLOCK = &l->lock;
	until_ms = now_ms() + (recall(l, ret_status, ret_age_ms) ? LOOK_MS : FIRST_MS);
	for (int tries = 0; tries < 2; tries++) {
		*error = '\0';
		rc = ask(l, until_ms, ret_status, error);
		if (rc != -ECONNRESET) /* OpenSM was restarted */
			break;
	}
	*ret_age_ms = 0;
	if (!rc || (rc == -ETIMEDOUT && recall(l, ret_status, ret_age_ms)))
		return 0;
	memset(ret_status, 0, sizeof *ret_status);
	return *error ? rc : look_fail(l->path, rc, error);
}
