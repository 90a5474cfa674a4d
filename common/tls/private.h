/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The files of tls share this. */
#ifndef IBVMIG_COMMON_TLS_PRIVATE_H
#define IBVMIG_COMMON_TLS_PRIVATE_H

#include "common/loop.h"
#include "common/tls/tls.h"

#include <pthread.h>

struct tls {
	struct tls_files files;
	pthread_mutex_t lock;    /* guards keys */
	struct tls_keys *keys;   /* one reference */
	sd_event_source *hangup; /* owned, as the next two */
	sd_event_source *folder[TLS_FILES];
	struct loop_timer *settle;
};

void tls_watch_end(struct tls *t);

#endif
