/* SPDX-License-Identifier: GPL-2.0-or-later */
/* When the files of tls are read again. */
#include "common/log.h"
#include "common/tls/private.h"
#include "common/util.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>

/* A new certificate and its key come one after the other: what lies between fits nothing. */
#define SETTLE_MS 300

static void reload(void *arg)
{
	struct tls *t = arg;
	char *error AUTO_FREE = NULL;
	char until[32] = "";
	struct tm tm;

	if (tls_reload(t, &error)) {
		log_error("TLS: the certificate that was is used on: %s",
			  error ? error : "no memory");
		return;
	}
	if (gmtime_r(&t->keys->not_after, &tm))
		strftime(until, sizeof until, "%Y-%m-%d %H:%M UTC", &tm);
	log_notice("TLS: %s, %s and %s are read again, valid until %s", t->files.file[TLS_CERT],
		   t->files.file[TLS_KEY], t->files.file[TLS_CA], until);
}

static int on_change(sd_event_source *s, const struct inotify_event *event, void *arg)
{
	struct tls *t = arg;

	(void)s;
	(void)event;
	loop_timer_arm(t->settle, SETTLE_MS);
	return 0;
}

static int on_hangup(sd_event_source *s, const struct signalfd_siginfo *info, void *arg)
{
	(void)s;
	(void)info;
	reload(arg);
	return 0;
}

/* The folder, not the file: a file is replaced by another one of its name. */
static int watch_folder(struct tls *t, sd_event *loop, const char *file, sd_event_source **ret)
{
	const char *slash = strrchr(file, '/');
	char *folder AUTO_FREE = strf("%.*s", slash ? (int)(slash - file + 1) : 1,
				      slash ? file : ".");

	return folder ? sd_event_add_inotify(loop, ret, folder,
					     IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE,
					     on_change, t)
		      : -ENOMEM;
}

int tls_watch(struct tls *t, sd_event *loop)
{
	int rc = loop_timer_new(loop, reload, t, &t->settle);

	if (!rc)
		rc = sd_event_add_signal(loop, &t->hangup, SIGHUP, on_hangup, t);
	for (size_t i = 0; rc >= 0 && i < TLS_FILES; i++)
		rc = watch_folder(t, loop, t->files.file[i], &t->folder[i]);
	return rc < 0 ? rc : 0;
}

void tls_watch_end(struct tls *t)
{
	sd_event_source_disable_unref(t->hangup);
	for (size_t i = 0; i < ARRAY_SIZE(t->folder); i++)
		sd_event_source_disable_unref(t->folder[i]);
	loop_timer_free(t->settle);
}
